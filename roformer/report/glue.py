"""GLUE tables out of run records: each configuration's chosen learning rate, and every run behind it.

The rule: of the learning rates of a task the one with the highest mean of the headline metric on
validation is chosen, the mean taken over all seeds, constant predictors included. Metrics are those
of the last epoch; the mean of each seed's best epoch stands beside them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from roformer.report.runs import RecordError, Runs, read_runs
from roformer.report.statistics import (
    Paired,
    compared,
    interval_text,
    mean_text,
    p_text,
    sign_flip_limit,
    signed,
)
from roformer.report.tables import (
    Table,
    configuration_names,
    find_baseline,
    markdown,
    without,
)

ORDER = ("mrpc", "sst2", "qnli", "stsb", "qqp", "mnli", "cola", "rte")
"""Tasks of the paper's Table 2; others follow by name."""
COLUMNS = ("difference", "95 % (t)", "sign-flip p", "p, Holm", "n", "constant")


class Row(NamedTuple):
    """The seeds of one configuration, task and learning rate."""

    name: str
    """Key of the configuration: its runs differ in task, learning rate and seed alone."""
    task: str
    learning_rate: float
    runs: pd.DataFrame

    def values(self, metric: str, *, best_epoch: bool = False) -> list[float]:
        """Return the metric of each seed that ended, NaN where it is not defined."""
        return [*self.by_seed(metric, best_epoch=best_epoch).values()]

    def by_seed(self, metric: str, *, best_epoch: bool = False) -> dict[int, float]:
        """Return seed → metric of the runs that ended."""
        found = {}
        for run in self.runs[self.runs.status != "failed"].to_dict("records"):
            summary = run["summary"]
            value = (summary["best"] or {} if best_epoch else summary)["metrics"].get(metric)
            found[run["seed"]] = math.nan if value is None else float(value)
        return found

    def counted(self, status: str) -> int:
        """Return how many runs have a status."""
        return int((self.runs.status == status).sum())

    @property
    def headline(self) -> str:
        return str(self.runs.headline.iloc[0])

    @property
    def majority(self) -> dict[str, float | None]:
        """Score of the majority class."""
        return dict(self.runs.summary.iloc[0]["majority"])

    @property
    def metrics(self) -> list[str]:
        """All metrics of the task, the headline first."""
        return sorted(self.majority, key=lambda name: name != self.headline)


def rows_of(runs: pd.DataFrame) -> list[Row]:
    """Return the rows of finished fine-tuning runs, by configuration, task and learning rate.

    Raises:
        RecordError: a run did not end, or is of another pipeline; two have the same settings and seed.
    """
    for run in runs.to_dict("records"):
        if run["status"] == "running":
            raise RecordError(f"{run['folder']} has no summary.json: it did not end, or is no run")
        if run["pipeline"] != "glue":
            raise RecordError(f"{run['folder']} is a run of {run['pipeline']}, not of glue")
    runs = without(runs, "task", "optimizer.learning_rate").sort_values("seed", kind="stable")
    names = configuration_names(runs)
    runs = runs.assign(
        name=[names[key] for key in runs.configuration],
        rate=[float(summary["learning_rate"]) for summary in runs.summary],
    )
    rows = []
    for (name, task, rate), group in runs.groupby(["name", "task", "rate"]):
        if group.seed.duplicated().any():
            raise RecordError(
                f"{name}, {task} at {rate:g} has a seed twice: leave one of the runs out, or it counts "
                "as another seed"
            )
        rows.append(Row(name, task, rate, group))
    rows.sort(key=lambda row: (_place(row.task), row.learning_rate))
    return sorted(rows, key=lambda row: row.name, reverse=True)  # roformer before bert


def chosen(rows: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """Return (configuration, task) → the row of the best learning rate."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = best.setdefault((row.name, row.task), row)
        if _rank(row) > _rank(known):
            best[row.name, row.task] = row
    return best


def grid_tables(folders: Iterable[Path]) -> str:
    """Return the tables of a grid's run folders; see `glue_tables`."""
    return glue_tables(read_runs(folders))


def glue_tables(runs: Runs) -> str:
    """Return the table of headlines and the table of all runs, in Markdown.

    Raises:
        RecordError: see `rows_of`.
    """
    rows = rows_of(runs.runs)
    return f"{markdown(headline_table(rows).lines, text_columns=1)}\n\n{_all_rows(rows)}"


def headline_table(rows: Sequence[Row]) -> Table:
    """Return one line a configuration: mean ± standard deviation (n) of the headline metrics."""
    best = chosen(rows)
    tasks = sorted({row.task for row in rows}, key=_place)
    # The headline, and the same metric of the other validation parts: accuracy_matched, …
    metrics = {
        row.task: [m for m in row.metrics if m.partition("_")[0] == row.headline.partition("_")[0]]
        for row in rows
    }
    columns = [metric for task in tasks for metric in metrics[task]]
    lines = [["model", *columns], ["majority", *(_majority(rows, metric) for metric in columns)]]
    for name in dict.fromkeys(row.name for row in rows):
        cells = []
        for task in tasks:
            row = best.get((name, task))
            cells += [mean_text(row.values(m), 1, factor=100) if row else "" for m in metrics[task]]
        lines.append([name, *cells])
    note = "Mean ± standard deviation (n seeds) at the learning rate chosen on this validation set."
    return Table("GLUE, validation, in percent", lines, notes=[note])


def _all_rows(rows: Sequence[Row]) -> str:
    """Return one line a configuration, task, learning rate and metric; the chosen rates are marked."""
    best = chosen(rows)
    numbers = ["mean ± std", "median", "best", "n", "best epoch, mean", "constant", "failed"]
    lines = [["model", "metric", "learning rate", *numbers]]
    for row in rows:
        mark = " ←" if best[row.name, row.task] is row else ""
        for metric in row.metrics:
            values = row.values(metric)
            lines.append(
                [
                    row.name,
                    metric,
                    f"{row.learning_rate:g}{mark}",
                    mean_text(values, 1, factor=100).rpartition(" (")[0],
                    _percent(_over(statistics.median, values)),
                    _percent(_over(max, values)),
                    str(len(values)),
                    _percent(_over(statistics.fmean, row.values(metric, best_epoch=True))),
                    str(row.counted("degenerate")),
                    str(row.counted("failed")),
                ]
            )
    return markdown(lines, text_columns=2)


def paired_glue_table(runs: Runs, baseline: str | None = None) -> Table:
    """Return one line a configuration and task: its headline metric against the baseline's, in percent.

    Each configuration has the learning rate that `chosen` gives it, and seeds that ended in both are
    paired. A metric that is not defined makes the difference NaN.

    Args:
        runs: finished fine-tuning runs.
        baseline: the configuration to compare with, or a part of its name; None: the first one of the
            tables.

    Raises:
        RecordError: see `rows_of`; fewer than two configurations.
    """
    rows = rows_of(runs.runs)
    names = list(dict.fromkeys(row.name for row in rows))
    if len(names) < 2:
        raise RecordError(f"{len(names)} configurations: give the runs of at least two to compare")
    base = find_baseline(names, baseline)
    best = chosen(rows)
    lines = [["configuration", "metric", "learning rates", base, "configuration", *COLUMNS]]
    missing: list[str] = []
    most = 0
    for name in names:
        tasks = list(dict.fromkeys(row.task for row in rows)) if name != base else []
        sides = {task: (best.get((name, task)), best.get((base, task))) for task in tasks}
        both = {task: (one, other) for task, (one, other) in sides.items() if one and other}
        found = dict(
            zip(
                both,
                compared(((_percents(o), _percents(t)) for o, t in both.values()), "permutation_p"),
                strict=True,
            )
        )
        for task, (ours, theirs) in sides.items():
            if (pairs := found.get(task)) and ours and theirs:
                lines.append(_line(ours, theirs, pairs))
                missing += _unpaired(ours, theirs)
                most = max(most, pairs.n)
            elif ours or theirs:
                missing.append(f"{name}, {task}: no seed that ended in both configurations.")
    notes = [
        f"In percent, mean ± standard deviation (n); differences are from {base}, of the same seed, "
        "each configuration at its own learning rate (the baseline's second), chosen on the same "
        "validation set, which favours both. p-values are two-sided, Holm's for all tasks of a "
        "configuration. Constant: predictors of one class, the configuration's and the baseline's; they "
        "count.",
        "The seeds are those of the fine-tuning: what another pre-training would give is not in the "
        "intervals. Nor is the sampling error of the validation sets: the records do not say how many "
        "examples these have.",
        sign_flip_limit(most),
        *missing,
    ]
    return Table(f"GLUE: paired differences from {base}", lines, text_columns=3, notes=notes)


def _percents(row: Row) -> dict[int, float]:
    """Return seed → headline metric in percent, of the runs that ended."""
    return {seed: 100 * value for seed, value in row.by_seed(row.headline).items()}


def _unpaired(ours: Row, theirs: Row) -> list[str]:
    """Return a sentence on the seeds that have no pair."""
    every = {*ours.runs.seed, *theirs.runs.seed}
    if alone := sorted(every - (_percents(ours).keys() & _percents(theirs).keys())):
        seeds = ", ".join(map(str, alone))
        return [f"{ours.name}, {ours.task}: without a pair, failed or not run: seed {seeds}."]
    return []


def _line(ours: Row, theirs: Row, found: Paired) -> list[str]:
    return [
        ours.name,
        ours.headline,
        f"{ours.learning_rate:g} / {theirs.learning_rate:g}",
        *(mean_text([*_percents(row).values()], 1) for row in (theirs, ours)),
        signed(found.difference, 1),
        interval_text(found.interval, 1),
        p_text(found.permutation_p),
        p_text(found.holm_p),
        str(found.n),
        f"{ours.counted('degenerate')} / {theirs.counted('degenerate')}",
    ]


def _majority(rows: Sequence[Row], metric: str) -> str:
    """Return what the majority class gets; several values where runs had other data."""
    found = [
        math.nan if (value := summary["majority"][metric]) is None else value
        for row in rows
        for summary in row.runs.summary
        if metric in summary["majority"]
    ]
    return " / ".join(sorted({_percent(value) for value in found}))


def _rank(row: Row) -> float:
    value = _over(statistics.fmean, row.values(row.headline))
    return -math.inf if math.isnan(value) else value


def _over(function: Any, values: list[float]) -> float:
    """Apply a function to the values; NaN where there are none or one of them is NaN."""
    return math.nan if not values or any(map(math.isnan, values)) else float(function(values))


def _percent(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{100 * value:.1f}"


def _place(task: str) -> tuple[int, str]:
    return (ORDER.index(task) if task in ORDER else len(ORDER), task)
