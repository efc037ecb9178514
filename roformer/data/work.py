"""Work on many rows: batches, ordered maps over worker pools, progress bars."""

from __future__ import annotations

import io
import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from tqdm import tqdm

from roformer.errors import InputError

EVERY = 10.0
"""Seconds between the lines of a log; work that ends before has no line."""

UNGUARDED = (
    "the script is imported by each worker and starts its work there again: put that work under "
    '`if __name__ == "__main__":`'
)

Row = TypeVar("Row")
Result = TypeVar("Result")


def batches(
    rows: Iterable[Row], size: int, weight: Callable[[Row], int] = lambda row: 1
) -> Iterator[list[Row]]:
    """Yield rows in lists, each full as soon as its weights reach `size`."""
    batch: list[Row] = []
    full = 0
    for row in rows:
        batch.append(row)
        full += weight(row)
        if full >= size:
            yield batch
            batch, full = [], 0
    if batch:
        yield batch


@contextmanager
def worker_pool(workers: int, **options: Any) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of processes; a process that ends early is an InputError."""
    # Not forked from here: this process may have started threads (torch, tqdm, a GPU's runtime).
    methods = multiprocessing.get_all_start_methods()
    start = "forkserver" if "forkserver" in methods else "spawn"  # on Windows
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(start), **options)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise InputError(f"a worker process ended: memory ran out, or {UNGUARDED}") from error
    finally:
        pool.shutdown(cancel_futures=True)


def imap_ordered(
    pool: Executor, work: Callable[[Row], Result], rows: Iterable[Row], ahead: int
) -> Iterator[Result]:
    """Map `work` over rows in a pool and keep their order; at most `ahead` rows are in the pool."""
    remaining = iter(rows)
    waiting = deque(pool.submit(work, row) for row in islice(remaining, ahead))
    while waiting:
        yield waiting.popleft().result()
        waiting.extend(pool.submit(work, row) for row in islice(remaining, 1))


def progress_bar(
    what: str, unit: str, total: int | None, progress: bool, subject: str = "text"
) -> Any:
    """Return a progress bar for a `with` statement; without a terminal it is a plain line now and then."""
    options: dict[str, Any] = {"dynamic_ncols": True, "leave": False}
    if not sys.stderr.isatty():
        options = {"file": _Lines(), "ncols": 0, "mininterval": EVERY, "delay": EVERY}
    return tqdm(
        desc=f"{subject}: {what}",
        unit=f" {unit}",
        total=total,
        unit_scale=unit == "B",
        disable=not progress,
        **options,
    )


class _Lines(io.TextIOBase):
    """Lines of tqdm on stderr, each count once, without the characters that move a terminal's cursor."""

    shown = ""

    def write(self, text: str) -> int:
        count = text.strip().partition(" [")[0]
        if count not in ("", self.shown):  # a bar that closes shows its last count again
            print(text.strip(), file=sys.stderr, flush=True)
            self.shown = count
        return len(text)


def print_skipped(subject: str, account: Mapping[str, Any]) -> None:
    """Print which rows and files a source skipped, also where no progress is shown."""
    if count := account["rows_skipped"]:
        first = f" (the first: {account['first_skipped']})" if account["first_skipped"] else ""
        print(f"{subject}: {count:,} bad rows skipped{first}", file=sys.stderr)
    if names := account.get("other_files"):
        listed = ", ".join(names[:10]) + (" …" if names[10:] else "")
        print(f"{subject}: {len(names):,} files of other kinds skipped: {listed}", file=sys.stderr)
