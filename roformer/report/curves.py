"""Curves of several runs side by side, from their records alone.

Reads `metrics.jsonl` and `summary.json`; imports nothing of the package but the config, so that a record can
be read wherever it is copied to.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from roformer.errors import one_line
from roformer.report.losses import read_by
from roformer.report.records import (
    Folder,
    RecordError,
    read_config,
    read_environment,
    read_metrics,
    read_summary,
)
from roformer.report.tables import code, escaped, row, run_label


class Curve(NamedTuple):
    """One metric of one run over its updates."""

    name: str
    summary: dict[str, Any]
    points: dict[int, float]
    """Update → value."""
    read: dict[int, tuple[int, int]]
    """Update → sequences and tokens read until then."""


def read_curve(folder: Folder, metric: str) -> Curve:
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
    return Curve(folder.name, read_summary(folder, "model", "position", "seed"), points, read)


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


VALIDATION = ("masking", "training.sequence_length", "training.valid_sequences")
"""Keys of a config that decide, beside the prepared data, which targets a validation loss is of."""


def compare_runs(folders: Iterable[Folder], metric: str) -> str:
    """Return the comparison of finished runs, in separate tables where losses are not comparable.

    A loss depends on the vocabulary and on the validation text, so runs share a table only where the
    fingerprint of the prepared data and the settings of validation are the same.

    Args:
        folders: of runs with a summary. One that failed is listed with the reason and left out.
        metric: of `metrics.jsonl`.

    Raises:
        RecordError: a record is damaged, a run has no such metric, or no run is left.
    """
    groups: dict[str, list[Folder]] = {}
    failed = []
    for folder in folders:
        ending = read_summary(folder, "status")
        if ending["status"] == "failed":
            error = one_line(ending.get("error", "its summary does not say why"))
            how = "diverged" if error.startswith("Diverged: ") else "failed"
            told = escaped(error.removeprefix("Diverged: "))
            failed.append(f"- {code(folder.name)} {how}: {told}")
        else:
            groups.setdefault(_validated_on(folder), []).append(folder)
    if not groups and failed:
        raise RecordError("all of these runs failed: " + "; ".join(line[2:] for line in failed))
    parts = []
    if len(groups) > 1:
        parts.append(
            f"Runs on {len(groups)} different validation sets: a loss depends on the vocabulary and "
            "the validation text, so losses are compared within a table only."
        )
    for number, group in enumerate(groups.values(), start=1):
        if len(groups) > 1:
            parts.append(f"### {number} of {len(groups)}: {_data_of(group[0])}")
        parts.append(compare([read_curve(folder, metric) for folder in group], metric))
    if not groups:
        parts.append(compare([], metric))
    if failed:
        parts.append("\n".join(["**Left out**", "", *failed]))
    return "\n\n".join(parts)


def _validated_on(folder: Folder) -> str:
    """Return, as JSON, what must be equal for the validation losses of two runs to be comparable."""
    config = read_config(folder)
    settings = [_setting(config, key) for key in VALIDATION]
    return json.dumps([read_environment(folder, "data")["data"], settings])


def _data_of(folder: Folder) -> str:
    """Return the data, vocabulary and length that a run validates on, in words."""
    config = read_config(folder)
    words = {
        "data": _setting(config, "data.kind"),
        "vocabulary": _setting(config, "data.tokenizer.vocab_size"),
        "sequence length": _setting(config, "training.sequence_length"),
    }
    shown = [
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in words.items()
        if value is not None
    ]
    fingerprint = read_environment(folder, "data")["data"]
    return escaped(", ".join([*shown, f"fingerprint {fingerprint[:8]}"]))


def _setting(config: dict[str, Any], key: str) -> Any:
    """Return the value of a dotted key; None where the config does not have it."""
    found: Any = config
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


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
