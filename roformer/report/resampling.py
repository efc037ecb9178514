"""Bootstrap over test examples: BLEU on resampled lines, accuracy on resampled triplets.

There are two kinds of chance: the examples of the test set (resampled, the same for all runs) and the
seeds (resampled in addition, if there are several).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from roformer.report.runs import RecordError
from roformer.report.statistics import (
    DRAWS,
    Interval,
    bootstrap_limit,
    interval_text,
    mean_text,
    p_text,
    percentiles,
    signed,
    two_sided_p,
)
from roformer.report.tables import Table

STATISTICS = "bleu_statistics.json"
COUNTS = [
    *("hypothesis_length", "reference_length"),
    *(f"{kind}_{order}" for kind in ("correct", "total") for order in (1, 2, 3, 4)),
]
"""Columns of the statistics of each test line."""
SYSTEMS = {"averaged": "test/sacrebleu", "single": "test/sacrebleu_single"}
"""System → the metric that its statistics reproduce."""
SAMPLES = 1000
"""Number of bootstrap samples of the test set, as in sacreBLEU."""
SEED = 12345
"""sacreBLEU's default."""
GROUP = {"scm_builtin": 4}
"""Data → size of the groups of triplets that are generated, and so resampled, together; default 1."""
PREDICTIONS = {
    "valid/accuracy": "predictions/validation.tsv",
    "test/accuracy": "predictions/test.tsv",
}
HEADER = ["index", "label", "score_b", "score_c"]
Samples = NDArray[np.float64]


# --- lines of a translation ----------------------------------------------------------------------


def scored_on(frame: pd.DataFrame) -> list[str]:
    """Return sentences on the test set of translations and the signatures of the scores."""
    summary = frame.summary.iloc[0]
    test_set = summary["test_set"]
    name, fingerprint = test_set["name"], test_set["fingerprint"][:12]
    made = [f"{key}: {signature}" for key, signature in summary["signatures"].items()]
    return [f"{name}, {test_set['lines']:,} lines (fingerprint {fingerprint}).", *made]


def bleu_intervals(
    frame: pd.DataFrame, *, samples: int = SAMPLES, seed: int = SEED
) -> dict[str, Interval | None]:
    """Return the 95 % interval of each configuration's BLEU over test lines, from records.

    Percentile bootstrap with the same lines for all runs; it does not cover other seeds. None unless all
    runs of the configuration have statistics.

    Args:
        frame: scores of translations of one test set; see `roformer.report.scores`.
        samples: of the test set.
        seed: of the draws.
    """
    found = {name: _together(one) for name, one in _resampled(frame, samples, seed).items()}
    return {name: None if one is None else percentiles(one.mean(1)) for name, one in found.items()}


def bleu_table(
    frame: pd.DataFrame, base: str, *, samples: int = SAMPLES, seed: int = SEED
) -> Table:
    """Return one line per configuration: sacreBLEU, its interval, and the difference from the baseline.

    Each run of several seeds has an additional line.

    Args:
        frame: the scores, with the baseline's first.
        base: name of the baseline.
        samples: of the test set.
        seed: of the draws.
    """
    frame = frame[frame.metric == SYSTEMS["averaged"]]
    found = _resampled(frame, samples, seed)
    headers = [f"{what}, {of}" for of in ("lines", "lines and seeds") for what in ("95 %", "p")]
    lines = [["configuration", "sacreBLEU", "95 %, lines", "difference", *headers]]
    groups = {name: group.sort_values("seed") for name, group in frame.groupby("name", sort=False)}
    for name, group in groups.items():
        whole = _together(found[name])
        compared = [""] * 5 if name == base else _compared(groups, found, name, base, seed)
        lines.append([name, mean_text([*group.value], 2), _interval(whole), *compared])
        for run, number, value in zip(group.run, group.seed, group.value, strict=True):
            if len(group) > 1:
                one = found[name][number]
                own = None if one is None else one[:, None]
                lines.append([run, f"{value:.2f}", _interval(own), *[""] * 5])
    notes = [
        "Mean ± standard deviation over seeds (n). Lines: percentile bootstrap of the test lines, "
        f"{samples:,} samples, seed {seed}, the same lines for all runs and both configurations: the spread "
        "of other test sets, for these seeds. Differences use the seeds that both configurations have, or "
        "all seeds if they share no seed. Lines and seeds: seeds are drawn too, in pairs if they are shared. "
        "p-values are two-sided and not adjusted for several configurations.",
        bootstrap_limit(min(map(len, groups.values()))),
    ]
    bare = [
        run for run, files in zip(frame.run, frame.files, strict=True) if STATISTICS not in files
    ]
    if bare:
        notes.append(f"Counted, without an interval: no {STATISTICS} in {', '.join(bare)}.")
    return Table(f"sacreBLEU: paired bootstrap against {base}", lines, notes=notes)


def _resampled(
    frame: pd.DataFrame, samples: int, seed: int
) -> dict[str, dict[int, Samples | None]]:
    """Return configuration → seed → BLEU of every resampled test set, None without statistics."""
    draws: Samples | None = None
    found: dict[str, dict[int, Samples | None]] = {}
    for run in frame[frame.metric == SYSTEMS["averaged"]].to_dict("records"):
        if (counts := read_statistics(run)) is not None and draws is None:
            draws = draw_lines(len(counts), samples, seed)
        known = None if counts is None or draws is None else resampled_bleu(counts, draws)
        found.setdefault(run["name"], {})[run["seed"]] = known
    return found


def _together(seeds: Mapping[int, Samples | None]) -> Samples | None:
    """Return (samples, seeds), the seeds in ascending order; None unless all runs have statistics."""
    columns = [seeds[number] for number in sorted(seeds)]
    return None if any(one is None for one in columns) else np.stack(columns, axis=1)  # type: ignore[arg-type]


def _interval(samples: Samples | None) -> str:
    """Return the interval of the mean over the seeds: the lines are drawn for all seeds together."""
    return interval_text(None if samples is None else percentiles(samples.mean(1)), 2, sign=False)


def _compared(
    groups: Mapping[str, pd.DataFrame],
    found: Mapping[str, Mapping[int, Samples | None]],
    name: str,
    base: str,
    seed: int,
) -> list[str]:
    """Return the difference from the baseline, with intervals over lines, and over lines and seeds.

    It is paired over the seeds that both have. If they share no seed, all seeds are used unpaired.
    """
    common = found[name].keys() & found[base].keys()
    chosen = {one: sorted(common or found[one]) for one in (name, base)}
    means = {one: groups[one].set_index("seed").value[chosen[one]].mean() for one in chosen}
    difference = means[name] - means[base]
    cells = [signed(difference, 2)]
    ours, theirs = (_together({n: found[one][n] for n in chosen[one]}) for one in (name, base))
    if ours is None or theirs is None:
        return [*cells, *["–"] * 4]
    drawn = [ours.mean(1) - theirs.mean(1)]
    if min(ours.shape[1], theirs.shape[1]) > 1:
        generator = np.random.default_rng([seed, 1])  # no draws of lines
        seeds = generator.integers(ours.shape[1], size=ours.shape)
        others = seeds if common else generator.integers(theirs.shape[1], size=theirs.shape)
        sides = ((ours, seeds), (theirs, others))
        one, other = (np.take_along_axis(side, which, 1).mean(1) for side, which in sides)
        drawn.append(one - other)
    for differences in drawn:
        cells.append(interval_text(percentiles(differences), 2))
        cells.append(p_text(two_sided_p(differences, difference)))
    return cells + ["–"] * (5 - len(cells))


def read_statistics(run: Mapping[str, Any]) -> NDArray[np.int64] | None:
    """Return the counts of each test line of a run's averaged system, (lines, 10); None if not recorded."""
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
        systems = {name: unpacked(found["systems"][name]) for name in SYSTEMS}
        sound = all(found[key] == value for key, value in of_run.items()) and all(
            lines.shape == (test_set["lines"], len(COUNTS))
            and lines.min() >= 0
            and abs(bleu(lines.sum(0)) - summary["metrics"][SYSTEMS[name]]) < 1e-6
            for name, lines in systems.items()
        )
    except (KeyError, TypeError, ValueError, OverflowError, zlib.error):
        sound = False
    if not sound:
        raise RecordError(
            f"{run['folder']}/{STATISTICS} is not of the run whose summary is beside it: delete it, and "
            "the run has no interval"
        )
    return systems["averaged"]


def packed(counts: NDArray[np.int64]) -> str:
    """Return counts as the text that a study records: a seventh of their JSON."""
    # Neighbouring columns are alike, and the total of n-grams falls by one from order to order.
    differences = np.diff(counts, axis=1, prepend=0).astype("<i2")
    return base64.b64encode(zlib.compress(differences.T.tobytes(), 9)).decode()


def unpacked(counts: str | Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return the counts that a run wrote as lists, or a study as `packed` text: (lines, 10)."""
    if not isinstance(counts, str):
        return np.array(counts, dtype=np.int64)
    differences = np.frombuffer(zlib.decompress(base64.b64decode(counts)), dtype="<i2")
    return differences.reshape(len(COUNTS), -1).T.cumsum(axis=1, dtype=np.int64)


def bleu(sums: NDArray[Any]) -> float:
    """Return the BLEU of statistics summed over lines, computed as in sacreBLEU's `corpus_score`."""
    hypothesis, reference, *ngrams = (int(value) for value in sums)
    score = BLEU.compute_bleu(ngrams[:4], ngrams[4:], hypothesis, reference, smooth_method="exp")
    return float(score.score)


def draw_lines(lines: int, samples: int, seed: int) -> Samples:
    """Return resampled test sets (Koehn 2004), the same that sacreBLEU draws for a seed.

    Returns:
        (samples, lines): how often each line was drawn, with replacement.
    """
    numbers = np.random.default_rng(seed).choice(lines, size=(samples, lines), replace=True)
    return np.array([np.bincount(row, minlength=lines) for row in numbers], np.float64)


def resampled_bleu(statistics: NDArray[np.int64], times: Samples) -> Samples:
    """Return the BLEU of a system on each of the resampled test sets."""
    return np.array([bleu(sums) for sums in times @ statistics])


# --- triplets ------------------------------------------------------------------------------------


def over_triplets(frame: pd.DataFrame, name: str, base: str, metric: str) -> str:
    """Return the bootstrap interval of a difference over the triplets, in percentage points.

    Each triplet has the mean over the seeds that both configurations have. Built-in triplets are resampled
    in groups; see `GROUP`.

    Args:
        frame: scores of triplets; see `roformer.report.scores`.
        name: the configuration.
        base: the baseline.
        metric: key of `PREDICTIONS`.
    """
    rows = frame[frame.metric == metric]
    ours, theirs = (rows[rows.name == one] for one in (name, base))
    seeds = set(ours.seed) & set(theirs.seed)
    sides = [
        [right(run) for run in side[side.seed.isin(seeds)].to_dict("records")]
        for side in (ours, theirs)
    ]
    known = [one for side in sides for one in side if one is not None]
    if not seeds or len(known) < 2 * len(seeds):
        return "not recorded"
    if any(not one.index.equals(known[0].index) for one in known):
        return "other triplets"
    one, other = (pd.concat(side, axis=1).mean(axis=1) for side in sides)
    group = GROUP.get(str(ours.data.iloc[0]), 1)
    difference = 100 * (one - other)
    means = difference.groupby(difference.index.astype(int) // group).mean().to_numpy()
    if len(means) < 2:
        return interval_text(None, 1)
    generator = np.random.default_rng(0)
    # One draw at a time: all draws of thousands of triplets would take gigabytes.
    draws = (generator.integers(len(means), size=len(means)) for _ in range(DRAWS))
    return interval_text(percentiles(np.array([means[drawn].mean() for drawn in draws])), 1)


def right(run: Mapping[str, Any]) -> pd.Series[float] | None:
    """Return triplet → 1 if right, 0 if wrong, ½ for a tie; None if not recorded.

    Args:
        run: a row of scores of triplets.
    """
    name = PREDICTIONS[run["metric"]]
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
    # Another number of processes sums in another order, which can decide a near tie.
    if not abs(100 * fmean(found.values()) - run["value"]) <= 200 / len(found) + 1e-9:
        raise RecordError(f"{file} is not of the run whose summary is beside it: record it again")
    return pd.Series(found)
