"""Commands side by side, as studies and `make reproduce` start their runs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

POLL = 0.2
"""Seconds between looks at what runs."""
TAIL = 1 << 14
"""Bytes of a log in which its last lines are looked for."""


class Command(NamedTuple):
    """What to start."""

    title: str
    words: tuple[str, ...]
    log: Path | None = None
    """Takes what it prints; None: the terminal."""

    def last_lines(self, count: int) -> list[str]:
        """Return so many of the last lines of the log that are not empty, while it is being written."""
        if self.log is None:
            return []
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").split("\n")
        return [line for line in lines if line.strip()][-count:]


class Running(NamedTuple):
    """What was started."""

    command: Command
    process: subprocess.Popen[bytes]
    began: float
    """By time.monotonic."""

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.began


def run_commands(
    commands: Sequence[Command],
    jobs: int,
    folder: Path,
    *,
    started: Callable[[Command], None] = lambda command: None,
    look: Callable[[list[Running]], None] = lambda running: None,
    ended: Callable[[Running], None],
) -> None:
    """Run commands in their order, `jobs` of them at a time.

    Whatever ends it early, an interrupt or what `ended` raises of a failure, first tells those that run
    to stop (SIGTERM, so that trainings save) and waits for them.

    Args:
        commands: what to start.
        jobs: how many run side by side, at least 1.
        folder: where they run.
        started: told of each command as it starts.
        look: told of all that run, each POLL seconds.
        ended: told of each that has ended; its process has the code.
    """
    waiting, running = list(commands), list[Running]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                started(waiting[0])
                running.append(_start(waiting.pop(0), folder))
            time.sleep(POLL)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                ended(one)
            look(running)
    except BaseException:
        for one in running:  # Ctrl-C has reached them by itself
            one.process.terminate()
        for one in running:
            one.process.wait()
        raise


def _start(command: Command, folder: Path) -> Running:
    began = time.monotonic()
    if command.log is None:
        return Running(command, subprocess.Popen(command.words, cwd=folder), began)
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("w") as file:
        process = subprocess.Popen(command.words, cwd=folder, stdout=file, stderr=file)
    return Running(command, process, began)
