"""Stages of a pre-training beside the paper's Table 4, out of their run records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from roformer.report.ours import Ours
from roformer.report.paper import against_paper, read_paper
from roformer.report.records import Metrics, RecordError, check, read_config, read_summary
from roformer.report.tables import Table

MEASURED = {"loss": ("valid/mlm_loss", 1, 2), "accuracy": ("valid/mlm_accuracy", 100, 1)}
"""Metric of Table 4 → ours, times what, decimals."""


class _Summary(TypedDict):
    """What is used of a stage's summary."""

    model: str
    position: str
    data: str
    status: str
    steps: int
    metrics: Metrics


class _Training(TypedDict):
    sequence_length: int
    batch_size: int


class _Config(TypedDict):
    """What is used of a stage's config."""

    training: _Training


def stages_table(paper: Path, folders: Iterable[Path]) -> Table:
    """Return Table 4 with ours below it.

    Args:
        paper: paper.yaml.
        folders: of the stages' runs, in their order.

    Raises:
        RecordError: a record is damaged or of another pipeline.
    """
    ours = [_row(number, folder) for number, folder in enumerate(folders, 1)]
    return against_paper(read_paper(paper), "table_4", ours)


def _row(number: int, folder: Path) -> Ours:
    summary: Any = read_summary(folder, _Summary)
    config: Any = read_config(folder)
    try:
        check(_Config, config)
    except ValueError as error:
        raise RecordError(f"{folder / 'config.yaml'} is not a pre-training's: {error}") from error
    training, metrics = config["training"], summary["metrics"]
    status = "" if summary["status"] == "done" else f", {summary['status']}"
    return Ours(
        f"our stage {number} ({summary['model']}, {summary['position']})",
        {name: _cell(metrics.get(key), *form) for name, (key, *form) in MEASURED.items()},
        f"{summary['data']}: length {training['sequence_length']:,}, batch {training['batch_size']}, "
        f"{summary['steps']:,} steps{status}",
    )


def _cell(value: float | None, factor: int, decimals: int) -> str:
    return "not finite" if value is None else f"{factor * value:.{decimals}f}"
