"""One style for all figures, and a file that is written only when what it shows has changed."""

from __future__ import annotations

import hashlib
import io
import json
import statistics
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

from roformer.errors import one_line

COLOURS = {
    "rotary": "#0072B2",
    "learned": "#D55E00",
    "sinusoidal": "#009E73",
    "none": "#555555",
    "shaw": "#CC79A7",
    "t5": "#E69F00",
    "alibi": "#56B4E9",
}
"""Encoding → its colour in every figure: Okabe and Ito's palette for all kinds of colour vision."""
SPARE = ("#882255", "#999933", "#332288")
"""Colours of Tol's palette, for encodings that the table does not have."""
NEUTRAL = "#333333"
DASHES = ("-", "--", "-.", (0, (1, 1)))
HATCHES = ("", "///", "...", "xxx")
MARKERS = "osD^"
"""Line styles of configurations of one encoding, in this order."""
BAND = "lines: mean over seeds, thin lines: single seeds, bands: from the lowest to the highest"
"""Caption of `curves_of_seeds`."""
DRAWN = 1
"""Raised when the drawing itself changes, so that files of unchanged data are drawn again."""
DIGEST = "Data-SHA256"
"""Key of the PNG text that holds the fingerprint of what is drawn."""
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
    "legend.frameon": False,
    "figure.dpi": 150.0,
    "savefig.dpi": 150.0,
    "hatch.linewidth": 0.6,
    # Names out of records are text, whatever dollars they have.
    "text.parse_math": False,
    "text.usetex": False,
}


class Look(NamedTuple):
    """The look of a configuration in all figures."""

    colour: str
    dash: Any
    hatch: str
    marker: str


def draw(path: Path, data: Any, size: tuple[float, float], paint: Callable[[Figure], None]) -> bool:
    """Write a PNG file, unless it is there and shows the same data; return whether it was written.

    Args:
        path: of the file; its folder is made.
        data: all that is drawn, names included, as plain data; its fingerprint is kept in the file.
        size: width and height in inches, at 150 dots an inch.
        paint: draws on the empty figure.
    """
    digest = fingerprint(data)
    if recorded(path) == digest:
        return False
    content = io.BytesIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        # A name may hold signs that the font has not: they are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        paint(figure)
        figure.savefig(content, format="png", metadata={DIGEST: digest, "Software": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content.getvalue())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return True


def fingerprint(data: Any) -> str:
    """Return the sha256 of plain data, and of the way it is drawn."""
    return hashlib.sha256(json.dumps([DRAWN, data], sort_keys=True).encode()).hexdigest()


def recorded(path: Path) -> str | None:
    """Return the fingerprint that a figure's file holds, or None where it is no whole figure."""
    try:
        with Image.open(path) as image:
            image.load()  # a file that is cut short is none
            return image.info.get(DIGEST)
    except (OSError, SyntaxError, ValueError):
        return None


def looks(configurations: Mapping[str, str]) -> dict[str, Look]:
    """Return the look of each configuration, in the order in which they are drawn.

    Args:
        configurations: name → position encoding.
    """
    unknown = sorted(set(configurations.values()) - COLOURS.keys())
    colours = COLOURS | {kind: SPARE[i % len(SPARE)] for i, kind in enumerate(unknown)}
    order = list(colours)
    found: dict[str, Look] = {}
    drawn: dict[str, int] = {}
    for name in sorted(configurations, key=lambda name: (order.index(configurations[name]), name)):
        which = drawn.get(configurations[name], 0) % len(DASHES)
        drawn[configurations[name]] = which + 1
        colour = colours[configurations[name]]
        found[name] = Look(colour, DASHES[which], HATCHES[which], MARKERS[which])
    return found


def shown(name: str, width: int = 34, lines: int = 3) -> str:
    """Return a name out of a record as it is drawn: one line a `width`, and not more than `lines`.

    The middle is left out of what is longer: names of configurations differ at their ends.
    """
    text = one_line(name)
    longest = width * lines
    if len(text) > longest:
        text = f"{text[: longest // 2 - 1]} … {text[-longest // 2 + 2 :]}"
    return "\n".join(textwrap.wrap(text, width, break_long_words=True)[: lines + 1]) or "?"


def line_of(look: Look) -> Line2D:
    """Return the sample of a configuration's line, for a legend."""
    return Line2D([], [], color=look.colour, linestyle=look.dash)


def bar_of(look: Look) -> Patch:
    """Return the sample of a configuration's bar, for a legend."""
    return Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="white")


def legend_below(figure: Figure, samples: Iterable[tuple[Any, str]]) -> None:
    """Put a legend under the axes, with as many columns as the names leave room for."""
    handles, names = zip(*samples, strict=True)
    labels = list(map(shown, names))
    # In letters: 13 of this size are an inch, and a sample with its gaps takes the room of 6.
    widths = [6 + max(map(len, label.split("\n"))) for label in labels]
    room = figure.get_figwidth() * 13.3
    columns = len(labels) if sum(widths) <= room else max(1, int(room / max(widths)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9)


def log_axis(axis: Any, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Make a logarithmic axis whose ticks are plain numbers."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def curves_of_seeds(
    axes: Any, places: Sequence[float], seeds: list[list[float]], colour: str, dash: Any
) -> None:
    """Draw the mean of curves, and where there are several each of them and their band; see `BAND`."""
    columns = list(zip(*seeds, strict=True))
    axes.plot(places, [statistics.fmean(c) for c in columns], color=colour, linestyle=dash)
    if len(seeds) > 1:
        low, high = [min(c) for c in columns], [max(c) for c in columns]
        axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
        for curve in seeds:
            axes.plot(places, curve, color=colour, linewidth=0.5, alpha=0.7)
