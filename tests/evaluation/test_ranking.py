"""Accuracy of triplets, with ties; chance."""

import math

import numpy as np

from roformer.evaluation.ranking import is_chance, ranking_accuracy


def test_it_is_the_share_of_closer_documents_scored_higher_and_a_tie_is_a_half():
    scores = np.array([[2.0, -1.0], [2.0, -1.0], [-1.0, 0.5], [0.0, 0.0]], np.float32)
    assert ranking_accuracy(scores, np.array([0, 1, 1, 1])) == (1 + 0 + 1 + 0.5) / 4
    assert ranking_accuracy(np.zeros((6, 2)), np.array([0, 0, 0, 0, 0, 1])) == 0.5
    assert math.isnan(ranking_accuracy(np.zeros((0, 2)), np.zeros(0, int)))


def test_chance_is_two_standard_errors_of_a_coin():
    assert is_chance(0.5, 400) and is_chance(0.55, 400) and not is_chance(0.551, 400)
    assert is_chance(0.55, 80) and is_chance(math.nan, 80)
