"""Settings of the process that make training faster without changing any result.

`runtime.tune_process=false` leaves the process unchanged.

* Threads: one per core, shared among the processes of a machine.
* Allocator: glibc returns freed blocks above 32 MB to the system, and each new one costs a page fault
  every 4 KiB. Here they stay in the process (experiments/speed).
* Memory: if lengths vary, kept blocks leave holes that no later tensor fits. They go back to the system
  when the process holds well more than a step needs (`KeptMemory`).
* Primitives: ideep, torch's way to oneDNN, keeps a quarter of a megabyte per shape of a bf16 product, and
  oneDNN the code, by default for 1,024 shapes. Varying lengths rarely repeat a shape, so both caches are
  capped.
* Attention: cuDNN's kernel, which torch prefers on an H100, plans every new shape in up to half a second
  (reported for FunASR, not measured here). Flash and memory-efficient attention need no plan.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from typing import Any

import torch

MALLOPT = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 64 << 20)}
"""Number and value of the parameters of mallopt(3)."""
PRIMITIVES = 64
"""Capacity of each cache in shapes; a step of a translation model has 45."""
CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables of the caches of oneDNN and ideep, which are read at the first bf16 product."""
SLACK = 1.5
"""Ratio of held memory to a step's need above which memory is given back."""


def tune_process(*, threads: int | None = None) -> dict[str, int | bool]:
    """Set threads, allocator, caches and kernels; return what was done, for the run's record."""
    for cache in CACHES:
        os.environ.setdefault(cache, str(PRIMITIVES))
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if threads is None:
        threads = max(1, len(usable_cores()) // processes)
        chosen = os.environ.get("OMP_NUM_THREADS", "")
        if processes == 1 and chosen.isdigit():  # torchrun sets it to 1 for several processes
            threads = max(1, int(chosen))
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


def ignore_signals(worker: int) -> None:
    """Keep a data loader's worker alive until the loop ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _of_glibc(name: str) -> Any:
    """Return a function of glibc's, or None with another C library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


class KeptMemory:
    """Give the memory of freed blocks back to the system when it is well above what a step needs.

    The need is the most that the process held after a first step since memory was given back. Without
    glibc nothing is given back.
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
        if self._trim is None:
            return
        held = anonymous_memory()
        if self._given_back:
            self._needed, self._given_back = max(self._needed, held), False
        elif held > SLACK * self._needed:
            self.give_back()


def anonymous_memory() -> int:
    """Return this process's bytes in RAM that belong to no file (Linux)."""
    with open("/proc/self/statm") as file:
        _, resident, files = file.read().split()[:3]
    return (int(resident) - int(files)) * resource.getpagesize()
