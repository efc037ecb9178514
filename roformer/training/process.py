"""Settings of the process that make CPU training faster without changing any result.

Applied by the entry points; `runtime.tune_process=false` leaves the process as it was.

* Threads: as many as the cores that this process may use, shared among the processes of a machine.
  (Launchers start each process with one thread.)
* Allocator: glibc returns every block above 32 MB to the system when it is freed, and each new one
  costs a page fault every 4 KiB. Kept in the process instead, large tensors come back warm, for more
  resident memory. What it brought `transformers`' own model: experiments/speed.
"""

from __future__ import annotations

import ctypes
import os
import sys

import torch

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
"""Parameter numbers of mallopt(3)."""


def tune_process(*, threads: int | None = None) -> dict[str, int | bool]:
    """Set thread count and allocator thresholds; return what was done, for the run's record."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    threads = threads or max(1, len(usable_cores()) // processes)
    torch.set_num_threads(threads)
    return {"threads": threads, "allocator": keep_large_blocks()}


def usable_cores() -> list[int]:
    """Return the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def keep_large_blocks() -> bool:
    """Let glibc keep freed blocks of any size; return whether it agreed (elsewhere: no)."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 64 << 20}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def give_back_memory() -> None:
    """Return the memory of freed blocks to the system; glibc alone is asked to.

    Where lengths vary, kept blocks leave holes that no later tensor fits, and they add up.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def leave_process_group() -> None:
    """End the communication between processes, at the end of the script; alone there is none."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def tells_of_a_lost_peer(error: RuntimeError) -> bool:
    """Tell whether an exchange between processes failed because one of them is gone.

    NCCL and the store raise types of their own; gloo's errors are known by their text only.
    """
    if isinstance(error, torch.distributed.DistError):
        return True
    return any(words in str(error) for words in ("gloo", "by peer", "Broken pipe"))
