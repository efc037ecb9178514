"""Linear attention against softmax attention and performer-pytorch: time and memory by length.

8 heads of 64, batch 1, fp32, forward and backward. Softmax is torch's fused kernel. Peak memory is the
highest resident memory of a process of its own, over what it had before the first call; a kernel that
is given its inputs only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import in_child, interleave, ratio
from roformer.config.attention import EluAttention, PerformerAttention
from roformer.nn.attention.features import FavorFeatures, build_features
from roformer.nn.attention.linear import attend_to_all, attend_to_earlier

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
HEADS, HEAD_DIM = 8, 64
CONFIGS: dict[str, PerformerAttention | EluAttention] = {
    "FAVOR+": PerformerAttention(),
    "elu+1": EluAttention(),
}
PEER = "performer_pytorch.performer_pytorch"
LONGEST_PEER = {False: 4096, True: 1024}
"""By causal: its causal form on a CPU keeps a matrix of M x H a token, and takes seconds."""
GOALS = {(False, 1024): 1.0, (True, 1024): 6.0}
EQUAL = 1e-4
"""How far the outputs may be from the peer's with the same random vectors."""

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


def bench_linear(*, rounds: int) -> list[dict[str, Any]]:
    """Return one row a method, form and length against softmax, then one against the peer."""
    peer = find_peer()
    rows = []
    for causal in (False, True):
        form = "causal" if causal else "bidirectional"
        for length in LENGTHS:
            names = ["softmax", *CONFIGS]
            if peer is not None and length <= LONGEST_PEER[causal]:
                names += ["performer-pytorch", "FAVOR+ of its vectors"]
            turns = rounds if length <= 4096 else max(2, rounds // 2)
            seconds = timed(names, length, causal=causal, rounds=turns, peer=peer)
            memory = {
                name: in_child("linear", name=name, length=length, causal=causal)["bytes"][0]
                for name in ("softmax", *CONFIGS)
            }
            for name in CONFIGS:
                rows.append(
                    {
                        "what": f"{name} against fused softmax, {form}, {length:,} tokens",
                        "ratio": ratio(seconds["softmax"], seconds[name]),
                        "goal": None,
                        "peer_seconds": sorted(seconds["softmax"])[turns // 2],
                        "ours_seconds": sorted(seconds[name])[turns // 2],
                        "deviations": "another function: linear attention",
                        "method": name,
                        "causal": causal,
                        "length": length,
                        "peer_bytes": memory["softmax"],
                        "ours_bytes": memory[name],
                    }
                )
            if "performer-pytorch" in seconds:
                theirs, ours = seconds["performer-pytorch"], seconds["FAVOR+ of its vectors"]
                rows.append(
                    {
                        "what": f"FAVOR+ against performer-pytorch, {form}, {length:,} tokens",
                        "ratio": ratio(theirs, ours),
                        "goal": GOALS.get((causal, length)),
                        "peer_seconds": sorted(theirs)[turns // 2],
                        "ours_seconds": sorted(ours)[turns // 2],
                        "deviations": f"none: outputs equal to {EQUAL:g} with its random vectors",
                    }
                )
            print(f"{form}, {length:,} tokens: measured", file=sys.stderr, flush=True)
    return rows


def find_peer() -> ModuleType | None:
    """Return performer-pytorch, or None, with a line, where it is not installed."""
    try:
        return import_module(PEER)
    except ImportError as error:
        print(f"performer-pytorch is left out, it cannot be imported: {error}", file=sys.stderr)
        return None


def timed(
    names: list[str], length: int, *, causal: bool, rounds: int, peer: ModuleType | None
) -> dict[str, list[float]]:
    """Return seconds of a forward and backward pass of each kernel, in rounds that take turns."""
    inputs = [torch.randn(1, HEADS, length, HEAD_DIM, requires_grad=True) for _ in range(3)]
    gradient = torch.randn_like(inputs[0])
    kernels = {name: kernel(name, causal) for name in names if name in ("softmax", *CONFIGS)}
    if peer is not None and "performer-pytorch" in names:
        attention = peer.FastAttention(HEAD_DIM, causal=causal)
        kernels["performer-pytorch"] = attention
        kernels["FAVOR+ of its vectors"] = like_the_peer(attention.projection_matrix, causal)
        expected, actual = (kernels[name](*inputs) for name in names[-2:])
        torch.testing.assert_close(actual, expected, atol=EQUAL, rtol=EQUAL)

    def step(function: Kernel) -> Callable[[], None]:
        def call() -> None:
            torch.autograd.grad(function(*inputs), inputs, gradient)

        return call

    steps = {name: step(function) for name, function in kernels.items()}
    return interleave(steps, rounds=rounds, warmup=1 if length <= 4096 else 0)


def kernel(name: str, causal: bool) -> Kernel:
    """Return softmax, or the linear attention of a name in `CONFIGS`."""
    if name == "softmax":
        return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    config = CONFIGS[name]
    features: Any = build_features(config, HEAD_DIM)
    eps, chunk = config.denominator_eps, config.chunk_length

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = features.queries(q)
        k, levels = features.keys(k, None, None, causal=causal)
        if not causal:
            return attend_to_all(q, k, v, q, k, eps=eps)
        return attend_to_earlier(q, k, v, q, k, levels, None, eps=eps, chunk=chunk)[0]

    return attend


def like_the_peer(vectors: Tensor, causal: bool) -> Kernel:
    """Return FAVOR+ of the same vectors that takes one level of all keys, also where it is causal.

    So does the peer, whose outputs depend on later keys by it.
    """
    config = PerformerAttention(features=len(vectors))
    features = FavorFeatures(config, HEAD_DIM)
    features.vectors.copy_(vectors)
    eps, chunk = config.denominator_eps, config.chunk_length

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = features.queries(q)
        k, levels = features.keys(k, None, None, causal=False)
        if not causal:
            return attend_to_all(q, k, v, q, k, eps=eps)
        levels = levels.expand(-1, -1, k.shape[-2], -1)
        return attend_to_earlier(q, k, v, q, k, levels, None, eps=eps, chunk=chunk)[0]

    return attend


def measure_linear(name: str, length: int, causal: bool) -> dict[str, list[float]]:
    """Return the peak of the resident memory that one forward and backward pass adds, in bytes."""
    attend = kernel(name, causal)
    for tokens in (16, length):  # the first call of a kernel sets up what stays
        inputs = [torch.randn(1, HEADS, tokens, HEAD_DIM, requires_grad=True) for _ in range(3)]
        gradient = torch.randn_like(inputs[0])
        before = resident_bytes("VmRSS")
        torch.autograd.grad(attend(*inputs), inputs, gradient)
    return {"bytes": [float(resident_bytes("VmHWM") - before)]}


def resident_bytes(what: str) -> int:
    """Return the memory of this process that is resident now (`VmRSS`) or was at most (`VmHWM`).

    Linux. (`getrusage` would not do: its maximum includes that of the process that started this one.)
    """
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith(f"{what}:"))
    return int(line.split()[1]) * 1024
