"""Predictions on GLUE's test sets, in the files that its server takes (https://gluebenchmark.com/faq).

Labels of the test sets are never read. Nothing here scores anything.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roformer.config.build import from_yaml
from roformer.config.glue import FinetuneConfig, TaskConfig
from roformer.data.examples import test_rows
from roformer.errors import InputError
from roformer.inference.load import Text, load_model
from roformer.training.records import RunFolder

SERVER = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX")
"""Files of a complete submission."""
SHORT = {"matched": "m", "mismatched": "mm"}


class Cell(NamedTuple):
    """A fine-tuning run whose weights are there."""

    folder: Path
    config: FinetuneConfig
    value: float
    """Its headline metric on validation, of the best epoch."""


def write_submission(runs: Sequence[Path], output: Path) -> list[Path]:
    """Predict the test sets with each task's best run; write a file a test set and a zip of them.

    Args:
        runs: folders of fine-tuning runs of one model; of a task's runs the best on validation that
            still has its weights is used.
        output: folder for the files and `submission.zip`.

    Raises:
        InputError: runs of several models, none with weights, or no test set (builtin data).
    """
    cells = [cell for run in runs if (cell := _cell(run)) is not None]
    if not cells:
        raise InputError(
            "none of these runs is a finished fine-tuning with its weights: give folders under "
            "runs/glue/"
        )
    models = {
        f"{cell.config.model.name} ({cell.config.model.position.kind}) from {cell.config.init_from}"
        for cell in cells
    }
    if len(models) > 1:
        raise InputError(
            f"these are runs of several models: {', '.join(sorted(models))}: give one's"
        )
    tasks: dict[str, list[Cell]] = {}
    for cell in cells:
        tasks.setdefault(cell.config.task_name, []).append(cell)
    best = [max(of_task, key=lambda cell: cell.value) for of_task in tasks.values()]
    output.mkdir(parents=True, exist_ok=True)
    files = [file for cell in best for file in _write(cell, output)]
    with zipfile.ZipFile(output / "submission.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    return files


def missing(files: Sequence[Path]) -> list[str]:
    """Return the files that the server wants besides these."""
    return [name for name in SERVER if name not in {file.stem for file in files}]


def _cell(run: Path) -> Cell | None:
    if not (run / "summary.json").is_file() or not (run / "checkpoints").is_dir():
        return None
    summary = RunFolder(run).summary()
    if summary is None or summary.get("pipeline") != "glue" or summary["status"] == "failed":
        return None
    value = summary["best"]["metrics"].get(summary["headline"])
    file = run / "config.yaml"
    try:
        config = from_yaml(FinetuneConfig, file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    return Cell(run, config, float("-inf") if value is None else value)


def _write(cell: Cell, output: Path) -> list[Path]:
    name = cell.config.task_name
    task = cell.config.task[name]
    trained = load_model(cell.folder)
    files = []
    for part in task.parts or (None,):
        rows = test_rows(name, task, cell.config.data, part)
        texts: list[Text] = [a if b is None else (a, b) for _, a, b in rows]
        outputs = trained.outputs(trained.inputs(texts)).numpy()
        lines = [f"{row[0]}\t{_spelt(task, o)}" for row, o in zip(rows, outputs, strict=True)]
        suffix = f"-{SHORT.get(part, part)}" if part else ""
        file = output / f"{task.files.folder}{suffix}.tsv"
        file.write_text("\n".join(["index\tprediction", *lines]) + "\n", encoding="utf-8")
        files.append(file)
    return files


def _spelt(task: TaskConfig, output: Any) -> str:
    """Return a prediction as the server wants it: a class number or name, or a score in range."""
    if task.scores is not None:
        return f"{float(np.clip(output[0], *task.scores)):.3f}"
    number = int(output.argmax())
    assert task.labels is not None
    return task.labels[number] if task.submission == "name" else str(number)
