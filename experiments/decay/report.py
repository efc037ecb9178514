"""The blocks of REPORT.md: the bound of the attention score, and scores of trained models by distance."""

import json
import math
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from roformer.report.drawing import BAND, Panel, draw_curves, draw_ordered, style_of
from roformer.report.runs import flattened, run_label
from roformer.report.tables import Table, different_names, figure_markdown, lines_of, mean_lines

QUANTITIES = {
    "score": "score before the softmax",
    "centred": "centred score",
    "weight": "attention weight",
}
"""Quantity in the record → name in titles."""
INITIAL = ", initial weights"
"""End of the name of untrained models."""
BOUND_SHOWN = (0, 10, 50, 100, 150, 200, 250)
SHOWN = (0, 1, 2, 5, 10, 20, 50, 100)
"""Distances of the tables."""


class Decay(NamedTuple):
    """A record of `measure.py`."""

    bound: pd.DataFrame
    """By distance (rows) and head size (columns)."""
    curves: pd.DataFrame
    """One row per value: name (of the configuration, with `INITIAL` if untrained), position, seed, layer
    (-1: the mean over all), pairs (`both`; `inner`: without the first and the last token), quantity,
    distance, value."""
    length: int
    scale: str
    """The measurement, in a sentence."""


def read_decay(file: Path) -> Decay:
    """Return a record of the decay."""
    record = json.loads(file.read_bytes())
    bound = pd.DataFrame(record["bound"]["head_sizes"], index=record["bound"]["distances"])
    runs = record["runs"]
    keys = [json.dumps(run["settings"], sort_keys=True) for run in runs]
    names = different_names(
        (run_label(run), key, flattened(run["settings"]))
        for run, key in zip(runs, keys, strict=True)
    )
    rows = []
    for run, key in zip(runs, keys, strict=True):
        parts = [(-1, pairs, run["mean"][pairs]) for pairs in ("both", "inner")]
        parts += [(layer, "both", part) for layer, part in enumerate(run["by_layer"])]
        name = names[key] + (INITIAL if run["weights"] == "initial" else "")
        about = (name, run["position"], run["seed"])
        rows += [
            (*about, layer, pairs, quantity, distance, value)
            for layer, pairs, part in parts
            for quantity in QUANTITIES
            for distance, value in enumerate(part[quantity]["mean"])
        ]
    columns = ["name", "position", "seed", "layer", "pairs", "quantity"]
    curves = pd.DataFrame(rows, columns=[*columns, "distance", "value"])
    seeds = len({run["seed"] for run in runs})
    heads = sorted({f"{run['layers']} × {run['heads']}" for run in runs})
    scale = (
        f"Mean over layers and heads ({', '.join(heads)}) and {record['sequences']} validation "
        f"sequences of {record['length']} tokens without masks, both directions together; "
        f"{seeds} seed{'s' if seeds > 1 else ''}."
    )
    return Decay(bound, curves, record["length"], scale)


def decay_tables(file: Path) -> list[Table]:
    """Return the tables of the bound and, if runs were measured, of scores, weights and trend."""
    bound, curves, length, scale = read_decay(file)
    shown = bound[bound.index.isin(BOUND_SHOWN)].T.map("{:.2f}".format).rename_axis("head size")
    title = "Relative upper bound of the attention score by distance (Eq. 37)"
    note = "The mean of |S_j| over the pairs of a head, as in the paper's Fig. 2 (d = 128)."
    tables = [Table(title, lines_of(shown), notes=[note])]
    if curves.empty:
        return tables
    spread = "mean ± standard deviation over seeds (n)"
    means = curves[curves.layer < 0].rename(columns={"name": "model"})
    notes = {
        "centred": f"Score q·k/√H with its bias, minus the mean of its query's scores, in nats; {spread}.",
        "weight": f"Softmax of the scores, in percent; {spread}. Even attention would be 1 / tokens at "
        "every distance.",
    }
    some = means[(means.pairs == "both") & means.distance.isin(SHOWN)]
    some = some.assign(distance=some.distance.map(str))
    for quantity, note in notes.items():
        digits, factor = (2, 100) if quantity == "weight" else (3, 1)
        own = some[some.quantity == quantity]
        lines = mean_lines(own.assign(value=factor * own.value), "model", "distance", digits)
        title = f"{QUANTITIES[quantity].capitalize()} by distance"
        tables.append(Table(title, lines, notes=[note, scale]))
    inner = means.pairs.map({"both": "", "inner": ", inner"})
    means = means.assign(what=means.quantity.map(QUANTITIES) + inner)
    trends = means.groupby(["model", "what", "seed"], sort=False).apply(trend).rename("value")
    lines = mean_lines(trends.reset_index(), "model", "what", 3)
    note = (
        "The correlation of the mean over layers, heads and sequences with the distances 0 to "
        f"{length - 1}, all counting alike: -1 falls at every step. It says how steadily a curve falls, not "
        "how much. Inner: without the first and the last token ([CLS], [SEP]), which most far pairs hold; to "
        f"{length - 3}. {spread[0].upper()}{spread[1:]}."
    )
    return [*tables, Table("Spearman's correlation with the distance", lines, notes=[note, scale])]


def trend(curve: pd.DataFrame) -> float:
    """Return Spearman's correlation of a curve with the distance; NaN for a constant curve."""
    if curve.value.nunique() == 1:
        return math.nan
    return float(curve.distance.corr(curve.value, method="spearman"))


def draw_bound(file: Path, output: Path) -> str:
    """Draw the relative upper bound of the score by distance, in closed form (the paper's Fig. 2)."""
    bound = read_decay(file).bound
    frame = bound.rename_axis("x").melt(var_name="size", value_name="y", ignore_index=False)
    names = "d = " + frame["size"] + (frame["size"] == "128").map({True: " (paper)", False: ""})
    frame = frame.reset_index().assign(name=[*names], position=[*names], seed=0, panel=0)
    panel = Panel("relative distance (tokens)", "mean of |S_j|", log="y")
    draw_ordered(output, frame, [panel], size=(4.6, 3.4))
    return (
        "Relative upper bound of the attention score by distance (paper, Eq. 37 and Fig. 2), in closed "
        f"form for head sizes {', '.join(bound)}. It falls, but not at every step."
    )


def draw_measured_decay(file: Path, output: Path) -> str:
    """Draw centred score and attention weight by distance, trained and with initial weights."""
    decay = read_decay(file)
    whole = decay.curves[(decay.curves.layer < 0) & (decay.curves.pairs == "both")]
    frame = whole.assign(panel=whole.quantity.map({"centred": 0, "weight": 1}))
    frame = frame.dropna(subset="panel").assign(x=frame.distance, y=frame.value)
    style = {
        name: look._replace(dash=":") if name.endswith(INITIAL) else look
        for name, look in style_of(frame).items()
    }
    panels = [
        Panel("distance (tokens)", "centred score (nats)"),
        Panel("distance (tokens)", "attention weight", log="y"),
    ]
    draw_curves(output, frame, panels, style)
    return (
        "Attention by distance between query and key: left the score before the softmax minus the mean "
        f"of its query's scores, right the weight after the softmax. {BAND.capitalize()}. {decay.scale} The "
        "farthest pairs are few and mostly hold [CLS] or [SEP]."
    )


def draw_decay_by_layer(file: Path, output: Path) -> str:
    """Draw the centred score of trained runs by distance, one panel per layer."""
    decay = read_decay(file)
    frame = decay.curves.query("layer >= 0 and quantity == 'centred'")
    frame = frame[~frame.name.str.endswith(INITIAL)]
    frame = frame.assign(panel=frame.layer, x=frame.distance, y=frame.value)
    layers = frame.layer.max() + 1
    panels = [
        Panel(
            "distance (tokens)", "" if layer % 4 else "centred score (nats)", f"layer {layer + 1}"
        )
        for layer in range(layers)
    ]
    size = (max(4.0, 1.7 * min(layers, 4)), 1.9 * -(-layers // 4) + 0.8)
    draw_ordered(output, frame, panels, columns=4, size=size)
    return (
        "Score before the softmax minus the mean of its query's scores, by distance, in each layer of "
        f"trained models; the axes of the panels differ. {BAND.capitalize()}. {decay.scale}"
    )


def tables(folder: Path, words: list[str]) -> list[Table]:
    """`tables FILE`: the tables of a record."""
    return decay_tables(folder / words[0])


def figure(folder: Path, words: list[str]) -> str:
    """`figure KIND PNG FILE`: a figure of a record, with its caption."""
    kind, name, file = words
    draw = {"bound": draw_bound, "decay": draw_measured_decay, "by_layer": draw_decay_by_layer}[
        kind
    ]
    return figure_markdown(draw(folder / file, folder / name), name)
