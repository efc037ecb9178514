"""bf16 matrix products on processors that have no instructions for them.

There torch multiplies bf16 slower than fp32, and with AVX2 only 50 times slower (2048 x 1024 x 1024 on one
core: 4.5 s against 0.09 s). fp32 gives the same values: the product of two bf16 numbers is exact, sums are
fp32 as in the hardware, and the result is rounded once. The order of the sums differs, as between any two
processors. Compiled models (`runtime.compile`) keep torch's own products.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.library import Library


@functools.cache
def multiply_in_fp32() -> Library:
    """Replace torch's products of bf16 on the CPU, from now on; keep the library, or they come back."""
    library = Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
        library.impl("mm", functools.partial(product, torch.mm), "CPU")
        library.impl("bmm", functools.partial(product, torch.bmm), "CPU")
        library.impl("addmm", product_with_bias, "CPU")
    return library


def product(multiply: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Return A B, (..., M, N), for a (..., M, K) and b (..., K, N), by torch's mm or bmm."""
    wide = in_fp32(a, b)
    # `out=` selects another operator of torch, so the call does not come back to this function.
    out = wide[0].new_empty(*a.shape[:-1], b.shape[-1])
    return multiply(*wide, out=out).to(a.dtype)


def product_with_bias(
    bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Return beta bias + alpha A B, (M, N), for a (M, K), b (K, N) and a bias that broadcasts."""
    wide = in_fp32(bias, a, b)
    out = wide[1].new_empty(a.shape[0], b.shape[-1])
    return torch.addmm(*wide, beta=beta, alpha=alpha, out=out).to(a.dtype)


def in_fp32(*operands: Tensor) -> tuple[Tensor, ...]:
    """Return operands in fp32 if all are bf16; torch gets the others unchanged."""
    if all(operand.dtype == torch.bfloat16 for operand in operands):
        return tuple(operand.float() for operand in operands)
    return operands
