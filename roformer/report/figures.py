"""The figures of the report, drawn from records, with their captions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from roformer.report.curves import baselines_of, loss_of, read_curves, read_positions
from roformer.report.drawing import BAND, NEUTRAL, Panel, draw_ordered, draw_scores, style_of
from roformer.report.resampling import METRIC, bleu_intervals
from roformer.report.runs import ENDED, RecordError, Runs
from roformer.report.scores import SCORES, scores


def draw_convergence(runs: Runs, output: Path) -> None:
    """Draw the validation loss of ended runs against steps (the paper's Fig. 3).

    A second panel is against tokens if steps of different runs have different numbers of tokens. A mean is
    as long as its shortest curve.
    """
    runs = runs._replace(runs=runs.runs[runs.runs.status.isin(ENDED)])
    loss = loss_of(runs.runs)
    frame = read_curves(runs, loss.metric).rename(columns={"value": "y"})
    entropies = list[float]()
    if loss.entropy:
        last = read_curves(runs, loss.entropy).groupby("folder").value.last()
        entropies = sorted({float(f"{value:.6g}") for value in last})
    # A line far above all curves would compress them.
    near = max(entropies, default=0) <= frame.y.max() + (frame.y.max() - frame.y.min()) / 2
    # Seeds get one x value, although some have read the last block of the text, which is not full.
    read = frame.groupby(["name", "step"]).tokens.transform("first") / 1e6
    alike = bool((read.groupby(frame.step).nunique() == 1).all())
    panels = [frame.assign(panel=0, x=frame.step), frame.assign(panel=1, x=read)]
    trigrams = sorted(set(baselines_of(runs.runs, loss.metric).get("trigram", ())))
    known = {"unigram entropy": entropies if near else [], "trigram": trigrams}
    references = [("y", value, NEUTRAL) for values in known.values() for value in values]
    label = ", ".join(name for name, values in known.items() if values)
    axes = [
        Panel("steps", loss.axis, references=references),
        Panel(f"{loss.read} (millions)", references=references),
    ]
    some = slice(1 if alike else 2)
    labels = {NEUTRAL: label}
    draw_ordered(output, pd.concat(panels[some]), axes[some], references=labels, share=True)


def draw_positions(runs: Runs, output: Path) -> None:
    """Draw the loss by tokens seen.

    Up to the training length it is measured in blocks of that length, as for all configurations. Beyond it
    the longest blocks are used; their first tokens are too few for a mean without noise.
    """
    found = read_positions(runs)
    if found.empty:
        raise RecordError("none of these runs has a positions.json: give folders like runs/clm/*")
    if found.trained.nunique() != 1:
        raise RecordError("runs of several lengths cannot be drawn together")
    found, end = found[found.reason.isna()], int(found.trained.iloc[0])
    longer = found.length == found.groupby("name").length.transform("max")
    beyond = longer & (found["first"] > end)
    frame = found[(found["first"] > 0) & (beyond | (found.length == end))]
    places = (frame["first"] * frame["last"]) ** 0.5
    read, marks = loss_of(runs.runs).read, [("x", end, NEUTRAL)]
    panels = [Panel(f"{read} seen", "loss (nats)", log="x", references=marks)]
    frame = frame.assign(panel=0, x=places, y=frame.value)
    labels = {NEUTRAL: "trained length"}
    draw_ordered(output, frame, panels, references=labels, markers=True, size=(5.6, 3.6))


def draw_glue(runs: Runs, output: Path) -> None:
    """Draw the headline metric of each task by configuration, at the chosen learning rate."""
    found = scores(runs.runs)
    frame = found[found.chosen & found.headline]
    groups = frame.metric.str.replace("[/_]", " ", regex=True)
    frame = frame.assign(group=groups, level=[best(one) for one in frame.baselines])
    _draw(output, frame, "headline metric (%)")


def draw_triplets(runs: Runs, output: Path) -> None:
    """Draw the accuracy of each configuration on the test triplets, or on validation."""
    found = scores(runs.runs)
    tested = found[found.metric == "test/accuracy"].name.nunique() == found.name.nunique()
    frame = found[found.metric.str.startswith("test/" if tested else "valid/")]
    levels = [best({"a coin": 50.0} | one) for one in frame.baselines]
    groups = frame.metric.map(SCORES["scm"].metrics)
    _draw(output, frame.assign(group=groups, level=levels), "ranking accuracy (%)")


def draw_bleu(runs: Runs, output: Path) -> None:
    """Draw sacreBLEU by configuration and test set; a single test set has 95 % intervals over its lines."""
    found = scores(runs.runs)
    frame = found[found.metric == METRIC]
    sets = [summary["test_set"] for summary in frame.summary]
    groups = [f"{one['name']} ({one['lines']:,} lines)" for one in sets]
    intervals = bleu_intervals(found) if found.group.nunique() == 1 else {}
    _draw(output, frame.assign(group=groups, level=math.nan), "sacreBLEU", intervals)


def _draw(
    output: Path, frame: pd.DataFrame, ylabel: str, intervals: Mapping[str, Any] | None = None
) -> None:
    """Draw scores with group and level; error bars are the `intervals` by name, or the standard deviation."""
    if frame.empty:
        raise RecordError("none of these runs has scores: give folders of finished ones")
    seeds = frame.groupby(["group", "name"]).value
    mean, std = seeds.transform("mean"), seeds.transform("std")
    low, high = mean - std, mean + std
    if ends := {name: tuple(one) for name, one in (intervals or {}).items() if one}:
        low, high = (frame.name.map(ends).str[end] for end in (0, 1))
    frame = frame.assign(low=low, high=high)
    draw_scores(output, frame, style_of(frame), ylabel, reference="best trivial baseline")


def best(baselines: Mapping[str, float]) -> float:
    """Return the highest defined score, or NaN."""
    return max((value for value in baselines.values() if value == value), default=math.nan)


POINTS = "Points: single seeds, lines: their mean; n/a: not defined."
FIGURES: dict[str, tuple[Callable[[Runs, Path], None], str]] = {
    "bleu": (
        draw_bleu,
        "sacreBLEU of the averaged checkpoints; error bars: 95 % over the lines of the test set, or one "
        f"standard deviation where several test sets are drawn. {POINTS}",
    ),
    "convergence": (
        draw_convergence,
        f"Loss on validation text; {BAND}. Dotted, if near: the unigram entropy, and the loss of counted "
        "trigrams where it was measured.",
    ),
    "glue": (
        draw_glue,
        "Headline metric on validation after fine-tuning, at each configuration's learning rate with the "
        "best mean; dotted: the better of always saying the majority class and a bag of words. "
        f"{POINTS}",
    ),
    "positions": (
        draw_positions,
        "Loss by the amount of text that is seen; dotted: the trained length. Longer blocks are beyond the "
        f"paper. {BAND.capitalize()}.",
    ),
    "triplets": (
        draw_triplets,
        "Ranking accuracy on triplets with the weights of the best validation; dotted: the best of tossing "
        f"a coin, overlap and known documents. {POINTS}",
    ),
}
"""Kind of a figure → the function that draws it, and its caption."""
