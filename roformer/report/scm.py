"""Triplets of long documents: accuracies by configuration, differences over seeds and over triplets.

The validation accuracy is that of the best epoch, which was chosen on it; the test accuracy is of the
same weights, and was used for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import pandas as pd

from roformer.report.runs import RecordError, Runs
from roformer.report.statistics import (
    bootstrap_interval,
    compared,
    difference_text,
    interval_text,
    mean_text,
    p_text,
    sign_flip_limit,
)
from roformer.report.tables import Table, baseline_first, configuration_names, configurations

SPLITS = {"valid": "validation", "test": "test"}
"""As metrics begin → as it is called."""
PLACES = {"": "all", "_early": "evidence early", "_late": "evidence late"}
"""As accuracies end → which triplets; the builtin ones alone say where the evidence stands."""
GROUP = {"scm_builtin": 4}
"""Data → triplets that are drawn together, and so resampled together; elsewhere each by itself."""
HEADER = ["index", "label", "score_b", "score_c"]


def triplet_runs(runs: Runs) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the runs by configuration, `roformer-1024 (rotary)`, and a sentence on each left out.

    Raises:
        RecordError: a run is of another pipeline, two runs are one seed of a configuration, or none
            ended.
    """
    rows = runs.runs
    for run in rows[rows.pipeline != "scm"].to_dict("records"):
        raise RecordError(f"{run['folder']} is a run of {run['pipeline']}, not of scm")
    notes = [f"Left out: {run} failed." for run in rows.run[rows.status == "failed"]]
    rows = rows[~rows.status.isin(("failed", "running"))]
    if rows.empty:
        raise RecordError("none of these runs ended: give folders like runs/scm/*")
    lengths = [summary["max_length"] for summary in rows.summary]
    labels = zip(rows.model, lengths, rows.position, strict=True)
    rows = rows.assign(label=[f"{model}-{length} ({kind})" for model, length, kind in labels])
    return configurations(rows, configuration_names(rows)), notes


def accuracy(run: Mapping[str, Any], split: str, place: str = "") -> float | None:
    """Return an accuracy in percent, NaN where it is not defined; None where there is none."""
    summary = run["summary"]
    metrics = (summary if split == "test" else summary["best"] or {}).get("metrics", {})
    if f"{split}/accuracy{place}" not in metrics:
        return None
    value = metrics[f"{split}/accuracy{place}"]
    return math.nan if value is None else 100 * float(value)


def accuracies(runs: pd.DataFrame, split: str, place: str = "") -> dict[int, float]:
    """Return seed → accuracy in percent; nothing where a run has none."""
    found = {run["seed"]: accuracy(run, split, place) for run in runs.to_dict("records")}
    known = {seed: value for seed, value in found.items() if value is not None}
    return known if len(known) == len(found) else {}


def scm_tables(runs: Runs, baseline: str | None = None) -> list[Table]:
    """Return the accuracies of all configurations and, of several, their differences from the baseline.

    Args:
        runs: finished runs on the same triplets.
        baseline: the configuration to compare with, or a part of its name; None: the first.

    Raises:
        RecordError: see `triplet_runs`; the scores of a run are not of its summary.
    """
    groups, notes = triplet_runs(runs)
    groups = baseline_first(groups, baseline)
    tables = [_accuracies(groups, notes)]
    if len(groups) > 1:
        tables.append(_differences(groups))
    return tables


def _accuracies(groups: Mapping[str, pd.DataFrame], notes: list[str]) -> Table:
    places = [p for p in PLACES if any(accuracies(group, "valid", p) for group in groups.values())]
    lines = [["configuration", "split", *(PLACES[place] for place in places), "not above chance"]]
    for name, group in groups.items():
        chance = str((group.status == "degenerate").sum())
        for split, called in SPLITS.items():
            if accuracies(group, split):
                cells = [[*accuracies(group, split, place).values()] for place in places]
                texts = [mean_text(values, 1) if values else "–" for values in cells]
                lines.append([name, called, *texts, chance if split == "valid" else ""])
    notes = [
        "In percent, mean ± standard deviation over seeds (n); tossing a coin gives 50. The validation "
        "accuracy is that of the best epoch, chosen on it; the test accuracy is of the same weights. "
        "Not above chance: runs whose last validation accuracy is less than two standard errors above "
        "50; they count.",
        *notes,
    ]
    return Table("Triplets: ranking accuracy", lines, text_columns=2, notes=notes)


def _differences(groups: Mapping[str, pd.DataFrame]) -> Table:
    base, *others = groups
    numbers = ["difference", "95 % over seeds (t)", "sign-flip p", "n", "95 % over triplets"]
    lines = [["configuration", "split", *numbers]]
    most = 0
    for name in others:
        seeds = set(groups[name].seed) & set(groups[base].seed)
        one, other = (groups[side][groups[side].seed.isin(seeds)] for side in (name, base))
        for split, called in SPLITS.items():
            (found,) = compared([(accuracies(one, split), accuracies(other, split))])
            if found is None:
                continue
            most = max(most, found.n)
            cells = [interval_text(found.interval, 1), p_text(found.permutation_p), str(found.n)]
            over = _over_triplets(one, other, split)
            lines.append([name, called, difference_text(found, 1), *cells, over])
    notes = [
        f"Percentage points, the configuration minus {base}, seed by seed. Over triplets: bootstrap of "
        "the triplets that both configurations answered, each by the mean of its seeds; of builtin ones "
        "the groups of four that are drawn together. The two intervals are of different chances: another "
        "seed, and other triplets.",
        sign_flip_limit(most),
    ]
    title = f"Triplets: paired differences from {base}"
    return Table(title, lines, text_columns=2, notes=notes)


def _over_triplets(ours: pd.DataFrame, theirs: pd.DataFrame, split: str) -> str:
    """Return the bootstrap interval of a difference over the triplets, in percentage points."""
    sides = [[right(run, split) for run in side.to_dict("records")] for side in (ours, theirs)]
    if any(found is None for side in sides for found in side):
        return "not recorded"
    answers = pd.concat([pd.DataFrame(side).T.mean(axis=1) for side in sides], axis=1)
    if any(list(found or ()) != list(answers.index) for side in sides for found in side):
        return "other triplets"
    group = GROUP.get(str(ours.data.iloc[0]), 1)
    whole = len(answers) // group * group
    difference = 100 * (answers[0] - answers[1]).to_numpy()
    means = difference[:whole].reshape(-1, group).mean(1)
    interval = bootstrap_interval(len(means), lambda drawn: float(means[drawn].mean()))
    return interval_text(interval, 1)


def right(run: Mapping[str, Any], split: str) -> dict[str, float] | None:
    """Return triplet → 1, or 0, or ½ where both pairs have one score; None if not recorded.

    Raises:
        RecordError: the file is damaged, or is not of the run whose summary is beside it.
    """
    name = f"predictions/{SPLITS[split]}.tsv"
    if name not in run["files"]:
        return None
    file = f"{run['folder']}/{name}"
    header, *lines = [
        line.split("\t") for line in run["files"][name].removesuffix("\n").split("\n")
    ]
    if header != HEADER or not lines:
        raise RecordError(f"{file} is not what a run wrote: its columns are not {HEADER}")
    found = {}
    for number, line in enumerate(lines, 2):
        try:
            index, label, *scores = line
            b, c = map(float, scores)
            lead = {"B": b - c, "C": c - b}[label]
        except (ValueError, KeyError) as error:
            raise RecordError(f"{file}:{number} is not what a run wrote: {error}") from error
        found[index] = (lead > 0) + 0.5 * (lead == 0)
    told = accuracy(run, split)
    # Two processes may have added up in another order: a near tie may then fall otherwise.
    if told is None or not abs(100 * fmean(found.values()) - told) <= 200 / len(found) + 1e-9:
        raise RecordError(f"{file} is not of the run whose summary is beside it: record it again")
    return found
