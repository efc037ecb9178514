"""The figures of the report, drawn from records; each function draws one figure and returns its caption.

A caption is plain text; the seeds and the scale are in the facts of a study.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from roformer.errors import one_line
from roformer.report.curves import (
    CHOSEN_BY,
    baselines_of,
    loss_of,
    read_curves,
    read_positions,
    read_rates,
)
from roformer.report.drawing import (
    BAND,
    NEUTRAL,
    Panel,
    draw_ordered,
    draw_scores,
    style_of,
)
from roformer.report.resampling import bleu_intervals
from roformer.report.runs import ENDED, RecordError, Runs
from roformer.report.scores import SCORES, scores

# --- of runs -------------------------------------------------------------------------------------


def draw_convergence(runs: Runs, output: Path) -> str:
    """Draw the validation loss of ended runs against steps (the paper's Fig. 3).

    A second panel is against tokens if steps of different runs have different numbers of tokens. A mean is
    as long as its shortest curve.
    """
    runs = runs._replace(runs=runs.runs[runs.runs.status.isin(ENDED)])
    loss = loss_of(runs.runs)
    frame = read_curves(runs, loss.metric).rename(columns={"value": "y"})
    last = read_curves(runs, loss.entropy).groupby("folder").value.last()
    entropies = sorted({float(f"{value:.6g}") for value in last})
    # A line far above all curves would compress them.
    near = max(entropies) <= frame.y.max() + (frame.y.max() - frame.y.min()) / 2
    # Seeds get one x value, although some have read the last block of the text, which is not full.
    read = frame.groupby(["name", "step"]).tokens.transform("first") / 1e6
    alike = bool((read.groupby(frame.step).nunique() == 1).all())
    panels = [frame.assign(panel=0, x=frame.step), frame.assign(panel=1, x=read)]
    trigrams = sorted(set(baselines_of(runs.runs, loss.metric).get("trigram", ())))
    known = {"unigram entropy": entropies if near else [], "trigram": trigrams}
    references = [("y", value, NEUTRAL) for values in known.values() for value in values]
    reference = ", ".join(name for name, values in known.items() if values)
    axes = [
        Panel("steps", loss.axis, references=references),
        Panel(f"{loss.read} (millions)", references=references),
    ]
    some = slice(1 if alike else 2)
    draw_ordered(output, pd.concat(panels[some]), axes[some], reference=reference, share=True)
    return (
        f"{loss.words[0].upper()}{loss.words[1:]} on validation text; {BAND}. Dotted, if near: the unigram "
        f"entropy of the {loss.read}, and the loss of counted trigrams where it was measured."
    )


def draw_positions(runs: Runs, output: Path) -> str:
    """Draw the loss by tokens seen.

    Up to the training length it is measured in blocks of that length, as for all configurations. Beyond it
    the longest blocks are used; their first tokens are too few for a mean without noise.
    """
    found = read_positions(runs)
    if found.trained.nunique() != 1:
        raise RecordError(
            "none of these runs has a positions.json: give folders like runs/clm/*"
            if found.empty
            else "runs of several lengths cannot be drawn together"
        )
    found, read = found[found.reason.isna()], loss_of(runs.runs).read
    end = int(found.trained.iloc[0])
    longer = found.length == found.groupby("name").length.transform("max")
    beyond = longer & (found["first"] > end)
    frame = found[(found["first"] > 0) & (beyond | (found.length == end))]
    places = (frame["first"] * frame["last"]) ** 0.5
    panel = Panel(f"{read} seen", "loss (nats)", log="x", references=[("x", end, NEUTRAL)])
    frame = frame.assign(panel=0, x=places, y=frame.value)
    draw_ordered(output, frame, [panel], reference="trained length", markers=True, size=(5.6, 3.6))
    return (
        f"Loss by how many {read} are seen; dotted: the trained length. Longer blocks are beyond the paper. "
        f"{BAND.capitalize()}."
    )


def draw_rates(runs: Runs, output: Path) -> str:
    """Draw the final validation loss against the learning rate."""
    frame = read_rates(runs)
    if frame.empty:
        raise RecordError("none of these configurations was run with several learning rates")
    metric = CHOSEN_BY[frame.pipeline.iloc[0]]
    rates = sorted(frame.rate.unique())
    panel = Panel("learning rate", metric, log="x", ticks=rates)
    points = frame.assign(panel=0, x=frame.rate, y=frame.value)[~frame.diverged]
    draw_ordered(output, points, [panel], points=True, size=(5.6, 3.6))
    return (
        f"{metric} after the last step against the learning rate. Points: single seeds, lines: the mean of "
        "those that ended; diverged runs are not drawn."
    )


def draw_glue(runs: Runs, output: Path) -> str:
    """Draw the headline metric of each task by configuration, at the chosen learning rate."""
    found = scores(runs.runs)
    frame = found[found.chosen & found.headline]
    groups = frame.metric.str.replace("[/_]", " ", regex=True)
    frame = frame.assign(group=groups, level=[best(one) for one in frame.baselines])
    return _scores(
        output,
        frame,
        "Headline metric on validation after fine-tuning, at each configuration's learning rate with the "
        "best mean; dotted: the better of always saying the majority class and a bag of words.",
        "headline metric (%)",
        "best trivial baseline",
    )


def draw_triplets(runs: Runs, output: Path) -> str:
    """Draw the accuracy of each configuration on the test triplets, or on validation."""
    found = scores(runs.runs)
    tested = found[found.metric == "test/accuracy"].name.nunique() == found.name.nunique()
    split = "test" if tested else "valid"
    frame = found[found.metric.str.startswith(f"{split}/")]
    levels = [best({"a coin": 50.0} | one) for one in frame.baselines]
    frame = frame.assign(group=frame.metric.map(SCORES["scm"].metrics), level=levels)
    text = (
        f"Ranking accuracy on the {'test' if tested else 'validation'} triplets with the weights of the "
        "best validation; dotted: the best of tossing a coin, overlap and known documents."
    )
    return _scores(output, frame, text, "ranking accuracy (%)", "best trivial baseline")


def draw_bleu(runs: Runs, output: Path) -> str:
    """Draw sacreBLEU by configuration and test set; a single test set has 95 % intervals over its lines."""
    found = scores(runs.runs)
    frame = found[found.metric == "test/sacrebleu"]
    sets = [summary["test_set"] for summary in frame.summary]
    groups = [f"{one['name']} ({one['lines']:,} lines)" for one in sets]
    intervals = bleu_intervals(found) if found.group.nunique() == 1 else {}
    bars = "95 % over the test lines" if intervals else "one standard deviation"
    text = f"sacreBLEU of {_listed(groups)}, averaged checkpoints; error bars: {bars}."
    frame = frame.assign(group=groups, level=float("nan"))
    return _scores(output, frame, text, "sacreBLEU", intervals=intervals)


FIGURES: dict[str, Callable[[Runs, Path], str]] = {
    "bleu": draw_bleu,
    "convergence": draw_convergence,
    "glue": draw_glue,
    "positions": draw_positions,
    "rates": draw_rates,
    "triplets": draw_triplets,
}
"""Kind of a figure → the function that draws it."""


# --- parts ---------------------------------------------------------------------------------------


def _scores(
    output: Path,
    frame: pd.DataFrame,
    text: str,
    ylabel: str,
    reference: str = "",
    intervals: Mapping[str, Any] | None = None,
) -> str:
    """Draw scores with group and level, and return the caption, which begins with the text.

    Error bars are the `intervals` by name, or else the standard deviation.
    """
    if frame.empty:
        raise RecordError("none of these runs has scores: give folders of finished ones")
    seeds = frame.groupby(["group", "name"]).value
    mean, std = seeds.transform("mean"), seeds.transform("std")
    low, high = mean - std, mean + std
    if ends := {name: tuple(one) for name, one in (intervals or {}).items() if one}:
        low, high = (frame.name.map(ends).str[end] for end in (0, 1))
    draw_scores(
        output, frame.assign(low=low, high=high), style_of(frame), ylabel, reference=reference
    )
    return f"{text} Points: single seeds, lines: their mean; n/a: not defined."


def best(baselines: Mapping[str, float]) -> float:
    """Return the highest defined score, or NaN."""
    return max((value for value in baselines.values() if value == value), default=math.nan)


def _listed(names: Iterable[str]) -> str:
    """Return different names as one text, in their order."""
    return ", ".join(map(one_line, dict.fromkeys(names)))
