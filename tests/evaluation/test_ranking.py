"""Accuracy of triplets against a direct count; ties; chance."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.evaluation.ranking import is_chance, ranking_accuracy

SCORE = st.sampled_from([-1.0, 0.0, 0.5, 2.0])
TRIPLETS = st.lists(st.tuples(SCORE, SCORE, st.integers(0, 1)), min_size=1, max_size=30)


def split(triplets):
    scores = np.array([t[:2] for t in triplets], np.float32)
    return scores, np.array([t[2] for t in triplets])


@given(TRIPLETS)
def test_it_is_the_share_of_closer_documents_scored_higher(triplets):
    scores, labels = split(triplets)
    points = 0.0
    for b, c, label in triplets:
        closer, other = (b, c) if label == 0 else (c, b)
        points += 1.0 if closer > other else 0.5 if closer == other else 0.0
    assert ranking_accuracy(scores, labels) == pytest.approx(points / len(triplets))


def test_one_score_for_all_is_a_half_and_no_triplets_are_undefined():
    assert ranking_accuracy(np.zeros((6, 2)), np.array([0, 0, 0, 0, 0, 1])) == 0.5
    assert math.isnan(ranking_accuracy(np.zeros((0, 2)), np.zeros(0, int)))


def test_chance_is_two_standard_errors_of_a_coin():
    assert is_chance(0.5, 400) and is_chance(0.55, 400) and not is_chance(0.551, 400)
    assert is_chance(0.55, 80) and is_chance(math.nan, 80)
