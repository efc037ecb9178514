"""Settings of the process that make training faster without changing any result.

Applied by the entry points; `runtime.tune_process=false` leaves the process unchanged.

* Threads: as many as the cores that this process may use, shared among the processes of a machine.
* Allocator: glibc returns every block above 32 MB to the system when it is freed, and each new one
  costs a page fault every 4 KiB. Kept in the process, large tensors come back warm (experiments/speed).
* Memory: where lengths vary, kept blocks leave holes that no later tensor fits. They go back to the
  system when the process holds well more than a step needs (`KeptMemory`).
* Primitives: for every shape of a bf16 product ideep, torch's way to oneDNN, keeps a quarter of a
  megabyte, and oneDNN the code, by default for 1,024 shapes. If lengths vary, shapes rarely repeat, and
  each entry keeps the freed blocks around it apart. The caches hold a few more than a step of one shape has.
* Attention: cuDNN's kernel, which torch prefers on an H100, makes a plan for every new shape in up to half
  a second (reported for FunASR, not measured here). Flash and memory-efficient attention need no plan.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Any

import torch

MALLOPT = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 64 << 20)}
"""Number and value of the parameters of mallopt(3)."""
PRIMITIVES = 64
"""Shapes that each keeps; a step of a translation model has products of 45."""
CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Variables that say how many oneDNN and ideep keep."""
SLACK = 1.5
"""Memory held over what a step needs, above which it is given back."""


def tune_process(*, threads: int | None = None) -> dict[str, int | bool]:
    """Set threads, allocator, caches and kernels; return what was done, for the run's record.

    ideep and oneDNN read their variable at their first product, in bf16; it is too late after one.
    """
    for cache in CACHES:
        os.environ.setdefault(cache, str(PRIMITIVES))
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    threads = threads or max(1, len(usable_cores()) // processes)
    torch.set_num_threads(threads)
    torch.backends.cuda.enable_cudnn_sdp(False)
    mallopt = _of_glibc("mallopt")
    kept = mallopt is not None and all(mallopt(*setting) == 1 for setting in MALLOPT.values())
    return {"threads": threads, "allocator": kept}


def usable_cores() -> list[int]:
    """Return the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _of_glibc(name: str) -> Any:
    """Return a function of glibc's, or None with another C library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


class KeptMemory:
    """Memory of freed blocks, given back to the system when it is well above what a step needs.

    A step's need is what the process holds after the first step since memory was last given back,
    the largest seen so far: before that step nothing was kept. Without glibc nothing is given back.
    """

    def __init__(self, *, limited: bool) -> None:
        self._trim = _of_glibc("malloc_trim") if limited else None
        self._needed = 0
        self._given_back = True

    def give_back(self) -> None:
        """Return the memory of all freed blocks to the system."""
        if self._trim is not None:
            self._trim(0)
            self._given_back = True

    def after_step(self) -> None:
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
