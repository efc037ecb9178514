"""Figures of the decay of attention scores, from the record of `scripts/decay.py`.

    draw_bound            the paper's Fig. 2: the bound in closed form
    draw_measured_decay   scores and weights of models by distance, by arm
    draw_decay_by_layer   scores by distance, one panel a layer

As those of `roformer.report.figures`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roformer.report.decay import arms_of, read_decay, scale
from roformer.report.drawing import (
    BAND,
    NEUTRAL,
    curves_of_seeds,
    draw,
    legend_below,
    line_of,
    log_axis,
    looks,
    shown,
)
from roformer.report.records import RecordError

PAPER_HEAD = "128"
SIZES = {"32": "#B8860B", "64": "#8C6BB1", "128": "#000000", "256": "#41AE76"}
"""Head size → colour: none of an encoding's."""


def draw_bound(record: Path, output: Path) -> str:
    """Draw the relative upper bound of the score by distance, for every head size recorded."""
    bound = read_decay(record)["bound"]
    data = ["bound", bound["distances"], bound["head_sizes"]]

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for size, values in bound["head_sizes"].items():
            paper = size == PAPER_HEAD
            label = f"d = {shown(size)}{' (paper)' if paper else ''}"
            width, colour = (2.2 if paper else 1.3), SIZES.get(size)
            axes.plot(bound["distances"], values, linewidth=width, color=colour)
            # At the end of its line, where no colour is needed to find it.
            place = (bound["distances"][-1], values[-1])
            axes.annotate(label, place, (4, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set(xlabel="relative distance (tokens)", ylabel="mean of |S_j|", xlim=(0, None))
        log_axis(axes.yaxis)

    draw(output, data, (4.6, 3.2), paint)
    sizes = ", ".join(bound["head_sizes"])
    return (
        "Relative upper bound of the attention score by distance (paper, Eq. 37 and Fig. 2), in closed "
        f"form for head sizes {sizes}. It falls, but not at every step."
    )


def draw_measured_decay(record: Path, output: Path) -> str:
    """Draw centred score and attention weight by distance, by arm, trained and with initial weights."""
    content = _with_runs(record)
    arms = arms_of(content)
    style = looks({arm.name: arm.position for arm in arms})
    curves = {q: [arm.curves(q) for arm in arms] for q in ("centred", "weight")}
    data = ["decay", [arm[:3] for arm in arms], curves]

    def paint(figure: Figure) -> None:
        labels = ("centred score (nats)", "attention weight")
        for axes, by_arm, label in zip(figure.subplots(1, 2), curves.values(), labels, strict=True):
            for arm, seeds in zip(arms, by_arm, strict=True):
                trained = arm.weights == "trained"
                dash = style[arm.name].dash if trained else ":"
                curves_of_seeds(axes, range(content["length"]), seeds, style[arm.name].colour, dash)
            axes.set(xlabel="distance (tokens)", ylabel=label, xlim=(0, content["length"]))
        log_axis(figure.axes[1].yaxis)
        samples = [(line_of(look), name) for name, look in style.items()]
        if any(arm.weights == "initial" for arm in arms):
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
    content = _with_runs(record)
    arms = [arm for arm in arms_of(content) if arm.weights == "trained"]
    if not arms:
        raise RecordError(f"{record} has no trained run: measure some")
    style = looks({arm.name: arm.position for arm in arms})
    layers = max(run["layers"] for arm in arms for run in arm.runs)
    curves = [
        [
            arm.curves("centred", layer=layer)
            for layer in range(min(run["layers"] for run in arm.runs))
        ]
        for arm in arms
    ]
    data = ["decay by layer", [arm[:2] for arm in arms], curves]
    columns = min(layers, 4)
    rows = math.ceil(layers / columns)

    def paint(figure: Figure) -> None:
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for layer, axes in enumerate(panels):
            axes.set_visible(layer < layers)
            for arm, by_layer in zip(arms, curves, strict=True):
                if layer < len(by_layer):
                    look = style[arm.name]
                    places = range(content["length"])
                    curves_of_seeds(axes, places, by_layer[layer], look.colour, look.dash)
            axes.set_title(f"layer {layer + 1}")
            axes.set_xlim(0, content["length"])
            if layer >= layers - columns:
                axes.set_xlabel("distance (tokens)")
            if layer % columns == 0:
                axes.set_ylabel("centred score (nats)")
        legend_below(figure, [(line_of(look), name) for name, look in style.items()])

    draw(output, data, (max(4.0, 1.7 * columns), 1.9 * rows + 0.8), paint)
    return (
        "Score before the softmax minus the mean of its query's scores, by distance, in each layer of "
        f"trained models; the axes of the panels differ. {BAND[0].upper()}{BAND[1:]}. {scale(content)}"
    )


def _with_runs(file: Path) -> dict[str, Any]:
    """Return a record that has runs."""
    content = read_decay(file)
    if not content["runs"]:
        raise RecordError(f"{file} has no runs: measure some")
    return content
