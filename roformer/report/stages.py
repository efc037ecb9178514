"""Stages of a pre-training beside the paper's Table 4, out of their run records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from roformer.report.ours import Ours
from roformer.report.paper import against_paper, read_paper
from roformer.report.records import Folder, RecordError, check, read_config, read_summary
from roformer.report.tables import Table

MEASURED = {"loss": ("valid/mlm_loss", 1, 2), "accuracy": ("valid/mlm_accuracy", 100, 1)}
"""Metric of Table 4 → ours, times what, decimals."""


KEYS = ("model", "position", "data", "status", "seed", "steps", "metrics")
"""Of a stage's summary."""


class _Training(TypedDict):
    sequence_length: int
    batch_size: int
    first_epoch: NotRequired[int]


class _Config(TypedDict):
    """What is used of a stage's config."""

    training: _Training


PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper.yaml"


def stages_text(folders: Iterable[Folder]) -> str:
    """Return Table 4 with the stages of these runs below it, as Markdown.

    Raises:
        RecordError: see `stages_table`.
    """
    return stages_table(PAPER, folders).markdown()


def stages_table(paper: Path, folders: Iterable[Folder]) -> Table:
    """Return Table 4 with ours below it.

    Args:
        paper: paper.yaml.
        folders: of the stages' runs, in their order.

    Raises:
        RecordError: a record is damaged or of another pipeline.
    """
    ours = [_row(number, folder) for number, folder in enumerate(folders, 1)]
    return against_paper(read_paper(paper), "table_4", ours)


def stage_runs_table(folders: Iterable[Folder]) -> Table:
    """Return the runs of stages as Table 4 has them: length, batch, updates, loss and accuracy.

    Args:
        folders: of runs of stages, in any order; those of several seeds or settings stand below each
            other.

    Raises:
        RecordError: a record is damaged or of another pipeline.
    """
    lines = [["run", "stage", "length", "batch", "updates", "loss", "accuracy, %", "status"]]
    read = []
    for folder in folders:
        summary: Any = read_summary(folder, *KEYS)
        training = _training(folder)
        metrics = summary["metrics"]
        values = [_cell(metrics.get(key), *form) for key, *form in MEASURED.values()]
        sizes = [f"{training[key]:,}" for key in ("sequence_length", "batch_size")]
        place = training.get("first_epoch", 0)
        row = [folder.name, "", *sizes, f"{summary['steps']:,}", *values, summary["status"]]
        read.append((summary["model"], summary["seed"], place, row))
    read.sort(key=lambda each: each[:3])
    first: dict[tuple[str, int], list[int]] = {}
    for model, seed, place, row in read:
        places = first.setdefault((model, seed), [])
        places += [place] if place not in places else []
        row[1] = str(len(places))
        lines.append(row)
    note = (
        "Each stage starts from the one before, so length, data and training time change together."
    )
    return Table("Pre-training in stages", lines, text_columns=1, notes=[note])


def _training(folder: Folder) -> Any:
    config: Any = read_config(folder)
    try:
        check(_Config, config)
    except ValueError as error:
        raise RecordError(f"{folder / 'config.yaml'} is not a pre-training's: {error}") from error
    return config["training"]


def _row(number: int, folder: Folder) -> Ours:
    summary: Any = read_summary(folder, *KEYS)
    training, metrics = _training(folder), summary["metrics"]
    status = "" if summary["status"] == "done" else f", {summary['status']}"
    return Ours(
        f"our stage {number} ({summary['model']}, {summary['position']})",
        {name: _cell(metrics.get(key), *form) for name, (key, *form) in MEASURED.items()},
        f"{summary['data']}: length {training['sequence_length']:,}, batch {training['batch_size']}, "
        f"{summary['steps']:,} steps{status}",
    )


def _cell(value: float | None, factor: int, decimals: int) -> str:
    return "not finite" if value is None else f"{factor * value:.{decimals}f}"
