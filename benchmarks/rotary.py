"""The rotation against transformers' RoFormer: forward and backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import peers
from benchmarks.kernels import TYPES
from benchmarks.timing import Row, compare
from roformer.nn.rotary import RotaryEmbedding

SHAPE = (8, 12, 512, 64)
GOALS = {("float32", "eager"): 4.5, ("bfloat16", "eager"): 2.0, ("float32", "compiled"): 1.0}


def bench_rotary(*, rounds: int) -> list[Row]:
    """Return one row for each type, memory layout and mode; queries and keys of 8 x 12 x 512 x 64."""
    rows = []
    for name, dtype in TYPES.items():
        for memory in ("contiguous", "transposed"):
            for mode in ("eager", "compiled"):
                torch.compiler.reset()
                peer, ours = _steps(dtype, memory, compiled=mode == "compiled")
                what = f"rotary of q and k, {name}, {memory}, {mode}"
                rows.append(compare(what, peer, ours, rounds=rounds, goal=GOALS.get((name, mode))))
    return rows


def _steps(dtype: torch.dtype, memory: str, *, compiled: bool) -> list[Callable[[], object]]:
    """Return a step of the peer and our step, on the same inputs, with equal outputs."""
    q, k = (_tensor(dtype, memory) for _ in range(2))
    gradient = torch.randn(SHAPE, dtype=dtype)
    embedding = RotaryEmbedding(SHAPE[-1])
    table = embedding.table(torch.arange(SHAPE[-2]))
    their_table = torch.cat((table.sin, table.cos), dim=-1).to(dtype)[None, None]

    def theirs(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return peers.rotary(their_table, q, k)

    def ours(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return embedding(q, table), embedding(k, table)

    functions = [torch.compile(f) if compiled else f for f in (theirs, ours)]
    expected, actual = (f(q, k)[0].detach().float() for f in functions)
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)

    def step(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(q, k), (q, k), (gradient, gradient))

    return [step(function) for function in functions]


def _tensor(dtype: torch.dtype, memory: str) -> Tensor:
    batch, heads, length, dim = SHAPE
    if memory == "contiguous":
        return torch.randn(SHAPE, dtype=dtype).requires_grad_()
    x = torch.randn(batch, length, heads, dim, dtype=dtype).transpose(1, 2)
    return x.detach().requires_grad_()
