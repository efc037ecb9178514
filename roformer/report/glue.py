"""GLUE tables out of run records: each model's chosen learning rate, and every cell behind it.

The rule: of the learning rates of a task the one with the highest mean of the headline metric on
validation is chosen, the mean taken over all seeds, constant predictors included. Metrics are those
of the last epoch; the mean of each seed's best epoch stands beside them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from roformer.report.records import Folder, RecordError, configuration, read_config, read_summary
from roformer.report.tables import Table, arm_names, markdown, run_label

ORDER = ("mrpc", "sst2", "qnli", "stsb", "qqp", "mnli", "cola", "rte")
"""Of the paper's Table 2; other tasks follow by name."""

Cell = dict[str, Any]


KEYS = (
    *("model", "position", "seed", "task", "learning_rate", "headline", "status", "metrics"),
    *("best", "majority"),
)
"""Of a fine-tuning's summary."""


class Arm(NamedTuple):
    """What is compared: runs of one arm differ in task, learning rate and seed alone."""

    name: str
    """Model and position; where arms share those, also the settings in which they differ."""
    settings: str
    """All that the runs share, as JSON."""

    def __str__(self) -> str:
        return self.name


class Row(NamedTuple):
    """The seeds of one arm, task and learning rate."""

    arm: Arm
    task: str
    learning_rate: float
    cells: list[Cell]

    def values(self, metric: str, *, best_epoch: bool = False) -> list[float]:
        """Return the metric of each seed that ended, NaN where it is not defined."""
        ended = [cell for cell in self.cells if cell["status"] != "failed"]
        found = [cell["best"]["metrics"] if best_epoch else cell["metrics"] for cell in ended]
        return [math.nan if metrics.get(metric) is None else metrics[metric] for metrics in found]

    @property
    def headline(self) -> str:
        return str(self.cells[0]["headline"])

    @property
    def metrics(self) -> list[str]:
        """All metrics of the task, the headline first."""
        return sorted(self.cells[0]["majority"], key=lambda name: name != self.headline)


def read_cells(folders: Iterable[Folder]) -> list[Cell]:
    """Return the summaries of fine-tuning runs, each with its config under `config`.

    Raises:
        RecordError: a folder without a summary or config, of another pipeline, or damaged.
    """
    cells = []
    for folder in folders:
        for path in (folder / "summary.json", folder / "config.yaml"):
            if not path.is_file():
                raise RecordError(f"{folder} has no {path.name}: it did not end, or is no run")
        pipeline = read_summary(folder, "pipeline")["pipeline"]
        if pipeline != "glue":
            raise RecordError(f"{folder} is a run of {pipeline}, not of glue")
        cell, config = read_summary(folder, *KEYS), read_config(folder)
        if not isinstance(config.get("optimizer"), dict):
            raise RecordError(f"{folder / 'config.yaml'} has no optimizer: it is no run's")
        cells.append({**cell, "config": config})
    return cells


def rows_of(cells: Sequence[Cell]) -> list[Row]:
    """Group cells into rows, in the order arm, task, learning rate."""
    names = arm_names((run_label(cell), _settings(cell)) for cell in cells)
    groups: dict[tuple[Arm, str, float], list[Cell]] = {}
    for cell in cells:
        settings = _settings(cell)
        arm = Arm(names[settings], settings)
        groups.setdefault((arm, cell["task"], cell["learning_rate"]), []).append(cell)
    rows = [
        Row(*key, sorted(group, key=lambda cell: int(cell["seed"])))
        for key, group in groups.items()
    ]
    rows.sort(key=lambda row: (_place(row.task), row.learning_rate))
    return sorted(rows, key=lambda row: row.arm.name, reverse=True)  # roformer before bert


def _settings(cell: Cell) -> str:
    """Return the configuration of a cell but for its task and learning rate."""
    optimizer = {**cell["config"]["optimizer"], "learning_rate": None}
    return configuration(cell, {**cell["config"], "task": None, "optimizer": optimizer})


def chosen(rows: Iterable[Row]) -> dict[tuple[Arm, str], Row]:
    """Return the row of the best learning rate of each arm and task."""
    best: dict[tuple[Arm, str], Row] = {}
    for row in rows:
        key = (row.arm, row.task)
        if key not in best or _rank(row) > _rank(best[key]):
            best[key] = row
    return best


def glue_tables(folders: Iterable[Folder]) -> str:
    """Return the table of headlines and the table of all cells, in Markdown.

    Args:
        folders: of finished fine-tuning runs.

    Raises:
        ValueError: see `read_cells`.
    """
    rows = rows_of(read_cells(folders))
    headlines = markdown(headline_table(rows).lines, text_columns=1)
    return f"{headlines}\n\n{cell_table(rows)}"


def headline_table(rows: Sequence[Row]) -> Table:
    """Return one line an arm: mean ± standard deviation (n) of the headline metrics, in percent."""
    best = chosen(rows)
    tasks = sorted({row.task for row in rows}, key=_place)
    # The headline, and the same metric of the other validation parts: accuracy_matched, …
    metrics = {
        row.task: [m for m in row.metrics if m.partition("_")[0] == row.headline.partition("_")[0]]
        for row in rows
    }
    columns = [metric for task in tasks for metric in metrics[task]]
    lines = [["model", *columns]]
    constant = {metric: _constant(rows, metric) for metric in columns}
    lines.append(["majority", *(constant[metric] for metric in columns)])
    for arm in dict.fromkeys(row.arm for row in rows):
        cells = []
        for task in tasks:
            row = best.get((arm, task))
            cells += [_mean(row.values(m)) if row else "" for m in metrics[task]]
        lines.append([str(arm), *cells])
    note = "Mean ± standard deviation (n seeds) at the learning rate chosen on this validation set."
    return Table("GLUE, validation, in percent", lines, notes=[note])


def cell_table(rows: Sequence[Row]) -> str:
    """Return one line an arm, task, learning rate and metric; the chosen rates are marked."""
    best = chosen(rows)
    numbers = ["mean ± std", "median", "best", "n", "best epoch, mean", "constant", "failed"]
    lines = [["model", "metric", "learning rate", *numbers]]
    for row in rows:
        mark = " ←" if best[row.arm, row.task] is row else ""
        constant = sum(cell["status"] == "degenerate" for cell in row.cells)
        failed = sum(cell["status"] == "failed" for cell in row.cells)
        for metric in row.metrics:
            values = row.values(metric)
            best_epochs = row.values(metric, best_epoch=True)
            lines.append(
                [
                    str(row.arm),
                    metric,
                    f"{row.learning_rate:g}{mark}",
                    _mean(values, n=False),
                    _percent(_over(statistics.median, values)),
                    _percent(_over(max, values)),
                    str(len(values)),
                    _percent(_over(statistics.fmean, best_epochs)),
                    str(constant),
                    str(failed),
                ]
            )
    return markdown(lines, text_columns=2)


def _constant(rows: Sequence[Row], metric: str) -> str:
    """Return what the majority class gets; several values where runs had other data."""
    found = [
        cell["majority"][metric] for row in rows for cell in row.cells if metric in cell["majority"]
    ]
    return " / ".join(sorted({_percent(math.nan if value is None else value) for value in found}))


def _rank(row: Row) -> float:
    value = _over(statistics.fmean, row.values(row.headline))
    return -math.inf if math.isnan(value) else value


def _over(function: Any, values: list[float]) -> float:
    """Apply a function to the values; NaN where there are none or one of them is NaN."""
    return math.nan if not values or any(map(math.isnan, values)) else float(function(values))


def _mean(values: list[float], *, n: bool = True) -> str:
    spread = f" ± {100 * _over(statistics.stdev, values):.1f}" if len(values) > 1 else ""
    return f"{_percent(_over(statistics.fmean, values))}{spread}{f' ({len(values)})' if n else ''}"


def _percent(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{100 * value:.1f}"


def _place(task: str) -> tuple[int, str]:
    return (ORDER.index(task) if task in ORDER else len(ORDER), task)
