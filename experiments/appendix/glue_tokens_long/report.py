"""The blocks of REPORT.md: scores of fine-tuning against the tokens of pre-training."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roformer.report.drawing import NEUTRAL, SPARE, Panel, draw_ordered
from roformer.report.pages import matching
from roformer.report.runs import RecordError, begun_from, read_yaml_file, tokens_before
from roformer.report.scores import scores
from roformer.report.tables import figure_markdown

SMALL_BERT = "BERT-Mini"
"""The published model in paper.yaml that has recipe mini's size."""
PUBLISHED = SPARE[1]
"""Colour of its lines."""


def published(model: str, metric: str) -> float | None:
    """Return the published number of another model for a metric of our GLUE tasks, or None."""
    file = Path(__file__).resolve().parents[2] / "paper.yaml"
    paper = read_yaml_file(file, what="the paper's numbers")
    name = paper["experiments"]["table_2"]["ours"]["metrics"].get(metric)
    numbers = paper["others"].get(model, {})
    return float(numbers[name]) if name in numbers else None


def tokens(folder: Path, words: list[str]) -> str:
    """`tokens PNG RUN …`: the headline metric of each task against the tokens of its pre-training.

    Dotted lines show `SMALL_BERT`. The runs are the fine-tunings, from `init_from=RUN@STEP` or `RUN`, and
    their pre-trainings. Pre-trainings of different lengths have separate lines, because at equal tokens
    their learning rates differ.
    """
    name, *sources = words
    runs = matching(folder, sources).runs
    in_all = dict(zip(runs.run, runs.tokens, strict=True))

    def tokens_of(config: Mapping[str, Any]) -> tuple[float, float]:
        """Return the millions of tokens read before these weights, and in the whole pre-training."""
        start, before = begun_from(config)[0], tokens_before(config, runs)
        if before is None:
            raise RecordError(
                f"the pre-training {start} is not among these runs: name its record too"
            )
        return before / 1e6, in_all[start] / 1e6

    found = scores(runs[runs.pipeline == "glue"])
    frame = found[found.chosen & found.headline]
    metrics = [*dict.fromkeys(frame.metric)]
    until, whole = zip(*frame.config.map(tokens_of), strict=True)
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
        baselines = frame.baselines[frame.metric == metric].iloc[0].values()
        best = max(value for value in baselines if not math.isnan(value))
        references = [("y", best, NEUTRAL)]
        if (theirs := published(SMALL_BERT, metric)) is not None:
            references.append(("y", theirs, PUBLISHED))
        names = "M tokens of pre-training", f"{metric} (%)"
        panels.append(Panel(*names, log="x", ticks=amounts, references=references))
    labels = {NEUTRAL: "best trivial baseline", PUBLISHED: f"{SMALL_BERT}, published"}
    size = 6.4, 2.8 * math.ceil(len(panels) / 2)
    draw_ordered(folder / name, points, panels, points=True, references=labels, size=size)
    caption = (
        "Headline metric on validation after fine-tuning, at the learning rate with the best mean, "
        "against the tokens of the pre-training until there; dotted: the better of always saying the "
        f"majority class and a bag of words, and what Google published of {SMALL_BERT}, a model of this "
        "size trained on a corpus of 3,300 M words, on the test sets. Points: single seeds of the "
        "fine-tuning, lines: their mean."
    )
    return figure_markdown(caption, name)
