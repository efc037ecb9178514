"""Figures of curves, in one style."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from roformer.errors import one_line

COLOURS = {
    "rotary": "#0072B2",
    "learned": "#D55E00",
    "sinusoidal": "#009E73",
    "none": "#555555",
    "shaw": "#CC79A7",
    "t5": "#E69F00",
    "alibi": "#56B4E9",
    "transformer_xl": "#999933",
    "tupe": "#44AA99",
    "deberta": "#332288",
    "nezha": "#117733",
    "xpos": "#882255",
    "fire": "#661100",
    "kerple": "#AA4499",
}
"""Encoding → its colour in every figure: Okabe and Ito's colour-blind safe palette, then Tol's."""
SPARE = ("#E377C2", "#8C564B", "#17BECF", "#BCBD22", "#7F7F7F")
"""Colours of Tol's palette for other encodings."""
NEUTRAL = "#333333"
LETTERS = 13
"""Approximate letters of a legend per inch."""
DASHES = ("-", "--", "-.", (0, (1, 1)))
MARKERS = "osD^"
"""Line styles and markers of configurations with the same encoding, in this order."""
BAND = "lines: mean over seeds, thin lines: single seeds, bands: from the lowest to the highest"
"""Caption of `draw_curves`."""
STYLE: dict[Any, Any] = {
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.0,
    "legend.frameon": False,
    "figure.dpi": 150.0,
    "savefig.dpi": 150.0,
    # Names in records are plain text, even with dollar signs.
    "text.parse_math": False,
    "text.usetex": False,
}


class Look(NamedTuple):
    """The look of a configuration in all figures."""

    colour: str
    dash: Any = "-"
    marker: str = "o"


class Panel(NamedTuple):
    """The axes of a figure of curves."""

    xlabel: str = ""
    ylabel: str = ""
    title: str = ""
    log: str = ""
    """Logarithmic axes: "", "x", "y" or "xy"."""
    ticks: Sequence[float] = ()
    """Ticks of the x axis; empty: automatic."""
    references: Sequence[tuple[str, float, str]] = ()
    """Axis, "x" or "y", place and colour of dotted lines."""


def draw_curves(
    output: Path,
    frame: pd.DataFrame,
    panels: Sequence[Panel],
    style: Mapping[str, Look],
    *,
    references: Mapping[str, str] = {},
    columns: int = 2,
    share: bool = False,
    markers: bool = False,
    points: bool = False,
    size: tuple[float, float] = (6.2, 3.4),
) -> None:
    """Draw curves: single seeds, and for several seeds their mean and band; see `BAND`.

    Args:
        output: the PNG file.
        frame: one row per point: panel (its number), name, seed, x, y. Points that some seeds lack are
            skipped, unless seeds are `points`.
        panels: from left to right, then downwards; `columns` per row, which `share` a y axis.
        style: look by name, in the order of the legend.
        references: the legend's name of the reference lines of each colour.
        points: whether seeds are marked points around their mean instead of thin lines in a band.
        size: width and height in inches.
    """
    columns = min(columns, len(panels))

    with new_figure(output, size) as figure:
        how: Any = {"squeeze": False, "sharey": "row" if share else "none"}
        grid = figure.subplots(-(-len(panels) // columns), columns, **how).flatten()
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        for number, (panel, axes) in enumerate(zip(panels, grid, strict=False)):
            own = frame[(frame.panel == number) & frame.x.notna()]
            for name, look in style.items():
                seeds = own[own.name == name].pivot(index="x", columns="seed", values="y")
                seeds = seeds if points else seeds.dropna()
                line = {"color": look.colour, "linestyle": look.dash}
                marker = look.marker if markers else ""
                if points:
                    axes.plot(seeds.mean(axis=1), **line)
                    axes.plot(seeds, color=look.colour, marker=look.marker, linestyle="", alpha=0.7)
                    continue
                axes.plot(seeds.index, seeds.mean(axis=1), marker=marker, **line)
                if len(seeds.columns) > 1:
                    band = seeds.min(axis=1), seeds.max(axis=1)
                    axes.fill_between(
                        seeds.index, *band, color=look.colour, alpha=0.18, linewidth=0
                    )
                    axes.plot(seeds, color=look.colour, linewidth=0.5, alpha=0.7)
            _finish(axes, panel)
        samples = {
            name: _sample(look.colour, look.dash, look.marker if markers or points else "")
            for name, look in style.items()
        }
        drawn = {colour for panel in panels for _, _, colour in panel.references}
        for colour, label in references.items():
            if colour in drawn:
                samples[label] = _sample(colour, ":", linewidth=1.2)
        legend(figure, samples)


def _finish(axes: Any, panel: Panel) -> None:
    """Set labels, scales and reference lines of axes after drawing."""
    axes.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.set_title(panel.title, loc="left")
    for which in panel.log:
        log_axis(getattr(axes, f"{which}axis"))
    if "x" not in panel.log:
        axes.set_xlim(0, None)
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter("{x:,g}")
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:,g}" for tick in panel.ticks], fontsize=8)
        axes.minorticks_off()
    for axis, place, colour in panel.references:
        line = axes.axvline if axis == "x" else axes.axhline
        line(place, color=colour, linestyle=":", linewidth=1.2)


def _sample(colour: str, dash: Any, marker: str = "", **how: Any) -> Line2D:
    """Return a line for the legend."""
    return Line2D([], [], color=colour, linestyle=dash, marker=marker, **how)


@contextmanager
def new_figure(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """Yield an empty figure of a size in inches, and write it as a PNG file."""
    with matplotlib.style.context(STYLE, after_reset=True), warnings.catch_warnings():
        # Characters of a name that the font lacks are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", metadata={"Software": None})


def style_of(frame: pd.DataFrame) -> dict[str, Look]:
    """Return the look of each configuration of a frame with its name and position."""
    return looks(dict(zip(frame.name, frame.position, strict=True)))


def draw_ordered(output: Path, frame: pd.DataFrame, panels: list[Panel], **how: Any) -> None:
    """Draw curves; the legend has the order of their right ends in the first panel, from the top."""
    first = frame[frame.panel == 0].dropna(subset=["x", "y"])
    last = first[first.x == first.groupby("name").x.transform("max")]
    ends, style = last.groupby("name").y.mean(), style_of(frame)
    names = sorted(style, key=lambda name: -ends.get(name, -math.inf))
    draw_curves(output, frame, panels, {name: style[name] for name in names}, **how)


def looks(configurations: Mapping[str, str]) -> dict[str, Look]:
    """Return the look of each configuration, given its position encoding, in the order of drawing."""
    unknown = sorted(set(configurations.values()) - COLOURS.keys())
    colours = COLOURS | {kind: SPARE[i % len(SPARE)] for i, kind in enumerate(unknown)}
    found: dict[str, Look] = {}
    for kind, colour in colours.items():
        names = sorted(name for name, its in configurations.items() if its == kind)
        for number, name in enumerate(names):
            which = number % len(DASHES)
            found[name] = Look(colour, DASHES[which], MARKERS[which])
    return found


def shown(name: str, width: int = 34) -> str:
    """Return a name as it is drawn: wrapped and shortened."""
    return textwrap.fill(one_line(name), width, max_lines=4, placeholder=" …")


def legend(figure: Figure, samples: Mapping[str, Any]) -> None:
    """Put a legend below the axes; the figure grows with its rows."""
    labels = list(map(shown, samples))
    longest = max(len(line) for label in labels for line in label.split("\n"))
    columns = max(1, min(len(labels), int(figure.get_figwidth() * LETTERS / (longest + 6))))
    lines = -(-len(labels) // columns) * (1 + max(label.count("\n") for label in labels))
    figure.set_figheight(figure.get_figheight() + 0.2 * (lines - 1))
    figure.legend(
        [*samples.values()], labels, loc="outside lower center", ncols=columns, fontsize=9
    )


def log_axis(axis: Any) -> None:
    """Make a logarithmic axis whose ticks are plain numbers."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(NullFormatter())
