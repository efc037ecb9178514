"""The figures of the report, drawn from records, with their captions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from roformer.report.curves import baselines_of, loss_of, read_curves, read_positions
from roformer.report.drawing import BAND, NEUTRAL, Panel, draw_ordered
from roformer.report.runs import ENDED, RecordError, Runs


def draw_convergence(runs: Runs, output: Path) -> None:
    """Draw the validation loss of ended runs against steps (the paper's Fig. 3).

    A second panel is against tokens if steps of different runs have different numbers of tokens. A mean is
    as long as its shortest curve.
    """
    runs = runs._replace(runs=runs.runs[runs.runs.status.isin(ENDED)])
    loss = loss_of(runs.runs)
    frame = read_curves(runs, loss.metric).rename(columns={"value": "y"})
    entropies = list[float]()
    if loss.entropy:
        last = read_curves(runs, loss.entropy).groupby("folder").value.last()
        entropies = sorted({float(f"{value:.6g}") for value in last})
    # A line far above all curves would compress them.
    near = max(entropies, default=0) <= frame.y.max() + (frame.y.max() - frame.y.min()) / 2
    # Seeds get one x value, although some have read the last block of the text, which is not full.
    read = frame.groupby(["name", "step"]).tokens.transform("first") / 1e6
    alike = bool((read.groupby(frame.step).nunique() == 1).all())
    panels = [frame.assign(panel=0, x=frame.step), frame.assign(panel=1, x=read)]
    trigrams = sorted(set(baselines_of(runs.runs, loss.metric).get("trigram", ())))
    known = {"unigram entropy": entropies if near else [], "trigram": trigrams}
    references = [("y", value, NEUTRAL) for values in known.values() for value in values]
    label = ", ".join(name for name, values in known.items() if values)
    axes = [
        Panel("steps", loss.axis, references=references),
        Panel(f"{loss.read} (millions)", references=references),
    ]
    some = slice(1 if alike else 2)
    labels = {NEUTRAL: label}
    draw_ordered(output, pd.concat(panels[some]), axes[some], references=labels, share=True)


def draw_positions(runs: Runs, output: Path) -> None:
    """Draw the loss by tokens seen.

    Up to the training length it is measured in blocks of that length, as for all configurations. Beyond it
    the longest blocks are used; their first tokens are too few for a mean without noise.
    """
    found = read_positions(runs)
    if found.empty:
        raise RecordError("none of these runs has a positions.json: give folders like runs/clm/*")
    if found.trained.nunique() != 1:
        raise RecordError("runs of several lengths cannot be drawn together")
    found, end = found[found.reason.isna()], int(found.trained.iloc[0])
    longer = found.length == found.groupby("name").length.transform("max")
    beyond = longer & (found["first"] > end)
    frame = found[(found["first"] > 0) & (beyond | (found.length == end))]
    places = (frame["first"] * frame["last"]) ** 0.5
    read, marks = loss_of(runs.runs).read, [("x", end, NEUTRAL)]
    panels = [Panel(f"{read} seen", "loss (nats)", log="x", references=marks)]
    frame = frame.assign(panel=0, x=places, y=frame.value)
    labels = {NEUTRAL: "trained length"}
    draw_ordered(output, frame, panels, references=labels, markers=True, size=(5.6, 3.6))


FIGURES: dict[str, tuple[Callable[[Runs, Path], None], str]] = {
    "convergence": (
        draw_convergence,
        f"Loss on validation text; {BAND}. Dotted, if near: the unigram entropy, and the loss of counted "
        "trigrams where it was measured.",
    ),
    "positions": (
        draw_positions,
        "Loss by the amount of text that is seen; dotted: the trained length. Longer blocks are beyond the "
        f"paper. {BAND.capitalize()}.",
    ),
}
"""Kind of a figure → the function that draws it, and its caption."""
