"""Pre-trainings in stages: every stage of every training, and their rows below the paper's Table 4."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from roformer.report.runs import ENDED, begun_from, settings_of
from roformer.report.statistics import mean_text
from roformer.report.tables import different_names

METRICS = (("valid/mlm_loss", "loss", 2, 1), ("valid/mlm_accuracy", "accuracy", 1, 100))
"""Metric of a stage, its column in Table 4, digits and factor."""
OF_A_STAGE = (
    *("recipe", "init_from", "init_revision", "init_digest", "keep_moments"),
    *("schedule.first_update", "training.first_epoch"),
    *("training.steps", "training.batch_size", "training.sequence_length"),
)
"""Settings in which the stages of a training differ."""


def read_stages(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per stage and metric of each training whose last stage ended.

    A run that starts from another of these runs continues its training.

    Returns:
        name (of the training: its label and stages), seed, stages (their number), tokens (of the
        training), after (the number of the stage), length (of the stage), metric, value.
    """
    by_id = {run["run"]: run for run in runs.to_dict("records")}
    continued = {begun_from(run["config"])[0] for run in by_id.values()}
    rows, names = [], list[tuple[str, str, dict[str, Any]]]()
    for run in by_id.values():
        if run["run"] in continued or run["status"] not in ENDED:
            continue
        stages = [run]
        while (name := begun_from(stages[0]["config"])[0]) in by_id and len(stages) < len(by_id):
            stages.insert(0, by_id[name])
        sizes = [
            (
                stage["steps"],
                *(stage["config"][f"training.{key}"] for key in ("batch_size", "sequence_length")),
            )
            for stage in stages
        ]
        words = [f"{steps:,} of {batch} × {length}" for steps, batch, length in sizes]
        label = f"{run['label']}: {', then '.join(words)}"
        settings = {k: v for k, v in settings_of(run).items() if k not in OF_A_STAGE}
        key = json.dumps([label, settings], sort_keys=True)
        names.append((label, key, settings))
        tokens = sum(steps * batch * length for steps, batch, length in sizes)
        about = {"key": key, "seed": run["seed"], "stages": len(stages), "tokens": tokens}
        for number, (stage, (*_, length)) in enumerate(zip(stages, sizes, strict=True), 1):
            size = {"after": number, "length": length}
            values = stage["summary"].get("metrics", {})
            rows += [
                about | size | {"metric": name, "value": values.get(name)} for name, *_ in METRICS
            ]
    columns = ["key", "seed", "stages", "tokens", "after", "length", "metric"]
    frame = pd.DataFrame(rows, columns=[*columns, "value"]).astype({"value": float})
    return frame.assign(name=frame.key.map(different_names(names)))


def stage_rows(runs: pd.DataFrame, *, last: bool = False) -> dict[str, dict[str, str]]:
    """Return the rows below the paper's Table 4: label → column → text; with `last` only of last stages."""
    frame = read_stages(runs)
    frame = frame[frame.after == frame.stages] if last else frame
    rows: dict[str, dict[str, str]] = {}
    for (name, number), part in frame.groupby(["name", "after"], sort=False):
        row = {"length": f"{part.length.iloc[0]:,}"}
        for metric, column, digits, factor in METRICS:
            row[column] = mean_text([*factor * part[part.metric == metric].value], digits)
        shown = name.partition(": ")[2] if last else f"{name}; after stage {number}"
        rows[f"ours: {shown}"] = row
    return rows
