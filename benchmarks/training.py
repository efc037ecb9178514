"""A masked-LM training step against `transformers`' `RoFormerForMaskedLM`: same data, same size.

Two comparisons, because the process has settings that a peer's user could apply too:

* like for like: fp32, both dropouts 0.1, fused AdamW on both sides, in one process; once as the
  process comes ("stock") and once with `roformer.training.process` applied to both ("tuned");
* as shipped: ours tuned, in bf16, with the dropouts of the recipes; the peer as it comes. Processes
  take turns. The peer is also run tuned, which gives the share that the settings alone bring it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from transformers import RoFormerConfig, RoFormerForMaskedLM

from benchmarks.timing import in_child, interleave, ratio
from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.models.encoder import MaskedLM
from roformer.training.hardware import default_device
from roformer.training.process import tune_process

VOCABULARY, PREDICTED = 30522, 0.15


class Size(NamedTuple):
    """Sizes of the model and of the batch."""

    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    batch: int
    length: int


class Setting(NamedTuple):
    """How ours is run, and what sets that apart from the paper's setting."""

    hidden_dropout: float
    attention_dropout: float
    half: bool
    deviations: str


SIZES = {
    "mini": Size(4, 256, 4, 1024, 8, 512),
    "base": Size(12, 768, 12, 3072, 2, 512),
}
LIKE_FOR_LIKE = {"mini": 2.8, "base": 1.3}
AS_SHIPPED = {"mini": 12.0, "base": 5.0}
SHIPPED = {"mini": "bf16, no dropout", "base": "bf16, dropout 0.1"}
"""The setting of the recipes of each size: mini, and paper and paper_tuned."""
Step = Callable[[], None]

OURS = {
    "fp32, dropout 0.1": Setting(0.1, 0.1, False, "none"),
    "bf16, dropout 0.1": Setting(0.1, 0.1, True, "bf16 autocast"),
    "bf16, attention dropout 0": Setting(
        0.1, 0.0, True, "bf16 autocast, attention dropout 0 (recipe small)"
    ),
    "bf16, no dropout": Setting(0.0, 0.0, True, "bf16 autocast, no dropout (recipe mini)"),
}


def bench_like_for_like(*, rounds: int) -> list[dict[str, Any]]:
    """Return one row a size and process setting."""
    rows = []
    for size, goal in LIKE_FOR_LIKE.items():
        for tuned in (False, True):
            seconds = in_child(
                "training",
                size=size,
                tuned=tuned,
                variants=["peer", "fp32, dropout 0.1"],
                rounds=rounds,
            )
            settings = "tuned on both sides" if tuned else "stock"
            rows.append(
                _row(
                    f"{size} step, like for like, {settings}",
                    size,
                    seconds,
                    "fp32, dropout 0.1",
                    goal,
                )
            )
    return rows


def bench_as_shipped(*, rounds: int, turns: int = 3) -> list[dict[str, Any]]:
    """Return one row a size and setting of ours, and one for what the settings bring the peer."""
    rows = []
    ours = [name for name in OURS if name.startswith("bf16")]
    for size, goal in AS_SHIPPED.items():
        stock: list[float] = []
        tuned: dict[str, list[float]] = {name: [] for name in ("peer", *ours)}
        for _ in range(turns):
            stock += in_child("training", size=size, tuned=False, variants=["peer"], rounds=rounds)[
                "peer"
            ]
            for name, seconds in in_child(
                "training", size=size, tuned=True, variants=["peer", *ours], rounds=rounds
            ).items():
                tuned[name] += seconds
        for name in ours:
            met = goal if name == SHIPPED[size] else None
            rows.append(
                _row(f"{size} step, as shipped ({name})", size, {"peer": stock, **tuned}, name, met)
            )
        gain = statistics.median(stock) / statistics.median(tuned["peer"])
        rows.append(
            {
                "what": f"{size} step, process settings alone, peer against itself",
                "ratio": gain,
                "goal": None,
                "deviations": "none: a user of the peer could set them too",
            }
        )
    return rows


def _row(
    what: str, size: str, seconds: dict[str, list[float]], ours: str, goal: float | None
) -> dict[str, Any]:
    if "peer" in seconds and len(seconds["peer"]) == len(seconds[ours]):
        gain = ratio(seconds["peer"], seconds[ours])
    else:
        gain = statistics.median(seconds["peer"]) / statistics.median(seconds[ours])
    tokens = SIZES[size].batch * SIZES[size].length
    return {
        "what": what,
        "ratio": gain,
        "goal": goal,
        "peer_seconds": statistics.median(seconds["peer"]),
        "ours_seconds": statistics.median(seconds[ours]),
        "ours_tokens_per_second": tokens / statistics.median(seconds[ours]),
        "deviations": OURS[ours].deviations,
    }


def measure_training(
    *, size: str, tuned: bool, variants: list[str], rounds: int
) -> dict[str, list[float]]:
    """Return seconds a step of each variant, measured in this process."""
    if tuned:
        tune_process()
    steps = {name: peer_step(size) if name == "peer" else our_step(size, name) for name in variants}
    return interleave(steps, rounds=rounds)


def batch_of(size: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids (B, T), positions to predict (B, K) and labels (B, K), the same for both sides."""
    generator = torch.Generator().manual_seed(0)
    rows, length = SIZES[size].batch, SIZES[size].length
    ids = torch.randint(5, VOCABULARY, (rows, length), generator=generator)
    count = round(PREDICTED * length)
    predict = torch.rand(rows, length, generator=generator).argsort(1)[:, :count].sort(1).values
    return ids, predict, ids.gather(1, predict)


def peer_step(size: str) -> Step:
    """Return a training step of `transformers`' RoFormer, as shipped."""
    device, sizes = default_device(), SIZES[size]
    torch.manual_seed(0)
    model: Any = RoFormerForMaskedLM(
        RoFormerConfig(
            vocab_size=VOCABULARY,
            hidden_size=sizes.hidden_size,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            intermediate_size=sizes.intermediate_size,
            max_position_embeddings=sizes.length,
        )
    )
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, predict, chosen = (t.to(device) for t in batch_of(size))
    labels = torch.full_like(ids, -100).scatter(1, predict, chosen)

    def step() -> None:
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_step(size: str, name: str) -> Step:
    """Return a training step of ours, with one of the settings of `OURS`."""
    device, sizes, setting = default_device(), SIZES[size], OURS[name]
    torch.manual_seed(0)
    config = schema.EncoderConfig(
        name="roformer",
        size=size,
        layers=sizes.layers,
        hidden_size=sizes.hidden_size,
        heads=sizes.heads,
        intermediate_size=sizes.intermediate_size,
        hidden_dropout=setting.hidden_dropout,
        attention_dropout=setting.attention_dropout,
        position=encodings.Rotary(),
        attention=SoftmaxAttention(),
    )
    model = MaskedLM(config, VOCABULARY).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, predict, labels = (t.to(device) for t in batch_of(size))

    def step() -> None:
        with torch.autocast(device, torch.bfloat16) if setting.half else nullcontext():
            logits = model(ids, predict=predict)
        functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
