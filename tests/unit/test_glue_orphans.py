"""Processes of a grid whose parent was killed do not stay behind."""

import multiprocessing
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection

import pytest

from roformer.pipelines import glue

pytestmark = pytest.mark.slow
SPAWN = multiprocessing.get_context("spawn")


def settle(places, stopping, line: Connection) -> None:
    """Settle as a process of a grid does, where a cell is one that SIGTERM reaches too late.

    `line` closes with the process.
    """

    def past_its_last_update(cell: str) -> dict:
        received = []
        before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
        line.send(cell)
        while not received:
            time.sleep(0.01)
        signal.signal(signal.SIGTERM, before)
        return {}

    glue.settle(places, stopping)
    glue.attempt = past_its_last_update


def grid(line: Connection) -> None:
    places, stopping = SPAWN.Queue(), SPAWN.Event()
    places.put(0)
    pool = ProcessPoolExecutor(1, SPAWN, initializer=settle, initargs=(places, stopping, line))
    for cell in ("first", "second"):
        pool.submit(glue.in_silence, cell)
    time.sleep(300)


def test_a_cell_that_ends_after_its_parent_takes_no_other_one_and_waits_for_none():
    line, end = SPAWN.Pipe(duplex=False)
    parent = SPAWN.Process(target=grid, args=(end,))
    parent.start()
    end.close()
    assert line.poll(120) and line.recv() == "first"
    parent.kill()
    parent.join()
    assert line.poll(30)
    with pytest.raises(EOFError):
        line.recv()
