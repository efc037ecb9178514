"""The figures of the report, out of records alone; each function draws one and returns its caption.

A caption is plain text: what is drawn, how many seeds, and at which scale. Each function raises
RecordError, in one line, where a record is damaged or there is nothing to draw, and leaves a file alone
that already shows the same data.
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
from roformer.report.curves import loss_of, read_curves, read_positions
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
from roformer.report.glue import ORDER, chosen, rows_of
from roformer.report.results import (
    FORMS,
    SUITES,
    Record,
    by_distance,
    crossovers,
    networks,
    read_decay,
    read_linear,
    scale,
    speed_rows,
)
from roformer.report.runs import RecordError, Runs
from roformer.report.scm import PLACES, SPLITS, accuracies, triplet_runs
from roformer.report.statistics import Interval
from roformer.report.tables import configuration_names, configurations
from roformer.report.wmt import bleu_intervals, read_scores, values

PEERS = tuple(suite for suite in SUITES if suite != "kernels")
"""Suites that compare with other software; kernels compares choices of our own."""
PAPER_HEAD = "128"
SIZES = {"32": "#B8860B", "64": "#8C6BB1", "128": "#000000", "256": "#41AE76"}
"""Head size → colour: none of an encoding's."""


# --- figures of runs -----------------------------------------------------------------------------


def draw_convergence(runs: Runs, output: Path) -> str:
    """Draw the validation loss against steps and against tokens (the paper's Fig. 3)."""
    loss = loss_of(runs.runs)
    read = read_curves(runs, loss.metric)
    groups = configurations(runs.runs, configuration_names(runs.runs))
    style = looks({name: group.position.iloc[0] for name, group in groups.items()})
    curves: dict[str, dict[int, dict[int, tuple[float, float]]]] = {}
    for name, group in groups.items():
        for key, run in group.iterrows():
            found = read[key].points.items()
            amounts = read[key].read
            points = {s: (amounts[s][1] / 1e6, v) for s, v in sorted(found) if s in amounts}
            if not points:
                raise RecordError(
                    f"{run.folder}/metrics.jsonl has no data/tokens beside {loss.metric}"
                )
            curves.setdefault(name, {})[run.seed] = points
        if not set.intersection(*map(set, curves[name].values())):
            raise RecordError(f"the seeds of {name} have no evaluation at the same update")
    every = [v for seeds in curves.values() for seed in seeds.values() for _, v in seed.values()]
    last = [curve.points[max(curve.points)] for curve in read_curves(runs, loss.entropy).values()]
    entropies = sorted({float(f"{value:.6g}") for value in last})
    # Far above all curves it would press them together.
    near = max(entropies) <= max(every) + (max(every) - min(every)) / 2
    kinds = {name: str(group.position.iloc[0]) for name, group in groups.items()}
    data = ["convergence", kinds, curves, entropies if near else []]

    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for name, look in style.items():
            seeds = list(curves[name].values())
            common = sorted(set.intersection(*map(set, seeds)))
            losses = [[seed[step][1] for step in common] for seed in seeds]
            tokens = [seeds[0][step][0] for step in common]
            curves_of_seeds(panels[0], common, losses, look.colour, look.dash)
            curves_of_seeds(panels[1], tokens, losses, look.colour, look.dash)
        for axes in panels:
            for entropy in entropies if near else ():
                axes.axhline(entropy, color=NEUTRAL, linestyle=":", linewidth=1.2)
            axes.set_xlim(0, None)
        panels[0].set(xlabel="updates", ylabel=loss.axis)
        panels[0].locator_params(axis="x", nbins=5)
        panels[0].xaxis.set_major_formatter("{x:,.0f}")
        panels[1].set(xlabel=f"{loss.read} (millions)")
        legend_below(figure, [*_lines(style), *([(DOTTED, "unigram entropy")] if near else [])])

    draw(output, data, (6.2, 3.4), paint)
    worth = " / ".join(f"{entropy:.3f}" for entropy in entropies)
    worth += f" {loss.unit}{'' if near else ', far above'}"
    return (
        f"{loss.words[0].upper()}{loss.words[1:]} on validation text against updates and against "
        f"{loss.read}; {BAND}. {'Dotted' if near else 'Not shown'}: the unigram entropy of the predicted "
        f"{loss.read}, {worth}. Seeds: "
        f"{_counts({name: [len(curves[name])] for name in style})}. "
        f"{_scale(runs.runs.config, loss.read)}"
    )


def draw_positions(runs: Runs, output: Path) -> str:
    """Draw the loss by tokens seen.

    Up to the length of the training in blocks of it, as all configurations were read; beyond it in the
    longest blocks, whose few beginnings would make a noisy start.
    """
    found = read_positions(runs)
    if len(trained := {one.trained for one in found.values()}) != 1:
        raise RecordError(
            "runs of several lengths cannot be drawn together"
            if trained
            else "none of these runs has a positions.json: give folders like runs/clm/*"
        )
    (end,), read = trained, loss_of(runs.runs).read
    curves = {}
    for name, one in found.items():
        beyond = {p: losses for p, losses in one.seen[max(one.losses)].items() if p[0] > end}
        places = sorted({**one.seen.get(end, {}), **beyond}.items())
        curves[name] = [(math.sqrt(a * b), statistics.fmean(losses)) for (a, b), losses in places]
    style = looks({name: one.position for name, one in found.items()})

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for name, look in style.items():
            places, losses = zip(*curves[name], strict=True)
            how: dict[str, Any] = {"linestyle": look.dash, "marker": look.marker, "ms": 3}
            axes.plot(places, losses, color=look.colour, **how)
        log_axis(axes.xaxis)
        axes.axvline(end, color=NEUTRAL, linestyle=":", linewidth=1.2)
        axes.set(xlabel=f"{read} seen", ylabel="loss (nats)")
        legend_below(figure, [*_lines(style), (DOTTED, "trained length")])

    draw(output, ["positions", style, curves, end, read], (5.6, 3.6), paint)
    seeds = ", ".join(dict.fromkeys(str(one.seeds) for one in found.values()))
    longest = max(length for one in found.values() for length in one.losses)
    how = ""
    if longest > end:
        how = (
            ": up to there in such blocks, beyond it, which is beyond the paper, in blocks of up to "
            f"{longest:,}"
        )
    return (
        f"Loss by how many {read} are seen after a training on blocks of {end:,} (dotted){how}. Means "
        f"over {read} of about as many seen, and over seeds ({seeds} a configuration)."
    )


def draw_glue(runs: Runs, output: Path) -> str:
    """Draw the headline metric of each task by configuration, at the chosen learning rate."""
    rows = list(chosen(rows_of(runs.runs)).values())
    if not rows:
        raise RecordError("none of these runs is finished: give folders like runs/glue/*")
    style = looks({row.name: str(row.runs.position.iloc[0]) for row in rows})
    names = list(style)
    places = {task: i for i, task in enumerate(ORDER)}
    tasks = sorted({row.task for row in rows}, key=lambda task: (places.get(task, 99), task))
    bars: list[dict[str, Any]] = [
        {
            "configuration": row.name,
            "task": row.task,
            "values": [100 * value for value in row.values(row.headline)],
            "majority": row.majority.get(row.headline),
            "metric": row.headline.removeprefix(f"{row.task}/"),
        }
        for row in rows
    ]
    width = 0.8 / len(names)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for bar in bars:
            name, group = bar["configuration"], tasks.index(bar["task"])
            x = group + (names.index(name) - (len(names) - 1) / 2) * width
            _bar(axes, x, width, bar["values"], style[name])
            if bar["majority"] is not None:
                level = 100 * bar["majority"]
                axes.hlines(level, group - 0.45, group + 0.45, NEUTRAL, linewidth=1.4)
        metrics = {bar["task"]: bar["metric"].replace("_", " ") for bar in bars}
        texts = [f"{shown(task, 12)}\n{shown(metrics[task], 12)}" for task in tasks]
        axes.set_xticks(range(len(tasks)), texts)
        axes.grid(axis="x", visible=False)
        axes.set_ylabel("headline metric (%)")
        legend_below(figure, [*_bars(style), (Line2D([], [], color=NEUTRAL), "majority class")])

    draw(output, ["glue", style, tasks, bars], (max(4.6, 1.0 * len(tasks) + 1.2), 3.6), paint)
    counts = {
        name: [len(bar["values"]) for bar in bars if bar["configuration"] == name] for name in names
    }
    return (
        "Headline metric on validation after fine-tuning, at each configuration's learning rate with the "
        "best mean. Bars: mean over seeds, points: single seeds, error bars: their standard deviation, "
        f"lines: always saying the majority class; n/a: not defined. Seeds: {_counts(counts)}. "
        f"{_scale(config for row in rows for config in row.runs.config)}"
    )


def draw_triplets(runs: Runs, output: Path) -> str:
    """Draw the accuracy of each configuration on the test triplets, or those of validation."""
    groups, _ = triplet_runs(runs)
    split = "test" if all(accuracies(group, "test") for group in groups.values()) else "valid"
    places = [p for p in PLACES if all(accuracies(g, split, p) for g in groups.values())]
    found = {
        name: [[*accuracies(group, split, place).values()] for place in places]
        for name, group in groups.items()
    }
    style = looks({name: group.position.iloc[0] for name, group in groups.items()})
    width = 0.8 / len(style)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (name, look) in enumerate(style.items()):
            for group, accuracy in enumerate(found[name]):
                x = group + (number - (len(style) - 1) / 2) * width
                _bar(axes, x, width, accuracy, look, spread=False)
        axes.axhline(50, color=NEUTRAL, linewidth=1.4)
        axes.set_xticks(range(len(places)), [PLACES[place] for place in places])
        axes.grid(axis="x", visible=False)
        axes.set(ylabel="ranking accuracy (%)", ylim=(0, 103))
        legend_below(figure, [*_bars(style), (Line2D([], [], color=NEUTRAL), "a coin")])

    draw(output, ["triplets", style, split, places, found], (5.6, 3.6), paint)
    seeds = ", ".join(dict.fromkeys(str(len(group)) for group in groups.values()))
    return (
        f"Ranking accuracy on the {SPLITS[split]} triplets with the weights of the best validation. "
        f"Bars: mean over seeds ({seeds} a configuration), points: single seeds, line: tossing a coin."
    )


def draw_bleu(runs: Runs, output: Path) -> str:
    """Draw sacreBLEU by configuration, one panel a test set and signature.

    Of one test set the 95 % over its lines are bands, where the runs have statistics.
    """
    scored, _ = read_scores(runs.runs)
    if scored.empty:
        raise RecordError("none of these runs has scores: give folders like runs/wmt/*")
    kinds: dict[str, str] = {}
    panels: list[tuple[str, dict[str, list[float]]]] = []
    for _, group in scored.groupby("scored_by", sort=False):
        panel: dict[str, list[float]] = {}
        for name, seeds in configurations(group, configuration_names(group)).items():
            kinds[name] = str(seeds.position.iloc[0])
            panel[name] = [*values(seeds, "test/sacrebleu").values()]
        panels.append((str(group.summary.iloc[0]["test_set"]["name"]), panel))
    intervals = bleu_intervals(runs) if len(panels) == 1 else {}
    bands: dict[str, Interval] = {name: found for name, found in intervals.items() if found}
    style = looks(kinds)
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
                look, scores = style[name], panel[name]
                if name in bands:
                    axes.plot(bands[name], [place] * 2, color=look.colour, linewidth=5, alpha=0.35)
                points = {"color": look.colour, "marker": look.marker, "markersize": 6}
                axes.plot(scores, [place] * len(scores), linestyle="", **points)
                if any(map(math.isnan, scores)):
                    left = axes.get_yaxis_transform()
                    axes.text(0.02, place, "n/a", color=look.colour, transform=left, va="center")
                elif len(scores) > 1:
                    axes.plot(statistics.fmean(scores), place, "|", color=NEUTRAL, markersize=16)
            axes.set_yticks(range(len(order)), [shown(name) for name in order])
            axes.set_ylim(len(order) - 0.5, -0.5)
            axes.margins(x=0.08)
            axes.set_title(shown(title, 60), loc="left")
        grid[-1, 0].set_xlabel("sacreBLEU")

    data = ["bleu", style, panels, sorted(bands.items())]
    draw(output, data, (5.6, sum(heights) + 0.5), paint)
    counts = {name: [len(panel[name]) for _, panel in panels if name in panel] for name in style}
    sets = [summary["test_set"] for summary in scored.summary]
    texts = sorted({f"{texts['name']} ({texts['lines']:,} lines)" for texts in sets})
    return (
        f"sacreBLEU of {_listed(texts)}, by the averaged checkpoints with beam search. Points: "
        f"single seeds, ticks: mean over seeds, n/a: not defined"
        f"{', bands: 95 % over the test lines' if bands else ''}. Seeds: {_counts(counts)}. "
        f"{_scale(scored.config)}"
    )


# --- figures of what scripts measured ------------------------------------------------------------


def draw_speed(folder: Path, output: Path) -> str:
    """Draw how many times faster than the peers each measured row is, with its goal."""
    rows = speed_rows(folder, PEERS)
    data = ["speed", [[row["what"], row["ratio"], row["goal"]] for row in rows]]
    looks_of = {
        "met": ("#0072B2", "", "goal met"),
        "missed": ("#D55E00", "///", "goal missed"),
        "none": ("#999999", "", "no goal"),
    }

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            met = "none" if not row["goal"] else "met" if row["ratio"] >= row["goal"] else "missed"
            colour, hatch, _ = looks_of[met]
            bar: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white"}
            axes.barh(place, row["ratio"] - 1, 0.7, 1, **bar)
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
        samples: list[tuple[Any, str]] = [
            (Patch(facecolor=colour, hatch=hatch, edgecolor="white"), text)
            for colour, hatch, text in looks_of.values()
        ]
        mark: dict[str, Any] = {"marker": "|", "markersize": 10, "markeredgewidth": 2}
        goal = Line2D([], [], color=NEUTRAL, linestyle="", **mark)
        legend_below(figure, [*samples, (goal, "goal")])

    draw(output, data, (7.6, 0.22 * len(rows) + 1.0), paint)
    met = sum(bool(row["goal"]) and row["ratio"] >= row["goal"] for row in rows)
    return (
        f"Throughput as a multiple of the peer's on the same machine, {len(rows)} comparisons on a "
        f"logarithmic axis; {met} of {sum(bool(row['goal']) for row in rows)} goals are met. Each row "
        "is one run of the benchmark; the table beside it names what deviates from the paper's setting."
    )


def draw_linear(file: Path, output: Path) -> str:
    """Draw time and memory against length, softmax and each linear method, both forms."""
    rows = [row for row in read_linear(file) if "method" in row]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    style = looks({name: name for name in ("softmax", *methods)})
    crossing = crossovers(rows)
    keys = (
        "method",
        "causal",
        "length",
        "ours_seconds",
        "peer_seconds",
        "ours_bytes",
        "peer_bytes",
    )
    data = ["linear", [[*(row[key] for key in keys), row["ratio"]] for row in rows]]
    quantities = (("seconds", 1.0, "s, forward and backward"), ("bytes", 1e6, "peak memory, MB"))
    lengths = sorted({row["length"] for row in rows})

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2, 2, sharex=True, sharey="row", squeeze=False)
        for column, causal in enumerate(FORMS):
            grid[0, column].set_title(FORMS[causal], loc="left")
            grid[1, column].set_xlabel("tokens")
            for line, (quantity, unit, label) in enumerate(quantities):
                axes = grid[line, column]
                for name, look in style.items():
                    # Softmax was measured once a length, and stands in the row of every method.
                    method = methods[0] if name == "softmax" else name
                    own = [r for r in rows if (r["causal"], r["method"]) == (causal, method)]
                    key = f"{'peer' if name == 'softmax' else 'ours'}_{quantity}"
                    places = [row["length"] for row in own], [row[key] / unit for row in own]
                    how = {"linestyle": look.dash, "marker": look.marker, "markersize": 4}
                    axes.plot(*places, color=look.colour, **how)
                for method in methods:
                    if line == 0 and (length := crossing.get((causal, method))):
                        axes.axvline(length, color=style[method].colour, linewidth=0.6)
                axes.set_xscale("log", base=2)
                axes.set_xticks(lengths, [f"{length:,}" for length in lengths], fontsize=8)
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


def draw_bound(record: Path, output: Path) -> str:
    """Draw the relative upper bound of the score by distance, in closed form (the paper's Fig. 2)."""
    bound = read_decay(record)["bound"]

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for size, heights in bound["head_sizes"].items():
            paper = size == PAPER_HEAD
            label = f"d = {shown(size)}{' (paper)' if paper else ''}"
            width, colour = (2.2 if paper else 1.3), SIZES.get(size)
            axes.plot(bound["distances"], heights, linewidth=width, color=colour)
            # At the end of its line, where no colour is needed to find it.
            place = (bound["distances"][-1], heights[-1])
            axes.annotate(label, place, (4, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set(xlabel="relative distance (tokens)", ylabel="mean of |S_j|", xlim=(0, None))
        log_axis(axes.yaxis)

    draw(output, ["bound", bound["distances"], bound["head_sizes"]], (4.6, 3.2), paint)
    return (
        "Relative upper bound of the attention score by distance (paper, Eq. 37 and Fig. 2), in closed "
        f"form for head sizes {', '.join(bound['head_sizes'])}. It falls, but not at every step."
    )


def draw_measured_decay(record: Path, output: Path) -> str:
    """Draw centred score and attention weight by distance, trained and with initial weights."""
    content, found, kinds = _networks(record)
    style = looks(kinds)
    curves = {q: [by_distance(seeds, q) for seeds in found.values()] for q in ("centred", "weight")}
    data = ["decay", [[name, kinds[name], weights] for name, weights in found], curves]

    def paint(figure: Figure) -> None:
        labels = ("centred score (nats)", "attention weight")
        panels = zip(figure.subplots(1, 2), curves.values(), labels, strict=True)
        for axes, by_network, label in panels:
            for (name, weights), seeds in zip(found, by_network, strict=True):
                dash = style[name].dash if weights == "trained" else ":"
                curves_of_seeds(axes, range(content["length"]), seeds, style[name].colour, dash)
            axes.set(xlabel="distance (tokens)", ylabel=label, xlim=(0, content["length"]))
        log_axis(figure.axes[1].yaxis)
        samples = _lines(style)
        if any(weights == "initial" for _, weights in found):
            samples.append((Line2D([], [], color=NEUTRAL, linestyle=":"), "with initial weights"))
        legend_below(figure, samples)

    draw(output, data, (6.2, 3.4), paint)
    return (
        "Attention by distance between query and key: left the score before the softmax minus the mean "
        f"of its query's scores, right the weight after the softmax. {BAND[0].upper()}{BAND[1:]}. "
        f"{scale(content)} The farthest pairs are few and mostly hold [CLS] or [SEP]."
    )


def draw_decay_by_layer(record: Path, output: Path) -> str:
    """Draw the centred score of trained runs by distance, one panel a layer."""
    content, every, kinds = _networks(record)
    found = {name: seeds for (name, weights), seeds in every.items() if weights == "trained"}
    if not found:
        raise RecordError(f"{record} has no trained run: measure some")
    style = looks({name: kinds[name] for name in found})
    layers = max(run["layers"] for seeds in found.values() for run in seeds)
    curves = [
        [by_distance(s, "centred", layer=layer) for layer in range(min(run["layers"] for run in s))]
        for s in found.values()
    ]
    columns = min(layers, 4)
    rows = math.ceil(layers / columns)

    def paint(figure: Figure) -> None:
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for layer, axes in enumerate(panels):
            axes.set_visible(layer < layers)
            for name, by_layer in zip(found, curves, strict=True):
                if layer < len(by_layer):
                    look, places = style[name], range(content["length"])
                    curves_of_seeds(axes, places, by_layer[layer], look.colour, look.dash)
            axes.set_title(f"layer {layer + 1}")
            axes.set_xlim(0, content["length"])
            if layer >= layers - columns:
                axes.set_xlabel("distance (tokens)")
            if layer % columns == 0:
                axes.set_ylabel("centred score (nats)")
        legend_below(figure, _lines(style))

    data = ["decay by layer", [[name, kinds[name]] for name in found], curves]
    draw(output, data, (max(4.0, 1.7 * columns), 1.9 * rows + 0.8), paint)
    return (
        "Score before the softmax minus the mean of its query's scores, by distance, in each layer of "
        f"trained models; the axes of the panels differ. {BAND[0].upper()}{BAND[1:]}. {scale(content)}"
    )


def draw_extension(record: Record, output: Path) -> None:
    """Draw loss by length, and by place at the longest, of a record of `scripts/extension.py`."""
    longest = max(row["length"] for row in record["rows"])
    kinds = dict.fromkeys(row["kind"] for row in record["rows"])

    def paint(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for kind in kinds:
            rows = [row for row in record["rows"] if row["kind"] == kind]
            left.plot([r["length"] for r in rows], [r["loss"] for r in rows], "o-", label=kind)
            segments = next(row["segments"] for row in rows if row["length"] == longest)
            right.plot(range(1, len(segments) + 1), segments, "o-", label=kind)
        left.axvline(record["trained_length"], color="gray", linestyle=":", label="trained length")
        left.set_xscale("log", base=2)
        left.set_xticks(record["lengths"], [str(length) for length in record["lengths"]])
        left.set(xlabel="tokens of a sequence", ylabel="masked-LM loss (nats)")
        right.set(xlabel=f"part of the window, at {longest:,} tokens")
        left.legend()
        figure.suptitle(f"{record['run']} (beyond the paper)")

    draw(output, ["extension", record], (10, 4), paint)


# --- parts ---------------------------------------------------------------------------------------

DOTTED = Line2D([], [], color=NEUTRAL, linestyle=":", linewidth=1.2)


def _lines(style: Mapping[str, Look]) -> list[tuple[Any, str]]:
    return [(line_of(look), name) for name, look in style.items()]


def _bars(style: Mapping[str, Look]) -> list[tuple[Any, str]]:
    return [(bar_of(look), name) for name, look in style.items()]


def _bar(
    axes: Any, x: float, width: float, found: list[float], look: Look, *, spread: bool = True
) -> None:
    """Draw the mean, standard deviation and points of seeds; n/a where one is not defined."""
    if not found or any(map(math.isnan, found)):
        axes.text(x, 1, "n/a", color=look.colour, rotation=90, ha="center", va="bottom", fontsize=8)
        return
    std = statistics.stdev(found) if spread and len(found) > 1 else None
    error = {"elinewidth": 1.2, "capsize": 2, "ecolor": NEUTRAL}
    style = {"color": look.colour, "hatch": look.hatch, "edgecolor": "white"}
    axes.bar(x, statistics.fmean(found), width, yerr=std, error_kw=error, **style)
    axes.plot([x] * len(found), found, "o", color="black", markersize=2, clip_on=False)


def _networks(file: Path) -> tuple[Record, dict[tuple[str, str], list[Record]], dict[str, str]]:
    """Return a record of the decay that has runs, its networks, and name → position."""
    content = read_decay(file)
    if not content["runs"]:
        raise RecordError(f"{file} has no runs: measure some")
    found = networks(content)
    return content, found, {name: str(seeds[0]["position"]) for (name, _), seeds in found.items()}


def _counts(counts: Mapping[str, Sequence[int]]) -> str:
    """Return how many seeds each configuration has: of each of its tasks or test sets, where they differ."""
    numbers = {number for several in counts.values() for number in several}
    if len(numbers) == 1:
        return f"{numbers.pop()} a configuration"
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
        sizes.append(
            f"{config.get('model.layers', '?')} layers × {config.get('model.hidden_size', '?')}"
        )
        keys = ("steps", "batch_size", "sequence_length")
        amounts = [v for key in keys if isinstance(v := config.get(f"training.{key}"), int)]
        if len(amounts) == len(keys):
            steps, batch, length = amounts
            budgets.append(
                f"{steps:,} updates of {batch:,} sequences of {length:,} {unit} "
                f"({steps * batch * length / 1e6:,.1f} M {unit})"
            )
    trained = f"; {_listed(budgets)}" if budgets else ""
    return f"Scale: {_listed(sizes)}{trained}."
