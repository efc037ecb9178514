"""The figures of the report, out of records alone; each function draws one and returns its caption.

    draw_convergence   the paper's Fig. 3: loss by updates and tokens         runs of one pipeline
    draw_glue          headline metrics by task and arm                       fine-tuning runs
    draw_bleu          sacreBLEU by arm                                       translation runs
    draw_speed         ratios against the peers, and the goals                records of the benchmark

Those of the decay are in `roformer.report.decay_figures`, what all share in `roformer.report.drawing`.
A caption is plain text: what is drawn, how many seeds, and at which scale. Each function raises
RecordError, in one line, where a record is missing, damaged or empty, and leaves a file alone that
already shows the same data.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from roformer.errors import one_line
from roformer.report.curves import read_curve
from roformer.report.drawing import (
    BAND,
    NEUTRAL,
    Look,
    bar_of,
    curves_of_seeds,
    draw,
    legend_below,
    line_of,
    log_axis,
    looks,
    shown,
)
from roformer.report.glue import ORDER, chosen, read_cells, rows_of
from roformer.report.losses import loss_of
from roformer.report.records import Folder, RecordError, configuration, read_config, read_json
from roformer.report.speed import SUITES
from roformer.report.speed import Record as SpeedRecord
from roformer.report.tables import arm_names, run_label
from roformer.report.wmt import Run, read_runs

PEERS = tuple(suite for suite in SUITES if suite != "kernels")
"""Suites that compare with other software; kernels compares choices of our own."""


def draw_convergence(folders: Sequence[Folder], output: Path) -> str:
    """Draw the validation loss against updates and against tokens, by arm."""
    loss = loss_of(folders)
    read = [(read_curve(folder, loss.metric), read_config(folder)) for folder in folders]
    settings = [configuration(curve.summary, config) for curve, config in read]
    labels = [run_label(curve.summary) for curve, _ in read]
    names = arm_names(zip(labels, settings, strict=True))
    arms: dict[str, dict[int, dict[int, tuple[float, float]]]] = {}
    kinds: dict[str, str] = {}
    for folder, (curve, _), own in zip(folders, read, settings, strict=True):
        seed = curve.summary["seed"]
        seeds = arms.setdefault(names[own], {})
        if seed in seeds:
            raise RecordError(f"{folder} has the settings and seed of another: leave one out")
        kinds[names[own]] = curve.summary["position"]
        seeds[seed] = {
            step: (curve.read[step][1] / 1e6, value)
            for step, value in sorted(curve.points.items())
            if step in curve.read
        }
        if not seeds[seed]:
            raise RecordError(f"{folder / 'metrics.jsonl'} has no data/tokens beside {loss.metric}")
    for name, seeds in arms.items():
        if not set.intersection(*map(set, seeds.values())):
            raise RecordError(f"the seeds of {name} have no evaluation at the same update")
    entropies = sorted({_last(folder, loss.entropy) for folder in folders})
    style = looks(kinds)
    values = [
        value for seeds in arms.values() for seed in seeds.values() for _, value in seed.values()
    ]
    low, high = min(values), max(values)
    # Far above all curves it would press them together.
    near = max(entropies) <= high + (high - low) / 2
    data = ["convergence", kinds, arms, entropies if near else []]

    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for name, look in style.items():
            seeds = list(arms[name].values())
            common = sorted(set.intersection(*map(set, seeds)))
            losses = [[seed[step][1] for step in common] for seed in seeds]
            tokens = [seeds[0][step][0] for step in common]
            curves_of_seeds(panels[0], common, losses, look.colour, look.dash)
            curves_of_seeds(panels[1], tokens, losses, look.colour, look.dash)
        for axes in panels:
            for entropy in entropies if near else ():
                axes.axhline(entropy, color=NEUTRAL, linestyle=":", linewidth=1.2)
            axes.set_xlim(0, None)
        panels[0].set(
            xlabel="updates",
            ylabel=loss.axis,
        )
        panels[0].locator_params(axis="x", nbins=5)
        panels[0].xaxis.set_major_formatter("{x:,.0f}")
        panels[1].set(xlabel=f"{loss.read} (millions)")
        samples = [(line_of(look), name) for name, look in style.items()]
        dotted = Line2D([], [], color=NEUTRAL, linestyle=":", linewidth=1.2)
        legend_below(figure, [*samples, *([(dotted, "unigram entropy")] if near else [])])

    draw(output, data, (6.2, 3.4), paint)
    worth = " / ".join(f"{entropy:.3f}" for entropy in entropies)
    worth += f" {loss.unit}{'' if near else ', far above'}"
    return (
        f"{loss.words[0].upper()}{loss.words[1:]} on validation text against updates and against "
        f"{loss.read}; {BAND}. {'Dotted' if near else 'Not shown'}: the unigram entropy of the predicted "
        f"{loss.read}, {worth}. Seeds: "
        f"{_counts({name: [len(arms[name])] for name in style})}. "
        f"{_scale((config for _, config in read), loss.read)}"
    )


def draw_glue(folders: Sequence[Folder], output: Path) -> str:
    """Draw the headline metric of each task by arm, at the chosen learning rate."""
    rows = list(chosen(rows_of(read_cells(folders))).values())
    if not rows:
        raise RecordError("none of these runs is finished: give folders like runs/glue/*")
    style = looks({row.arm.name: str(row.cells[0]["position"]) for row in rows})
    names = list(style)
    places = {task: i for i, task in enumerate(ORDER)}
    tasks = sorted({row.task for row in rows}, key=lambda task: (places.get(task, 99), task))
    bars = [
        {
            "arm": row.arm.name,
            "task": row.task,
            "values": [100 * value for value in row.values(row.headline)],
            "majority": row.cells[0]["majority"].get(row.headline),
            "metric": row.headline.removeprefix(f"{row.task}/"),
        }
        for row in rows
    ]
    data = ["glue", style, tasks, bars]
    width = 0.8 / len(names)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for bar in bars:
            group, place = tasks.index(bar["task"]), names.index(bar["arm"])
            x = group + (place - (len(names) - 1) / 2) * width
            _bar(axes, x, width, bar["values"], style[bar["arm"]])
            if bar["majority"] is not None:
                axes.hlines(
                    100 * bar["majority"], group - 0.45, group + 0.45, NEUTRAL, linewidth=1.4
                )
        metrics = {bar["task"]: bar["metric"] for bar in bars}
        axes.set_xticks(
            range(len(tasks)),
            [f"{shown(t, 12)}\n{shown(metrics[t].replace('_', ' '), 12)}" for t in tasks],
        )
        axes.grid(axis="x", visible=False)
        axes.set_ylabel("headline metric (%)")
        samples = [(bar_of(look), name) for name, look in style.items()]
        legend_below(figure, [*samples, (Line2D([], [], color=NEUTRAL), "majority class")])

    draw(output, data, (max(4.6, 1.0 * len(tasks) + 1.2), 3.6), paint)
    counts = {name: [len(bar["values"]) for bar in bars if bar["arm"] == name] for name in names}
    return (
        "Headline metric on validation after fine-tuning, at each arm's learning rate with the best "
        "mean. Bars: mean over seeds, points: single seeds, error bars: their standard deviation, lines: "
        f"always saying the majority class; n/a: not defined. Seeds: {_counts(counts)}. "
        f"{_scale(cell['config'] for row in rows for cell in row.cells)}"
    )


def draw_bleu(
    folders: Sequence[Folder],
    output: Path,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Draw sacreBLEU by arm, one panel a test set and signature.

    Args:
        folders: of finished translation runs; those without scores are left out.
        output: the PNG file.
        intervals: arm, as the tables name it → (low, high), where somebody computed them.

    Raises:
        RecordError: see `read_runs`; no scores; an interval of no arm, or of several test sets.
    """
    scored = [run for run in read_runs(folders) if run.has_scores]
    if not scored:
        raise RecordError("none of these runs has scores: give folders like runs/wmt/*")
    given = dict(intervals or {})
    groups: dict[str, list[Run]] = {}
    for run in scored:
        groups.setdefault(run.scored_by, []).append(run)
    if given and len(groups) > 1:
        raise RecordError("intervals are of one test set and signature: give its runs alone")
    kinds: dict[str, str] = {}
    panels: list[tuple[str, dict[str, list[float]]]] = []
    for runs in groups.values():
        names = arm_names((run.label, run.settings) for run in runs)
        panel: dict[str, list[float]] = {}
        for run in runs:
            name = names[run.settings]
            kinds[name] = str(run.summary["position"])
            panel.setdefault(name, []).append(run.value("test/sacrebleu"))
        panels.append((str(runs[0].summary["test_set"]["name"]), panel))
    if unknown := sorted(given.keys() - kinds.keys()):
        raise RecordError(f"an interval of {unknown[0]}: these runs are of {_listed(kinds)}")
    style = looks(kinds)
    data = ["bleu", style, panels, sorted(given.items())]
    # In inches: names may take several lines.
    heights = [
        sum(max(0.4, 0.19 * (1 + shown(name).count("\n"))) for name in panel) + 0.4
        for _, panel in panels
    ]

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
        for axes, (title, panel) in zip(grid.flatten(), panels, strict=True):
            order = [name for name in style if name in panel]
            for place, name in enumerate(order):
                look, values = style[name], panel[name]
                if name in given:
                    axes.plot(given[name], [place] * 2, color=look.colour, linewidth=5, alpha=0.35)
                points = {"color": look.colour, "marker": look.marker, "markersize": 6}
                axes.plot(values, [place] * len(values), linestyle="", **points)
                if any(map(math.isnan, values)):
                    left = axes.get_yaxis_transform()
                    axes.text(0.02, place, "n/a", color=look.colour, transform=left, va="center")
                elif len(values) > 1:
                    axes.plot(statistics.fmean(values), place, "|", color=NEUTRAL, markersize=16)
            axes.set_yticks(range(len(order)), [shown(name) for name in order])
            axes.set_ylim(len(order) - 0.5, -0.5)
            axes.margins(x=0.08)
            axes.set_title(shown(title, 60), loc="left")
        grid[-1, 0].set_xlabel("sacreBLEU")

    draw(output, data, (5.6, sum(heights) + 0.5), paint)
    counts = {name: [len(panel[name]) for _, panel in panels if name in panel] for name in style}
    sets = [run.summary["test_set"] for run in scored]
    texts = sorted({f"{texts['name']} ({texts['lines']:,} lines)" for texts in sets})
    bands = ", bands: the intervals given" if given else ""
    return (
        f"sacreBLEU of {_listed(texts)}, by the averaged checkpoints with beam search. Points: "
        f"single seeds, ticks: mean over seeds, n/a: not defined{bands}. "
        f"Seeds: {_counts(counts)}. {_scale(read_config(run.folder) for run in scored)}"
    )


def draw_speed(folder: Path, output: Path) -> str:
    """Draw how many times faster than the peers each measured row is, with its goal."""
    files = [folder / f"{suite}.json" for suite in PEERS]
    rows = [row for file in files if file.is_file() for row in read_json(file, SpeedRecord)["rows"]]
    if not rows:
        raise RecordError(f"{folder} has no {', '.join(file.name for file in files)}: make bench")
    if wrong := next((row for row in rows if row["ratio"] <= 0 or (row["goal"] or 1) <= 0), None):
        raise RecordError(f"{folder} has a ratio or goal that is not positive: {wrong['what']}")
    data = ["speed", [[row["what"], row["ratio"], row["goal"]] for row in rows]]
    colours = {"met": "#0072B2", "missed": "#D55E00", "none": "#999999"}
    hatches = {"met": "", "missed": "///", "none": ""}

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            met = "none" if not row["goal"] else "met" if row["ratio"] >= row["goal"] else "missed"
            axes.barh(
                place,
                row["ratio"] - 1,
                0.7,
                1,
                color=colours[met],
                hatch=hatches[met],
                edgecolor="white",
            )
            if row["goal"]:
                axes.vlines(row["goal"], place - 0.45, place + 0.45, NEUTRAL, linewidth=2)
            right = max(row["ratio"], row["goal"] or 0, 1)
            at: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8}
            axes.annotate(f"{row['ratio']:.2f}", (right, place), (4, 0), **at)
        axes.set_yticks(range(len(rows)), [shown(row["what"], 90, 1) for row in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlabel("times faster (1: as fast)")
        log_axis(axes.xaxis)
        axes.axvline(1, color=NEUTRAL, linewidth=0.8)
        axes.margins(x=0.12)
        axes.grid(axis="y", visible=False)
        texts = {"met": "goal met", "missed": "goal missed", "none": "no goal"}
        samples: list[tuple[Any, str]] = [
            (Patch(facecolor=colour, hatch=hatches[key], edgecolor="white"), texts[key])
            for key, colour in colours.items()
        ]
        goal = Line2D(
            [], [], color=NEUTRAL, marker="|", linestyle="", markersize=10, markeredgewidth=2
        )
        legend_below(figure, [*samples, (goal, "goal")])

    draw(output, data, (7.6, 0.22 * len(rows) + 1.0), paint)
    met = sum(bool(row["goal"]) and row["ratio"] >= row["goal"] for row in rows)
    return (
        f"Throughput as a multiple of the peer's on the same machine, {len(rows)} comparisons on a "
        f"logarithmic axis; {met} of {sum(bool(row['goal']) for row in rows)} goals are met. Each row "
        "is one run of the benchmark; the table beside it names what deviates from the paper's setting."
    )


def _bar(axes: Any, x: float, width: float, values: list[float], look: Look) -> None:
    """Draw the mean, standard deviation and points of one arm's seeds; n/a where one is not defined."""
    if not values or any(map(math.isnan, values)):
        axes.text(x, 1, "n/a", color=look.colour, rotation=90, ha="center", va="bottom", fontsize=8)
        return
    spread = statistics.stdev(values) if len(values) > 1 else None
    error = {"elinewidth": 1.2, "capsize": 2, "ecolor": NEUTRAL}
    style = {"color": look.colour, "hatch": look.hatch, "edgecolor": "white"}
    axes.bar(x, statistics.fmean(values), width, yerr=spread, error_kw=error, **style)
    axes.plot([x] * len(values), values, "o", color="black", markersize=2, clip_on=False)


def _last(folder: Folder, metric: str) -> float:
    """Return the last value of a metric, to six digits."""
    points = read_curve(folder, metric).points
    return float(f"{points[max(points)]:.6g}")


def _counts(counts: Mapping[str, list[int]]) -> str:
    """Return how many seeds each arm has: of each of its tasks or test sets, where they differ."""
    numbers = {number for several in counts.values() for number in several}
    if len(numbers) == 1:
        return f"{numbers.pop()} an arm"
    parts = []
    for name, several in counts.items():
        low, high = min(several), max(several)
        parts.append(f"{one_line(name)} {low}" if low == high else f"{one_line(name)} {low}-{high}")
    return ", ".join(parts)


def _listed(names: Iterable[str]) -> str:
    """Return different names as one text, in their order."""
    return ", ".join(map(one_line, dict.fromkeys(names)))


def _scale(configs: Iterable[Mapping[str, Any]], unit: str = "tokens") -> str:
    """Return the sizes of models and, where a batch is of sequences, how much they were trained."""
    sizes, budgets = [], []
    for config in configs:
        model, training = _part(config, "model"), _part(config, "training")
        sizes.append(f"{model.get('layers', '?')} layers × {model.get('hidden_size', '?')}")
        keys = ("steps", "batch_size", "sequence_length")
        amounts = [v for key in keys if isinstance(v := training.get(key), int)]
        if len(amounts) == len(keys):
            updates, batch, length = amounts
            budgets.append(
                f"{updates:,} updates of {batch:,} sequences of {length:,} {unit} "
                f"({updates * batch * length / 1e6:,.1f} M {unit})"
            )
    trained = f"; {_listed(budgets)}" if budgets else ""
    return f"Scale: {_listed(sizes)}{trained}."


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}
