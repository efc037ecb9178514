"""Cost of each position encoding relative to rotary: time per step and decoded token, memory, weights.

A causal model of recipe mini's sizes, which every encoding can serve, fp32, without dropout; a step is
a forward and backward pass of 4,096 tokens. Ratios are rotary's time over the encoding's: 0.5 is twice
as slow. Peak memory is of a separate process, over what it had before the step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.linear import resident_bytes
from benchmarks.timing import Row, in_child, interleave, row
from benchmarks.training import SIZES
from roformer.config import position as encodings
from roformer.config.attention import SoftmaxAttention
from roformer.config.lm import CausalConfig
from roformer.models.causal import CausalDecoding, CausalLM

LENGTHS = (128, 512, 2048)
TOKENS, VOCABULARY = 4096, 8192
BASELINE = "rotary"
CONFIGS: dict[str, encodings.PositionConfig] = {
    **{kind: cls() for kind, cls in encodings.PositionConfig.kinds().items()},
    "learned": encodings.Learned(max_positions=LENGTHS[-1] + 1),
    "tupe": encodings.Tupe(max_positions=LENGTHS[-1] + 1, untie_cls=False),
    "shaw, per head": encodings.Shaw(per_head=True),
    "deberta, 256 buckets": encodings.Deberta(buckets=256),
}


def bench_encodings(*, rounds: int) -> list[Row]:
    """Return one row for a step, and one for a decoded token, of each encoding and length."""
    rows = []
    for length in LENGTHS:
        models = {name: model_of(name) for name in CONFIGS}
        turns = rounds if length <= 512 else max(2, rounds // 2)
        steps = interleave({n: step(m, length) for n, m in models.items()}, rounds=turns)
        with torch.no_grad():
            calls = {name: decoder(model, length) for name, model in models.items()}
            tokens = interleave(calls, rounds=4 * rounds)
        for name, model in models.items():
            about: dict[str, Any] = {
                "deviations": "another encoding",
                "encoding": name,
                "length": length,
                "parameters": sum(p.numel() for p in model.position.parameters()),
            }
            peak = in_child(measure_encodings, name=name, length=length)["bytes"][0]
            what = f"{name}, step of {length:,} tokens a text"
            rows.append(row(what, steps[BASELINE], steps[name], ours_bytes=peak, **about))
            what = f"{name}, token after {length:,}"
            rows.append(row(what, tokens[BASELINE], tokens[name], **about))
        print(f"{length:,} tokens: measured", file=sys.stderr, flush=True)
    return rows


def model_of(name: str) -> CausalLM:
    """Return a model with the encoding of a name in `CONFIGS`."""
    torch.manual_seed(0)
    config = CausalConfig(
        name="roformer",
        size="mini",
        **SIZES["mini"]._asdict(),
        hidden_dropout=0.0,
        attention_dropout=0.0,
        position=CONFIGS[name],
        attention=SoftmaxAttention(),
    )
    return CausalLM(config, VOCABULARY)


def step(model: CausalLM, length: int) -> Callable[[], None]:
    """Return a forward and backward pass of texts of this length."""
    ids = torch.randint(VOCABULARY, (max(1, TOKENS // length), length))

    def call() -> None:
        model.zero_grad()
        model.train()(ids).square().mean().backward()

    return call


def decoder(model: CausalLM, length: int) -> Callable[[], object]:
    """Return the reading of one token more, after this many, at each call."""
    decoding = CausalDecoding(model.eval())
    decoding.advance(torch.randint(VOCABULARY, (1, length - 1)))
    token = torch.zeros(1, 1, dtype=torch.long)

    def call() -> object:
        decoding.read = length - 1
        for cache in decoding.caches:
            cache.length = length - 1
        return decoding.advance(token)

    return call


def measure_encodings(name: str, length: int) -> dict[str, list[float]]:
    """Return the peak of the resident memory that one step adds, in bytes."""
    model = model_of(name)
    step(model, 16)()  # the first call allocates what stays
    before = resident_bytes("VmRSS")
    step(model, length)()
    return {"bytes": [float(resident_bytes("VmHWM") - before)]}
