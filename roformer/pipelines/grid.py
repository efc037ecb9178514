"""Run jobs side by side, each in a process of its own: cells of a grid, runs of a study, stages of the paper.

A job that fails takes no other with it; the caller names it at the end. On Ctrl-C or an error no further
job starts, and the running ones get SIGTERM, on which a training saves a checkpoint.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

from tqdm import tqdm

from roformer.errors import InputError, one_line_errors

POLL = 0.1
"""Seconds between looks at what runs."""
TAIL = 1 << 14
"""Bytes of a log in which its last lines are looked for."""
MOST_LINES = 8
"""Running jobs that a terminal shows."""


class Process(Protocol):
    """What a job runs in."""

    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def wait(self) -> Any: ...


class Job(NamedTuple):
    """Something to run."""

    title: str
    start: Callable[[int], Process]
    """Start it in one of the places that jobs run in, counted from 0."""
    log: Path | None = None
    """The file with what it prints."""

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of the log that are not empty, also while it is being written."""
        if self.log is None:
            return []
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
        return [line.strip() for line in lines if line.strip()][-count:]


class Ended(NamedTuple):
    """A job that has ended."""

    job: Job
    code: int
    """0: it succeeded; minus a signal: this killed it."""
    seconds: float
    number: int
    """How many have ended so far."""
    left: float
    """Expected seconds until the last one ends."""


@dataclass
class _Running:
    job: Job
    process: Process
    began: float

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def run_jobs(
    jobs: Sequence[Job],
    places: int,
    ended: Callable[[Ended], None],
    *,
    started: Callable[[Job], None] = lambda job: None,
    progress: bool = False,
) -> None:
    """Run jobs in their order, up to `places` of them side by side.

    Args:
        jobs: what to run.
        places: at least 1.
        ended: called with each job that has ended; what it raises stops all others.
        started: called with each job before it starts.
        progress: whether a terminal shows a bar over all jobs and a line for each that runs.
    """
    waiting, running = deque(jobs), dict[int, _Running]()
    began, number = time.monotonic(), 0
    screen = _Screen(len(jobs), min(places, len(jobs)), progress)
    try:
        while waiting or running:
            for place in range(places):
                if waiting and place not in running:
                    started(job := waiting.popleft())
                    at = time.monotonic()
                    running[place] = _Running(job, job.start(place), at)
            codes = {place: one.process.poll() for place, one in running.items()}
            for place, code in codes.items():
                if code is not None:
                    one, number = running.pop(place), number + 1
                    screen.bar.update()
                    left = (time.monotonic() - began) * (len(jobs) - number) / number
                    ended(Ended(one.job, code, one.seconds, number, left))
            screen.show(running)
            if running and None in codes.values():
                time.sleep(POLL)
    except BaseException:
        for one in running.values():
            one.process.terminate()
        for one in running.values():
            one.process.wait()
        raise
    finally:
        screen.close()


def clock(seconds: float) -> str:
    """Return a time as `m:ss`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def tell(line: str, file: TextIO | None = None) -> None:
    """Print a line above the bars."""
    tqdm.write(line, file)
    (file or sys.stdout).flush()


class _Screen:
    """A bar over all jobs, and a line for each of those that run."""

    def __init__(self, total: int, places: int, progress: bool):
        off = not (progress and sys.stderr.isatty())
        self.bar = tqdm(total=total, unit="run", dynamic_ncols=True, disable=off)
        self.lines = [
            tqdm(bar_format="{desc}", dynamic_ncols=True, position=1 + n, leave=False, disable=off)
            for n in range(min(places, MOST_LINES))
        ]

    def show(self, running: Mapping[int, _Running]) -> None:
        for place, line in enumerate(self.lines):
            text = ""
            if one := running.get(place):
                last = " ".join(one.job.last_lines(1))
                text = f"{one.job.title} … {clock(one.seconds)}  {last}"
            line.set_description_str(text)

    def close(self) -> None:
        for bar in (*self.lines, self.bar):
            bar.close()


# --- what a job runs in --------------------------------------------------------------------------


def command(title: str, words: Sequence[str], folder: Path, log: Path | None = None) -> Job:
    """Return the job that runs a command in a folder; it prints into the log, or to the terminal."""

    def start(place: int) -> Process:
        if log is None:
            return subprocess.Popen(words, cwd=folder)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            return subprocess.Popen(words, cwd=folder, stdout=file, stderr=file)

    return Job(title, start, log)


class Here:
    """A function that ran in this process; with `go_on` a mistake in its input is told and no more."""

    def __init__(self, function: Callable[..., object], *arguments: Any, go_on: bool = False):
        self.code = 0
        try:
            function(*arguments)
        except InputError as error:
            if not go_on:
                raise
            tell(f"error: {error}", sys.stderr)
            self.code = 2

    def poll(self) -> int:
        return self.code

    def terminate(self) -> None: ...
    def wait(self) -> None: ...


class Worker(multiprocessing.get_context("forkserver").Process):  # type: ignore[misc]  # no stub
    """A function in a process of its own, with a GPU of its own where there are several.

    Workers are forked from a server that has imported what this process has, and computed nothing: a forked
    CUDA or thread pool is not usable.
    """

    def __init__(self, place: int, function: Callable[..., object], *arguments: Any):
        super().__init__(target=_work, args=(place, function, arguments))
        self.start()

    @staticmethod
    def start_server() -> None:
        """Start the server; Ctrl-C, which a terminal sends to all processes, reaches no worker."""
        imported = [name for name in sys.modules if name.partition(".")[0] == "roformer"]
        forkserver.set_forkserver_preload(imported)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        forkserver.ensure_running()
        signal.signal(signal.SIGINT, before)

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> None:
        self.join()


def _work(place: int, function: Callable[..., object], arguments: Sequence[Any]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the parent sends SIGTERM
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    if (count := torch.cuda.device_count()) > 1:  # CUDA is not in use yet, so the choice counts
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        devices = visible.split(",") if visible else [str(device) for device in range(count)]
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[place % count]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), one_line_errors():
        function(*arguments)


def _end_with_parent() -> None:
    """Wait until the parent is gone; then end this process, which saves a checkpoint if it trains."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
