"""The hardware: bf16, peak speed, memory."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch

from roformer.errors import InputError
from roformer.training.bf16 import multiply_in_fp32


class Gpu(NamedTuple):
    """Figures of the vendor's data sheet: dense tensor-core peak in FLOP/s, memory in bytes."""

    flops: float
    memory: float
    half: Literal["bf16", "fp16"] = "bf16"
    """The type of the peak: fp16 on GPUs without bf16."""


GPUS = {
    "V100": Gpu(125e12, 32e9, "fp16"),
    "T4": Gpu(65e12, 16e9, "fp16"),
    "A10": Gpu(125e12, 24e9),
    "L4": Gpu(121e12, 24e9),
    "RTX 3090": Gpu(71e12, 24e9),
    "RTX 4090": Gpu(165e12, 24e9),
    "A100": Gpu(312e12, 80e9),
    "H100": Gpu(989e12, 80e9),
    "H200": Gpu(989e12, 141e9),
}
"""Keyed by a part of the driver's name."""


def peak_flops(device: torch.device) -> float | None:
    """Return the peak of this device in FLOP/s, or None where it is not known (every CPU)."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    # Whole words, so that an L40S is not taken for an L4; cards named PCIe, NVL, … are other ones, and
    # "H100 80GB HBM3 MIG 1g.10gb" is a slice of one.
    other = r"(?! (?:PCIe|NVL|Laptop|Ti|D)\b)(?!.* MIG )"
    known = [key for key in GPUS if re.search(rf"\b{key}\b{other}", name)]
    return GPUS[known[0]].flops if known else None


def widest_float(device: torch.device) -> torch.dtype:
    """Return the type for sums over many batches: fp64, but fp32 on Apple's GPUs."""
    return torch.float32 if device.type == "mps" else torch.float64


def processor_capabilities() -> Mapping[str, Any]:
    """Return what torch knows of the processor; nothing in older releases."""
    able: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return able


def auto_precision(device_type: str) -> Literal["bf16", "fp32"]:
    """Return bf16 where the hardware multiplies it faster than fp32.

    On an Intel processor whose AMX tiles are hidden, as in some virtual machines, bf16 products take twice
    the time of fp32 (one core: 83 against 149 GFLOP/s); on AMD they take less.
    """
    fast = False
    if device_type == "cuda":
        fast = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    elif device_type == "cpu":
        able = processor_capabilities()
        vectors = able.get("avx512_bf16") and "Intel" not in str(able.get("cpu_name"))
        fast = bool(able.get("amx_bf16") or vectors)
    return "bf16" if fast else "fp32"


def autocast_of(device: torch.device, precision: str) -> torch.autocast:
    """Return the autocast of forward passes in bf16 or fp16; of fp32, one that does nothing."""
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    if half == torch.bfloat16 and device.type == "cpu" and lacks_bf16():
        multiply_in_fp32()
    return torch.autocast(device.type, half, enabled=half is not None)


def lacks_bf16() -> bool:
    """Return whether this is an x86 processor without bf16 instructions; others were not measured."""
    able = processor_capabilities()
    return bool(able.get("avx2")) and not (able.get("avx512_bf16") or able.get("amx_bf16"))


def computes_slowly(precision: str, device_type: str) -> bool:
    """Return whether fp32 is known to be faster than this precision here.

    That is bf16 on an x86 processor without fast bf16; other processors were not measured.
    """
    known = device_type == "cpu" and "avx512_bf16" in processor_capabilities()
    return known and precision == "bf16" and auto_precision(device_type) == "fp32"


def default_device() -> str:
    """Return the best device type here: cuda, mps or cpu."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(name: str) -> None:
    """Raise InputError for a device that this machine does not have."""
    try:
        torch.empty(0, device=name)
    except (AssertionError, RuntimeError) as error:
        raise InputError(
            f"{name} is no device of this machine: choose {default_device()}"
        ) from error


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory used since the process began: allocated on a GPU, resident on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
