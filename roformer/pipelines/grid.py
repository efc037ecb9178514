"""Run jobs in parallel, each in a separate process: cells of a grid, runs of a study, stages of the paper.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any

from tqdm import tqdm

from roformer.errors import one_line_errors

POLL = 0.1
"""Seconds between looks at what runs."""
TAIL = 1 << 14
"""Bytes of a log in which its last lines are looked for."""
MOST_LINES = 8
"""Running jobs that a terminal shows."""


class Worker(multiprocessing.get_context("forkserver").Process):  # type: ignore[misc]  # no stub
    """A function in a separate process, with a separate GPU if there are several.

    Workers are forked from a server that has imported what this process has, and computed nothing: a forked
    CUDA or thread pool is not usable.
    """

    def __init__(self, place: int, function: Callable[..., object], *arguments: Any):
        super().__init__(target=_work, args=(place, function, arguments))
        self.start()

    @staticmethod
    def start_server(later: Sequence[str] = ()) -> None:
        """Start the server, which imports modules that workers need `later`, once for all of them.

        Ctrl-C, which a terminal sends to all processes, reaches no worker.
        """
        imported = [name for name in sys.modules if name.partition(".")[0] == "roformer"]
        forkserver.set_forkserver_preload([*imported, *later])
        resource_tracker.ensure_running()  # which would unblock the signal below
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the server inherits it
        forkserver.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a Ctrl-C that came meanwhile arrives

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> None:
        self.join()


Process = Worker | subprocess.Popen[bytes]


@dataclass(eq=False)
class Job:
    """Something to run."""

    title: str
    start: Callable[[int], Process]
    """Start it in one of the places that jobs run in, counted from 0."""
    log: Path | None = None
    """The file with what it prints."""
    began: float = 0.0
    code: int | None = None
    """0: it succeeded; minus a signal: this killed it; None: it has not ended."""

    @property
    def seconds(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.began

    def __str__(self) -> str:
        last = " ".join(self.last_lines(1)).strip()
        return f"{self.title} … {clock(self.seconds)}  {last}"

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of the log that are not empty, also while it is being written."""
        if self.log is None:
            return []
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
        return [line for line in lines if line.strip()][-count:]


def command(
    title: str, words: Sequence[str], folder: Path, log: Path | None = None, *, parallel: int = 1
) -> Job:
    """Return the job that runs a command in a folder; it prints into the log, or to the terminal.

    Each of several jobs in `parallel` gets one GPU if there are several; a single job has all.
    """

    def start(place: int) -> subprocess.Popen[bytes]:
        environment = os.environ | (_gpu_of(place) if parallel > 1 else {})
        if log is None:
            return subprocess.Popen(words, cwd=folder, env=environment)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            return subprocess.Popen(words, cwd=folder, env=environment, stdout=file, stderr=file)

    return Job(title, start, log)


def run_jobs(
    jobs: Sequence[Job],
    places: int,
    ended: Callable[[Job], None],
    *,
    progress: bool = False,
) -> None:
    """Run jobs in their order, up to `places` of them side by side.

    `ended` is called with each job that has ended; what it raises stops all others. With `progress` a
    terminal shows a bar over all jobs and a line for each that runs.
    """
    off = not (progress and sys.stderr.isatty())
    total = tqdm(total=len(jobs), unit="run", dynamic_ncols=True, leave=False, disable=off)
    lines = [
        tqdm(bar_format="{desc}", dynamic_ncols=True, position=1 + n, leave=False, disable=off)
        for n in range(min(places, len(jobs), MOST_LINES))
    ]
    waiting, running = list(jobs), dict[int, tuple[Job, Process]]()
    try:
        while waiting or running:
            for place in range(places):
                if waiting and place not in running:
                    job = waiting.pop(0)
                    job.began = time.monotonic()
                    with _signals_wait():  # until the process is known, and so can be stopped
                        running[place] = job, job.start(place)
            time.sleep(POLL)
            for place, (job, process) in list(running.items()):
                if (code := process.poll()) is not None:
                    del running[place]
                    job.code = code
                    total.update()
                    ended(job)
            for place, line in enumerate(lines if not off else ()):
                line.set_description_str(str(running[place][0]) if place in running else "")
    except BaseException:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.wait()
        raise
    finally:
        for bar in (*lines, total):
            bar.close()


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Handle SIGTERM and Ctrl-C that come meanwhile only at the end."""
    came: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    handlers = [signal.signal(number, lambda n, frame: came.append(n)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
        for arrived in came:
            signal.raise_signal(arrived)


def clock(seconds: float) -> str:
    """Return a time as `m:ss`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _work(place: int, function: Callable[..., object], arguments: Sequence[Any]) -> None:
    # The server may have been started unmasked. Ignoring it is not enough: a training handles it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ |= _gpu_of(place)  # CUDA is not in use yet, so the choice counts
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        one_line_errors(),
    ):
        function(*arguments)


def _gpu_of(place: int) -> dict[str, str]:
    """Return the variable that gives a place its GPU; none where there are not several."""
    import torch

    if (count := torch.cuda.device_count()) < 2:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    devices = visible.split(",") if visible else [str(device) for device in range(count)]
    return {"CUDA_VISIBLE_DEVICES": devices[place % count]}


def _end_with_parent() -> None:
    """Wait until the parent is gone; then end this process, which saves a checkpoint if it trains."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
