"""Rows of ours that stand beside the paper's tables, out of run records."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from roformer.report.glue import Cell, Row, chosen, read_cells, rows_of
from roformer.report.losses import loss_of
from roformer.report.records import Folder, RecordError, configuration, read_config, read_summary
from roformer.report.scm import SPLITS, read_arms
from roformer.report.tables import arm_names, run_label
from roformer.report.wmt import Run, read_runs

T = TypeVar("T")
GLUE = {
    "mrpc/f1": "MRPC F1",
    "sst2/accuracy": "SST-2 accuracy",
    "qnli/accuracy": "QNLI accuracy",
    "stsb/spearman": "STS-B Spearman",
    "qqp/f1": "QQP F1",
    "mnli/accuracy_matched": "MNLI-m accuracy",
    "mnli/accuracy_mismatched": "MNLI-mm accuracy",
}
"""A fine-tuning's metric → that of the paper's Table 2; others are not in it."""
BLEU = {"sacrebleu": "sacreBLEU", "bleu_compound": "compound BLEU"}
"""A translation's score and key of its signature → its column; each has its own."""


class Ours(NamedTuple):
    """A row of ours beside a table of the paper's."""

    row: str
    """Model and position, `roformer (rotary)`."""
    values: Mapping[str, str]
    """Metric of the paper's table → mean ± standard deviation (n)."""
    setting: str
    """Data and scale: `builtin, 4.9 M tokens of pre-training, mini`."""
    column: str = "validation"
    """What was measured, as the header says it: the split, and which BLEU."""
    signature: str = ""
    """Of the metric; rows with different ones cannot share a column."""
    notes: Sequence[str] = ()


SCALE = ("data", "tokens", "steps")
"""Keys of a summary that tell the scale of a run."""


def glue_ours(
    folders: Iterable[Folder], *, pretraining: Iterable[Folder] = (), data: str = ""
) -> list[Ours]:
    """Return one row an arm for Table 2: the task's metric at the chosen learning rate, times 100.

    Args:
        folders: of finished fine-tuning runs.
        pretraining: folders of the runs that they start from, which tell the tokens; of one that is
            not among them the name is given.
        data: what to call the data where the record's word, `builtin` or `files`, says too little.

    Raises:
        RecordError: a record is damaged or of another pipeline.
    """
    started = {folder.name: folder for folder in pretraining}
    groups: dict[str, list[Cell]] = {}
    for cell in read_cells(folders):
        groups.setdefault(_tuned_on(cell, started, data), []).append(cell)
    note = "Our learning rates are chosen on the validation set that the scores are of."
    ours = []
    for setting, cells in groups.items():
        best = chosen(rows_of(cells))
        for arm in dict.fromkeys(arm for arm, _ in best):
            values = {
                GLUE[metric]: _glue_cell(row, metric)
                for (other, _), row in best.items()
                for metric in row.metrics
                if other == arm and metric in GLUE
            }
            ours.append(Ours(str(arm), values, setting, notes=[note]))
    return ours


def wmt_ours(folders: Iterable[Folder], *, data: str = "") -> list[Ours]:
    """Return two rows an arm and test set for Table 1: sacreBLEU and compound BLEU.

    Args:
        folders: of finished translation runs; those without scores are named in a note.
        data: what to call the data where the test set's name says too little.

    Raises:
        RecordError: a record is damaged or of another pipeline, or two runs are one seed of an arm.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    notes = []
    for run in read_runs(folders):
        status = run.summary["status"]
        if run.has_scores:
            groups.setdefault((run.settings, run.scored_by), []).append(run)
            if status != "done":
                notes.append(f"Counted, though {status}: {run.folder.name}.")
        else:
            notes.append(f"Left out, without scores: {run.folder.name} is {status}.")
    arms = []
    for (settings, _), seeds in groups.items():
        test, scales = (
            seeds[0].summary["test_set"],
            [read_summary(run.folder, *SCALE) for run in seeds],
        )
        where = f"{data or test['name']}, {test['lines']:,} test sentences"
        setting = f"{where}, {_trained(scales)} of training, {_size(json.loads(settings))}"
        arms.append((seeds[0].label, settings, setting, seeds))
    ours = []
    for name, setting, seeds in _named(arms):
        for key, column in BLEU.items():
            value = mean([run.value(f"test/{key}") for run in seeds], 2)
            signature = seeds[0].summary["signatures"].get(key, "none recorded")
            ours.append(Ours(name, {"BLEU": value}, setting, f"test, {column}", signature, notes))
    return ours


def loss_ours(folders: Iterable[Folder], *, data: str = "") -> list[Ours]:
    """Return one row an arm for the figures that are curves: the loss on validation at the end.

    Args:
        folders: of finished runs of one pipeline; those that did not end well are named in a note.
        data: what to call the data where the record's word, `builtin` or `files`, says too little.

    Raises:
        RecordError: a record is damaged, the runs are of several pipelines or of one without curves of
            a loss, or two runs are one seed of an arm.
    """
    folders = list(folders)
    if not folders:
        return []
    loss = loss_of(folders)
    metric = loss.whole or loss.metric
    groups: dict[str, dict[int, dict[str, Any]]] = {}
    notes = []
    for folder in folders:
        summary, config = (
            read_summary(
                folder, "pipeline", "model", "position", "seed", "status", "metrics", *SCALE
            ),
            read_config(folder),
        )
        if summary["status"] != "done" or metric not in summary["metrics"]:
            notes.append(f"Left out: {folder.name} is {summary['status']}.")
            continue
        seeds = groups.setdefault(configuration(summary, config), {})
        if summary["seed"] in seeds:
            raise RecordError(f"{folder} and another run have the same settings and seed")
        seeds[summary["seed"]] = summary
    arms = []
    for settings, by_seed in groups.items():
        runs = list(by_seed.values())
        updates = " / ".join(sorted({f"{run['steps']:,}" for run in runs}))
        where = f"{data or runs[0]['data']}, {_trained(runs, loss.read)} in {updates} updates"
        label = run_label(runs[0])
        arms.append((label, settings, f"{where}, {_size(json.loads(settings))}", runs))
    ours = []
    for name, setting, runs in _named(arms):
        found = [run["metrics"][metric] for run in runs]
        value = mean([math.nan if number is None else number for number in found], 3)
        column = "whole validation text" if loss.whole else "validation"
        ours.append(Ours(name, {loss.words: value}, setting, column, notes=notes))
    return ours


def scm_ours(folders: Iterable[Folder], *, data: str = "") -> list[Ours]:
    """Return two rows an arm for Table 5: accuracy on validation and on test, times 100.

    Args:
        folders: of finished runs on triplets.
        data: what to call the data where the record's word says too little.

    Raises:
        RecordError: see `roformer.report.scm.read_arms`.
    """
    arms, notes = read_arms(folders)
    notes.append("Our validation accuracies are of the best epoch, chosen on the set they are of.")
    ours = []
    for arm in arms:
        run = next(iter(arm.runs.values()))
        setting = f"{data or run.summary['data']}, {_size(read_config(run.folder))}"
        for split, called in SPLITS.items():
            if values := arm.values(split):
                ours.append(
                    Ours(arm.name, {"accuracy": mean(values, 2)}, setting, called, "", notes)
                )
    return ours


def mean(values: list[float], decimals: int) -> str:
    """Return mean ± standard deviation (n), `NaN (n)` where one is not defined."""
    if any(map(math.isnan, values)) or not values:
        return f"NaN ({len(values)})"
    spread = f" ± {statistics.stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{decimals}f}{spread} ({len(values)})"


def _named(arms: Iterable[tuple[str, str, str, list[T]]]) -> Iterator[tuple[str, str, list[T]]]:
    """Yield name, setting and runs of each arm of (label, config, setting, runs).

    Arms with one setting are told from each other by their configs; the others' settings do that.
    """
    groups: dict[str, list[tuple[str, str, list[T]]]] = {}
    for label, config, setting, runs in arms:
        groups.setdefault(setting, []).append((label, config, runs))
    for setting, group in groups.items():
        names = arm_names((label, config) for label, config, _ in group)
        for _, config, runs in sorted(group, key=lambda arm: names[arm[1]]):
            yield names[config], setting, runs


def _tuned_on(cell: Cell, started: Mapping[str, Folder], data: str) -> str:
    """Return the setting of a fine-tuning: its data, and the scale of its pre-training."""
    if "data" not in cell:
        raise RecordError(f"a run on {cell['task']} is not what a run wrote: data: is missing")
    begun = Path(cell.get("init_from") or "").name
    scale = f"pre-trained as {begun}" if begun else "without pre-training"
    if begun in started:
        scale = f"{_tokens(read_summary(started[begun], *SCALE)['tokens'])} of pre-training"
    return f"{data or cell['data']}, {scale}, {_size(cell['config'])}"


def _glue_cell(row: Row, metric: str) -> str:
    """Return a cell of Table 2, with how many of its runs predicted one class for everything."""
    text = mean([100 * value for value in row.values(metric)], 1)
    constant = sum(cell["status"] == "degenerate" for cell in row.cells)
    return f"{text[:-1]}, {constant} constant)" if constant else text


def _trained(runs: Sequence[Mapping[str, Any]], read: str = "tokens") -> str:
    return " / ".join(sorted({_tokens(run["tokens"], read) for run in runs}))


def _tokens(count: int, read: str = "tokens") -> str:
    return f"{count / 1e6:,.1f} M {read}"


def _size(config: Mapping[str, Any]) -> str:
    """Return what a config calls its model's size."""
    model = config.get("model")
    size = model.get("size") if isinstance(model, dict) else None
    return size if isinstance(size, str) else "size not recorded"
