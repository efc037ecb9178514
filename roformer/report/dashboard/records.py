"""Runs as the page shows them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from roformer.report import runs as frames
from roformer.report.runs import Runs


class Point(NamedTuple):
    """One value of a metric."""

    step: int
    sequences: int | None
    tokens: int | None
    value: float


def read_runs(roots: Iterable[Path]) -> Runs:
    """Return the runs below the roots; a damaged one is a row of that status."""
    return frames.read_runs(roots, strict=False)


def records_of(runs: Runs) -> list[Any]:
    """Return a record with attributes for each run."""
    return [_record(run, runs) for run in runs.runs.to_dict("records")]


def _record(run: dict[str, Any], runs: Runs) -> Any:
    rows = runs.metrics
    rows = rows[(rows.run == run["run"]) & (rows.study == run["study"])]
    curves: dict[str, list[Point]] = {}
    for step, samples, tokens, metric, value in rows.iloc[:, 2:].itertuples(index=False):
        read, seen = (None if math.isnan(amount) else int(amount) for amount in (samples, tokens))
        curves.setdefault(metric, []).append(Point(step, read, seen, value))
    values = dict(run["summary"].get("metrics", {}))
    stem = run["headline"].partition("_")[0]
    alike = [m for m in values if "/accuracy_" in run["headline"] and m.startswith(stem)]
    headline = {run["headline"]: run["score"]} if run["headline"] else {}
    headline |= {m: math.nan if values[m] is None else values[m] for m in alike}
    return SimpleNamespace(
        **{key: value for key, value in run.items() if key not in ("config", "environment")},
        name=run["run"],
        arm=run["configuration"],
        headline_metrics=headline,
        curves=curves,
        config={key: _text(value) for key, value in run["config"].items()},
        environment={k: _text(v) for k, v in frames.flattened(run["environment"]).items()},
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
