"""Statistics of a few seeds: scipy's where scipy has them, by hand where it has not."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from roformer.report.statistics import (
    holm,
    mean_interval,
    paired,
    percentiles,
    sign_flip_p,
    smallest_p,
    spread,
    two_sided_p,
)

VALUES = st.floats(-100, 100).map(lambda value: round(value, 3))
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=8)
FEW = settings(max_examples=80, deadline=None, derandomize=True)


def test_the_interval_of_a_mean_is_students():
    """4.303 standard errors of three values; none where there is nothing to divide by."""
    ends = (2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3))
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx(ends, abs=1e-4)
    for values in ([1.0], [2.0, 2.0], [1.0, math.nan], []):
        assert mean_interval(values) is None


@given(PAIRS)
@FEW
def test_the_paired_interval_is_scipys(pairs):
    ours, theirs = map(list, zip(*pairs, strict=True))
    assume(np.std(np.subtract(ours, theirs)) > 1e-6)
    found, expected = paired(ours, theirs), stats.ttest_rel(ours, theirs)
    ends = expected.confidence_interval(0.95)
    assert found.interval == pytest.approx((ends.low, ends.high), abs=1e-9)
    assert found.difference == pytest.approx(np.mean(ours) - np.mean(theirs), abs=1e-9)


@given(st.lists(VALUES, min_size=1, max_size=7))
@FEW
def test_the_sign_flip_test_is_the_share_of_all_signs(differences):
    sums = [
        abs(math.fsum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    expected = sum(total >= abs(math.fsum(differences)) - 1e-6 for total in sums) / len(sums)
    assert sign_flip_p(differences) == pytest.approx(expected)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 13])
def test_no_p_is_smaller_than_the_smallest(n):
    assert sign_flip_p([1.0 + i / 7 for i in range(n)]) == smallest_p(n)


def test_rounding_breaks_no_tie():
    """0.1 + 0.2 - 0.3 and its like: the differences are the same, so are their sums."""
    assert sign_flip_p([0.1 + 0.2, 0.3, 0.3]) == smallest_p(3)
    assert sign_flip_p([0.3, 0.3, 0.1 + 0.2, -0.3]) == 10 / 16


def test_of_many_pairs_the_signs_are_drawn_and_always_the_same():
    differences = np.random.default_rng(1).normal(0.5, 1, 20)
    found = sign_flip_p(differences)
    expected = stats.ttest_1samp(differences, 0).pvalue
    assert found == sign_flip_p(differences) and 0.3 * expected < found < 3 * expected
    assert sign_flip_p([1.0] * 30) == 2 / 10_000 == smallest_p(30)


def test_holm_by_hand_and_without_what_was_not_tested():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([None, 0.04, None, 0.03]) == [None, 0.06, None, 0.06]
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_percentiles_are_values_that_were_drawn():
    assert percentiles(np.arange(1.0, 1001.0)) == (25.0, 975.0)
    assert percentiles(np.array([1.0] * 9 + [math.inf])) == (1.0, math.inf)


def test_one_pair_and_what_is_not_finite_have_no_interval_and_no_test():
    assert paired([3.0], [1.0]) == (2.0, None, None, None, 1)
    assert spread([3.0]) == (3.0, None)
    for bad in (math.nan, math.inf):
        found = paired([1.0, bad, 3.0], [1.0, 1.0, 1.0])
        assert math.isnan(found.difference) and found[2:] == (None, None, 3)


def test_differences_all_the_same_have_no_t_test():
    """Also where rounding makes them differ: 0.7 - 0.1 is not 0.8 - 0.2."""
    found = paired([0.7, 0.8, 0.9], [0.1, 0.2, 0.3])
    assert found.difference == pytest.approx(0.6)
    assert (found.interval, found.p) == (None, 0.25)
    same = paired([5.0, 4.0], [5.0, 4.0])
    assert (same.difference, same.interval, same.p) == (0.0, None, 1.0)


def test_the_shifted_bootstrap_p_by_hand():
    """Around their mean of 2 the draws lie 2, 1, 0, 1, 2 away; 2 or more are two of five."""
    assert two_sided_p(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 2.0) == (2 + 1) / (5 + 1)
    assert two_sided_p(np.zeros(9), 0.0) == 1.0
    assert two_sided_p(np.array([5.0, 5.5, 6.0]), -5.5) == 1 / 4
