"""Intervals of BLEU and paired comparisons of arms, from the records of translation runs alone.

Two kinds of chance: which sentences the test set has (its lines are resampled, the same for all
runs), and which seeds were run (they are resampled besides, where there are several).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roformer.report.bleu import NAME, draw_lines, read_statistics, resampled_bleu
from roformer.report.comparing import (
    bootstrap_limit,
    find_baseline,
    interval_text,
    mean_text,
    p_text,
    signed,
)
from roformer.report.records import Folder
from roformer.report.statistics import Interval, percentiles, two_sided_p
from roformer.report.tables import Table, arm_names
from roformer.report.wmt import one_test_set, read_runs

SAMPLES = 1000
"""Of the test set, as sacreBLEU draws."""
SEED = 12345
"""sacreBLEU's."""
DIFFERENCES = (
    "difference",
    "95 %, lines",
    "p, lines",
    "95 %, lines and seeds",
    "p, lines and seeds",
)


class Intervals(NamedTuple):
    """The 95 % of BLEU over test lines; None where a run has no statistics."""

    runs: dict[str, Interval | None]
    """By the run's folder."""
    arms: dict[str, Interval | None]
    """Of the mean over seeds, by the arm's name; None unless all its runs have statistics."""


def bleu_intervals(
    folders: Iterable[Folder], *, samples: int = SAMPLES, seed: int = SEED
) -> Intervals:
    """Return percentile bootstrap intervals of sacreBLEU over the test lines, from records alone.

    The lines drawn are the same for all runs. What another seed would give is not in them.

    Args:
        folders: of finished translation runs, scored on one test set with one signature.
        samples: of the test set.
        seed: of the draws.

    Raises:
        RecordError: see `read_runs`; statistics that are damaged or of another run; several test sets
            or signatures.
    """
    arms = _resampled(folders, samples, seed)[0]
    runs = {run: _interval(scores) for arm in arms for run, scores in arm.resampled.items()}
    return Intervals(runs, {arm.name: _interval(arm.mean) for arm in arms})


def bleu_table(
    folders: Iterable[Folder],
    baseline: str | None = None,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
    each_run: bool = False,
) -> Table:
    """Return one line an arm: sacreBLEU, its interval, and the difference from the baseline arm.

    Args:
        folders: of finished translation runs, scored on one test set with one signature.
        baseline: the arm to compare with, or a part of its name; None: that of the first folder.
        samples: of the test set.
        seed: of the draws.
        each_run: each run stands alone under its id, also where runs differ in the seed alone.

    Raises:
        RecordError: see `bleu_intervals`.
    """
    arms, notes = _resampled(folders, samples, seed, each_run)
    first = find_baseline((arm.name for arm in arms), baseline)
    arms.sort(key=lambda arm: arm.name != first)
    base = arms[0]
    lines = [["model", "sacreBLEU", "95 %, lines", *DIFFERENCES]]
    for arm in arms:
        interval = _unsigned(_interval(arm.mean))
        line = [arm.name, mean_text(list(arm.scores.values()), 2), interval]
        lines.append(line + (_compared(arm, base, seed) if arm is not base else [""] * 5))
        if len(arm.scores) > 1:
            for run, scores in arm.resampled.items():
                value = f"{arm.scores[arm.seeds[run]]:.2f}"
                lines.append([run, value, _unsigned(_interval(scores)), *[""] * 5])
    some = arms[0].summary
    counts = [len(arm.scores) for arm in arms]
    notes = [
        f"{some['test_set']['name']}, {some['test_set']['lines']:,} lines; sacreBLEU: "
        f"{some['signatures'].get('sacrebleu', 'without a signature')}",
        "Mean ± standard deviation over seeds (n). Lines: percentile bootstrap of the test lines, "
        f"{samples:,} samples, seed {seed}, the same lines for all runs and both arms: what another "
        "test set might give, for these seeds. Lines and seeds: seeds are drawn besides, in pairs where "
        "both arms have the same. p-values are two-sided, and not adjusted for several arms.",
        bootstrap_limit(min(counts)),
        *notes,
    ]
    return Table(f"sacreBLEU: paired bootstrap against {base.name}", lines, 1, notes)


class _Arm(NamedTuple):
    """The runs of an arm, each with its BLEU on the resampled test sets."""

    name: str
    summary: dict[str, Any]
    """Of one of the runs."""
    seeds: dict[str, int]
    """Run → seed."""
    scores: dict[int, float]
    """Seed → BLEU."""
    resampled: dict[str, NDArray[np.float64] | None]
    """Run → BLEU of every sample; None without statistics."""

    @property
    def matrix(self) -> NDArray[np.float64] | None:
        """(samples, seeds), the seeds in ascending order; None unless all runs have statistics."""
        runs = sorted(self.seeds, key=lambda run: self.seeds[run])
        columns = [found for run in runs if (found := self.resampled[run]) is not None]
        return np.stack(columns, axis=1) if len(columns) == len(runs) else None

    @property
    def mean(self) -> NDArray[np.float64] | None:
        """Over the seeds, of every sample: the lines are drawn for all seeds together."""
        return None if self.matrix is None else self.matrix.mean(1)


def _resampled(
    folders: Iterable[Folder], samples: int, seed: int, each_run: bool = False
) -> tuple[list[_Arm], list[str]]:
    """Return the arms, and what is to be told of runs."""
    runs = read_runs(folders)
    scored = one_test_set(runs)
    names = arm_names((run.label, run.settings) for run in runs)
    found = {run.folder: read_statistics(run.folder, run.summary) for run in scored}
    lines = max((len(counts) for counts in found.values() if counts is not None), default=1)
    draws = draw_lines(lines, samples, seed)
    arms: dict[str, _Arm] = {}
    notes = []
    for run in scored:
        name, counts = run.folder.name, found[run.folder]
        key, label = (name, name) if each_run else (run.settings, names[run.settings])
        arm = arms.setdefault(key, _Arm(label, run.summary, {}, {}, {}))
        arm.seeds[name] = run.summary["seed"]
        arm.scores[run.summary["seed"]] = run.value("test/sacrebleu")
        arm.resampled[name] = None if counts is None else resampled_bleu(counts, draws)
        if counts is None:
            notes.append(f"Counted, without an interval: {name} has no {NAME}.")
        if run.summary["status"] != "done":
            notes.append(f"Counted, though {run.summary['status']}: {name}.")
    left_out = (run for run in runs if not run.has_scores)
    notes += [
        f"Left out, without scores: {run.folder.name} is {run.summary['status']}."
        for run in left_out
    ]
    return list(arms.values()), notes


def _compared(arm: _Arm, base: _Arm, seed: int) -> list[str]:
    """Return the difference from the baseline, with intervals over lines, and over lines and seeds."""
    found = statistics.fmean(arm.scores.values()) - statistics.fmean(base.scores.values())
    cells = [signed(found, 2)]
    ours, theirs = arm.matrix, base.matrix
    if ours is None or theirs is None:
        return [*cells, *["–"] * 4]
    samples = [ours.mean(1) - theirs.mean(1)]
    if min(ours.shape[1], theirs.shape[1]) > 1:
        generator = np.random.default_rng([seed, 1])  # no draws of lines
        drawn = generator.integers(ours.shape[1], size=ours.shape)
        same = sorted(arm.scores) == sorted(base.scores)
        other = drawn if same else generator.integers(theirs.shape[1], size=theirs.shape)
        means = [np.take_along_axis(m, d, 1).mean(1) for m, d in ((ours, drawn), (theirs, other))]
        samples.append(means[0] - means[1])
    for values in samples:
        cells += [interval_text(percentiles(values), 2), p_text(two_sided_p(values, found))]
    return cells + ["–"] * (5 - len(cells))


def _interval(scores: NDArray[np.float64] | None) -> Interval | None:
    return None if scores is None else percentiles(scores)


def _unsigned(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}"
