"""The choices between kernels that the model makes on a CPU, each against the one not chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import interleave, ratio
from roformer.nn import linear as nn_linear
from roformer.nn.dropout import Dropout


def bench_kernels(*, rounds: int) -> list[dict[str, Any]]:
    """Return one row a choice: what is used here against torch's own, forward and backward."""
    rows = []
    for shape in ((64, 4, 128, 64), (8, 4, 512, 64), (4, 4, 1024, 64)):
        for dtype in (torch.float32, torch.bfloat16):
            rows.append(
                _row(
                    f"attention as two products against fused, {shape}, {_name(dtype)}",
                    _step(functional.scaled_dot_product_attention, *_inputs(3, shape, dtype)),
                    _step(_two_products, *_inputs(3, shape, dtype)),
                    rounds,
                )
            )
    for rows_in, size_in, size_out in ((4096, 256, 1024), (1024, 768, 3072), (616, 256, 30522)):
        x = _inputs(1, (rows_in, size_in), torch.float32)
        weight = _inputs(1, (size_out, size_in), torch.float32)
        rows.append(
            _row(
                f"fp32 product as convolution against linear, {rows_in} x {size_in} x {size_out}",
                _step(functional.linear, *x, *weight),
                _step(nn_linear.by_convolution, *x, *weight),
                rounds,
            )
        )
    ours = Dropout(0.1)
    for dtype in (torch.float32, torch.bfloat16):
        x = _inputs(1, (8, 512, 1024), dtype)
        rows.append(
            _row(
                f"dropout from bulk bits against torch's, 8 x 512 x 1024, {_name(dtype)}",
                _step(lambda t: functional.dropout(t, 0.1), *x),
                _step(ours, *x),
                rounds,
            )
        )
    return rows


def _two_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)).softmax(-1) @ v


def _inputs(count: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(count)]


def _step(function: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], None]:
    gradient = torch.randn_like(function(*inputs))

    def step() -> None:
        torch.autograd.grad(function(*inputs), inputs, gradient)

    return step


def _row(
    what: str, other: Callable[[], None], ours: Callable[[], None], rounds: int
) -> dict[str, Any]:
    seconds = interleave({"peer": other, "ours": ours}, rounds=rounds, warmup=2)
    return {
        "what": what,
        "ratio": ratio(seconds["peer"], seconds["ours"]),
        "goal": None,
        "peer_seconds": sorted(seconds["peer"])[rounds // 2],
        "ours_seconds": sorted(seconds["ours"])[rounds // 2],
        "deviations": "none: same function, same type",
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
