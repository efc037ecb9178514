"""Bootstrap of BLEU over the lines of a test set.

The seeds are not resampled: their spread is the standard deviation over runs.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from roformer.report.statistics import percentiles, two_sided_p
from roformer.report.tables import Table, interval_text, mean_text, p_text, signed

STATISTICS = "bleu_statistics.json"
COUNTS = 10
"""Number of the counts of a test line; `roformer.evaluation.bleu` names them."""
METRIC = "test/sacrebleu"
"""Score of the averaged checkpoints, which the statistics reproduce."""
SAMPLES = 1000
"""Number of bootstrap samples of the test set, as in sacreBLEU."""
SEED = 12345
"""sacreBLEU's default."""
Samples = NDArray[np.float64]


def scored_on(frame: pd.DataFrame) -> list[str]:
    """Return sentences on the test set of translations and the signatures of the scores."""
    summary = frame.summary.iloc[0]
    test_set = summary["test_set"]
    name, fingerprint = test_set["name"], test_set["fingerprint"][:12]
    made = [f"{key}: {signature}" for key, signature in summary["signatures"].items()]
    return [f"{name}, {test_set['lines']:,} lines (fingerprint {fingerprint}).", *made]


def bleu_table(
    frame: pd.DataFrame, base: str, *, samples: int = SAMPLES, seed: int = SEED
) -> Table:
    """Return one line per configuration: sacreBLEU, its interval, and the difference from the baseline.

    Each run of several seeds has an additional line. The frame has the scores of translations of one test
    set, the baseline's first; see `roformer.report.scores`.
    """
    frame = _resampled(frame, samples, seed)
    lines = [["configuration", "sacreBLEU", "95 %, lines", "difference", "95 %, lines", "p, lines"]]
    theirs = frame[frame.name == base]
    for name, group in frame.groupby("name", sort=False):
        compared = [""] * 3 if name == base else _compared(group, theirs)
        lines.append([name, mean_text([*group.value], 2), _interval(_mean(group)), *compared])
        if len(group) > 1:
            runs = group.sort_values("seed").itertuples()
            lines += [
                [run.run, f"{run.value:.2f}", _interval(run.resampled), *[""] * 3] for run in runs
            ]
    notes = [
        "Mean ± standard deviation over seeds (n). Lines: percentile bootstrap of test lines, "
        f"{samples:,} samples, seed {seed}, the same lines for all runs: the spread over test sets, not "
        "seeds. p is two-sided. Differences are of the seeds that both configurations have, or of all."
    ]
    if bare := [*frame.run[frame.resampled.isna()]]:
        notes.append(f"Counted, without an interval: no {STATISTICS} in {', '.join(bare)}.")
    return Table(f"sacreBLEU: paired bootstrap against {base}", lines, notes=notes)


def _resampled(frame: pd.DataFrame, samples: int, seed: int) -> pd.DataFrame:
    """Return the rows of `METRIC` with its value on each resampled test set, None without statistics."""

    def resampled(files: Mapping[str, Any]) -> Samples | None:
        if STATISTICS not in files:
            return None
        counts = unpacked(files[STATISTICS]["systems"]["averaged"])
        return resampled_bleu(counts, draw_lines(len(counts), samples, seed))

    rows = frame[frame.metric == METRIC]
    return rows.assign(resampled=pd.Series([*map(resampled, rows.files)], rows.index, dtype=object))


def _mean(runs: pd.DataFrame) -> Samples | None:
    """Return the mean of runs on each resampled test set; None unless all runs have statistics."""
    if runs.resampled.isna().any():
        return None
    means: Samples = np.stack([*runs.sort_values("seed").resampled], axis=1).mean(1)
    return means


def _interval(resampled: Samples | None) -> str:
    return interval_text(None if resampled is None else percentiles(resampled), 2, sign=False)


def _compared(ours: pd.DataFrame, theirs: pd.DataFrame) -> list[str]:
    """Return the difference with its interval and p over lines, of the seeds that both have, or of all."""
    if common := {*ours.seed} & {*theirs.seed}:
        ours, theirs = (side[side.seed.isin(common)] for side in (ours, theirs))
    difference = ours.value.mean() - theirs.value.mean()
    means = _mean(ours), _mean(theirs)
    if means[0] is None or means[1] is None:
        return [signed(difference, 2), "–", "–"]
    drawn = means[0] - means[1]
    p = two_sided_p(drawn, difference)
    return [signed(difference, 2), interval_text(percentiles(drawn), 2), p_text(p)]


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
    return differences.reshape(COUNTS, -1).T.cumsum(axis=1, dtype=np.int64)


def bleu(sums: NDArray[Any]) -> float:
    """Return the BLEU of statistics summed over lines, computed as in sacreBLEU's `corpus_score`."""
    hypothesis, reference, *ngrams = (int(value) for value in sums)
    score = BLEU.compute_bleu(ngrams[:4], ngrams[4:], hypothesis, reference, smooth_method="exp")
    return float(score.score)


@lru_cache(1)  # all runs of a table have the same lines
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
