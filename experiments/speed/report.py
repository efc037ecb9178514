"""The blocks of REPORT.md: benchmarks against other software, of linear attention and of encodings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from roformer.report.drawing import (
    NEUTRAL,
    Look,
    Panel,
    draw_curves,
    legend,
    log_axis,
    looks,
    new_figure,
    shown,
)
from roformer.report.tables import RATIO, Table, figure_markdown, formatted, speed_table

SUITES = (
    *("rotary", "training"),
    *("like", "shipped"),  # in older records, for `training`
    *("finetuning", "translation", "decoding", "data", "kernels"),
    *("mfu", "mfu_compiled", "peers", "peers_compiled"),
)
PIPELINES = {
    "pre-training step, mini": ("mini step, like for like, tuned.*", "mini step, as shipped.*"),
    "pre-training step, base": ("base step, like for like, tuned.*", "base step, as shipped.*"),
    "fine-tuning epoch": ("fine-tuning epoch, like for like.*", "fine-tuning epoch, as shipped"),
    "translation step, equal batches": (
        "translation step, equal batches, process settings and fp32.*",
        "translation step, equal batches, as shipped",
    ),
    "translation step, Multi30k's lengths": (
        "translation step, Multi30k's lengths, process settings.*",
        "translation step, Multi30k's lengths, as shipped",
    ),
}
"""Name of a comparison → patterns of its row like for like and of its row as shipped."""
FORMS = {False: "bidirectional", True: "causal"}
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
GOALS = {
    "met": ("#0072B2", "", "goal met"),
    "missed": ("#D55E00", "///", "goal missed"),
    "none": ("#999999", "", "no goal"),
}
"""Colour, hatch and legend of a bar of `draw_speed`."""


def read_speed(folder: Path, suites: Sequence[str] = SUITES) -> pd.DataFrame:
    """Return the rows of the suites recorded in a folder."""
    files = [folder / f"{suite}.json" for suite in suites]
    found = []
    for file in filter(Path.is_file, files):
        record = json.loads(file.read_bytes())
        rows = pd.DataFrame(record["rows"]).astype({"ratio": float, "goal": float})
        found.append(rows.dropna(subset=["what", "deviations"]))
    return pd.concat(found, ignore_index=True)


def read_linear(file: Path) -> pd.DataFrame:
    """Return the rows of `linear.json` of a benchmark, with `form`, ms and MB.

    A row compares a method with softmax at a length, or, without a method, our code with other software.
    """
    record = json.loads(file.read_bytes())
    rows = pd.DataFrame(record["rows"]).astype({"goal": float})
    for side in ("ours", "peer"):
        rows[f"{side}_ms"] = 1e3 * rows[f"{side}_seconds"]
        rows[f"{side}_mb"] = rows[f"{side}_bytes"] / 1e6
    crossovers(rows := rows.assign(form=rows.causal.map(FORMS)))
    return rows


def linear(folder: Path, words: list[str]) -> list[Table]:
    """`linear FILE`: times and memory by length, where linear is faster, and other software."""
    rows = read_linear(folder / words[0])
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


def encodings(folder: Path, words: list[str]) -> list[Table]:
    """`encodings FILE`: the cost of each position encoding, in multiples of rotary's."""
    record = json.loads((folder / words[0]).read_bytes())
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


def draw_linear(file: Path, output: Path) -> str:
    """Draw time and memory against length, softmax and each linear method, both forms."""
    rows = read_linear(file).dropna(subset="method")
    crossing = crossovers(rows)
    style = looks({name: name for name in ("softmax", *rows.method.unique())})
    style["softmax"] = Look(NEUTRAL, "--")
    labels = {"ms": "ms, forward and backward", "mb": "peak memory, MB"}
    parts: list[pd.DataFrame] = []
    panels: list[Panel] = []
    for quantity, label in labels.items():
        for form in FORMS.values():
            own = rows[rows.form == form].assign(panel=len(panels), x=rows.length)
            # Softmax was measured once per length and is repeated in the row of every method.
            softmax = own.drop_duplicates("length").assign(name="softmax")
            parts += [own.assign(name=own.method, y=own[f"ours_{quantity}"])]
            parts += [softmax.assign(y=softmax[f"peer_{quantity}"])]
            first, top = form == FORMS[False], quantity == "ms"
            faster = [
                ("x", length, style[method].colour)
                for (its, method), length in crossing.items()
                if top and its == form and length
            ]
            ticks = sorted(map(int, rows.length.unique()))
            names = ("" if top else "tokens", label if first else "", form if top else "")
            panels.append(Panel(*names, log="xy", ticks=ticks, references=faster))
    frame = pd.concat(parts).assign(seed=0)
    draw_curves(
        output,
        frame,
        panels,
        style,
        share=True,
        markers=True,
        size=(7.6, 5.6),
    )
    faster = ", ".join(
        f"{method} {form} " + (f"from {length:,} tokens" if length else "nowhere here")
        for (form, method), length in crossing.items()
    )
    return (
        "Time and peak memory of one attention layer's kernel by length, forward and backward, on "
        f"logarithmic axes. Faster than fused softmax: {faster}. 8 heads of 64, batch 1, fp32, medians "
        "of interleaved rounds; memory is what one pass adds to a separate process."
    )


def draw_speed(folder: Path, output: Path) -> str:
    """Draw how many times faster than other software each measured row is, with its goal."""
    # The kernel suite and some rows of other suites compare our own alternatives.
    rows = read_speed(folder, [suite for suite in SUITES if suite != "kernels"])
    rows = rows[~rows.what.str.contains("against itself")]
    met = (rows.ratio >= rows.goal).map({True: "met", False: "missed"}).where(rows.goal > 0, "none")

    with new_figure(output, (7.6, 0.22 * len(rows) + 1.0)) as figure:
        axes = figure.subplots()
        for place, (row, kind) in enumerate(zip(rows.itertuples(), met, strict=True)):
            colour, hatch, _ = GOALS[kind]
            axes.barh(place, row.ratio - 1, 0.7, 1, color=colour, hatch=hatch, edgecolor="white")
            axes.vlines(row.goal, place - 0.45, place + 0.45, NEUTRAL, linewidth=2)
            right = max(row.ratio, 1, 0 if kind == "none" else row.goal)
            axes.annotate(
                f"{row.ratio:.2f}",
                (right, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_yticks(range(len(rows)), [shown(what, 90) for what in rows.what], fontsize=8)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("times faster (1: as fast)")
        log_axis(axes.xaxis)
        axes.axvline(1, color=NEUTRAL, linewidth=0.8)
        axes.margins(x=0.12)
        axes.grid(axis="y", visible=False)
        samples: dict[str, Any] = {
            text: Patch(facecolor=colour, hatch=hatch, edgecolor="white")
            for colour, hatch, text in GOALS.values()
        }
        samples["goal"] = Line2D(
            [], [], color=NEUTRAL, linestyle="", marker="|", markersize=10, markeredgewidth=2
        )
        legend(figure, samples)
    return (
        f"Throughput as a multiple of the other software's on the same machine, {len(rows)} comparisons "
        f"on a logarithmic axis; {(met == 'met').sum()} of {rows.goal.count()} goals are met. Each row is "
        "one run of the benchmark; the table below names what deviates from the paper's setting."
    )


def speed(folder: Path, words: list[str]) -> list[Table]:
    """`speed FOLDER`: the rows of all suites of a folder."""
    return [speed_table(read_speed(folder / words[0]), SPEED)]


def pipelines(folder: Path, words: list[str]) -> list[Table]:
    """`pipelines FOLDER`: the ratios of each pipeline, like for like and as shipped."""
    rows = read_speed(folder / words[0])
    lines = [["times faster", "like for like", "as shipped", "ours has"]]
    for name, patterns in PIPELINES.items():
        like, shipped = (rows[rows.what.str.fullmatch(what)].iloc[0] for what in patterns)
        differs, _, _ = str(shipped.deviations).partition(" (")  # without the name of the recipe
        differs = differs.replace(" autocast", "")
        lines.append([name, f"{like.ratio:.2f}", f"{shipped.ratio:.2f}", differs])
    return [Table("Speed against other software", lines)]


def figure(folder: Path, words: list[str]) -> str:
    """`figure KIND PNG FROM`: a figure of a record, with its caption."""
    kind, name, source = words
    draw_kind = {"linear": draw_linear, "speed": draw_speed}[kind]
    return figure_markdown(draw_kind(folder / source, folder / name), name)
