"""A masked-LM training step against transformers' `RoFormerForMaskedLM`: same data, same size.

* like for like: fp32, both dropouts 0.1, fused AdamW on both sides, in one process; once with default
  settings ("stock") and once with the settings of `roformer.training.process` for both ("tuned");
* as shipped: ours tuned, in the precision that `auto` is here, with the dropout of the recipe; the
  peer stock. The peer also runs tuned, which shows the gain of the settings by themselves.

The table also has the share of the machine's own rate: the operations of the step's matrix products
(`roformer.models.cost`) per second, over the rate at which the same process computes the products of the
feed-forward layer without biases and without anything else.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch

from benchmarks import peers
from benchmarks.peers import Size
from benchmarks.timing import Row, in_turns, interleave, row
from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.models.cost import flops_per_token
from roformer.models.encoder import MaskedLM
from roformer.models.transformer import compile_blocks
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.nn.linear import linear
from roformer.training.hardware import auto_precision, default_device
from roformer.training.process import tune_process

VOCABULARY, PREDICTED, LENGTH = 30522, 0.15, 512
BASE, TRIAL = Size(12, 768, 12, 3072), Size(2, 32, 2, 64)
SIZES = {
    "mini": Size(4, 256, 4, 1024),
    "published": Size(6, 384, 12, 1536),
    "base": BASE,
    "base on a GPU": BASE,
    "trial": TRIAL,
}
"""Sizes by name; `published` is all-MiniLM-L6-v2's, a BERT of 22.6 M parameters."""
BATCH = {"mini": 8, "base": 2, "base on a GPU": 64, "trial": 2}
LIKE_FOR_LIKE = {"mini": 3.3, "base": 2.2}
AS_SHIPPED = {"mini": 14.0, "base": 6.5}
SHIPPED = {"mini": "no dropout", "base": "dropout 0.1"}
"""The setting of the recipes of each size: mini, and paper and paper_tuned."""
LIMIT = {True: "limit bf16", False: "limit fp32"}
"""Names of the measurements of the machine's rate."""
PART = 1 / 8
"""Share of a step's operations by which the rate is measured."""
Step = Callable[[], None]


class Setting(NamedTuple):
    """Our setting, and its deviations from the paper."""

    hidden_dropout: float
    attention_dropout: float
    half: bool
    deviations: str


OURS = {
    "fp32, dropout 0.1": Setting(0.1, 0.1, False, "none"),
    "fp32, no dropout": Setting(0.0, 0.0, False, "no dropout (recipe mini)"),
    "bf16, dropout 0.1": Setting(0.1, 0.1, True, "bf16 autocast"),
    "bf16, no dropout": Setting(0.0, 0.0, True, "bf16 autocast, no dropout (recipe mini)"),
}


def bench_training(*, rounds: int, turns: int = 2) -> list[Row]:
    """Return four rows for each size: like for like, stock and tuned; as shipped; and what the settings
    of the process bring the peer.
    """
    rows = []
    precision = auto_precision(default_device())
    limits = [LIMIT[half] for half in dict.fromkeys((False, precision == "bf16"))]
    for size, goal in LIKE_FOR_LIKE.items():
        like, shipped = "fp32, dropout 0.1", f"{precision}, {SHIPPED[size]}"
        variants = {
            False: ["peer", LIMIT[False], like],
            True: ["peer", *limits, *dict.fromkeys((like, shipped))],
        }
        requests = [
            {"size": size, "rounds": rounds, "tuned": tuned, "variants": names}
            for tuned, names in variants.items()
        ]
        seconds = in_turns(measure_training, requests, rounds=turns)
        comparisons = {
            "like for like, stock": ("peer", like, goal),
            "like for like, tuned on both sides": ("peer tuned", f"{like} tuned", goal),
            f"as shipped ({shipped})": ("peer", f"{shipped} tuned", AS_SHIPPED[size]),
        }
        for what, (peer, ours, wanted) in comparisons.items():
            rows.append(_row(f"{size} step, {what}", size, seconds, peer, ours, wanted))
        what = f"{size} step, process settings alone, peer against itself"
        said = "none: a user of the peer could set them too"
        rows.append(row(what, seconds["peer"], seconds["peer tuned"], deviations=said))
    return rows


def _row(
    what: str,
    size: str,
    seconds: dict[str, list[float]],
    peer: str,
    ours: str,
    goal: float | None,
) -> Row:
    setting, tuned = OURS[ours.removesuffix(" tuned")], ours.endswith(" tuned")
    found = row(what, seconds[peer], seconds[ours], goal=goal, deviations=setting.deviations)
    limit = seconds[LIMIT[setting.half] + (" tuned" if tuned else "")]
    rounds = zip(limit, seconds[ours], strict=True)
    return {
        **found,
        "ours_tokens_per_second": BATCH[size] * LENGTH / found["ours_seconds"],
        "share_of_limit": statistics.median(least / taken for least, taken in rounds),
        "step_gflop": step_flops(size) / 1e9,
    }


def measure_training(
    *, size: str, tuned: bool, variants: list[str], rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of a step of each variant, measured in this process.

    A limit's are the seconds of a step that were nothing but matrix products.
    """
    if tuned:
        tune_process()
    builders: dict[str, Callable[[str], Callable[[], object]]] = {
        "peer": peer_step,
        **{LIMIT[half]: partial(products, half=half) for half in LIMIT},
    }
    steps = {
        name: builders[name](size) if name in builders else our_step(size, name)
        for name in variants
    }
    # The second step of either side still takes memory from the system: half of the peer's time.
    seconds = interleave(steps, rounds=rounds, warmup=2)
    for name in set(LIMIT.values()) & set(seconds):
        seconds[name] = [part / PART for part in seconds[name]]
    ending = " tuned" if tuned else ""
    return {f"{name}{ending}": measured for name, measured in seconds.items()}


def batch_of(size: str) -> list[torch.Tensor]:
    """Return ids (B, T), positions to predict (B, K) and labels (B, K), the same for both sides."""
    generator = torch.Generator().manual_seed(0)
    rows, count = BATCH[size], round(PREDICTED * LENGTH)
    ids = torch.randint(5, VOCABULARY, (rows, LENGTH), generator=generator)
    predict = torch.rand(rows, LENGTH, generator=generator).argsort(1)[:, :count].sort(1).values
    return [tensor.to(default_device()) for tensor in (ids, predict, ids.gather(1, predict))]


def peer_step(
    size: str,
    build: Callable[[Size, int, int], Any] = peers.masked_lm,
    *,
    half: bool = False,
    compiled: bool = False,
) -> Step:
    """Return a training step of a model of transformers, by default its RoFormer, as shipped."""
    device = default_device()
    torch.manual_seed(0)
    model = build(SIZES[size], VOCABULARY, LENGTH).to(device).train()
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, predict, chosen = batch_of(size)
    labels = torch.full_like(ids, -100).scatter(1, predict, chosen)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16) if half else nullcontext():
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_step(size: str, name: str, *, compiled: bool = False) -> Step:
    """Return our training step, with one of the settings of `OURS`."""
    setting, device = OURS[name], default_device()
    torch.manual_seed(0)
    model = MaskedLM(our_config(size, setting), VOCABULARY).to(device).train()
    if compiled:
        compile_blocks(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, predict, labels = batch_of(size)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16) if setting.half else nullcontext():
            logits = model(ids, predict=predict)
        (smoothed_cross_entropy(logits.flatten(0, 1), labels.flatten()) / labels.numel()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def our_config(size: str, setting: Setting) -> schema.EncoderConfig:
    """Return the config of our model of a size."""
    return schema.EncoderConfig(
        name="roformer",
        size=size,
        **SIZES[size]._asdict(),
        hidden_dropout=setting.hidden_dropout,
        attention_dropout=setting.attention_dropout,
        position=encodings.Rotary(),
        attention=SoftmaxAttention(),
    )


def step_flops(size: str) -> float:
    """Return the operations of the matrix products of a training step."""
    config = our_config(size, OURS["fp32, dropout 0.1"])
    predicted = round(PREDICTED * LENGTH) / LENGTH
    return BATCH[size] * LENGTH * flops_per_token(config, VOCABULARY, LENGTH, predicted)


def products(size: str, *, half: bool) -> Step:
    """Return `PART` of the operations of a step, as products of tokens and the feed-forward weights."""
    tokens, (_, inner, _, outer) = BATCH[size] * LENGTH, SIZES[size]
    # The weights are widened so that a whole number of products has the operations asked for.
    whole = PART * step_flops(size) / (2 * tokens * inner)
    count = max(1, round(whole / outer))
    dtype = torch.bfloat16 if half else torch.float32
    x = torch.randn(tokens, inner, dtype=dtype, device=default_device())
    weight = torch.randn(round(whole / count), inner, dtype=dtype, device=default_device())

    @torch.no_grad()
    def step() -> None:
        for _ in range(count):
            linear(x, weight)

    return step
