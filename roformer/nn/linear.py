"""fp32 matrix products by the faster of two libraries.

On AMD processors torch's `linear` takes MKL's generic path, at half the speed of oneDNN, which computes
the same product when it is written as a 1x1 convolution. The result is the same fp32 product, summed in
another order. bf16 products, GPUs and compiled graphs are unchanged. `make bench ARGS=kernels` measures
both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_PROCESSOR: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
BY_CONVOLUTION = "AMD" in _PROCESSOR.get("cpu_name", "") and bool(_PROCESSOR.get("avx512_f"))
"""True if fp32 products are faster as convolutions: AMD processors with AVX-512.

Decided by the processor's name, not by timing: two runs on one machine must sum in the same order."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b, (..., out), for x (..., in): `torch.nn.functional.linear`."""
    plain = (
        not BY_CONVOLUTION
        or torch.compiler.is_compiling()
        or x.device.type != "cpu"
        or x.dtype != torch.float32
        or torch.is_autocast_enabled("cpu")
    )
    if plain:
        return functional.linear(x, weight, bias)
    return by_convolution(x, weight, bias)


def by_convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `linear` as a 1x1 convolution: rows are pixels, dimensions the channels, last in memory."""
    image = x.reshape(1, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
    y = functional.conv2d(image, weight[:, :, None, None], bias)
    return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
