"""Scores of finished runs as one frame, and the tables that all pipelines share.

`SCORES` has the differences between pipelines. Each pipeline has tables of the scores by configuration and
of the differences from the baseline, paired by seed. Fine-tuning also has all learning rates, translation
the resampled test set.

The learning rate of a fine-tuning is the one with the highest mean of the headline metric on validation,
over all seeds, constant predictors included.

Translations with different signatures or test sets are never in one table. So the paper's Table 1 is not
printed with them: its 27.3 (Transformer-base) and 27.5 (RoFormer) are tokenised BLEU of newstest2014, most
likely with split compounds, and without a signature. sacreBLEU of the same translations is about 0.5-1
lower.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

import pandas as pd

from roformer import registry
from roformer.report.resampling import bleu_table, scored_on
from roformer.report.runs import ENDED, LOSSES, RecordError, flattened, settings_of
from roformer.report.tables import (
    Table,
    excluded_runs,
    find_baseline,
    mean_lines,
    mean_text,
    named,
    number_text,
    paired_table,
    tables_by_group,
)

GLUE_ORDER = ("mrpc", "sst2", "qnli", "stsb", "qqp", "mnli", "cola", "rte")
"""Tasks of the paper's Table 2; others follow by name."""
TRIED = ["group", "name", "task", "rate"]
"""Columns that are equal for the seeds of a learning rate."""
PLACES = {"": "", "_early": ", evidence early", "_late": ", evidence late"}
"""Suffix of an accuracy of triplets → its triplets; only built-in cases have a place of the evidence."""


class Scored(NamedTuple):
    """The metrics and columns of a pipeline's score tables."""

    title: str
    metrics: Mapping[str, str] = {}
    """Metric of the summary → heading; empty: the metrics of the run's task."""
    compared: Sequence[str] = ()
    """Metrics that are compared with the baseline's, in addition to a run's headline metric."""
    digits: int = 2
    factor: int = 1
    note: str = ""
    label: str = "{label}"
    """Format of a run's name, from its columns and its summary."""
    tuned_keys: Sequence[str] = ()
    """Keys or sections of the config in which runs of a configuration may differ."""
    group_keys: Sequence[str] = ()
    """Keys of the summary that are equal for all runs of a table."""
    held_out: Sequence[str] = ()
    """Keys of the config that are equal for all runs of a table: they decide the scored examples."""
    best_epoch: bool = False
    """True if the validation scores are from the best epoch, not from the last."""
    by_name: bool = False
    """True if all metrics of a configuration are tested together; else all configurations of a metric."""


SCORES = {
    "glue": Scored(
        "GLUE, validation, in percent",
        digits=1,
        factor=100,
        note="The learning rate of each configuration is chosen on the same validation set, which "
        "favours all. A headline of several parts has one column per part. Majority: always the most "
        "frequent class of the training set. Bag of words: naive Bayes on word counts, or for two texts a "
        "regression on how many words they share, trained on the training set. Seeds vary only "
        "fine-tuning: no interval covers other pre-trainings or other validation examples.",
        tuned_keys=("task", "optimizer.learning_rate"),
        held_out=("data.kind", "data.path", "data.revision", "data.validation_examples"),
        by_name=True,
    ),
    "wmt": Scored(
        "Translation",
        {
            "test/sacrebleu": "sacreBLEU",
            "test/sacrebleu_single": "sacreBLEU, last checkpoint",
            "test/chrf": "chrF",
            "test/bleu_compound": "compound BLEU",
        },
        note="Scores are of the averaged checkpoints, except in the column of the last checkpoint.",
        group_keys=("test_set", "signatures"),
    ),
    "scm": Scored(
        "Triplets: ranking accuracy in percent",
        {
            f"{split}/accuracy{place}": f"{called}{which}"
            for split, called in (("valid", "validation"), ("test", "test"))
            for place, which in PLACES.items()
        },
        ("valid/accuracy", "test/accuracy"),
        digits=1,
        factor=100,
        note="Chance is 50. Overlap: the document that shares more character pairs with A, without "
        "training. Known documents: the document that was closer more often in the training triplets; 50 "
        "if all are new. The validation accuracy is the best epoch's, selected on it; the test accuracy "
        "is of the same weights and was used for no choice. Degenerate: the last validation accuracy is "
        "less than two standard errors above 50.",
        label="{model}-{max_length} ({position})",
        held_out=(
            *("data.kind", "data.path", "data.split", "data.split_seed"),
            *("data.validation_triplets", "data.test_triplets", "data.max_held_out_triplets"),
        ),
        best_epoch=True,
    ),
}


def scored(pipeline: str) -> Scored:
    """Return the metrics and columns of a pipeline; by default its loss or its headline metric."""
    if pipeline in SCORES:
        return SCORES[pipeline]
    if loss := LOSSES.get(pipeline):
        metric = loss.whole or loss.metric
        return Scored(loss.words, {metric: loss.words}, compared=(metric,), digits=3)
    headline = registry.get(pipeline).headline
    return Scored(pipeline, {headline.name: headline.name} if headline else {})


def pipeline_of(runs: pd.DataFrame) -> str:
    """Return the pipeline of runs."""
    if runs.empty:
        raise RecordError("none of these runs is finished: give folders like runs/glue/*")
    (one, first), *others = dict(zip(runs.pipeline, runs.folder, strict=True)).items()
    for other, second in others:
        raise RecordError(
            f"{first} is a run of {one}, {second} of {other}: give runs of one pipeline"
        )
    return str(one)


def scores(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run and metric, of finished runs of one pipeline.

    Runs without scores, such as failed ones, have no rows.

    Returns:
        The columns of the runs and:
        name: the configuration; see `named`.
        group: the values that are equal for all comparable runs, as JSON.
        rate: the learning rate of a fine-tuning; else 0.
        failed: the number of failed runs with the same group, name, task and rate.
        metric: its name in the summary.
        value: the score, in percent if `Scored` says so; NaN if undefined.
        best: the score of the best epoch.
        baselines: the scores of model-free baselines, by name.
        headline: whether it is compared with the baseline's.
        shown: whether it is a headline metric or another part of it.
        chosen: whether the rate is the best one, among the rates that the most seeds tried and of these the
            ones with the fewest failures.
    """
    rows, setup = _rows(runs), scored(pipeline_of(runs))
    found = [
        {"number": number} | score
        for number, run in enumerate(rows.to_dict("records"))
        if run["status"] in ENDED and set(setup.group_keys) <= run["summary"].keys()
        for score in _values(run, setup)
    ]
    columns = ["number", "metric", "value", "best", "baselines", "headline", "shown"]
    kinds = {"number": int, "headline": bool, "shown": bool}
    long = pd.DataFrame(found, columns=columns).astype(kinds)
    frame = rows.iloc[long.number].reset_index(drop=True).assign(**long.iloc[:, 1:])
    by_rate = frame[frame.headline].groupby(TRIED)
    ranked = by_rate.agg({"value": fmean, "failed": "first", "seed": "nunique"})
    ranked = ranked.fillna({"value": -math.inf}).assign(seed=ranked.seed + ranked.failed)
    # A rate is not chosen for the seeds that did not fail, nor for the one lucky seed of an unfinished grid.
    ranked = ranked.sort_values(
        ["seed", "failed", "value"], ascending=[False, True, False], kind="stable"
    )
    best = set(ranked.groupby(TRIED[:-1]).head(1).index)
    chosen = [key in best for key in frame[TRIED].itertuples(index=False, name=None)]
    frame = frame.assign(chosen=chosen, place=frame.task.map(place_of))
    return frame.sort_values(["place", "rate"], kind="stable").drop(columns="place")


def place_of(task: str) -> tuple[int, str]:
    """Return a sort key: tasks in the order of the paper, others by name."""
    return (GLUE_ORDER.index(task) if task in GLUE_ORDER else len(GLUE_ORDER), task)


def _rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs with name, group, learning rate and number of failures at it."""
    for folder in runs.folder[runs.status == "running"]:
        raise RecordError(f"{folder} has no summary.json: it did not end, or is no run")
    setup = scored(pipeline_of(runs))
    free = tuple(f"{key}." for key in setup.tuned_keys)
    found = []
    for run in runs.to_dict("records"):
        summary = run["summary"]
        run["config"] = {k: v for k, v in run["config"].items() if not f"{k}.".startswith(free)}
        run["label"] = setup.label.format_map({"max_length": "?"} | summary | run)
        if free:
            run["configuration"] = json.dumps(settings_of(run), sort_keys=True)
        same = flattened({key: summary.get(key) for key in setup.group_keys})
        same |= {key: run["config"].get(key) for key in setup.held_out}
        run |= {
            "group": json.dumps(same),
            "rate": summary.get("learning_rate", 0.0) if free else 0.0,
        }
        found.append(run)
    rows = named(pd.DataFrame(found))
    failed = (rows.status == "failed").groupby([rows[key] for key in TRIED]).transform("sum")
    return rows.assign(failed=failed)


def _values(run: Mapping[str, Any], setup: Scored) -> list[dict[str, Any]]:
    summary, headline = run["summary"], run["headline"]
    best, simple = (summary.get("best") or {}).get("metrics", {}), summary.get("baselines", {})
    own = [one for one in summary["metrics"] if one.startswith(f"{run['task']}/")]
    own = [one for one in own if not one.endswith("/constant")]
    own.sort(key=lambda metric: metric != headline)

    def scaled(value: float | None) -> float:
        return math.nan if value is None else setup.factor * float(value)

    found = []
    for metric in setup.metrics or own:
        source = best if setup.best_epoch and metric.startswith("valid/") else summary["metrics"]
        if metric in source:
            # accuracy_mismatched is a part, as accuracy_matched is
            is_part = metric.partition("_")[0] == headline.partition("_")[0]
            baselines = {
                k: scaled(values[metric]) for k, values in simple.items() if metric in values
            }
            found.append(
                {
                    "metric": metric,
                    "value": scaled(source[metric]),
                    "best": scaled(best.get(metric)),
                    "baselines": baselines,
                    "headline": metric in setup.compared or metric == headline,
                    "shown": is_part or metric in setup.metrics,
                }
            )
    return found


# --- tables --------------------------------------------------------------------------------------


def score_tables(runs: pd.DataFrame, baseline: str | None = None) -> list[Table]:
    """Return the tables of finished runs of one pipeline, with separate tables for each test set.

    Differences are taken from the baseline (see `find_baseline`), or from the first configuration for test
    sets on which it has no run.
    """
    every = scores(runs)
    notes = excluded_runs(runs[~runs.folder.isin(every.folder)], every)
    if every.empty:
        raise RecordError(f"none of these runs has scores: {' '.join(notes)}")
    if baseline is not None and not every.name.str.contains(baseline, regex=False).any():
        find_baseline(every.name, baseline)  # raises an error with the names

    def tables(frame: pd.DataFrame) -> list[Table]:
        here = baseline is None or frame.name.str.contains(baseline, regex=False).any()
        base = find_baseline(frame.name, baseline if here else None)
        first = frame.sort_values("name", key=lambda names: names != base, kind="stable")
        return _tables(first, base, notes)

    groups = [group for _, group in every.groupby("group", sort=False)]
    return tables_by_group(groups, lambda group: json.loads(group.group.iloc[0]), tables)


def _tables(frame: pd.DataFrame, base: str, notes: Sequence[str]) -> list[Table]:
    pipeline = pipeline_of(frame)
    setup, chosen = scored(pipeline), frame[frame.chosen]
    if pipeline == "wmt":
        notes = [*scored_on(frame), *notes]
    tables = [_means(chosen, setup, notes)]
    if frame.name.nunique() > 1:
        compared, digits = chosen[chosen.headline], setup.digits
        title = f"{setup.title}: paired differences from {base}"
        tables.append(
            paired_table(compared, base, "metric", title, digits=digits, by_name=setup.by_name)
        )
    if setup.tuned_keys:
        tables.append(_rates(frame, setup.digits))
    if pipeline == "wmt":
        tables.append(bleu_table(chosen, base))
    return tables


def _means(frame: pd.DataFrame, setup: Scored, notes: Sequence[str]) -> Table:
    """Return one line per configuration: the headline metrics and their other parts."""
    shown = frame[frame.shown]
    shown = shown.assign(configuration=shown.name, heading=shown.metric.replace(setup.metrics))
    header, *lines = mean_lines(shown, "configuration", "heading", setup.digits)
    lines[:0] = [
        [name, *(texts.get(heading, "") for heading in header[1:])]
        for name, texts in baseline_texts(shown, "heading", setup.digits).items()
    ]
    notes = ["Mean ± standard deviation over seeds (n).", setup.note, *notes]
    return Table(setup.title, [header, *lines], notes=[*filter(None, notes)])


def baseline_texts(frame: pd.DataFrame, by: str, digits: int) -> dict[str, dict[str, str]]:
    """Return name of a model-free baseline → value of `by` → its score; several if the data differs."""
    found: dict[str, dict[str, set[str]]] = {}
    for place, baselines in zip(frame[by], frame.baselines, strict=True):
        for name, value in baselines.items():
            found.setdefault(name, {}).setdefault(place, set()).add(number_text(value, digits))
    return {
        name: {place: " / ".join(sorted(texts)) for place, texts in places.items()}
        for name, places in found.items()
    }


def _rates(frame: pd.DataFrame, digits: int) -> Table:
    """Return one line per configuration, task, learning rate and metric, with the chosen rates marked."""
    numbers = ["mean ± std", "median", "best", "n", "mean, best epoch", "constant", "failed"]
    lines = [["configuration", "metric", "learning rate", *numbers]]
    for (name, _, rate, metric), part in frame.groupby(
        ["name", "task", "rate", "metric"], sort=False
    ):
        values, first = [*part.value], part.iloc[0]
        undefined = math.isnan(fmean(values))
        middle, best = (
            "NaN" if undefined else number_text(of(values), digits) for of in (median, max)
        )
        lines.append(
            [
                *(name, metric, f"{rate:g}{' ←' if first.chosen else ''}"),
                mean_text(values, digits).rpartition(" (")[0],
                *(middle, best, str(len(values)), number_text(fmean(part.best), digits)),
                *(str((part.status == "degenerate").sum()), str(first.failed)),
            ]
        )
    note = (
        "←: chosen, by the headline metric of the last epoch, of the rates that the most seeds tried. "
        "Constant: predictors of one class; they count."
    )
    return Table("All learning rates", lines, text_columns=2, notes=[note])
