"""The figures of the report, drawn from records; each function draws one figure and returns its caption.

A caption is plain text with the content, the number of seeds and the scale. A file that already shows the
same data is not written.
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
    PUBLISHED,
    Panel,
    draw_ordered,
    draw_scores,
    style_of,
)
from roformer.report.paper import published
from roformer.report.resampling import bleu_intervals
from roformer.report.runs import ENDED, RecordError, Runs, begun_from, tokens_before
from roformer.report.scores import SCORES, scores

AMOUNTS = ("steps", "batch_size", "sequence_length")
"""Keys whose product is the number of tokens of a pre-training."""
SMALL_BERT = "BERT-Mini"
"""The published model in paper.yaml that has recipe mini's size."""


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
    worth, counted = (
        " / ".join(f"{value:.3f}" for value in values) for values in (entropies, trigrams)
    )
    told = f" Dotted: the loss of counted trigrams, {counted} {loss.unit}." if trigrams else ""
    return (
        f"{_sentence(loss.words)} on validation text against steps"
        f"{f', all of as many {loss.read}' if alike else f' and against {loss.read}'}; {BAND}. "
        f"{'Dotted' if near else 'Not shown'}: the unigram entropy of the predicted {loss.read}, {worth} "
        f"{loss.unit}{'' if near else ', far above'}.{told} {_seeds(frame)} "
        f"{_scale(runs.runs.config, loss.read)}"
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
    end, longest = int(found.trained.iloc[0]), int(found.length.max())
    longer = found.length == found.groupby("name").length.transform("max")
    beyond = longer & (found["first"] > end)
    frame = found[(found["first"] > 0) & (beyond | (found.length == end))]
    places = (frame["first"] * frame["last"]) ** 0.5
    panel = Panel(f"{read} seen", "loss (nats)", log="x", references=[("x", end, NEUTRAL)])
    frame = frame.assign(panel=0, x=places, y=frame.value)
    draw_ordered(output, frame, [panel], reference="trained length", markers=True, size=(5.6, 3.6))
    how = ": up to there in such blocks, beyond it, which is beyond the paper, in blocks of up to"
    return (
        f"Loss by how many {read} are seen after a training on blocks of {end:,} (dotted)"
        f"{f'{how} {longest:,}' if longest > end else ''}. Means over {read} of about as many seen; {BAND}. "
        f"{_seeds(frame)}"
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
    lost = frame[frame.diverged].groupby(["name", "rate"], sort=False).size()
    told = [f"{one_line(name)} at {rate:g} ({count})" for (name, rate), count in lost.items()]
    return (
        f"{metric} after the last step against the learning rate. Points: single seeds, lines: the mean of "
        f"those that ended. Diverged, and not drawn: {', '.join(told) or 'none'}. {_seeds(frame)} "
        f"{_scale(frame.config, 'tokens')}"
    )


def draw_glue(runs: Runs, output: Path) -> str:
    """Draw the headline metric of each task by configuration, at the chosen learning rate."""
    found = scores(runs.runs)
    frame = found[found.chosen & found.headline]
    groups = frame.metric.str.replace("[/_]", " ", regex=True)
    frame = frame.assign(group=groups, level=[_best(one) for one in frame.baselines])
    return _scores(
        output,
        frame,
        "Headline metric on validation after fine-tuning, at each configuration's learning rate with the "
        "best mean; dotted: the better of always saying the majority class and a bag of words.",
        "headline metric (%)",
        "best trivial baseline",
    )


def draw_tokens(runs: Runs, output: Path) -> str:
    """Draw the headline metric of each task against the tokens of its pre-training, with `SMALL_BERT`'s.

    The runs are the fine-tunings, from `init_from=RUN@STEP` or `RUN`, and their pre-trainings. Pre-trainings
    of different lengths have separate lines, because at equal tokens their learning rates differ.
    """
    in_all = dict(zip(runs.runs.run, runs.runs.tokens, strict=True))

    def tokens(config: Mapping[str, Any]) -> tuple[float, float]:
        """Return the millions of tokens read before these weights, and in the whole pre-training."""
        begun, before = begun_from(config)[0], tokens_before(config, runs.runs)
        if before is None:
            raise RecordError(
                f"the pre-training {begun} is not among these runs: name its record too"
            )
        return before / 1e6, in_all[begun] / 1e6

    found = scores(runs.runs[runs.runs.pipeline == "glue"])
    frame = found[found.chosen & found.headline]
    metrics = [*dict.fromkeys(frame.metric)]
    until, whole = zip(*frame.config.map(tokens), strict=True)
    several = len(set(whole)) > 1
    points = frame.assign(
        name=frame.label + [f", {total:.0f} M in all" if several else "" for total in whole],
        panel=frame.metric.map(metrics.index),
        x=until,
        y=frame.value,
    )
    amounts = sorted({float(f"{amount:.3g}") for amount in until})
    panels = []
    for metric in metrics:
        references = [("y", _best(frame.baselines[frame.metric == metric].iloc[0]), NEUTRAL)]
        if (theirs := published(SMALL_BERT, metric)) is not None:
            references.append(("y", theirs, PUBLISHED))
        names = "M tokens of pre-training", f"{metric} (%)"
        panels.append(Panel(*names, log="x", ticks=amounts, references=references))
    labels = {NEUTRAL: "best trivial baseline", PUBLISHED: f"{SMALL_BERT}, published"}
    size = 6.4, 2.8 * math.ceil(len(panels) / 2)
    draw_ordered(output, points, panels, points=True, reference=labels, size=size)
    return (
        "Headline metric on validation after fine-tuning, at the learning rate with the best mean, "
        "against the tokens of the pre-training until there; dotted: the better of always saying the "
        f"majority class and a bag of words, and what Google published of {SMALL_BERT}, a model of this "
        "size trained on a corpus of 3,300 M words, on the test sets. Points: single seeds of the "
        f"fine-tuning, lines: their mean. {'In all: by the end of the pre-training. ' if several else ''}"
        f"{_seeds(points.assign(group=points.metric + points.x.map(str)))} {_scale(frame.config)}"
    )


def draw_triplets(runs: Runs, output: Path) -> str:
    """Draw the accuracy of each configuration on the test triplets, or on validation."""
    found = scores(runs.runs)
    tested = found[found.metric == "test/accuracy"].name.nunique() == found.name.nunique()
    split = "test" if tested else "valid"
    frame = found[found.metric.str.startswith(f"{split}/")]
    levels = [_best({"a coin": 50.0} | one) for one in frame.baselines]
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
    text = f"sacreBLEU of {_listed(groups)}, by the averaged checkpoints with beam search."
    frame = frame.assign(group=groups, level=float("nan"))
    return _scores(output, frame, text, "sacreBLEU", intervals=intervals)


FIGURES: dict[str, Callable[[Runs, Path], str]] = {
    "bleu": draw_bleu,
    "convergence": draw_convergence,
    "glue": draw_glue,
    "positions": draw_positions,
    "rates": draw_rates,
    "tokens": draw_tokens,
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
    low, high, bars = mean - std, mean + std, "their standard deviation"
    if ends := {name: tuple(one) for name, one in (intervals or {}).items() if one}:
        low, high = (frame.name.map(ends).str[end] for end in (0, 1))
        bars = "95 % over the test lines"
    draw_scores(
        output, frame.assign(low=low, high=high), style_of(frame), ylabel, reference=reference
    )
    return (
        f"{text} Points: single seeds, lines: their mean, error bars: {bars}, n/a: not defined. "
        f"{_seeds(frame)} {_scale(frame.config)}"
    )


def _best(baselines: Mapping[str, float]) -> float:
    """Return the highest defined score, or NaN."""
    return max((value for value in baselines.values() if value == value), default=math.nan)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _listed(names: Iterable[str]) -> str:
    """Return different names as one text, in their order."""
    return ", ".join(map(one_line, dict.fromkeys(names)))


def _seeds(frame: pd.DataFrame) -> str:
    """Return the number of seeds per configuration, for each of its groups if they differ."""
    by = ["name", "group"] if "group" in frame else ["name"]
    counts = frame.groupby(by, sort=False).seed.nunique()
    if counts.nunique() == 1:
        return f"Seeds: {counts.iloc[0]} per configuration."
    ends = counts.groupby("name", sort=False).agg(["min", "max"])
    texts = [
        f"{one_line(name)} {low}{'' if low == high else f'-{high}'}"
        for name, low, high in ends.itertuples()
    ]
    return f"Seeds: {', '.join(texts)}."


def _scale(configs: Iterable[Mapping[str, Any]], unit: str = "tokens") -> str:
    """Return the sizes of models and, if a batch consists of sequences, their training budget."""
    sizes, budgets = [], []
    for config in configs:
        layers, width = config.get("model.layers", "?"), config.get("model.hidden_size", "?")
        sizes.append(f"{layers} layers × {width}")
        amounts = [config[f"training.{key}"] for key in AMOUNTS if config.get(f"training.{key}")]
        if len(amounts) == len(AMOUNTS):
            steps, batch, length = amounts
            budgets.append(
                f"{steps:,} steps of {batch:,} sequences of {length:,} {unit} "
                f"({steps * batch * length / 1e6:,.1f} M {unit})"
            )
    return f"Scale: {'; '.join(filter(None, (_listed(sizes), _listed(budgets))))}."
