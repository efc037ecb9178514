"""BLEU out of the counts of each test line: intervals and comparisons without the texts."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sacrebleu.metrics.bleu import BLEU
from typing_extensions import TypedDict

from roformer.report.records import Folder, RecordError, read_json

NAME = "bleu_statistics.json"
COLUMNS = [
    *("hypothesis_length", "reference_length"),
    *(f"{kind}_{order}" for kind in ("correct", "total") for order in (1, 2, 3, 4)),
]
SCORES = {"averaged": "test/sacrebleu", "single": "test/sacrebleu_single"}
"""System → the metric that its statistics must give."""
Count = Annotated[int, Field(ge=0, le=10**6)]
Line = Annotated[list[Count], Field(min_length=len(COLUMNS), max_length=len(COLUMNS))]
Counts = NDArray[np.int64]
Times = NDArray[np.float64]


class _File(TypedDict):
    """What a run wrote."""

    test_set: dict[str, Any]
    signature: str
    columns: list[str]
    systems: dict[str, Annotated[list[Line], Field(min_length=1)]]


def read_statistics(folder: Folder, summary: dict[str, Any]) -> Counts | None:
    """Return the statistics of a run's averaged system, (lines, 10); None if it has none.

    Raises:
        RecordError: the file is damaged, or is not of the run that the summary is of: another test
            set or signature, or other scores.
    """
    file = folder / NAME
    if not file.is_file():
        return None
    found = read_json(file, _File)
    sound = found["columns"] == COLUMNS and found["test_set"] == summary["test_set"]
    sound = sound and found["signature"] == summary["signatures"].get("sacrebleu")
    sound = sound and found["systems"].keys() == SCORES.keys()
    for name, lines in found["systems"].items() if sound else ():
        score = summary["metrics"].get(SCORES[name])
        sound = sound and score is not None and len(lines) == summary["test_set"]["lines"]
        sound = sound and abs(bleu(np.array(lines).sum(0)) - score) < 1e-6
    if not sound:
        raise RecordError(
            f"{file} is not of the run whose summary is beside it: delete it, and make it again from "
            "the run's translations"
        )
    return np.array(found["systems"]["averaged"], dtype=np.int64)


def bleu(sums: NDArray[Any]) -> float:
    """Return the BLEU of statistics summed over lines, as sacreBLEU's `corpus_score` does it."""
    hypothesis, reference, *ngrams = (int(value) for value in sums)
    score = BLEU.compute_bleu(ngrams[:4], ngrams[4:], hypothesis, reference, smooth_method="exp")
    return float(score.score)


def draw_lines(lines: int, samples: int, seed: int) -> Times:
    """Return resampled test sets (Koehn 2004); for one seed they are those that sacreBLEU draws.

    Returns:
        (samples, lines): how often each line was drawn, with replacement.
    """
    numbers = np.random.default_rng(seed).choice(lines, size=(samples, lines), replace=True)
    return np.array([np.bincount(row, minlength=lines) for row in numbers], np.float64)


def resampled_bleu(statistics: Counts, times: Times) -> NDArray[np.float64]:
    """Return the BLEU of a system on each of the resampled test sets."""
    return np.array([bleu(sums) for sums in times @ statistics])
