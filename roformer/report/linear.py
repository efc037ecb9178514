"""Table and figure of linear attention by length, from the record of `python -m benchmarks linear`."""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from typing_extensions import TypedDict

from roformer.report.drawing import NEUTRAL, draw, legend_below, line_of, log_axis, looks
from roformer.report.records import Number, RecordError, read_json
from roformer.report.tables import markdown

FORMS = {False: "bidirectional", True: "causal"}


class Measured(TypedDict):
    """One row: a method against softmax at a length, or, without a method, against another code."""

    what: str
    ratio: Number
    goal: Number | None
    peer_seconds: Number
    ours_seconds: Number
    method: NotRequired[str]
    causal: NotRequired[bool]
    length: NotRequired[int]
    peer_bytes: NotRequired[Number]
    ours_bytes: NotRequired[Number]


class Record(TypedDict):
    """What is used of the record."""

    rows: list[Measured]


def read_linear(file: Path) -> list[Measured]:
    """Return the rows of a record.

    Raises:
        RecordError: it is missing or damaged, has no row by length, or a number is not positive.
    """
    rows: list[Measured] = read_json(file, Record)["rows"]
    if not any("method" in row for row in rows):
        raise RecordError(f"{file} has no row of a method and a length: make bench ARGS=linear")
    for row in rows:
        numbers = [row["ratio"], row["peer_seconds"], row["ours_seconds"]]
        if "method" in row:
            if missing := {"causal", "length", "peer_bytes", "ours_bytes"} - row.keys():
                raise RecordError(f"{file} has a row without {min(missing)}: {row['what']}")
            numbers += [row["length"], row["peer_bytes"], row["ours_bytes"]]
        if min(numbers) <= 0:
            raise RecordError(f"{file} has a number that is not positive: {row['what']}")
    return rows


def linear_table(file: Path) -> str:
    """Return Markdown tables: times and memory by length, where linear is faster, the other code."""
    rows = read_linear(file)
    by_length = [["form", "method", "tokens", "times faster than softmax", "ms", "softmax ms",
                  "MB", "softmax MB"]]  # fmt: skip
    for row in rows:
        if "method" not in row:
            continue
        by_length.append(
            [
                FORMS[row["causal"]],
                row["method"],
                f"{row['length']:,}",
                f"{row['ratio']:.2f}",
                f"{1e3 * row['ours_seconds']:,.0f}",
                f"{1e3 * row['peer_seconds']:,.0f}",
                f"{row['ours_bytes'] / 1e6:,.0f}",
                f"{row['peer_bytes'] / 1e6:,.0f}",
            ]
        )
    faster = [["form", "method", "faster than softmax from"]]
    faster += [
        [FORMS[causal], method, "–" if length is None else f"{length:,} tokens"]
        for (causal, method), length in crossovers(rows).items()
    ]
    tables = [markdown(by_length, text_columns=2), markdown(faster, text_columns=2)]
    others = [row for row in rows if "method" not in row]
    if others:
        peers = [["what", "times faster", "goal", "ms", "theirs, ms"]]
        for row in others:
            goal = f"{row['goal']:g}" if row["goal"] else ""
            times = [f"{1e3 * row[key]:,.0f}" for key in ("ours_seconds", "peer_seconds")]
            peers.append([row["what"], f"{row['ratio']:.2f}", goal, *times])
        tables.append(markdown(peers, text_columns=1))
    return "\n\n".join(tables)


def crossovers(rows: list[Measured]) -> dict[tuple[bool, str], int | None]:
    """Return, by form and method, the shortest length from which on it is faster than softmax."""
    found: dict[tuple[bool, str], int | None] = {}
    for row in sorted((r for r in rows if "method" in r), key=lambda r: r["length"]):
        key = (row["causal"], row["method"])
        if row["ratio"] <= 1:
            found[key] = None
        elif found.get(key) is None:
            found[key] = row["length"]
    return dict(sorted(found.items()))


def draw_linear(file: Path, output: Path) -> str:
    """Draw time and memory against length, softmax and each method, both forms; return the caption."""
    rows = [row for row in read_linear(file) if "method" in row]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    style = looks({name: name for name in ("softmax", *methods)})
    crossing = crossovers(rows)
    data = ["linear", [[row["method"], row["causal"], row["length"], row["ours_seconds"],
                        row["peer_seconds"], row["ours_bytes"], row["peer_bytes"], row["ratio"]]
                       for row in rows]]  # fmt: skip
    quantities = (("seconds", 1.0, "s, forward and backward"), ("bytes", 1e6, "peak memory, MB"))

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2, 2, sharex=True, sharey="row", squeeze=False)
        for column, causal in enumerate(FORMS):
            grid[0, column].set_title(FORMS[causal], loc="left")
            grid[1, column].set_xlabel("tokens")
            for line, (quantity, unit, label) in enumerate(quantities):
                axes = grid[line, column]
                for name in ("softmax", *methods):
                    # Softmax was measured once a length, and stands in the row of every method.
                    own = [
                        row
                        for row in rows
                        if row["causal"] == causal
                        and row["method"] == (methods[0] if name == "softmax" else name)
                    ]
                    key = f"{'peer' if name == 'softmax' else 'ours'}_{quantity}"
                    values = [row[key] / unit for row in own]  # type: ignore[literal-required]
                    axes.plot(
                        [row["length"] for row in own],
                        values,
                        color=style[name].colour,
                        linestyle=style[name].dash,
                        marker=style[name].marker,
                        markersize=4,
                    )
                for method in methods:
                    if line == 0 and (length := crossing.get((causal, method))):
                        axes.axvline(length, color=style[method].colour, linewidth=0.6)
                axes.set_xscale("log", base=2)
                axes.set_xticks(
                    sorted({row["length"] for row in rows}),
                    [f"{length:,}" for length in sorted({row["length"] for row in rows})],
                    fontsize=8,
                )
                axes.minorticks_off()
                log_axis(axes.yaxis, (1.0,))
                if column == 0:
                    axes.set_ylabel(label)
        samples = [(line_of(style[name]), name) for name in ("softmax", *methods)]
        crossed = Line2D([], [], color=NEUTRAL, linewidth=0.6)
        legend_below(figure, [*samples, (crossed, "faster than softmax from here")])

    draw(output, data, (7.6, 5.6), paint)
    told = ", ".join(
        f"{method} {FORMS[causal]} " + (f"from {length:,} tokens" if length else "nowhere here")
        for (causal, method), length in crossing.items()
    )
    return (
        "Time and peak memory of one attention layer's kernel by length, forward and backward, on "
        f"logarithmic axes. Faster than fused softmax: {told}. 8 heads of 64, batch 1, fp32, medians "
        "of interleaved rounds; memory is what one pass adds to a process of its own."
    )
