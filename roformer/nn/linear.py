"""Matrix products by the fastest kernel that torch brings for the processor.

fp32: on AMD processors torch's `linear` takes MKL's generic path, at half the speed of oneDNN, which
computes the same product when it is written as a 1x1 convolution. The result is the same fp32 product,
summed in another order.

bf16 under autocast: `linear` writes the biases into the result before the product is added to it, and
sums the gradients of a bias by columns. oneDNN's own linear layer adds biases while the result is in a
register, and a product with ones sums them at the speed of memory.

GPUs, compiled graphs and evaluation are left alone. `make bench ARGS=kernels` measures each.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


def prefers_convolution() -> bool:
    """Return whether fp32 products are faster as convolutions: AMD processors with AVX-512.

    Decided by the processor's name, not by timing: two runs on one machine must sum in the same order.
    """
    processor: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return "AMD" in processor.get("cpu_name", "") and bool(processor.get("avx512_f"))


BY_CONVOLUTION = prefers_convolution()
ONEDNN = torch.ops.mkldnn if torch.backends.mkldnn.is_available() else None
BY_ONEDNN = hasattr(ONEDNN, "_linear_pointwise") and ONEDNN._is_mkldnn_bf16_supported()
"""Whether oneDNN's linear layer is there, and the processor has bf16 products."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b, (..., out), for x (..., in): `torch.nn.functional.linear`."""
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return functional.linear(x, weight, bias)
    if torch.is_autocast_enabled("cpu"):
        half = torch.get_autocast_dtype("cpu") == torch.bfloat16 and x.dtype != torch.float64
        if BY_ONEDNN and half and bias is not None and torch.is_grad_enabled():
            return cast(Tensor, _HalfLinear.apply(*(t.bfloat16() for t in (x, weight, bias))))
    elif BY_CONVOLUTION and x.dtype == torch.float32:
        return by_convolution(x, weight, bias)
    return functional.linear(x, weight, bias)


def by_convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `linear` as a 1x1 convolution: rows are pixels, dimensions the channels, last in memory."""
    image = x.reshape(1, -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
    y = functional.conv2d(image, weight[:, :, None, None], bias)
    return y.permute(0, 2, 3, 1).reshape(*x.shape[:-1], weight.shape[0])


class _HalfLinear(torch.autograd.Function):
    """`linear` of bf16 tensors; sums are fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return cast(Tensor, ONEDNN._linear_pointwise(x, weight, bias, "none", [], ""))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, weight.shape[0])
        ones = rows.new_ones(1, len(rows))
        by_weight = rows.T @ x.reshape(-1, weight.shape[1])
        return gradient @ weight, by_weight, (ones @ rows).squeeze(0)


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
