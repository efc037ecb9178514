"""Settings of the process that make CPU training faster without changing any result.

Applied by the entry points; `runtime.tune_process=false` leaves the process alone.

* Threads: as many as the cores that this process may use, shared among the processes of a machine.
* Allocator: glibc returns every block above 32 MB to the system when it is freed, and each new one
  costs a page fault every 4 KiB. Kept in the process, large tensors come back warm (experiments/speed).
* Memory: where lengths vary, kept blocks leave holes that no later tensor fits. They go back to the
  system when the process holds well more than a step needs (`KeptMemory`).
* oneDNN: it keeps a primitive for every shape of a product, by default 1,024 of them, between the
  freed blocks. Fewer are kept.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

import torch

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
"""Parameter numbers of mallopt(3)."""
PRIMITIVES = 32
"""Primitives that oneDNN keeps."""
SLACK = 1.5
"""Memory held over what a step needs, above which it is given back."""


def tune_process(*, threads: int | None = None) -> dict[str, int | bool]:
    """Set threads, allocator and oneDNN's cache; return what was done, for the run's record.

    oneDNN reads its variable at its first product: those that came before are not affected.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(PRIMITIVES))
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


class KeptMemory:
    """Memory of freed blocks, given back to the system when it is well above what a step needs.

    A step's need is what the process holds after the first step since memory was last given back,
    the largest seen so far: before that step nothing was kept.

    Args:
        limited: whether to give back at all; without glibc nothing is.
    """

    def __init__(self, *, limited: bool) -> None:
        library = ctypes.CDLL(None) if limited and sys.platform == "linux" else None
        self._trim = getattr(library, "malloc_trim", None)
        self._needed = 0
        self._given_back = True

    def give_back(self) -> None:
        """Return the memory of all freed blocks to the system."""
        if self._trim is not None:
            self._trim(0)
            self._given_back = True

    def after_update(self) -> None:
        """Give back if more than `SLACK` times what a step needs is held."""
        if self._trim is None:
            return
        held = anonymous_memory()
        if self._given_back:
            self._needed, self._given_back = max(self._needed, held), False
        elif held > SLACK * self._needed:
            self.give_back()


def anonymous_memory() -> int:
    """Return the bytes of this process in RAM that are no file's (Linux)."""
    with open("/proc/self/statm") as file:
        _, resident, files = file.read().split()[:3]
    return (int(resident) - int(files)) * resource.getpagesize()


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
