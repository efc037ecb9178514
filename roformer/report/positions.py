"""Language models: the loss by how many tokens are seen, and at lengths beyond the training's.

Out of a run's positions.json. What is read beyond the trained length is beyond the paper.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import Field
from typing_extensions import TypedDict

from roformer.errors import one_line
from roformer.report.comparing import find_baseline, mean_text
from roformer.report.convergence import read_arms
from roformer.report.drawing import NEUTRAL, draw, legend_below, line_of, log_axis, looks
from roformer.report.losses import loss_of
from roformer.report.records import Folder, Number, RecordError, read_json
from roformer.report.tables import Table

NAME = "positions.json"

Count = Annotated[int, Field(ge=1, le=10**12)]


class _Row(TypedDict):
    seen: Annotated[list[Count], Field(min_length=2, max_length=2)]
    tokens: Count
    loss: Number


class _Length(TypedDict):
    length: Count
    tokens: Count
    loss: Number
    rows: Annotated[list[_Row], Field(min_length=1)]


class _LeftOut(TypedDict):
    length: Count
    reason: str


class _File(TypedDict):
    """What a run wrote."""

    text: str
    trained_length: Count
    lengths: Annotated[list[_Length], Field(min_length=1)]
    left_out: list[_LeftOut]


class Arm(NamedTuple):
    """Runs that differ in the seed alone."""

    name: str
    position: str
    read: list[dict[str, Any]]
    """Of each seed, what its positions.json holds."""

    @property
    def trained(self) -> int:
        """The length of the training."""
        return int(self.read[0]["trained_length"])

    @property
    def longest(self) -> int:
        """The longest length that was read."""
        return max(int(each["length"]) for file in self.read for each in file["lengths"])

    def losses(self, length: int) -> list[float]:
        """Return the mean loss at a length, a seed each; none where it was not read."""
        found = [each for file in self.read for each in file["lengths"] if each["length"] == length]
        return [float(each["loss"]) for each in found]

    def seen(self, length: int) -> dict[tuple[int, int], list[float]]:
        """Return from-to tokens seen → the loss there, a seed each, of texts of a length."""
        rows: dict[tuple[int, int], list[float]] = {}
        for file in self.read:
            for each in file["lengths"]:
                for row in each["rows"] if each["length"] == length else ():
                    rows.setdefault((row["seen"][0], row["seen"][1]), []).append(row["loss"])
        return rows

    def seen_beyond(self) -> dict[tuple[int, int], list[float]]:
        """Return what `seen` does of the longest length, where more is seen than in the training."""
        rows = self.seen(self.longest)
        return {place: losses for place, losses in rows.items() if place[0] > self.trained}


def read_positions(folders: Iterable[Folder], baseline: str | None = None) -> list[Arm]:
    """Return the arms whose runs all have a positions.json, the baseline first.

    Raises:
        RecordError: a record is damaged, see `read_arms`.
    """
    folders = [folder for folder in folders if (folder / NAME).is_file()]
    if not folders:
        return []
    by_name = {folder.name: folder for folder in folders}
    found = []
    for arm in read_arms(folders, loss_of(folders).metric)[0]:
        curves = list(arm.curves.values())
        files = [read_json(by_name[curve.name] / NAME, _File) for curve in curves]
        found.append(Arm(arm.name, curves[0].summary["position"], files))
    first = find_baseline((arm.name for arm in found), baseline)
    return sorted(found, key=lambda arm: arm.name != first)


def position_tables(folders: Iterable[Folder], baseline: str | None = None) -> list[Table]:
    """Return the loss by length, where more than the trained one was read, and by tokens seen."""
    folders = list(folders)
    arms = read_positions(folders, baseline)
    tables = []
    for trained in dict.fromkeys(arm.trained for arm in arms):
        alike = [arm for arm in arms if arm.trained == trained]
        lengths = sorted(
            {each["length"] for arm in alike for f in arm.read for each in f["lengths"]}
        )
        tables.append(_by_seen(alike, trained, loss_of(folders).read))
        if lengths != [trained]:
            tables.append(_by_length(alike, trained, lengths))
    return tables


def _by_seen(arms: Sequence[Arm], trained: int, read: str) -> Table:
    rows = {arm.name: arm.seen(trained) for arm in arms}
    places = sorted({place for found in rows.values() for place in found})
    lines = [[f"{read} seen", *(arm.name for arm in arms)]]
    for first, last in places:
        cells = [rows[arm.name].get((first, last), []) for arm in arms]
        span = f"{first:,}" if first == last else f"{first:,}-{last:,}"
        lines.append([span, *(mean_text(values, 3) if values else "–" for values in cells)])
    note = (
        f"Loss in nats of {one_line(arms[0].read[0]['text'])}, read in blocks of {trained:,}, as "
        f"trained: the mean over the {read} that are predicted from so many. Mean ± standard deviation "
        "over seeds (n)."
    )
    return Table(f"Loss by how many {read} are seen", lines, notes=[note])


def _by_length(arms: Sequence[Arm], trained: int, lengths: Sequence[int]) -> Table:
    lines = [["length", *(arm.name for arm in arms)]]
    for length in lengths:
        cells = [arm.losses(length) for arm in arms]
        texts = [mean_text(values, 3) if values else "–" for values in cells]
        lines.append([f"{length:,}{' (trained)' if length == trained else ''}", *texts])
    notes = [
        "Beyond the paper: the same tokens predicted in longer blocks, without more training; loss in "
        "nats, mean ± standard deviation over seeds (n)."
    ]
    reasons = {
        f"–: {arm.name}: {one_line(left['reason'])}."
        for arm in arms
        for file in arm.read
        for left in file["left_out"]
    }
    return Table("Loss beyond the trained length", lines, notes=[*notes, *sorted(reasons)])


def draw_positions(folders: Sequence[Folder], output: Path) -> str:
    """Draw the loss by tokens seen; return the caption.

    Up to the length of the training in blocks of it, as all arms were read; beyond it in the longest
    blocks, whose few beginnings would make a noisy start.

    Raises:
        RecordError: a record is damaged, or none has a positions.json, or lengths of training differ.
    """
    arms = read_positions(folders)
    if len(trained := {arm.trained for arm in arms}) != 1:
        raise RecordError(
            "runs of several lengths cannot be drawn together"
            if trained
            else f"none of these runs has a {NAME}: give folders like runs/clm/*"
        )
    (end,), read = trained, loss_of(folders).read
    curves = {
        arm.name: [
            (math.sqrt(first * last), statistics.fmean(losses))
            for (first, last), losses in sorted({**arm.seen(end), **arm.seen_beyond()}.items())
        ]
        for arm in arms
    }
    style = looks({arm.name: arm.position for arm in arms})

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for name, look in style.items():
            places, losses = zip(*curves[name], strict=True)
            axes.plot(
                places, losses, color=look.colour, linestyle=look.dash, marker=look.marker, ms=3
            )
        log_axis(axes.xaxis)
        axes.axvline(end, color=NEUTRAL, linestyle=":", linewidth=1.2)
        axes.set(xlabel=f"{read} seen", ylabel="loss (nats)")
        samples = [(line_of(look), name) for name, look in style.items()]
        dotted = Line2D([], [], color=NEUTRAL, linestyle=":", linewidth=1.2)
        legend_below(figure, [*samples, (dotted, "trained length")])

    draw(output, ["positions", style, curves, end, read], (5.6, 3.6), paint)
    seeds = ", ".join(dict.fromkeys(str(len(arm.read)) for arm in arms))
    longest = max(arm.longest for arm in arms)
    how = ""
    if longest > end:
        how = (
            ": up to there in such blocks, beyond it, which is beyond the paper, in blocks of up to "
            f"{longest:,}"
        )
    return (
        f"Loss by how many {read} are seen after a training on blocks of {end:,} (dotted){how}. Means "
        f"over {read} of about as many seen, and over seeds ({seeds} an arm)."
    )
