"""Bootstrap of BLEU over the lines of a test set.

The seeds are not resampled: their spread is the standard deviation over runs.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from roformer.report.statistics import (
    Interval,
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
    lines = [["configuration", "sacreBLEU", "95 %, lines", "difference", "95 %, lines", "p, lines"]]
    groups = {name: group.sort_values("seed") for name, group in frame.groupby("name", sort=False)}
    for name, group in groups.items():
        whole = _together(found[name])
        compared = [""] * 3 if name == base else _compared(groups, found, name, base)
        lines.append([name, mean_text([*group.value], 2), _interval(whole), *compared])
        for run, number, value in zip(group.run, group.seed, group.value, strict=True):
            if len(group) > 1:
                one = found[name][number]
                own = None if one is None else one[:, None]
                lines.append([run, f"{value:.2f}", _interval(own), *[""] * 3])
    notes = [
        "Mean ± standard deviation over seeds (n). Lines: percentile bootstrap of test lines, "
        f"{samples:,} samples, seed {seed}, the same lines for all runs: the spread over test sets, not "
        "seeds. p is two-sided. Differences are of the seeds that both configurations have, or of all."
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
) -> list[str]:
    """Return the difference from the baseline with its interval and p over lines.

    It is paired over the seeds that both have. If they share no seed, all seeds are used.
    """
    common = found[name].keys() & found[base].keys()
    chosen = {one: sorted(common or found[one]) for one in (name, base)}
    means = {one: groups[one].set_index("seed").value[chosen[one]].mean() for one in chosen}
    difference = means[name] - means[base]
    ours, theirs = (_together({n: found[one][n] for n in chosen[one]}) for one in (name, base))
    if ours is None or theirs is None:
        return [signed(difference, 2), "–", "–"]
    drawn = ours.mean(1) - theirs.mean(1)
    return [
        signed(difference, 2),
        interval_text(percentiles(drawn), 2),
        p_text(two_sided_p(drawn, difference)),
    ]


def read_statistics(run: Mapping[str, Any]) -> NDArray[np.int64] | None:
    """Return the counts of each test line of a run's averaged system, (lines, 10); None if not recorded."""
    found = run["files"].get(STATISTICS)
    return None if found is None else unpacked(found["systems"]["averaged"])


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
