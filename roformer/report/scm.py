"""Triplets of long documents: accuracies by arm, and differences over seeds and over triplets.

An arm are the runs with equal settings but the seed. Its validation accuracy is that of the best
epoch, which was chosen on it; the test accuracy is of the same weights, and was used for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from roformer.report.comparing import (
    find_baseline,
    interval_text,
    mean_text,
    p_text,
    sign_flip_limit,
    signed,
)
from roformer.report.records import (
    Folder,
    RecordError,
    configuration,
    read_config,
    read_lines,
    read_summary,
)
from roformer.report.statistics import bootstrap_interval, paired
from roformer.report.tables import Table, arm_names

SPLITS = {"valid": "validation", "test": "test"}
"""As metrics begin → as it is called."""
PLACES = {"": "all", "_early": "evidence early", "_late": "evidence late"}
"""As accuracies end → which triplets; the builtin ones alone say where the evidence stands."""
GROUP = {"scm_builtin": 4}
"""Data → triplets that are drawn together, and so resampled together; elsewhere each by itself."""
HEADER = ["index", "label", "score_b", "score_c"]


KEYS = (
    *("pipeline", "model", "position", "data", "seed", "status", "max_length", "metrics", "best"),
    "wall_seconds",
)
"""Of a summary."""


class Run(NamedTuple):
    """A finished run."""

    folder: Folder
    summary: dict[str, Any]

    @property
    def label(self) -> str:
        """Model, length and encoding: `roformer-1024 (rotary)`."""
        found = self.summary
        return f"{found['model']}-{found['max_length']} ({found['position']})"

    def accuracy(self, split: str, place: str = "") -> float | None:
        """Return an accuracy in percent; None where there is none."""
        metrics = self.summary["metrics"] if split == "test" else self.summary["best"]["metrics"]
        name = f"{split}/accuracy{place}"
        if name not in metrics:
            return None
        value = metrics[name]
        return math.nan if value is None else 100 * float(value)

    def right(self, split: str) -> dict[str, float] | None:
        """Return triplet → 1, or 0, or ½ where both pairs have one score; None if not recorded.

        Raises:
            RecordError: the file is damaged, or is not of the run whose summary is beside it.
        """
        file = self.folder / f"predictions/{SPLITS[split]}.tsv"
        if not file.is_file():
            return None
        header, *lines = [line.split("\t") for line in read_lines(file)] or [[]]
        if header != HEADER or not lines:
            raise RecordError(f"{file} is not what a run wrote: its columns are not {HEADER}")
        right = {}
        for number, line in enumerate(lines, 2):
            try:
                index, label, *scores = line
                b, c = map(float, scores)
                lead = {"B": b - c, "C": c - b}[label]
            except (ValueError, KeyError) as error:
                raise RecordError(f"{file}:{number} is not what a run wrote: {error}") from error
            right[index] = (lead > 0) + 0.5 * (lead == 0)
        told, found = self.accuracy(split), 100 * fmean(right.values())
        # Two processes may have added up in another order: a near tie may then fall otherwise.
        if told is None or not abs(found - told) <= 200 / len(right) + 1e-9:
            raise RecordError(
                f"{file} is not of the run whose summary is beside it: record it again"
            )
        return right


class Arm(NamedTuple):
    """Runs that differ in the seed alone."""

    name: str
    runs: dict[int, Run]
    """By seed."""

    def values(self, split: str, place: str = "") -> list[float]:
        """Return the accuracies of the seeds in percent; none where a run has none."""
        found = [run.accuracy(split, place) for run in self.runs.values()]
        return [value for value in found if value is not None] if None not in found else []


def read_arms(folders: Iterable[Folder]) -> tuple[list[Arm], list[str]]:
    """Return the arms in the order of the folders, and a sentence on each run that is left out.

    Raises:
        RecordError: a record is damaged or of another pipeline, or two runs are one seed of an arm.
    """
    groups: dict[str, dict[int, Run]] = {}
    notes = []
    for folder in folders:
        summary = read_summary(folder, *KEYS)
        if summary["pipeline"] != "scm":
            raise RecordError(f"{folder} is a run of {summary['pipeline']}, not of scm")
        if summary["status"] == "failed":
            notes.append(f"Left out: {folder.name} failed.")
            continue
        seeds = groups.setdefault(configuration(summary, read_config(folder)), {})
        if summary["seed"] in seeds:
            raise RecordError(f"{folder} and another run have the same settings and seed")
        seeds[summary["seed"]] = Run(folder, summary)
    firsts = {settings: next(iter(seeds.values())) for settings, seeds in groups.items()}
    names = arm_names((run.label, settings) for settings, run in firsts.items())
    return [Arm(names[settings], dict(sorted(s.items()))) for settings, s in groups.items()], notes


def scm_tables(folders: Iterable[Folder], baseline: str | None = None) -> list[Table]:
    """Return the accuracies of all arms and, of several, their differences from the baseline.

    Args:
        folders: of finished runs on the same triplets.
        baseline: the arm to compare with, or a part of its name; None: the first.

    Raises:
        RecordError: see `read_arms`; no run that ended.
    """
    arms, notes = read_arms(folders)
    if not arms:
        raise RecordError("none of these runs ended: give folders like runs/scm/*")
    first = find_baseline((arm.name for arm in arms), baseline)
    arms.sort(key=lambda arm: arm.name != first)
    tables = [_accuracies(arms, notes)]
    if len(arms) > 1:
        tables.append(_differences(arms))
    return tables


def _accuracies(arms: Sequence[Arm], notes: Sequence[str]) -> Table:
    places = [place for place in PLACES if any(arm.values("valid", place) for arm in arms)]
    lines = [["arm", "split", *(PLACES[place] for place in places), "not above chance"]]
    for arm in arms:
        chance = sum(run.summary["status"] == "degenerate" for run in arm.runs.values())
        for split, called in SPLITS.items():
            if arm.values(split):
                cells = [arm.values(split, place) for place in places]
                texts = [mean_text(values, 1) if values else "–" for values in cells]
                lines.append([arm.name, called, *texts, str(chance) if split == "valid" else ""])
    notes = [
        "In percent, mean ± standard deviation over seeds (n); tossing a coin gives 50. The validation "
        "accuracy is that of the best epoch, chosen on it; the test accuracy is of the same weights. "
        "Not above chance: runs whose last validation accuracy is less than two standard errors above "
        "50; they count.",
        *notes,
    ]
    return Table("Triplets: ranking accuracy", lines, text_columns=2, notes=notes)


def _differences(arms: Sequence[Arm]) -> Table:
    base, *others = arms
    numbers = ["difference", "95 % over seeds (t)", "sign-flip p", "n", "95 % over triplets"]
    lines = [["arm", "split", *numbers]]
    counts = [0]
    for arm in others:
        seeds = [seed for seed in arm.runs if seed in base.runs]
        for split, called in SPLITS.items():
            ours, theirs = (
                [value for seed in seeds if (value := one.runs[seed].accuracy(split)) is not None]
                for one in (arm, base)
            )
            if not seeds or len(ours) < len(seeds) or len(theirs) < len(seeds):
                continue
            found = paired(ours, theirs)
            counts.append(found.n)
            mean = signed(found.difference, 1)
            if found.std is not None and not math.isnan(found.std):
                mean += f" ± {found.std:.1f}"
            over_seeds = (interval_text(found.interval, 1), p_text(found.permutation_p))
            over = _over_triplets(arm, base, seeds, split)
            lines.append([arm.name, called, mean, *over_seeds, str(found.n), over])
    notes = [
        f"Percentage points, the arm minus {base.name}, seed by seed. Over triplets: bootstrap of the "
        "triplets that both arms answered, each by the mean of its seeds; of builtin ones the groups "
        "of four that are drawn together. The two intervals are of different chances: another seed, "
        "and other triplets.",
        sign_flip_limit(max(counts)),
    ]
    title = f"Triplets: paired differences from {base.name}"
    return Table(title, lines, text_columns=2, notes=notes)


def _over_triplets(arm: Arm, base: Arm, seeds: Sequence[int], split: str) -> str:
    """Return the bootstrap interval of a difference over the triplets, in percentage points."""
    sides = [[one.runs[seed].right(split) for seed in seeds] for one in (arm, base)]
    known = [[found for found in side if found is not None] for side in sides]
    if any(len(side) < len(seeds) for side in known):
        return "not recorded"
    triplets = list(known[0][0])
    if any(list(found) != triplets for side in known for found in side):
        return "other triplets"
    ours, theirs = (np.mean([list(found.values()) for found in side], axis=0) for side in known)
    group = GROUP.get(str(arm.runs[seeds[0]].summary["data"]), 1)
    whole = len(triplets) // group * group
    differences = 100 * (ours - theirs)[:whole].reshape(-1, group).mean(1)
    interval = bootstrap_interval(len(differences), lambda drawn: float(differences[drawn].mean()))
    return interval_text(interval, 1)
