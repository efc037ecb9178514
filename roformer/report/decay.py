"""Tables of the decay of attention scores, from the record of `scripts/decay.py`."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from scipy.stats import spearmanr
from typing_extensions import TypedDict

from roformer.report.records import Number, RecordError, read_json
from roformer.report.tables import Table, arm_names, run_label

BOUND_SHOWN = (0, 10, 50, 100, 150, 200, 250)
SHOWN = (0, 1, 2, 5, 10, 20, 50, 100)
"""Distances of the tables."""
SPREAD = "mean ± standard deviation over seeds (n)"
QUANTITIES = {
    "score": "score before the softmax",
    "centred": "centred score",
    "weight": "attention weight",
}
"""As in the record → as in titles."""

Count = Annotated[int, Field(ge=1, le=10**6)]
Series = Annotated[list[Number], Field(min_length=1)]


class Estimate(TypedDict):
    """Mean and standard error over sequences, at each distance from 0."""

    mean: Series
    standard_error: Series


class Estimates(TypedDict):
    """One of each quantity."""

    score: Estimate
    centred: Estimate
    weight: Estimate


class Pairs(TypedDict):
    """By where the key is; `inner` are pairs of neither the first nor the last token."""

    both: Estimates
    before: Estimates
    after: Estimates
    inner: Estimates


class Run(TypedDict):
    """One network: a run's with its last weights or with its first."""

    run: str
    model: str
    position: str
    seed: int
    weights: str
    layers: Count
    heads: Count
    head_dim: Count
    settings: dict[str, Any]
    mean: Pairs
    by_layer: Annotated[list[Estimates], Field(min_length=1)]


class Bound(TypedDict):
    """Eq. 37 at each distance, by head size."""

    distances: Annotated[list[Number], Field(min_length=1)]
    head_sizes: Annotated[dict[str, Series], Field(min_length=1)]


class Record(TypedDict):
    """What is used of a record."""

    bound: Bound
    sequences: Count
    length: Count
    runs: list[Run]


class Arm(NamedTuple):
    """The seeds of one model, all trained or all with their initial weights."""

    name: str
    position: str
    weights: str
    runs: list[dict[str, Any]]

    def curves(
        self, quantity: str, *, pairs: str = "both", layer: int | None = None
    ) -> list[list[float]]:
        """Return one list a seed: the quantity at each distance.

        Args:
            quantity: of `QUANTITIES`.
            pairs: a key of `Pairs`; of one layer there is `both` alone.
            layer: one layer's, the mean over its heads; None is the mean over all.
        """
        parts = [
            run["mean"][pairs] if layer is None else run["by_layer"][layer] for run in self.runs
        ]
        return [part[quantity]["mean"] for part in parts]


def read_decay(file: Path) -> dict[str, Any]:
    """Return a record that holds together.

    Raises:
        RecordError: it cannot be read, a key is missing or of another type, or a list is not as long
            as the distances it is of.
    """
    record = read_json(file, Record)
    for size, bound in record["bound"]["head_sizes"].items():
        _expect(file, f"bound of {size}", len(bound), len(record["bound"]["distances"]))
    for run in record["runs"]:
        _expect(file, f"layers of {run['run']}", len(run["by_layer"]), run["layers"])
        parts = {f"layer {layer}": part for layer, part in enumerate(run["by_layer"])}
        for name, part in (run["mean"] | parts).items():
            distances = record["length"] - 2 if name == "inner" else record["length"]
            for quantity in QUANTITIES:
                for series in (part[quantity]["mean"], part[quantity]["standard_error"]):
                    what = f"{quantity} of {run['run']}, {name}"
                    _expect(file, what, len(series), distances)
    return record


def arms_of(record: dict[str, Any]) -> list[Arm]:
    """Return the arms of a record, trained ones before initial ones of the same name."""
    settings = [json.dumps(run["settings"], sort_keys=True) for run in record["runs"]]
    labels = [run_label(run) for run in record["runs"]]
    names = arm_names(zip(labels, settings, strict=True))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run, own in zip(record["runs"], settings, strict=True):
        groups.setdefault((names[own], run["weights"]), []).append(run)
    arms = [Arm(name, runs[0]["position"], w, runs) for (name, w), runs in groups.items()]
    first = list(dict.fromkeys(arm.name for arm in arms))
    return sorted(arms, key=lambda arm: (first.index(arm.name), arm.weights != "trained"))


def decay_tables(record: dict[str, Any]) -> list[Table]:
    """Return the tables of the bound, and where runs were measured of scores, weights and trend."""
    tables = [bound_table(record)]
    if record["runs"]:
        tables += [measured_table(record, "centred"), measured_table(record, "weight")]
        tables.append(trend_table(record))
    return tables


def bound_table(record: dict[str, Any]) -> Table:
    """Return the bound at some distances, by head size."""
    bound = record["bound"]
    places = {distance: i for i, distance in enumerate(bound["distances"])}
    shown = [distance for distance in BOUND_SHOWN if distance in places]
    lines = [["head size", *map(str, shown)]]
    for size, values in bound["head_sizes"].items():
        lines.append([size, *(f"{values[places[distance]]:.2f}" for distance in shown)])
    return Table(
        "Relative upper bound of the attention score by distance (Eq. 37)",
        lines,
        notes=["The mean of |S_j| over the pairs of a head, as in the paper's Fig. 2 (d = 128)."],
    )


def measured_table(record: dict[str, Any], quantity: str) -> Table:
    """Return a quantity at some distances, by arm: mean ± standard deviation over seeds."""
    shown = [distance for distance in SHOWN if distance < record["length"]]
    percent = quantity == "weight"
    lines = [["model", "weights", *map(str, shown)]]
    for arm in arms_of(record):
        curves = arm.curves(quantity)
        cells = [_mean([curve[d] for curve in curves], percent=percent) for d in shown]
        lines.append([arm.name, arm.weights, *cells])
    return Table(
        f"{QUANTITIES[quantity].capitalize()} by distance{' (%)' if percent else ''}",
        lines,
        text_columns=2,
        notes=[*_notes(quantity), scale(record)],
    )


def trend_table(record: dict[str, Any]) -> Table:
    """Return Spearman's correlation of score and weight with the distance, by arm."""
    columns = {
        f"{name}{', inner' if pairs == 'inner' else ''}": (quantity, pairs)
        for pairs in ("both", "inner")
        for quantity, name in QUANTITIES.items()
    }
    lines = [["model", "weights", *columns]]
    for arm in arms_of(record):
        trends = [trend(arm, quantity, pairs) for quantity, pairs in columns.values()]
        lines.append([arm.name, arm.weights, *map(_mean, trends)])
    return Table(
        "Spearman's correlation with the distance",
        lines,
        text_columns=2,
        notes=[
            f"Of the mean over layers, heads and sequences with the distances 0 to "
            f"{record['length'] - 1}, all counting alike: -1 falls at every step. It says how "
            "steadily something falls, not how much. Inner: without the first and the last token "
            f"([CLS], [SEP]), which most far pairs hold; to {record['length'] - 3}. "
            f"{SPREAD[0].upper()}{SPREAD[1:]}.",
            scale(record),
        ],
    )


def trend(arm: Arm, quantity: str, pairs: str = "both") -> list[float]:
    """Return Spearman's correlation of a quantity with the distance, of each seed.

    NaN where the quantity does not change.
    """
    found = []
    for curve in arm.curves(quantity, pairs=pairs):
        varies = len(set(curve)) > 1
        rank = spearmanr(range(len(curve)), curve).statistic if varies else math.nan
        found.append(float(rank))
    return found


def scale(record: dict[str, Any]) -> str:
    """Return in a sentence what was measured."""
    seeds = len({run["seed"] for run in record["runs"]})
    heads = sorted({f"{run['layers']} × {run['heads']}" for run in record["runs"]})
    return (
        f"Mean over layers and heads ({', '.join(heads)}) and {record['sequences']} validation "
        f"sequences of {record['length']} tokens without masks, both directions together; "
        f"{seeds} seed{'s' if seeds > 1 else ''}."
    )


def _notes(quantity: str) -> list[str]:
    if quantity == "centred":
        return [
            f"Score q·k/√H with its bias, minus the mean of its query's scores, in nats; {SPREAD}."
        ]
    return [
        f"Softmax of the scores; {SPREAD}. Even attention would be 1 / tokens at every distance."
    ]


def _mean(values: Sequence[float], *, percent: bool = False) -> str:
    factor, digits = (100, 2) if percent else (1, 3)
    if any(map(math.isnan, values)):
        return f"NaN ({len(values)})"
    spread = f" ± {factor * statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{factor * statistics.fmean(values):.{digits}f}{spread} ({len(values)})"


def _expect(file: Path, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise RecordError(f"{file} is not what was measured: {what}: {found}, not {expected}")
