"""Curves of several runs side by side, from their records alone.

Reads `metrics.jsonl` and `summary.json`; imports no other part of the package, so that a record can
be read wherever it is copied to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


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
        ValueError: the folder holds no record, or the run has no such metric; says which it has.
    """
    metrics, summary = folder / "metrics.jsonl", folder / "summary.json"
    for path in (metrics, summary):
        if not path.is_file():
            raise ValueError(f"{path} is missing: give folders of finished runs")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    points = {row["step"]: row[metric] for row in rows if metric in row}
    if not points:
        known = sorted({key for row in rows for key in row} - {"step"})
        raise ValueError(f"{folder} has no {metric}: choose one of {', '.join(known)}")
    read = {
        row["step"]: (row["data/samples"], row["data/tokens"])
        for row in rows
        if "data/tokens" in row
    }
    return Curve(folder.name, json.loads(summary.read_text()), points, read)


def steps_to(curve: Curve, target: float) -> float | None:
    """Return the updates after which the metric first is at most `target`, or None.

    Between two evaluations the curve is taken as a straight line.
    """
    before: tuple[int, float] | None = None
    for step, value in sorted(curve.points.items()):
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
        raise ValueError("none of these runs is finished: give folders like runs/pretrain/*")
    steps = sorted(set.intersection(*(set(curve.points) for curve in curves)))
    names = [_label(curve.summary) for curve in curves]
    if len(set(names)) < len(names):  # they differ in something else: the id tells them apart
        names = [curve.name for curve in curves]
    lines = [f"**{metric}** at equal updates", ""]
    lines += [_row(["updates", "sequences", "tokens", *names]), _row(["---:"] * (len(names) + 3))]
    for step in steps:
        reads = {curve.read.get(step) for curve in curves}
        (common,) = reads if len(reads) == 1 else (None,)
        amounts = [f"{amount:,}" for amount in common] if common else ["", ""]
        values = [f"{curve.points[step]:.3f}" for curve in curves]
        lines.append(_row([f"{step:,}", *amounts, *values]))
    lines += ["", f"**Updates until {metric} is at most …**", ""]
    lines += [_row(["value", "which is the end of", *names]), _row(["---:"] * (len(names) + 2))]
    for curve, name in zip(curves, names, strict=True):
        last = curve.points[max(curve.points)]
        reached = [steps_to(other, last) for other in curves]
        cells = [f"{r:,.0f}" if r is not None else "not reached" for r in reached]
        lines.append(_row([f"{last:.3f}", name, *cells]))
    return "\n".join(lines)


def _label(summary: dict[str, Any]) -> str:
    return f"{summary['model']} ({summary['position']}), seed {summary['seed']}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
