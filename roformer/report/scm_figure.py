"""The figure of triplets: accuracy by arm, all and by where the evidence stands."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roformer.report.drawing import NEUTRAL, bar_of, draw, legend_below, looks
from roformer.report.records import Folder, RecordError
from roformer.report.scm import PLACES, SPLITS, read_arms


def draw_triplets(folders: Sequence[Folder], output: Path) -> str:
    """Draw the accuracy of each arm on the test triplets, or those of validation; return the caption.

    Raises:
        RecordError: a record is damaged, or no run ended.
    """
    arms, _ = read_arms(folders)
    if not arms:
        raise RecordError("none of these runs ended: give folders like runs/scm/*")
    split = "test" if all(arm.values("test") for arm in arms) else "valid"
    places = [place for place in PLACES if all(arm.values(split, place) for arm in arms)]
    values = {arm.name: [arm.values(split, place) for place in places] for arm in arms}
    kinds = {arm.name: next(iter(arm.runs.values())).summary["position"] for arm in arms}
    style = looks(kinds)
    width = 0.8 / len(style)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for number, (name, look) in enumerate(style.items()):
            for group, found in enumerate(values[name]):
                x = group + (number - (len(style) - 1) / 2) * width
                bar: dict[str, Any] = {"color": look.colour, "hatch": look.hatch}
                axes.bar(x, statistics.fmean(found), width, edgecolor="white", **bar)
                axes.plot([x] * len(found), found, "o", color="black", markersize=2, clip_on=False)
        axes.axhline(50, color=NEUTRAL, linewidth=1.4)
        axes.set_xticks(range(len(places)), [PLACES[place] for place in places])
        axes.grid(axis="x", visible=False)
        axes.set(ylabel="ranking accuracy (%)", ylim=(0, 103))
        samples = [(bar_of(look), name) for name, look in style.items()]
        legend_below(figure, [*samples, (Line2D([], [], color=NEUTRAL), "a coin")])

    draw(output, ["triplets", style, split, places, values], (5.6, 3.6), paint)
    seeds = ", ".join(dict.fromkeys(str(len(arm.runs)) for arm in arms))
    return (
        f"Ranking accuracy on the {SPLITS[split]} triplets with the weights of the best validation. "
        f"Bars: mean over seeds ({seeds} an arm), points: single seeds, line: tossing a coin."
    )
