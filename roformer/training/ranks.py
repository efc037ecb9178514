"""The rank of a process, known before any process group exists."""

from __future__ import annotations

import os

from roformer.errors import InputError


def first_process() -> bool:
    """Return whether this is rank 0."""
    return os.environ.get("RANK", "0") == "0"


def process_count() -> int:
    """Return how many processes the run has."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def say(line: str) -> None:
    """Print a line once, whatever the number of processes."""
    if first_process():
        print(line, flush=True)


def check_share(count: int, what: str) -> None:
    """Raise InputError where a step has fewer samples, named by `what`, than there are processes."""
    if count < (processes := process_count()):
        raise InputError(
            f"{what} less than the {processes} processes: raise training.batch_size or start fewer"
        )
