"""The rotary operation against the function of `transformers`' RoFormer: forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention

from benchmarks.timing import interleave, ratio
from roformer.nn.rotary import RotaryEmbedding

SHAPE = (8, 12, 512, 64)
GOALS = {("float32", "eager"): 4.5, ("bfloat16", "eager"): 2.0, ("float32", "compiled"): 1.0}


def bench_rotary(*, rounds: int) -> list[dict[str, Any]]:
    """Return one row a type, memory layout and mode; queries and keys of 8 x 12 x 512 x 64."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for memory in ("contiguous", "transposed"):
            for mode in ("eager", "compiled"):
                torch.compiler.reset()
                peer, ours = _pair(dtype, memory, compiled=mode == "compiled")
                seconds = interleave({"peer": peer, "ours": ours}, rounds=rounds, warmup=3)
                name = str(dtype).removeprefix("torch.")
                rows.append(
                    {
                        "what": f"rotary of q and k, {name}, {memory}, {mode}",
                        "ratio": ratio(seconds["peer"], seconds["ours"]),
                        "goal": GOALS.get((name, mode)),
                        "peer_seconds": sorted(seconds["peer"])[rounds // 2],
                        "ours_seconds": sorted(seconds["ours"])[rounds // 2],
                        "deviations": "none: same function, same type",
                    }
                )
    return rows


def _pair(
    dtype: torch.dtype, memory: str, *, compiled: bool
) -> tuple[Callable[[], None], Callable[[], None]]:
    q, k = (_tensor(dtype, memory) for _ in range(2))
    gradient = torch.randn(SHAPE, dtype=dtype)
    embedding = RotaryEmbedding(SHAPE[-1])
    table = embedding.table(torch.arange(SHAPE[-2]))
    # Their table: sines of all frequencies, then cosines, in the type of the model.
    sinusoidal = torch.cat((table.sin, table.cos), dim=-1).to(dtype)[None, None]

    def theirs(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = RoFormerSelfAttention.apply_rotary_position_embeddings(
            sinusoidal, q, k
        )
        return result

    def ours(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return embedding(q, table), embedding(k, table)

    functions = [torch.compile(f) if compiled else f for f in (theirs, ours)]
    expected, actual = (f(q, k)[0].detach().float() for f in functions)
    torch.testing.assert_close(
        actual, expected, atol=0.1 if dtype != torch.float32 else 1e-5, rtol=0
    )

    def step(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[], None]:
        def call() -> None:
            turned = function(q, k)
            torch.autograd.grad(turned, (q, k), (gradient, gradient))

        return call

    return step(functions[0]), step(functions[1])


def _tensor(dtype: torch.dtype, memory: str) -> Tensor:
    batch, heads, length, dim = SHAPE
    if memory == "contiguous":
        return torch.randn(SHAPE, dtype=dtype).requires_grad_()
    x = torch.randn(batch, length, heads, dim, dtype=dtype).transpose(1, 2)
    return x.detach().requires_grad_()
