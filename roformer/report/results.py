"""Tables of what scripts of ours measured and wrote as JSON: speed, linear attention, decay, extension."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from scipy.stats import spearmanr

from roformer.report.runs import RecordError, flattened, run_label
from roformer.report.statistics import mean_text
from roformer.report.tables import Table, different_names, markdown, table_row

SUITES = ("rotary", "like", "shipped", "finetuning", "translation", "decoding", "kernels")
FORMS = {False: "bidirectional", True: "causal"}
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
PAIRS = ("both", "before", "after", "inner")
"""By where the key is; `inner` are pairs of neither the first nor the last token."""
Record = dict[str, Any]


def read_result(file: Path, *keys: str) -> Record:
    """Return the JSON object of a file, which has these keys.

    Raises:
        RecordError: it cannot be read, is no JSON object, or has no such key.
    """
    try:
        found: Record = from_json(file.read_bytes(), allow_inf_nan=False)
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordError(f"{file} is not what was measured: {error}") from error
    for key in keys:
        if not isinstance(found, dict) or key not in found:
            raise RecordError(f"{file} is not what was measured: {key}: is missing")
    return found


# --- speed ---------------------------------------------------------------------------------------


def speed_rows(folder: Path, suites: Sequence[str] = SUITES) -> list[Record]:
    """Return the rows of the suites recorded in a folder.

    Raises:
        RecordError: no suite is recorded there, or a record is damaged.
    """
    files = [folder / f"{suite}.json" for suite in suites]
    if not any(file.is_file() for file in files):
        raise RecordError(f"{folder} has no {', '.join(file.name for file in files)}: make bench")
    return [row for f in files if f.is_file() for row in _measured(f, ("what", "deviations"))]


def _measured(
    file: Path, words: Sequence[str], numbers: Sequence[str] = ("ratio",)
) -> list[Record]:
    """Return the rows of a benchmark's record, with these words and positive numbers, and a goal."""
    rows = read_result(file, "rows")["rows"]
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
        for key in (*words, *numbers, "goal"):
            found = row.get(key, "") if isinstance(row, dict) else ""
            sound = bool(found) and isinstance(found, str)
            if key not in words:
                sound = (key == "goal" and found is None) or (
                    isinstance(found, (int, float)) and 0 < found < 1e15
                )
            if not sound:
                what = "no text" if key in words else "not a positive number"
                raise RecordError(f"{file} is not what was measured: row {number}, {key}: {what}")
    return list(rows)


def speed_table(folder: Path) -> str:
    """Return a Markdown table of all suites recorded in a folder; see `speed_rows`."""
    lines = [
        "| what | times faster | goal | tokens/s | deviations from the paper's setting |",
        "|---|---:|---:|---:|---|",
    ]
    for row in speed_rows(folder):
        goal = f"{row['goal']:g}" if row["goal"] else ""
        speed = row.get("ours_tokens_per_second")
        tokens = f"{speed:,.0f}" if speed else ""
        cells = [row["what"], f"{row['ratio']:.2f}", goal, tokens, row["deviations"]]
        lines.append(table_row(cells))
    return "\n".join(lines)


# --- linear attention by length ------------------------------------------------------------------


def read_linear(file: Path) -> list[Record]:
    """Return the rows of a record of `python -m benchmarks linear`.

    A row is of a method against softmax at a length, or, without a method, against another code.

    Raises:
        RecordError: it is missing or damaged, or has no row by length.
    """
    numbers = ("ratio", "peer_seconds", "ours_seconds")
    rows = _measured(file, ("what",), numbers)
    by_length = [row for row in rows if "method" in row]
    if not by_length:
        raise RecordError(f"{file} has no row of a method and a length: make bench ARGS=linear")
    for row in by_length:
        if missing := {"causal", "length", "peer_bytes", "ours_bytes"} - row.keys():
            raise RecordError(f"{file} has a row without {min(missing)}: {row['what']}")
    return rows


def linear_table(file: Path) -> str:
    """Return Markdown tables: times and memory by length, where linear is faster, the other code."""
    rows = read_linear(file)
    columns = ["form", "method", "tokens", "times faster than softmax"]
    by_length = [[*columns, "ms", "softmax ms", "MB", "softmax MB"]]
    others = [["what", "times faster", "goal", "ms", "theirs, ms"]]
    for row in rows:
        ratio = f"{row['ratio']:.2f}"
        times = [f"{1e3 * row[key]:,.0f}" for key in ("ours_seconds", "peer_seconds")]
        if "method" in row:
            memory = [f"{row[key] / 1e6:,.0f}" for key in ("ours_bytes", "peer_bytes")]
            words = [FORMS[row["causal"]], row["method"], f"{row['length']:,}"]
            by_length.append([*words, ratio, *times, *memory])
        else:
            others.append([row["what"], ratio, f"{row['goal']:g}" if row["goal"] else "", *times])
    faster = [["form", "method", "faster than softmax from"]]
    faster += [
        [FORMS[causal], method, "–" if length is None else f"{length:,} tokens"]
        for (causal, method), length in crossovers(rows).items()
    ]
    tables = [markdown(by_length, text_columns=2), markdown(faster, text_columns=2)]
    return "\n\n".join([*tables, *([markdown(others, text_columns=1)] if others[1:] else [])])


def crossovers(rows: list[Record]) -> dict[tuple[bool, str], int | None]:
    """Return, by form and method, the shortest length from which on it is faster than softmax."""
    found: dict[tuple[bool, str], int | None] = {}
    for row in sorted((r for r in rows if "method" in r), key=lambda r: int(r["length"])):
        key = (row["causal"], row["method"])
        if row["ratio"] <= 1:
            found[key] = None
        elif found.get(key) is None:
            found[key] = row["length"]
    return dict(sorted(found.items()))


# --- decay of attention scores -------------------------------------------------------------------


def read_decay(file: Path) -> Record:
    """Return a record of `scripts/decay.py`.

    Raises:
        RecordError: it cannot be read, a key is missing, or a list is not as long as the distances it
            is of.
    """
    record = read_result(file, "bound", "sequences", "length", "runs")
    try:
        _check_lengths(record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RecordError(f"{file} is not what was measured: {error}") from error
    return record


def _check_lengths(record: Record) -> None:
    distances = len(record["bound"]["distances"])
    expected = [(f"bound of {k}", v, distances) for k, v in record["bound"]["head_sizes"].items()]
    for run in record["runs"]:
        expected.append((f"layers of {run['run']}", run["by_layer"], run["layers"]))
        parts = {f"layer {layer}": part for layer, part in enumerate(run["by_layer"])}
        whole = {pairs: run["mean"][pairs] for pairs in PAIRS}
        for name, part in (whole | parts).items():
            length = record["length"] - 2 if name == "inner" else record["length"]
            for quantity in QUANTITIES:
                what = f"{quantity} of {run['run']}, {name}"
                expected.append((what, part[quantity]["mean"], length))
    for what, found, length in expected:
        if len(found) != length:
            raise ValueError(f"{what}: {len(found)}, not {length}")


def networks(record: Record) -> dict[tuple[str, str], list[Record]]:
    """Return (configuration, weights) → its seeds; trained ones before initial ones of one name."""
    settings = [json.dumps(run["settings"], sort_keys=True) for run in record["runs"]]
    names = different_names(
        (run_label(run), own, flattened(run["settings"]))
        for run, own in zip(record["runs"], settings, strict=True)
    )
    found: dict[tuple[str, str], list[Record]] = {}
    for run, own in zip(record["runs"], settings, strict=True):
        found.setdefault((names[own], run["weights"]), []).append(run)
    first = list(dict.fromkeys(name for name, _ in found))
    order = sorted(found, key=lambda key: (first.index(key[0]), key[1] != "trained"))
    return {key: found[key] for key in order}


def by_distance(
    seeds: list[Record], quantity: str, *, pairs: str = "both", layer: int | None = None
) -> list[list[float]]:
    """Return a quantity at each distance, one list a seed.

    Args:
        seeds: of one configuration.
        quantity: of `QUANTITIES`.
        pairs: by where the key is; `inner` are pairs of neither the first nor the last token.
        layer: one layer's, the mean over its heads; None is the mean over all.
    """
    parts = [run["mean"][pairs] if layer is None else run["by_layer"][layer] for run in seeds]
    return [part[quantity]["mean"] for part in parts]


def decay_tables(record: Record) -> list[Table]:
    """Return the tables of the bound, and where runs were measured of scores, weights and trend."""
    bound = record["bound"]
    places = {distance: i for i, distance in enumerate(bound["distances"])}
    shown = [distance for distance in BOUND_SHOWN if distance in places]
    lines = [["head size", *map(str, shown)]]
    for size, values in bound["head_sizes"].items():
        lines.append([size, *(f"{values[places[distance]]:.2f}" for distance in shown)])
    title = "Relative upper bound of the attention score by distance (Eq. 37)"
    note = "The mean of |S_j| over the pairs of a head, as in the paper's Fig. 2 (d = 128)."
    tables = [Table(title, lines, notes=[note])]
    if record["runs"]:
        how = "Score q·k/√H with its bias, minus the mean of its query's scores, in nats"
        tables.append(_by_distance(record, "centred", f"{how}; {SPREAD}.", 1, 3))
        how = "Even attention would be 1 / tokens at every distance."
        how = f"Softmax of the scores; {SPREAD}. {how}"
        tables.append(_by_distance(record, "weight", how, 100, 2))
        tables.append(_trends(record))
    return tables


def _by_distance(record: Record, quantity: str, note: str, factor: int, digits: int) -> Table:
    """Return a quantity at some distances, by configuration."""
    shown = [distance for distance in SHOWN if distance < record["length"]]
    lines = [["model", "weights", *map(str, shown)]]
    for key, seeds in networks(record).items():
        curves = by_distance(seeds, quantity)
        cells = [mean_text([curve[d] for curve in curves], digits, factor=factor) for d in shown]
        lines.append([*key, *cells])
    title = f"{QUANTITIES[quantity].capitalize()} by distance{' (%)' if factor == 100 else ''}"
    return Table(title, lines, text_columns=2, notes=[note, scale(record)])


def _trends(record: Record) -> Table:
    """Return Spearman's correlation of score and weight with the distance, by configuration."""
    columns = {
        f"{name}{', inner' if pairs == 'inner' else ''}": (quantity, pairs)
        for pairs in ("both", "inner")
        for quantity, name in QUANTITIES.items()
    }
    lines = [["model", "weights", *columns]]
    for key, seeds in networks(record).items():
        found = [trend(by_distance(seeds, q, pairs=pairs)) for q, pairs in columns.values()]
        lines.append([*key, *(mean_text(values, 3) for values in found)])
    note = (
        f"Of the mean over layers, heads and sequences with the distances 0 to {record['length'] - 1}, "
        "all counting alike: -1 falls at every step. It says how steadily something falls, not how much. "
        "Inner: without the first and the last token ([CLS], [SEP]), which most far pairs hold; to "
        f"{record['length'] - 3}. {SPREAD[0].upper()}{SPREAD[1:]}."
    )
    notes = [note, scale(record)]
    return Table("Spearman's correlation with the distance", lines, text_columns=2, notes=notes)


def trend(curves: Sequence[Sequence[float]]) -> list[float]:
    """Return Spearman's correlation of curves with the distance; NaN of one that does not change."""
    return [
        float(spearmanr(range(len(curve)), curve).statistic) if len(set(curve)) > 1 else math.nan
        for curve in curves
    ]


def scale(record: Record) -> str:
    """Return in a sentence what was measured."""
    seeds = len({run["seed"] for run in record["runs"]})
    heads = sorted({f"{run['layers']} × {run['heads']}" for run in record["runs"]})
    return (
        f"Mean over layers and heads ({', '.join(heads)}) and {record['sequences']} validation "
        f"sequences of {record['length']} tokens without masks, both directions together; "
        f"{seeds} seed{'s' if seeds > 1 else ''}."
    )


# --- runs read at other lengths ------------------------------------------------------------------


def extension_tables(record: Record) -> str:
    """Return four Markdown tables: loss by length, what it means, all by row, and loss by place.

    Args:
        record: of `scripts/extension.py`.
    """
    found = {(row["kind"], row["length"]): row for row in record["rows"]}
    kinds = list(dict.fromkeys(row["kind"] for row in record["rows"]))
    lengths = record["lengths"]
    longest = max(row["length"] for row in record["rows"])

    def by_length(cell: Callable[[Record], str]) -> list[list[str]]:
        rows = {kind: [found.get((kind, length)) for length in lengths] for kind in kinds}
        lines = [
            [kind, *("–" if r is None else cell(r) for r in row)] for kind, row in rows.items()
        ]
        return [["scaling", *map(str, lengths)], *lines]

    def paired(found: Mapping[str, float]) -> str:
        return f"{found['difference']:+.4f} ± {found['standard_error']:.4f}"

    columns: dict[str, Callable[[Record], str]] = {
        "length": lambda row: f"{row['length']:,}",
        "factor": lambda row: f"{row['factor']:g}",
        "loss": lambda row: f"{row['loss']:.4f}",
        "pseudo-perplexity": lambda row: f"{row['pseudo_perplexity']:.2f}",
        "accuracy": lambda row: f"{row['accuracy']:.2%}",
        f"against none at {record['control_length']}": lambda row: paired(row["against_control"]),
        "against none at this length": lambda row: paired(row["against_none"]),
    }
    by_row = [["scaling", *columns]]
    by_row += [[r["kind"], *(show(r) for show in columns.values())] for r in record["rows"]]
    shown = [(kind, longest) for kind in kinds]
    if (control := ("none", record["control_length"])) not in shown:
        shown.insert(0, control)
    parts = range(1, len(record["rows"][0]["segments"]) + 1)
    by_place = [["scaling, length", *(f"part {part}" for part in parts)]]
    for kind, length in shown:
        losses = [f"{loss:.3f}" for loss in found[kind, length]["segments"]]
        by_place.append([f"{kind}, {length:,}", *losses])
    tables = {
        f"**Masked-LM loss** of {record['run']}, trained at {record['trained_length']} tokens, by "
        "tokens of a sequence": by_length(lambda row: f"{row['loss']:.3f}"),
        f"By two standard errors: `keeps` where the loss is not above that of none at "
        f"{record['control_length']}, `helps` where it is below that of none at this length": (
            by_length(verdict)
        ),
        f"All of it: {record['predicted']:,} predicted tokens of {record['tokens']:,} in "
        f"{record['windows']} windows, the same in every row; differences of the loss are ± one "
        "standard error over the windows": by_row,
        "Loss by place: the windows in equal parts": by_place,
    }
    return "\n\n".join(
        f"{caption}\n\n{markdown(lines, text_columns=1)}" for caption, lines in tables.items()
    )


def verdict(row: Record) -> str:
    """Return whether a scaling keeps the control's loss, and whether it helps at this length."""
    kept, gained = row["against_control"], row["against_none"]
    words = {
        "keeps": kept["difference"] <= 2 * kept["standard_error"],
        "helps": gained["difference"] < -2 * gained["standard_error"],
    }
    return ", ".join(word for word, holds in words.items() if holds)
