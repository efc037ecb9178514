"""The progress of work on data: one live line on a terminal, plain lines in a pipe."""

import os

import pytest

from roformer.data import work
from roformer.data.work import worker_pool
from roformer.errors import InputError
from tests.terminal import terminal


def draw(rows=3):
    with work.progress_bar("reading", "rows", rows, True, "sst2") as bar:
        for _ in range(rows):
            bar.update()


def test_a_terminal_shows_a_stage_while_it_lasts(monkeypatch):
    """Catches a bar that stays, and one that begins a new line."""
    with terminal(monkeypatch) as shown:
        draw()
    assert shown().startswith("\rsst2: reading:   0%|") and "\n" not in shown()
    assert shown().endswith("\r") and not shown().split("\r")[-2].strip()


def test_a_pipe_gets_plain_lines_of_what_takes_long(monkeypatch, capsys):
    """Catches carriage returns, and a line for each stage that is over at once."""
    draw()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(work, "EVERY", 1e-9)
    draw()
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(line.isprintable() for line in lines)
    assert lines[-1].startswith("sst2: reading: 100% 3/3 [")


def test_a_worker_that_ends_early_is_one_line():
    with (
        pytest.raises(InputError, match=r"^a worker process ended: memory ran out, or the script"),
        worker_pool(1) as pool,
    ):
        pool.submit(os._exit, 1).result()
