"""Laws of the toy English and German: order decides, the splits share nothing, both are as pinned."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.config.wmt import BuiltinParallel
from roformer.data.toy import translation as toy
from roformer.data.toy.translation import bag, builtin_pairs
from roformer.errors import InputError

COUNTS = {"train": 1_500, "valid": 300, "test": 300}


def corpus_of(counts):
    return {split: list(builtin_pairs(split, count)) for split, count in counts.items()}


@pytest.fixture(scope="module")
def corpus():
    return corpus_of(COUNTS)


def assert_distinct(corpus, counts):
    assert {split: len(pairs) for split, pairs in corpus.items()} == counts
    for side in (0, 1):
        texts = [pair[side] for pairs in corpus.values() for pair in pairs]
        assert len(set(texts)) == len(texts)
    bags = [{bag(english) for english, _ in pairs} for pairs in corpus.values()]
    assert len(set.union(*bags)) == sum(map(len, bags))


def test_pairs_are_distinct_and_the_splits_disjoint_even_in_bags_of_words(corpus):
    """Mutations: a split by the English and not its bag; duplicates kept."""
    assert_distinct(corpus, COUNTS)


@pytest.mark.slow
def test_there_are_as_many_as_a_full_run_reads():
    counts = {split: getattr(BuiltinParallel, f"{split}_pairs") for split in COUNTS}
    assert_distinct(corpus_of(counts), counts)


@given(split=st.sampled_from(sorted(toy.SPLITS)), count=st.integers(0, 300))
@settings(max_examples=5, deadline=None)
def test_fewer_pairs_are_the_first_of_more(corpus, split, count):
    """Mutations: a stream seeded by the count or shared by the calls; one pair too many."""
    assert list(builtin_pairs(split, count)) == corpus[split][:count]


def test_pairs_are_those_of_this_version(corpus):
    """Changes with the templates, the words or the draw: then raise TRANSLATION_GRAMMAR."""
    text = repr([pairs[:200] for pairs in corpus.values()])
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "fa4678e3d30965f22e166c8b4721d3400761e50118aed40c33b0db5c9da1fdc0"
    )
    with pytest.raises(InputError, match="train, valid, test"):
        builtin_pairs("validation", 1)


def test_a_bag_of_words_has_several_translations(corpus):
    """A model that sees only the bag is right on one sentence per bag: at most half of the test.

    Mutations: no exchange of the two beings; German without case and order.
    """
    for pairs in corpus.values():
        bags = Counter(bag(english) for english, _ in pairs)
        assert sum(count > 1 for count in bags.values()) > 0.98 * len(bags)
        assert len(bags) < 0.5 * len(pairs)
