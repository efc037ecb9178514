"""Curves of several runs side by side, from their records alone.

Reads `metrics.jsonl` and `summary.json`; imports nothing of the package but the config, so that a record can
be read wherever it is copied to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, NotRequired

from typing_extensions import TypedDict

from roformer.report.losses import read_by
from roformer.report.records import RecordError, read_metrics, read_summary
from roformer.report.tables import escaped, row, run_label


class Summary(TypedDict):
    """What is used of a summary."""

    model: str
    position: str
    seed: int
    attention: NotRequired[str]


class Curve(NamedTuple):
    """One metric of one run over its updates."""

    name: str
    summary: dict[str, Any]
    points: dict[int, float]
    """Update → value."""
    read: dict[int, tuple[int, int]]
    """Update → sequences and tokens read until then."""


def read_curve(folder: Path, metric: str) -> Curve:
    """Return a run's curve.

    Raises:
        RecordError: the folder holds no record or a damaged one, or the run has no such metric; says
            which it has.
    """
    metrics = folder / "metrics.jsonl"
    for path in (metrics, folder / "summary.json"):
        if not path.is_file():
            raise RecordError(f"{path} is missing: give folders of finished runs")
    rows = read_metrics(metrics)
    # Null is what a number that is not finite is written as.
    points = {
        found["step"]: math.nan if (value := found[metric]) is None else float(value)
        for found in rows
        if metric in found
    }
    if not points:
        known = sorted({key for found in rows for key in found} - {"step"})
        raise RecordError(f"{folder} has no {metric}: choose one of {', '.join(known)}")
    amounts = ("data/samples", "data/tokens")
    read = {
        found["step"]: (int(found[amounts[0]]), int(found[amounts[1]]))
        for found in rows
        if all(found.get(amount) is not None for amount in amounts)
    }
    return Curve(folder.name, read_summary(folder, Summary), points, read)


def steps_to(curve: Curve, target: float) -> float | None:
    """Return the updates after which the metric first is at most `target`, or None.

    Between two evaluations the curve is taken as a straight line.
    """
    before: tuple[int, float] | None = None
    for step, value in sorted(curve.points.items()):
        if math.isnan(value):
            continue
        if value <= target:
            if before is None:
                return float(step)
            then, higher = before
            return then + (step - then) * (higher - target) / (higher - value)
        before = (step, value)
    return None


def compare(curves: list[Curve], metric: str) -> str:
    """Return two Markdown tables: the metric at equal updates, and the updates to equal values.

    Sequences and tokens are given where they are the same for all runs.

    The values are the last ones of every run: the updates after which each run is as good as
    another one is at its end.
    """
    if not curves:
        raise RecordError("none of these runs is finished: give folders like runs/pretrain/*")
    steps = sorted(set.intersection(*(set(curve.points) for curve in curves)))
    names = [_label(curve.summary) for curve in curves]
    if len(set(names)) < len(names):  # they differ in something else: the id tells them apart
        names = [curve.name for curve in curves]
    lines = [f"**{escaped(metric)}** at equal updates", ""]
    lines += [
        row(["updates", "sequences", read_by(metric), *names]),
        row(["---:"] * (len(names) + 3)),
    ]
    for step in steps:
        amounts = amounts_read(curves, step)
        values = [_shown(curve.points[step]) for curve in curves]
        lines.append(row([f"{step:,}", *amounts, *values]))
    lines += ["", f"**Updates until {escaped(metric)} is at most …**", ""]
    lines += [row(["value", "which is the end of", *names]), row(["---:"] * (len(names) + 2))]
    for curve, name in zip(curves, names, strict=True):
        last = curve.points[max(curve.points)]
        reached = [steps_to(other, last) for other in curves]
        cells = [f"{r:,.0f}" if r is not None else "not reached" for r in reached]
        lines.append(row([_shown(last), name, *cells]))
    return "\n".join(lines)


def amounts_read(curves: Sequence[Curve], step: int) -> list[str]:
    """Return sequences and tokens that runs had read after an update; a mean where they differ a little.

    They do where one run had the text's last block, which is not full, and another had not yet.
    """
    reads = [curve.read[step] for curve in curves if step in curve.read]
    if len(reads) < len(curves):
        return ["", ""]
    shown = []
    for amounts in zip(*reads, strict=True):
        low, high = min(amounts), max(amounts)
        shown.append(
            "" if high > 1.01 * low else f"{'' if low == high else '≈ '}{fmean(amounts):,.0f}"
        )
    return shown


def _shown(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.3f}"


def _label(summary: dict[str, Any]) -> str:
    return f"{run_label(summary)}, seed {summary['seed']}"
