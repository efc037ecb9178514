"""Model-free baselines, checked against counts by hand and known entropies."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.evaluation.counting import (
    bag_of_words,
    document_overlap,
    known_documents,
    ngram_losses,
    overlaps,
)

PAIRS = [("The dog barks .", "the DOG sleeps here"), ("?", "!"), ("a b", "c")]
WORDS = st.lists(st.sampled_from(["good", "bad", "fine"]), min_size=1).map(" ".join)


def test_overlaps_are_shares_of_different_words():
    """In lower case, without punctuation; texts without words are alike and divide by nothing."""
    assert overlaps(PAIRS).tolist() == [[2 / 5, 2 / 3, 2 / 4], [1, 1, 1], [0, 0, 0]]


def bags(texts, labels, *held_out, metric="accuracy"):
    """Return the predictions of each split; where words say nothing it is the last label."""
    labels = np.array(labels)
    return bag_of_words(texts, labels, held_out, metric=metric, constant=labels[-1])


def test_the_threshold_of_two_classes_is_best_for_the_metric():
    """Most pairs that share little are no paraphrase, but F1 gains by calling all of them one."""
    texts = [("a b c d", other) for other in ["a b c d"] * 30 + ["a x y z"] * 20 + ["x"] * 50]
    labels = [1] * 39 + [0] * 61
    (accurate,), (f1,) = (
        bags(texts, labels, texts[29:32], metric=metric) for metric in ("accuracy", "f1")
    )
    assert accurate.tolist() == [1, 0, 0] and f1.tolist() == [1, 1, 1]


def test_three_classes_and_scores_of_pairs():
    texts = [("a b c d", other) for other in ("a b c d", "a b x y", "w x y z")] * 9
    (classes,) = bags(texts, [0, 1, 2] * 9, texts[:3])
    assert classes.tolist() == [0, 1, 2]
    (scores,) = bags(texts, [5.0, 2.5, 0.0] * 9, texts[:3], metric="spearman")
    assert scores == pytest.approx([5.0, 2.5, 0.0])


def test_words_that_tell_nothing_leave_the_constant_and_no_ranks():
    """Each overlap has both answers equally often."""
    texts = [("a b", other) for other in ("a b", "a c", "c d") for _ in range(2)]
    assert bags(texts, [0, 1] * 3, texts, metric="f1")[0].tolist() == [1] * 6
    assert bags(texts, [1, 0] * 3, texts, metric="f1")[0].tolist() == [0] * 6
    assert np.ptp(bags(texts, [1.0, 2.0] * 3, texts, metric="spearman")[0]) == 0
    assert bags(texts, [0, 0], texts[:1])[0].tolist() == [0]


def test_words_of_a_class_tell_it():
    train = [("good plot",), ("a fine one !",), ("bad plot",), ("a dull one !",)]
    (found,) = bags(train, [1, 1, 0, 0], [("fine , good",), ("dull",), ("?",)])
    assert found[:2].tolist() == [1, 0]


def test_documents_that_overlap_and_documents_that_are_known():
    """Known documents are right, wrong and of no help; what A shares helps the second and third."""
    train = [("aa", "bbx", "ccx"), ("aa", "ccy", "bby")]
    held_out = [("bbq", "bbx", "ccx"), ("ccq", "ccy", "bby"), ("zz", "bbz", "zzw")]
    assert known_documents(train, [0, 1], held_out).tolist() == [[1, -1], [-1, 1], [0, 0]]
    assert document_overlap(held_out).tolist() == [[1 / 3, 0], [1 / 3, 0], [0, 1 / 2]]
    assert document_overlap([("", "a", "b")]).tolist() == [[0, 0]]


IDS = st.lists(st.integers(0, 4), min_size=3, max_size=40)


@given(IDS, st.lists(st.integers(0, 4), max_size=2))
def test_chances_of_all_ids_sum_to_one(text, context):
    """After any context, seen or not, at each order; no chance is 0."""
    grams = np.array([[*context, last] for last in range(5)])
    losses = ngram_losses(np.array(text), grams, 5)
    assert np.exp(-losses).sum() == pytest.approx(1)
    assert np.isfinite(losses).all()


def test_ngrams_find_the_entropy_of_triple_letters():
    """Two letters at random, each written three times: trigrams know two of three letters."""
    text = np.random.default_rng(0).integers(0, 2, 200_000).repeat(3)
    # The two letters before are alike in 5 of 6 places; the next is then alike in 4 of 5.
    # Otherwise the next letter is certain.
    entropy = -(5 / 6) * (0.8 * math.log2(0.8) + 0.2 * math.log2(0.2))
    for order, bits in ((1, 1.0), (2, 0.65), (3, entropy)):
        grams = np.lib.stride_tricks.sliding_window_view(text, order)
        found = ngram_losses(text, grams, 2).mean() / math.log(2)
        assert found == pytest.approx(bits, abs=0.005)


def test_an_unseen_pair_is_told_by_how_many_ids_come_before_it():
    """Kneser and Ney's own case: an id that is frequent after one other is no likelier elsewhere."""
    text = np.array([0, 1] * 20 + [2, 3, 4, 3, 5, 3, 6])
    frequent, wide = ngram_losses(text, np.array([[6, 1], [6, 3]]), 7)
    assert wide < frequent
