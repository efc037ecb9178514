"""Curves show the numbers, and take any name as text."""

import pandas as pd
import pytest

from roformer.report import drawing
from roformer.report.drawing import COLOURS, Look, Panel, draw_curves, looks

POINTS = [
    *((0, "a", seed, x, x * (seed + 1.0)) for seed in (0, 1) for x in (1, 2, 3)),
    (0, "a", 0, 4, 9.0),  # only one seed has it
    (1, "b", 0, 10, 7.0),
]
FRAME = pd.DataFrame(POINTS, columns=["panel", "name", "seed", "x", "y"])
STYLE = {"a": Look("#0072B2"), "b": Look("#D55E00", "--")}
PANELS = [
    Panel("steps", "loss", references=[("y", 5.0, "#333333")]),
    Panel("tokens", log="xy", ticks=[10, 20]),
]


@pytest.fixture
def figures(monkeypatch):
    """Return a list to which every figure that is drawn is added."""
    drawn = []

    class Kept(drawing.Figure):
        def savefig(self, *args, **kwargs):
            super().savefig(*args, **kwargs)
            drawn.append(self)

    monkeypatch.setattr(drawing, "Figure", Kept)
    return drawn


def test_curves_are_means_with_their_seeds_and_band(figures, tmp_path):
    labels = {"#333333": "entropy"}
    draw_curves(tmp_path / "a.png", FRAME, PANELS, STYLE, references=labels, markers=True)
    left, right = figures[0].axes
    mean, *seeds, entropy = [
        list(line.get_ydata()) for line in left.get_lines() if line.get_xydata().size
    ]
    assert mean == [1.5, 3.0, 4.5] and seeds == [[1, 2, 3], [2, 4, 6]] and entropy == [5, 5]
    (band,) = left.collections
    assert list(band.get_paths()[0].get_extents().intervaly) == [1, 6]
    assert left.get_xlabel() == "steps" and left.get_ylabel() == "loss"
    assert [list(line.get_ydata()) for line in right.get_lines()] == [[], [7.0]]
    assert right.get_xscale() == right.get_yscale() == "log"
    assert [text.get_text() for text in right.get_xticklabels()] == ["10", "20"]
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "entropy"]


def test_an_encoding_has_one_colour_and_its_configurations_look_different():
    found = looks({"b": "learned", "a": "rotary", "a2": "rotary", "new": "fourier"})
    assert list(found) == ["a", "a2", "b", "new"]
    assert found["a"].colour == found["a2"].colour == COLOURS["rotary"]
    assert found["a"].dash != found["a2"].dash and found["a"].marker != found["a2"].marker
    assert found["b"].colour == COLOURS["learned"]
    assert found["new"].colour not in COLOURS.values()
    assert len(set(COLOURS.values())) == len(COLOURS)
