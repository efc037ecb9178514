"""The kernels that the model chooses on a CPU, each against the one not chosen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import Row, compare
from roformer.nn import linear as nn_linear
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.nn.dropout import Dropout

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def bench_kernels(*, rounds: int) -> list[Row]:
    """Return one row for each choice: ours against torch's own, forward and backward."""
    rows = []
    for shape in ((64, 4, 128, 64), (8, 4, 512, 64), (4, 4, 1024, 64)):
        for name, dtype in TYPES.items():
            rows.append(
                compare(
                    f"attention as two products against fused, {shape}, {name}",
                    _step(functional.scaled_dot_product_attention, *_inputs(3, shape, dtype)),
                    _step(_two_products, *_inputs(3, shape, dtype)),
                    rounds=rounds,
                )
            )
    for rows_in, size_in, size_out in ((4096, 256, 1024), (1024, 768, 3072), (616, 256, 30522)):
        x, weight = _inputs(1, (rows_in, size_in)), _inputs(1, (size_out, size_in))
        rows.append(
            compare(
                f"fp32 product as convolution against linear, {rows_in} x {size_in} x {size_out}",
                _step(functional.linear, *x, *weight),
                _step(nn_linear.by_convolution, *x, *weight),
                rounds=rounds,
            )
        )
    for name, dtype in TYPES.items():
        (logits,) = _inputs(1, (616, 30522), dtype)
        labels = torch.randint(30522, (616,))
        rows.append(
            compare(
                f"loss in one pass against torch's, 616 x 30522, {name}",
                _step(partial(_torchs_loss, labels=labels), logits),
                _step(partial(smoothed_cross_entropy, labels=labels), logits),
                rounds=rounds,
            )
        )
    ours = Dropout(0.1)
    for name, dtype in TYPES.items():
        x = _inputs(1, (8, 512, 1024), dtype)
        rows.append(
            compare(
                f"dropout from bulk bits against torch's, 8 x 512 x 1024, {name}",
                _step(lambda t: functional.dropout(t, 0.1), *x),
                _step(ours, *x),
                rounds=rounds,
            )
        )
    return rows


def _two_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)).softmax(-1) @ v


def _torchs_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.float(), labels, reduction="sum")


def _inputs(count: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(count)]


def _step(function: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], object]:
    gradient = torch.randn_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), inputs, gradient)
