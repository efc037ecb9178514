"""Progress of a preparation: bars with an ETA on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

EVERY = 30.0
"""Seconds between lines in a log."""


@contextmanager
def stage(
    what: str, unit: str, total: int | None, progress: bool, subject: str = "text"
) -> Iterator[Callable[[int], object]]:
    """Show one stage of the work on `subject`; yields the function to call with each bit done."""
    if progress and sys.stderr.isatty():
        with tqdm(desc=f"{subject}: {what}", unit=unit, total=total, unit_scale=unit == "B") as bar:
            yield bar.update
        return
    started = told = time.monotonic()
    done = 0

    def advance(more: int) -> None:
        nonlocal done, told
        done += more
        if progress and (now := time.monotonic()) - told >= EVERY:
            told = now
            left = f", {(now - started) * (total / done - 1):.0f} s left" if total and done else ""
            print(f"{subject}: {what}: {done:,} {unit}{left}", file=sys.stderr, flush=True)

    yield advance
    if progress:
        seconds = time.monotonic() - started
        print(f"{subject}: {what}: {done:,} {unit} in {seconds:.1f} s", file=sys.stderr, flush=True)
