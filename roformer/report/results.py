"""Tables of measurements that scripts write as JSON: speed, linear attention, decay, extension."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from roformer.report.runs import RecordError, flattened, run_label
from roformer.report.tables import Table, different_names, mean_lines

SUITES = (
    *("rotary", "training"),
    *("like", "shipped"),  # in older records, for `training`
    *("finetuning", "padding", "translation", "decoding", "data", "kernels"),
    *("mfu", "mfu_compiled", "peers", "peers_compiled"),
)
FORMS = {False: "bidirectional", True: "causal"}
QUANTITIES = {
    "score": "score before the softmax",
    "centred": "centred score",
    "weight": "attention weight",
}
"""Quantity in the record of the decay → name in titles."""
INITIAL = ", initial weights"
"""End of the name of untrained models."""
BOUND_SHOWN = (0, 10, 50, 100, 150, 200, 250)
SHOWN = (0, 1, 2, 5, 10, 20, 50, 100)
"""Distances of the tables."""
RATIO = {
    "what": ("what", "{}"),
    "times faster": ("ratio", "{:.2f}"),
    "goal": ("goal", "{:g}"),
    "met": ("met", "{}"),
    "of matmul peak": ("share_of_limit", "{:.0%}"),
}
SPEED = {
    **RATIO,
    "tokens/s": ("ours_tokens_per_second", "{:,.0f}"),
    "deviations from the paper's setting": ("deviations", "{}"),
}
LINEAR = {
    "form": ("form", "{}"),
    "method": ("method", "{}"),
    "tokens": ("length", "{:,.0f}"),
    "times faster than softmax": ("ratio", "{:.2f}"),
    "ms": ("ours_ms", "{:,.0f}"),
    "softmax ms": ("peer_ms", "{:,.0f}"),
    "MB": ("ours_mb", "{:,.0f}"),
    "softmax MB": ("peer_mb", "{:,.0f}"),
}
OTHERS = {key: RATIO[key] for key in ("what", "times faster", "goal")} | {
    "ms": LINEAR["ms"],
    "theirs, ms": LINEAR["softmax ms"],
}


@contextmanager
def measured(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the content of a JSON file that a script wrote; a missing key is an error that names it."""
    try:
        yield json.loads(file.read_bytes())
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise RecordError(f"{file} is not what was measured: {error} is missing") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise RecordError(f"{file} is not what was measured: {error}") from error


def formatted(frame: pd.DataFrame, columns: Mapping[str, tuple[str, str]]) -> list[list[str]]:
    """Return the lines of a table; a missing value is empty.

    Args:
        frame: one row per line.
        columns: header → column of the frame, and the format of its values.
    """
    texts = {
        header: frame[key].map(form.format, na_action="ignore")
        for header, (key, form) in columns.items()
    }
    return lines_of(pd.DataFrame(texts).fillna(""))


def lines_of(texts: pd.DataFrame) -> list[list[str]]:
    """Return the lines of a table from a frame of texts; its named index comes first."""
    if any(texts.index.names):
        texts = texts.reset_index()
    return [[*map(str, texts.columns)], *texts.to_numpy().tolist()]


# --- speed ---------------------------------------------------------------------------------------


def read_speed(folder: Path, suites: Sequence[str] = SUITES) -> pd.DataFrame:
    """Return the rows of the suites recorded in a folder."""
    files = [folder / f"{suite}.json" for suite in suites]
    if not any(file.is_file() for file in files):
        raise RecordError(f"{folder} has no {', '.join(file.name for file in files)}: make bench")
    found = []
    for file in filter(Path.is_file, files):
        with measured(file) as record:
            rows = pd.DataFrame(record["rows"]).astype({"ratio": float, "goal": float})
            found.append(rows.dropna(subset=["what", "deviations"]))
    return pd.concat(found, ignore_index=True)


def speed_tables(folder: Path, patterns: Sequence[str] = ()) -> list[Table]:
    """Return the table of all suites recorded in a folder, or of the rows that match glob patterns."""
    rows = read_speed(folder)
    if not patterns:
        return [speed_table(rows, SPEED)]
    found = [i for pattern in patterns for i in rows.index if fnmatch(rows.what[i], pattern)]
    columns = {name: RATIO[name] for name in ("what", "times faster", "goal")}
    return [speed_table(rows.loc[found], columns)]


def speed_table(rows: pd.DataFrame, columns: Mapping[str, tuple[str, str]] = RATIO) -> Table:
    """Return the table of rows of a benchmark.

    The peak is the rate of matrix products, measured in the same run.
    """
    goal = rows.goal.astype(float)
    met = (rows.ratio >= goal).map({True: "yes", False: "no"}).where(goal > 0)
    optional = {"share_of_limit": math.nan, "ours_tokens_per_second": math.nan}
    shown = rows.assign(goal=goal, met=met, **{k: v for k, v in optional.items() if k not in rows})
    return Table("Speed against other software", formatted(shown, columns))


def read_linear(file: Path) -> pd.DataFrame:
    """Return the rows of `linear.json` of a benchmark, with `form`, ms and MB.

    A row compares a method with softmax at a length, or, without a method, our code with other software.
    """
    with measured(file) as record:
        rows = pd.DataFrame(record["rows"]).astype({"goal": float})
        for side in ("ours", "peer"):
            rows[f"{side}_ms"] = 1e3 * rows[f"{side}_seconds"]
            rows[f"{side}_mb"] = rows[f"{side}_bytes"] / 1e6
        crossovers(rows := rows.assign(form=rows.causal.map(FORMS)))
        return rows


def linear_tables(file: Path) -> list[Table]:
    """Return times and memory by length, where linear is faster, and other software."""
    rows = read_linear(file)
    others = rows[rows.method.isna()]
    faster = [["form", "method", "faster than softmax from"]]
    for (form, method), length in crossovers(rows).items():
        faster.append([form, method, f"{length:,} tokens" if length else "–"])
    tables = [
        Table(
            "Softmax and linear attention by length",
            formatted(rows.dropna(subset="method"), LINEAR),
            2,
        ),
        Table("Lengths from which linear attention is faster", faster, 2),
    ]
    if not others.empty:
        tables.append(Table("Linear attention of other software", formatted(others, OTHERS)))
    return tables


def encodings_tables(file: Path) -> list[Table]:
    """Return the cost of each position encoding, in multiples of rotary's, from `encodings.json`."""
    with measured(file) as record:
        rows = pd.DataFrame(record["rows"])
        rows["times"] = 1 / rows.ratio
        # Memory is measured only for steps.
        steps, tokens = (rows[found] for found in (rows.ours_bytes > 0, rows.ours_bytes.isna()))
        columns = {"parameters": steps.groupby("encoding", sort=False).parameters.first()}
        kinds = (("step of", steps, "times"), ("token after", tokens, "times"))
        for name, group, value in (*kinds, ("memory at", steps, "ours_bytes")):
            wide = group.pivot(index="encoding", columns="length", values=value)
            for length in wide:
                columns[f"{name} {length:,}"] = wide[length] / wide[length]["rotary"]
    frame = pd.DataFrame(columns).reset_index()
    form = {name: (name, "{:.2f}") for name in frame} | {"parameters": ("parameters", "{:,.0f}")}
    form["encoding"] = ("encoding", "{}")
    return [
        Table("Cost of position encodings, in multiples of rotary's", formatted(frame, form), 1)
    ]


def crossovers(rows: pd.DataFrame) -> dict[tuple[str, str], int | None]:
    """Return, by form and method, the shortest length from which on it is faster than softmax."""
    found = {}
    for key, group in rows.groupby(["form", "method"]):
        slowest = group.length[group.ratio <= 1].max()
        faster = group.length[~(group.length <= slowest)]
        found[key] = None if faster.empty else int(faster.min())
    return found


# --- decay of attention scores -------------------------------------------------------------------


class Decay(NamedTuple):
    """A record of `scripts/decay.py`."""

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
    with measured(file) as record:
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
        f"Of the mean over layers, heads and sequences with the distances 0 to {length - 1}, all counting "
        "alike: -1 falls at every step. It says how steadily something falls, not how much. Inner: without "
        f"the first and the last token ([CLS], [SEP]), which most far pairs hold; to {length - 3}. "
        f"{spread[0].upper()}{spread[1:]}."
    )
    return [*tables, Table("Spearman's correlation with the distance", lines, notes=[note, scale])]


def trend(curve: pd.DataFrame) -> float:
    """Return Spearman's correlation of a curve with the distance; NaN for a constant curve."""
    if curve.value.nunique() == 1:
        return math.nan
    return float(curve.distance.corr(curve.value, method="spearman"))


# --- runs read at other lengths ------------------------------------------------------------------


def extension_tables(file: Path) -> list[Table]:
    """Return loss by length, verdicts, all rows, and loss by place, from `scripts/extension.py`."""
    with measured(file) as record:
        control = record["control_length"]
        rows = pd.DataFrame(record["rows"]).rename(columns={"kind": "scaling"})
        rows["verdict"] = [verdict(row) for row in record["rows"]]
        for key in ("against_control", "against_none"):
            rows[key] = [
                f"{one['difference']:+.4f} ± {one['standard_error']:.4f}" for one in rows[key]
            ]
        columns = {
            "scaling": ("scaling", "{}"),
            "length": ("length", "{:,}"),
            "factor": ("factor", "{:g}"),
            "loss": ("loss", "{:.4f}"),
            "pseudo-perplexity": ("pseudo_perplexity", "{:.2f}"),
            "accuracy": ("accuracy", "{:.2%}"),
            f"against none at {control}": ("against_control", "{}"),
            "against none at this length": ("against_none", "{}"),
        }
        by_length = rows.assign(loss=rows.loss.map("{:.3f}".format)).set_index(
            ["scaling", "length"]
        )
        shown = (rows.scaling == "none") & (rows.length == control)
        whole = rows[shown | (rows.length == rows.length.max())]
        names = pd.Index(whole.scaling + whole.length.map(", {:,}".format), name="scaling, length")
        by_place = pd.DataFrame([*whole.segments], names).map("{:.3f}".format)
        about = (
            f"{record['predicted']:,} predicted tokens of {record['tokens']:,} in {record['windows']} "
            "windows, the same in every row; differences of the loss are ± one standard error over the "
            "windows."
        )
        texts = by_length[["loss", "verdict"]].unstack(sort=False)
        loss, verdicts = (
            lines_of(texts[key].reindex(columns=record["lengths"]).fillna("–"))
            for key in ("loss", "verdict")
        )
        trained = f"trained at {record['trained_length']} tokens"
        means = [
            f"keeps: the loss is not above that of none at {control}, by two standard errors; helps: it is "
            "below that of none at this length."
        ]
        places = lines_of(by_place.rename(columns=lambda number: f"part {number + 1}"))
        return [
            Table(f"Masked-LM loss of {record['run']}, {trained}, by tokens of a sequence", loss),
            Table("What a scaling does, by tokens of a sequence", verdicts, notes=means),
            Table("All of it", formatted(rows, columns), notes=[about]),
            Table("Loss by place: the windows in equal parts", places),
        ]


def verdict(row: Mapping[str, Any]) -> str:
    """Return whether a scaling keeps the control's loss, and whether it helps at this length."""
    kept, gained = row["against_control"], row["against_none"]
    words = {
        "keeps": kept["difference"] <= 2 * kept["standard_error"],
        "helps": gained["difference"] < -2 * gained["standard_error"],
    }
    return ", ".join(word for word, holds in words.items() if holds)
