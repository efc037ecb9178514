"""Predictions on GLUE's test sets, in the files that its server takes (https://gluebenchmark.com/faq).

Labels of the test sets are never read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roformer.config.build import from_yaml
from roformer.config.glue import FinetuneConfig, TaskConfig
from roformer.data.examples import test_rows
from roformer.errors import InputError, prefixed
from roformer.inference.load import load_model
from roformer.training.records import RunFolder

SERVER = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX")
"""Files of a complete submission."""
SHORT = {"matched": "m", "mismatched": "mm"}


def write_submission(runs: Sequence[Path], output: Path) -> list[Path]:
    """Predict the test sets with each task's best run; write a file per test set and a zip of them.

    The best run of a task is the best on validation that still has its weights.
    """
    best: dict[str, tuple[float, Path, FinetuneConfig]] = {}
    models = set[str]()
    for run in runs:
        if (found := _cell(run)) is None:
            continue
        value, config = found
        model = config.model
        models.add(f"{model.name} ({model.position.name}) from {config.init_from}")
        if config.task_name not in best or value > best[config.task_name][0]:
            best[config.task_name] = value, run, config
    if not best:
        raise InputError(
            "none of these runs is a finished fine-tuning with its weights: give folders under "
            "runs/glue/"
        )
    if len(models) > 1:
        raise InputError(
            f"these are runs of several models: {', '.join(sorted(models))}: give one's"
        )
    output.mkdir(parents=True, exist_ok=True)
    files = [file for _, run, config in best.values() for file in _write(run, config, output)]
    with zipfile.ZipFile(output / "submission.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.name)
    return files


def missing(files: Sequence[Path]) -> list[str]:
    """Return the other files that the server wants."""
    return [name for name in SERVER if name not in {file.stem for file in files}]


def _cell(run: Path) -> tuple[float, FinetuneConfig] | None:
    """Return the headline metric and the config of a fine-tuning that has its weights."""
    summary = RunFolder(run).summary() if (run / "checkpoints").is_dir() else None
    if summary is None or summary.get("pipeline") != "glue" or summary["status"] == "failed":
        return None
    value, file = summary["best"]["metrics"].get(summary["headline"]), run / "config.yaml"
    with prefixed(f"{file}: "):
        config = from_yaml(FinetuneConfig, file.read_text(encoding="utf-8"))
    return float("-inf") if value is None else value, config


def _write(run: Path, config: FinetuneConfig, output: Path) -> list[Path]:
    name = config.task_name
    task, trained, files = config.task[name], load_model(run), []
    for part in task.parts or (None,):
        rows = test_rows(name, task, config.data, part)
        outputs = trained.outputs(trained.inputs([text for _, text in rows])).numpy()
        lines = [f"{n}\t{_spelt(task, o)}" for (n, _), o in zip(rows, outputs, strict=True)]
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
