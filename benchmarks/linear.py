"""Linear attention against softmax attention and performer-pytorch: time and memory by length.

8 heads of 64, batch 1, fp32, forward and backward. Softmax is torch's fused kernel. Peak memory is the
highest resident memory of a separate process over what it had before the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import peers
from benchmarks.timing import Row, in_child, interleave, row
from roformer.config.attention import EluAttention, PerformerAttention
from roformer.nn.attention.features import FavorFeatures, build_features
from roformer.nn.attention.linear import attend_to_all, attend_to_earlier

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
HEADS, HEAD_DIM = 8, 64
CONFIGS: dict[str, PerformerAttention | EluAttention] = {
    "FAVOR+": PerformerAttention(),
    "elu+1": EluAttention(),
}
PEER, LIKE_PEER = "performer-pytorch", "FAVOR+ of its vectors"
LONGEST_PEER = {False: 4096, True: 1024}
"""By causal: its causal form on a CPU keeps a matrix of M x H for each token, and takes seconds."""
GOALS = {(False, 1024): 1.0, (True, 1024): 6.0}
EQUAL = 1e-4
"""Largest difference to the outputs of the peer with the same random vectors."""

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


def bench_linear(*, rounds: int) -> list[Row]:
    """Return one row for each method, form and length against softmax, then one against the peer."""
    peer = peers.performer()
    rows = []
    for causal in (False, True):
        form = "causal" if causal else "bidirectional"
        for length in LENGTHS:
            turns = rounds if length <= 4096 else max(2, rounds // 2)
            beside = peer if length <= LONGEST_PEER[causal] else None
            seconds = timed(length, causal=causal, rounds=turns, peer=beside)
            memory = {
                name: in_child(measure_linear, name=name, length=length, causal=causal)["bytes"][0]
                for name in ("softmax", *CONFIGS)
            }
            for name in CONFIGS:
                rows.append(
                    row(
                        f"{name} against fused softmax, {form}, {length:,} tokens",
                        seconds["softmax"],
                        seconds[name],
                        deviations="another function: linear attention",
                        method=name,
                        causal=causal,
                        length=length,
                        peer_bytes=memory["softmax"],
                        ours_bytes=memory[name],
                    )
                )
            if beside is not None:
                rows.append(
                    row(
                        f"FAVOR+ against performer-pytorch, {form}, {length:,} tokens",
                        seconds[PEER],
                        seconds[LIKE_PEER],
                        goal=GOALS.get((causal, length)),
                        deviations=f"none: outputs equal to {EQUAL:g} with its random vectors",
                    )
                )
            print(f"{form}, {length:,} tokens: measured", file=sys.stderr, flush=True)
    return rows


def timed(
    length: int, *, causal: bool, rounds: int, peer: ModuleType | None
) -> dict[str, list[float]]:
    """Return the seconds of a forward and backward pass of each kernel."""
    inputs = [torch.randn(1, HEADS, length, HEAD_DIM, requires_grad=True) for _ in range(3)]
    gradient = torch.randn_like(inputs[0])
    kernels = {name: kernel(name, causal) for name in ("softmax", *CONFIGS)}
    if peer is not None:
        kernels[PEER] = peer.FastAttention(HEAD_DIM, causal=causal)
        kernels[LIKE_PEER] = like_the_peer(kernels[PEER].projection_matrix, causal)  # type: ignore[attr-defined]
        expected, actual = (kernels[name](*inputs) for name in (PEER, LIKE_PEER))
        torch.testing.assert_close(actual, expected, atol=EQUAL, rtol=EQUAL)

    def step(function: Kernel) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(*inputs), inputs, gradient)

    steps = {name: step(function) for name, function in kernels.items()}
    return interleave(steps, rounds=rounds, warmup=1 if length <= 4096 else 0)


def kernel(name: str, causal: bool) -> Kernel:
    """Return softmax, or the linear attention of a name in `CONFIGS`."""
    if name == "softmax":
        return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    config = CONFIGS[name]
    features = build_features(config, HEAD_DIM)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, (k, levels) = features.queries(q), features.keys(k, None, None, causal=causal)
        return _attend(config, q, k, v, levels if causal else None)

    return attend


def like_the_peer(vectors: Tensor, causal: bool) -> Kernel:
    """Return FAVOR+ with these vectors that takes one level over all keys, also where it is causal.

    So does the peer, whose outputs depend on later keys by it.
    """
    config = PerformerAttention(features=len(vectors))
    features = FavorFeatures(config, HEAD_DIM)
    features.vectors.copy_(vectors)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, (k, level) = features.queries(q), features.keys(k, None, None, causal=False)
        return _attend(config, q, k, v, level.expand(-1, -1, k.shape[-2], -1) if causal else None)

    return attend


def _attend(
    config: PerformerAttention | EluAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    levels: Tensor | None,
) -> Tensor:
    """Return linear attention by features, causal where the keys have levels."""
    eps, chunk = config.denominator_eps, config.chunk_length
    if levels is None:
        return attend_to_all(q, k, v, q, k, eps=eps)
    return attend_to_earlier(q, k, v, q, k, levels, None, eps=eps, chunk=chunk)[0]


def measure_linear(name: str, length: int, causal: bool) -> dict[str, list[float]]:
    """Return the peak of the resident memory that one forward and backward pass adds, in bytes."""
    attend = kernel(name, causal)
    for tokens in (16, length):  # the first call of a kernel allocates what stays
        inputs = [torch.randn(1, HEADS, tokens, HEAD_DIM, requires_grad=True) for _ in range(3)]
        gradient = torch.randn_like(inputs[0])
        before = resident_bytes("VmRSS")
        torch.autograd.grad(attend(*inputs), inputs, gradient)
    return {"bytes": [float(resident_bytes("VmHWM") - before)]}


def resident_bytes(what: str) -> int:
    """Return the resident memory of this process on Linux, now (`VmRSS`) or at most (`VmHWM`).

    (The maximum of `getrusage` includes the parent process.)
    """
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith(f"{what}:"))
    return int(line.split()[1]) * 1024
