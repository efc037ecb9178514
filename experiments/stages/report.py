"""Pre-trainings in stages: their rows below the paper's Table 4, and the block of REPORT.md."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from roformer.report.runs import ENDED, begun_from, read_runs, settings_of
from roformer.report.tables import Table, different_names, mean_lines, mean_text, paired_table

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
        keys = ("training.batch_size", "training.sequence_length")
        sizes = [(stage["steps"], *(stage["config"][key] for key in keys)) for stage in stages]
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


def stages(folder: Path, words: list[str]) -> list[Table]:
    """`stages`: means and paired differences of trainings of as many tokens that end at the same length."""
    every, tables = read_stages(read_runs([folder]).runs), []
    frame = every[every.after == every.stages]
    for (length, tokens), part in frame.groupby(["length", "tokens"], sort=False):
        (single,) = part[part.stages == 1].name.unique()
        part = part.sort_values("stages", kind="stable")
        title = (
            f"Stages and one stage of as many tokens ({tokens:,}), validated on {length:,} tokens"
        )
        note = (
            "Mean ± standard deviation over seeds (n); steps of sequences × tokens, stage by stage."
        )
        means = mean_lines(part.assign(training=part.name), "training", "metric", 3)
        tables.append(Table(title, means, notes=[note]))
        title = f"Validated on {length:,} tokens: paired differences from one stage"
        tables.append(paired_table(part, single, "metric", title, digits=3))
    several = every[every.stages > 1]
    labels = several.name + "; after stage " + several.after.astype(str)
    means = mean_lines(several.assign(training=labels), "training", "metric", 3)
    note = "Each stage is validated on blocks of its own length; the targets of two lengths differ."
    return [*tables, Table("After each stage", means, notes=[note])]
