"""Laws of the loan cases: only the findings tell B from C, and all three must be read."""

import hashlib
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.data.sources.triplets import LABELS
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece, train_words
from roformer.data.toy import case_sentences, cases
from roformer.data.toy.cases import (
    GROUP,
    KINDS,
    POINTS,
    SPLITS,
    case_documents,
    case_triplets,
    triplet_group,
)
from roformer.errors import InputError

LAW = settings(max_examples=40, deadline=None)
GROUPS = st.tuples(st.sampled_from(SPLITS), st.integers(0, 10_000))
HALF = 254
"""Tokens that each of two long cases keeps of a pair that is cut to 512."""


def turns_on(text: str) -> str:
    """Return the point that a case turns on, read off the court's terms."""
    (point,) = (
        name for name, p in case_sentences.POINTS.items() if all(t in text for t in p.terms)
    )
    return point


def share_right(says, group) -> float:
    """Return how often a rule of three texts, `B` or `C`, is the label of a group."""
    return sum(says(t.a, t.b, t.c) == t.label for t in group) / len(group)


def arbitrary(*texts: str) -> str:
    """Any function of texts: a hash of them as a label."""
    return LABELS[hashlib.sha256(repr(texts).encode()).digest()[0] % 2]


@given(GROUPS)
@LAW
def test_the_label_is_the_case_that_turns_on_the_same_point(where):
    for triplet in triplet_group(*where):
        own, b, c = (turns_on(text) for text in triplet[:3])
        assert b != c and own == {"B": b, "C": c}[triplet.label]


@given(GROUPS)
@LAW
def test_a_group_is_balanced_and_says_nothing_by_a_part(where):
    """Right on exactly two of four: without A, without one of B and C, or reading one alone."""
    group = triplet_group(*where)
    assert len({triplet[:3] for triplet in group}) == GROUP
    assert Counter(t.label for t in group) == {"B": 2, "C": 2}
    assert share_right(lambda a, b, c: arbitrary(b, c), group) == 0.5
    for part in (0, 1, 2):
        blind = Counter((triplet[part], triplet.label) for triplet in group)
        assert sorted(blind.values()) == [1, 1, 1, 1]


@given(st.integers(0, 10_000))
@LAW
def test_the_beginnings_of_late_ones_are_the_same_in_a_group(number):
    """So whatever reads 254 tokens of each, words or characters, is right on two of four."""
    late = [n for n in range(number, number + 10) if triplet_group("test", n)[0].place == "late"]
    for group in (triplet_group("test", n) for n in late):
        for part in range(3):
            assert len({triplet[part][: cases.LATE] for triplet in group}) == 1
            assert len({triplet[part] for triplet in group}) == 2
        assert share_right(lambda *t: arbitrary(*(x[: cases.LATE] for x in t)), group) == 0.5


@pytest.fixture(scope="module")
def tokenizers():
    documents = list(case_documents(300, seed=0))
    characters = sorted({character for text in documents for character in text})
    return {
        "words": train_words(documents, 8192, lowercase=True),
        "characters": WordPiece([*SPECIAL_TOKENS, *characters], lowercase=True),
    }


@pytest.mark.parametrize("level", ["words", "characters"])
def test_512_cuts_late_findings_away_and_keeps_early_ones(tokenizers, level):
    tokenizer = tokenizers[level]
    for triplet in case_triplets("validation", 200):
        for text in triplet[:3]:
            terms = case_sentences.POINTS[turns_on(text)].terms
            place = min(text.index(term) for term in terms)
            before = len(tokenizer.encode(text[:place]))
            assert before > HALF if triplet.place == "late" else before < HALF - 100


def test_1024_words_hold_every_pair(tokenizers):
    encode = tokenizers["words"].encode
    lengths = [
        [len(encode(text)) for text in triplet[:3]] for triplet in case_triplets("validation", 200)
    ]
    assert max(a + max(b, c) + 3 for a, b, c in lengths) <= 1024
    assert min(a + min(b, c) + 3 for a, b, c in lengths) > 512


def test_common_words_are_no_way_to_the_label(tokenizers):
    """Counted over the whole texts, findings included; the pleas weigh more, and say nothing."""
    encode = tokenizers["words"].encode

    def overlap(one, other):
        return sum((Counter(encode(one)) & Counter(encode(other))).values())

    triplets = case_triplets("test", 400)
    closer = [overlap(t.a, t.b) > overlap(t.a, t.c) for t in triplets]
    right = [
        {True: "B", False: "C"}[said] == t.label for said, t in zip(closer, triplets, strict=True)
    ]
    assert 0.4 < sum(right) / len(right) < 0.65


def argued(text: str) -> str:
    """Return the point that is pleaded in a case."""
    (point,) = (
        name for name, p in case_sentences.POINTS.items() if any(plea in text for plea in p.pleas)
    )
    return point


def test_what_is_argued_agrees_evenly_and_says_nothing():
    groups = [triplet_group("test", number) for number in range(200)]
    agreeing = []
    for group in groups:
        points = {tuple(argued(text) for text in triplet[:3]) for triplet in group}
        ((own, b, c),) = points  # the same in all four, whatever the label
        assert (own == b) != (own == c)
        agreeing.append(own == b)
    assert 70 < sum(agreeing) < 130


def test_the_terms_of_law_are_in_holdings_alone():
    points = case_sentences.POINTS
    terms = {term: name for name, point in points.items() for term in point.terms}
    assert len(terms) == 2 * len(points)
    lists = [value for name, value in vars(case_sentences).items() if name.isupper()]
    others = [text for value in lists if isinstance(value, tuple) for text in value]
    others += [plea for point in points.values() for plea in point.pleas]
    for term, owner in terms.items():
        assert not any(term in text for text in others), term
        for name, point in points.items():
            for holding in point.holdings:
                assert (term in holding) == (name == owner), (term, holding)


def test_pleas_are_longer_than_findings():
    for point in case_sentences.POINTS.values():
        assert sum(sorted(map(len, point.pleas))[:4]) > sum(sorted(map(len, point.holdings))[-2:])


@pytest.mark.parametrize("split", SPLITS)
def test_half_of_what_is_held_out_is_late(split):
    triplets = case_triplets(split, 400)
    late = sum(triplet.place == "late" for triplet in triplets) / len(triplets)
    assert late == sum(kind.place == "late" for kind in KINDS[split]) / len(KINDS[split])
    if split != "train":
        assert late == 0.5 and {kind.length for kind in KINDS[split]} == {"long"}


@given(st.sampled_from(SPLITS), st.lists(st.integers(4, 200), min_size=2, max_size=2))
@settings(max_examples=10, deadline=None)
def test_fewer_triplets_are_the_first_of_more(split, counts):
    fewer, more = (case_triplets(split, count) for count in sorted(counts))
    assert fewer == more[: len(fewer)] and len(fewer) == min(counts) // GROUP * GROUP


def test_no_case_is_in_two_splits_or_among_the_documents():
    texts = {
        split: {t for triplet in case_triplets(split, 400) for t in triplet[:3]} for split in SPLITS
    }
    texts["documents"] = set(case_documents(400, seed=0))
    assert len(set.union(*texts.values())) == sum(map(len, texts.values()))


def test_documents_are_a_function_of_their_seed():
    first = list(case_documents(30, seed=3))
    assert first == list(islice(case_documents(50, seed=3), 30))
    assert not set(first) & set(case_documents(30, seed=4))
    assert {turns_on(text) for text in case_documents(200, seed=0)} == set(POINTS)


def test_less_than_a_group_cannot_be_drawn():
    with pytest.raises(InputError, match="a group has 4"):
        case_triplets("test", 3)


def test_cases_are_those_of_this_version():
    """Changes with the grammar or the draw: then raise GRAMMAR, for what is cached under it."""
    made = [list(case_documents(10, seed=0)), *(case_triplets(split, 40) for split in SPLITS)]
    assert (
        hashlib.sha256(repr(made).encode()).hexdigest()
        == "aad964536cc2ed61c935888c1bd912098cc4a6d7926c2276b93858aa6bef9275"
    )
