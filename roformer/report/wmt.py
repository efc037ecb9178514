"""Translation tables out of run records: scores by configuration, and differences between them.

Scores with different signatures, or of different test sets, never stand in one column. That is why
the paper's Table 1 is not printed beside them: its 27.3 (Transformer-base) and 27.5 (RoFormer) are
tokenised BLEU of newstest2014, most likely with split compounds, and no signature tells. sacreBLEU
of the same translations is about 0.5-1 lower.

Two kinds of chance: which sentences the test set has (its lines are resampled, the same for all
runs), and which seeds were run (they are resampled besides, where there are several).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from roformer.report.runs import RecordError, Runs
from roformer.report.statistics import (
    T_TEST,
    Interval,
    bootstrap_limit,
    compared,
    interval_text,
    mean_text,
    p_text,
    percentiles,
    sign_flip_limit,
    signed,
    t_test_cells,
    two_sided_p,
)
from roformer.report.tables import (
    Table,
    baseline_first,
    code,
    configuration_names,
    configurations,
    escaped,
    markdown,
)

COLUMNS = {
    "test/sacrebleu": "sacreBLEU",
    "test/sacrebleu_single": "sacreBLEU, last checkpoint",
    "test/chrf": "chrF",
    "test/bleu_compound": "compound BLEU",
}
"""Metric → column; of the averaged checkpoints, unless it says otherwise."""
SIGNATURES = {"sacrebleu": "sacreBLEU", "chrf": "chrF", "bleu_compound": "compound BLEU"}
"""Key of a summary's `signatures` → what it is called in tables."""
STATISTICS = "bleu_statistics.json"
COUNTS = [
    *("hypothesis_length", "reference_length"),
    *(f"{kind}_{order}" for kind in ("correct", "total") for order in (1, 2, 3, 4)),
]
"""Columns of the statistics of each test line."""
SCORES = {"averaged": "test/sacrebleu", "single": "test/sacrebleu_single"}
"""System → the metric that its statistics must give."""
SAMPLES = 1000
"""Number of bootstrap samples of the test set, as in sacreBLEU."""
SEED = 12345
"""sacreBLEU's."""
Samples = NDArray[np.float64]


def read_scores(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Return the translation runs that have scores, and those that have none.

    Returns:
        The former with a column `scored_by`: test set and signatures; runs are compared only where
        these are the same.

    Raises:
        RecordError: a run did not end, or is of another pipeline.
    """
    for run in runs.to_dict("records"):
        if run["status"] == "running":
            raise RecordError(f"{run['folder']} has no summary.json: it did not end, or is no run")
        if run["pipeline"] != "wmt":
            raise RecordError(f"{run['folder']} is a run of {run['pipeline']}, not of wmt")
    scored = [
        run["status"] != "failed" and {"test_set", "signatures"} <= run["summary"].keys()
        for run in runs.to_dict("records")
    ]
    rows = runs.loc[scored]
    by = [
        json.dumps([summary["test_set"], summary["signatures"]], sort_keys=True)
        for summary in rows.summary
    ]
    return rows.assign(scored_by=by), runs.loc[[not one for one in scored]].to_dict("records")


def values(runs: pd.DataFrame, metric: str) -> dict[int, float]:
    """Return seed → metric, NaN where it is not defined."""
    found = [summary["metrics"].get(metric) for summary in runs.summary]
    numbers = (math.nan if value is None else float(value) for value in found)
    return dict(zip(runs.seed, numbers, strict=True))


def wmt_tables(runs: Runs) -> str:
    """Return one Markdown table a test set and signature, and below what they leave out.

    Cells are the mean ± the standard deviation over seeds (and how many they are).

    Raises:
        RecordError: see `read_scores`; two runs of one configuration and seed; nothing to show.
    """
    if runs.runs.empty:
        raise RecordError("none of these runs is finished: give folders like runs/wmt/*")
    scored, unscored = read_scores(runs.runs)
    names = configuration_names(runs.runs)
    parts = [_scores(group, names) for _, group in scored.groupby("scored_by", sort=False)]
    for run in runs.runs.to_dict("records"):
        where, status = escaped(names[run["configuration"]]), escaped(run["status"])
        if run["folder"] in [one["folder"] for one in unscored]:
            parts.append(f"Left out, without scores: {code(run['run'])} ({where}) is {status}.")
        elif status != "done":
            parts.append(f"Counted, though {status}: {code(run['run'])} ({where}).")
    return "\n\n".join(parts)


def _scores(runs: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Return the table of runs with one test set and signature."""
    lines = [["model", *COLUMNS.values()]]
    for name, seeds in sorted(configurations(runs, names).items()):
        lines.append([name, *(mean_text([*values(seeds, m).values()], 2) for m in COLUMNS)])
    summary = runs.summary.iloc[0]
    test_set = summary["test_set"]
    title = (
        f"**{escaped(test_set['name'])}**, {test_set['lines']:,} lines "
        f"(fingerprint {escaped(test_set['fingerprint'][:12])})"
    )
    how = [
        f"- {escaped(SIGNATURES.get(key, key))}: {code(value)}"
        for key, value in summary["signatures"].items()
    ]
    return "\n\n".join([title, markdown(lines, text_columns=1), "\n".join(how)])


def paired_wmt_table(runs: Runs, baseline: str | None = None) -> Table | None:
    """Return one line a configuration: sacreBLEU against the baseline's; None where no two seeds pair.

    It needs the scores alone, and tells what another seed would give; `bleu_table` resamples the
    lines of the test set.

    Args:
        runs: finished translation runs, scored on one test set with one signature.
        baseline: the configuration to compare with, or a part of its name; None: that of the first run.

    Raises:
        RecordError: see `one_test_set`.
    """
    groups = one_test_set(runs)[0]
    scores = {name: values(group, "test/sacrebleu") for name, group in groups.items()}
    base, *others = scores = baseline_first(scores, baseline)
    others = [name for name in others if len(scores[name].keys() & scores[base].keys()) > 1]
    found = compared((scores[name], scores[base]) for name in others)
    lines = [["configuration", *T_TEST]]
    lines += [[n, *t_test_cells(one, 2)] for n, one in zip(others, found, strict=True) if one]
    if not others:
        return None
    notes = [
        f"Mean ± standard deviation of the configuration minus {base}, seed by seed: the same pairs of "
        "sentences in the same order. p-values are two-sided; Holm's is the t test's for all "
        "configurations. The t interval and test assume normal differences, which few seeds cannot show. "
        "The chance of other test sentences is not in them.",
        sign_flip_limit(max(one.n for one in found if one)),
    ]
    return Table(f"sacreBLEU: paired differences from {base}", lines, notes=notes)


def one_test_set(runs: Runs) -> tuple[dict[str, pd.DataFrame], list[dict[str, Any]]]:
    """Return the scored runs by configuration, and those without scores.

    Raises:
        RecordError: see `read_scores`; none has scores; several test sets or signatures; two runs of
            one configuration and seed.
    """
    scored, unscored = read_scores(runs.runs)
    if scored.empty:
        raise RecordError("none of these runs has scores: give folders like runs/wmt/*")
    first = scored.iloc[0]
    for folder in scored.folder[scored.scored_by != first.scored_by]:
        raise RecordError(
            f"{folder} has another test set or signature than {first.folder}: compare runs that have "
            "the same"
        )
    return configurations(scored, configuration_names(runs.runs)), unscored


# --- resampled test lines ------------------------------------------------------------------------


class _Resampled(NamedTuple):
    """The runs of a configuration, each with its BLEU on the resampled test sets."""

    scores: dict[int, float]
    """Seed → BLEU."""
    samples: dict[int, Samples | None]
    """Seed → BLEU of every sample; None without statistics."""
    runs: pd.DataFrame

    @property
    def matrix(self) -> Samples | None:
        """(samples, seeds), the seeds in ascending order; None unless all runs have statistics."""
        columns = [found for found in self.samples.values() if found is not None]
        return np.stack(columns, axis=1) if len(columns) == len(self.samples) else None

    @property
    def interval(self) -> Interval | None:
        """Interval of the mean over the seeds: the lines are drawn for all seeds together."""
        return None if self.matrix is None else percentiles(self.matrix.mean(1))


def bleu_intervals(
    runs: Runs, *, samples: int = SAMPLES, seed: int = SEED
) -> dict[str, Interval | None]:
    """Return the 95 % of the BLEU of each configuration over test lines, from records alone.

    Percentile bootstrap; the lines drawn are the same for all runs. What another seed would give is not
    in them. None unless all runs of the configuration have statistics.

    Raises:
        RecordError: see `one_test_set`; statistics that are damaged or of another run.
    """
    return {name: one.interval for name, one in _resampled(runs, samples, seed)[0].items()}


def bleu_table(
    runs: Runs,
    baseline: str | None = None,
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
    each_run: bool = False,
) -> Table:
    """Return one line a configuration: sacreBLEU, its interval, and the difference from the baseline.

    Args:
        runs: finished translation runs, scored on one test set with one signature.
        baseline: the configuration to compare with, or a part of its name; None: that of the first run.
        samples: of the test set.
        seed: of the draws.
        each_run: each run stands alone under its id, also where runs differ in the seed alone.

    Raises:
        RecordError: see `bleu_intervals`.
    """
    if each_run:
        runs = runs._replace(
            runs=runs.runs.assign(configuration=runs.runs.run, label=runs.runs.run)
        )
    found, notes = _resampled(runs, samples, seed)
    found = baseline_first(found, baseline)
    base, *_ = found
    headers = [f"{what}, {of}" for of in ("lines", "lines and seeds") for what in ("95 %", "p")]
    lines = [["model", "sacreBLEU", "95 %, lines", "difference", *headers]]
    for name, one in found.items():
        line = [
            name,
            mean_text([*one.scores.values()], 2),
            interval_text(one.interval, 2, sign=False),
        ]
        lines.append(line + ([""] * 5 if name == base else _compared(one, found[base], seed)))
        for run, number in (
            zip(one.runs.run, one.scores, strict=True) if len(one.scores) > 1 else ()
        ):
            drawn = one.samples[number]
            interval = interval_text(None if drawn is None else percentiles(drawn), 2, sign=False)
            lines.append([run, f"{one.scores[number]:.2f}", interval, *[""] * 5])
    some = found[base].runs.summary.iloc[0]
    notes = [
        f"{some['test_set']['name']}, {some['test_set']['lines']:,} lines; sacreBLEU: "
        f"{some['signatures'].get('sacrebleu', 'without a signature')}",
        "Mean ± standard deviation over seeds (n). Lines: percentile bootstrap of the test lines, "
        f"{samples:,} samples, seed {seed}, the same lines for all runs and both configurations: what "
        "another test set might give, for these seeds. Lines and seeds: seeds are drawn besides, in pairs "
        "where both configurations have the same. p-values are two-sided, and not adjusted for several "
        "configurations.",
        bootstrap_limit(min(len(one.scores) for one in found.values())),
        *notes,
    ]
    return Table(f"sacreBLEU: paired bootstrap against {base}", lines, 1, notes)


def _resampled(runs: Runs, samples: int, seed: int) -> tuple[dict[str, _Resampled], list[str]]:
    """Return the configurations, and what is to be told of runs."""
    groups, unscored = one_test_set(runs)
    known = {
        (name, run["seed"]): read_statistics(run)
        for name, group in groups.items()
        for run in group.to_dict("records")
    }
    draws = draw_lines(
        max((len(k) for k in known.values() if k is not None), default=1), samples, seed
    )
    found = {}
    notes = []
    for name, group in groups.items():
        resampled = {
            number: None
            if (counts := known[name, number]) is None
            else resampled_bleu(counts, draws)
            for number in group.seed
        }
        found[name] = _Resampled(values(group, "test/sacrebleu"), resampled, group)
    scored = runs.runs[~runs.runs.folder.isin([run["folder"] for run in unscored])]
    for run in scored.to_dict("records"):
        if STATISTICS not in run["files"]:
            notes.append(f"Counted, without an interval: {run['run']} has no {STATISTICS}.")
        if run["status"] != "done":
            notes.append(f"Counted, though {run['status']}: {run['run']}.")
    notes += [f"Left out, without scores: {run['run']} is {run['status']}." for run in unscored]
    return found, notes


def _compared(one: _Resampled, base: _Resampled, seed: int) -> list[str]:
    """Return the difference from the baseline, with intervals over lines, and over lines and seeds."""
    found = fmean(one.scores.values()) - fmean(base.scores.values())
    cells = [signed(found, 2)]
    ours, theirs = one.matrix, base.matrix
    if ours is None or theirs is None:
        return [*cells, *["–"] * 4]
    samples = [ours.mean(1) - theirs.mean(1)]
    if min(ours.shape[1], theirs.shape[1]) > 1:
        generator = np.random.default_rng([seed, 1])  # no draws of lines
        drawn = generator.integers(ours.shape[1], size=ours.shape)
        same = sorted(one.scores) == sorted(base.scores)
        other = drawn if same else generator.integers(theirs.shape[1], size=theirs.shape)
        means = [np.take_along_axis(m, d, 1).mean(1) for m, d in ((ours, drawn), (theirs, other))]
        samples.append(means[0] - means[1])
    for drawn_differences in samples:
        interval = interval_text(percentiles(drawn_differences), 2)
        cells += [interval, p_text(two_sided_p(drawn_differences, found))]
    return cells + ["–"] * (5 - len(cells))


def read_statistics(run: Mapping[str, Any]) -> NDArray[np.int64] | None:
    """Return the counts of each test line of a run's averaged system, (lines, 10); None without.

    Raises:
        RecordError: they are damaged, or not of the run that the summary is of: another test set or
            signature, or other scores.
    """
    found, summary = run["files"].get(STATISTICS), run["summary"]
    if found is None:
        return None
    test_set = summary["test_set"]
    of_run = {
        "columns": COUNTS,
        "test_set": test_set,
        "signature": summary["signatures"]["sacrebleu"],
    }
    try:
        systems = {name: np.array(found["systems"][name], dtype=np.int64) for name in SCORES}
        sound = all(found[key] == value for key, value in of_run.items()) and all(
            lines.shape == (test_set["lines"], len(COUNTS))
            and lines.min() >= 0
            and abs(bleu(lines.sum(0)) - summary["metrics"][SCORES[name]]) < 1e-6
            for name, lines in systems.items()
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise RecordError(
            f"{run['folder']}/{STATISTICS} is not of the run whose summary is beside it: delete it, and "
            "make it again from the run's translations"
        )
    return systems["averaged"]


def bleu(sums: NDArray[Any]) -> float:
    """Return the BLEU of statistics summed over lines, as sacreBLEU's `corpus_score` does it."""
    hypothesis, reference, *ngrams = (int(value) for value in sums)
    score = BLEU.compute_bleu(ngrams[:4], ngrams[4:], hypothesis, reference, smooth_method="exp")
    return float(score.score)


def draw_lines(lines: int, samples: int, seed: int) -> Samples:
    """Return resampled test sets (Koehn 2004); for one seed they are those that sacreBLEU draws.

    Returns:
        (samples, lines): how often each line was drawn, with replacement.
    """
    numbers = np.random.default_rng(seed).choice(lines, size=(samples, lines), replace=True)
    return np.array([np.bincount(row, minlength=lines) for row in numbers], np.float64)


def resampled_bleu(statistics: NDArray[np.int64], times: Samples) -> Samples:
    """Return the BLEU of a system on each of the resampled test sets."""
    return np.array([bleu(sums) for sums in times @ statistics])
