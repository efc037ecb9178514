"""Accuracy of triplets: how often the closer document has the higher score."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def ranking_accuracy(scores: NDArray[np.floating], labels: NDArray[Any]) -> float:
    """Return the share of triplets in which the closer document has the higher score, 0 to 1.

    Scores (N, 2) are of the pairs with B and with C; labels (N,) are 0 where B is closer. A tie counts one
    half, so that a model with equal scores for all pairs is at chance. NaN without triplets.
    """
    if not len(labels):
        return math.nan
    rows = np.arange(len(labels))
    lead = scores[rows, labels] - scores[rows, 1 - labels]
    return float(np.mean((lead > 0) + 0.5 * (lead == 0)))


def is_chance(accuracy: float, count: int) -> bool:
    """Return whether an accuracy is at most two standard errors above one half."""
    return not accuracy > 0.5 + 2 * 0.5 / math.sqrt(count)
