"""Laws of the loan cases: only the findings distinguish B from C, and all three must be read."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece, train_words
from roformer.data.toy import cases
from roformer.data.toy.cases import GROUP, SPLITS, case_documents, case_triplets, triplet_group
from roformer.errors import InputError

LAW = settings(max_examples=40, deadline=None)
GROUPS = st.tuples(st.sampled_from(SPLITS), st.integers(0, 10_000))
HALF = 254
"""Tokens that each of two long cases keeps of a pair that is cut to 512."""


def turns_on(text: str) -> str:
    """Return the point that a case turns on, read off the court's terms."""
    points = cases.POINTS.items()
    (point,) = (name for name, p in points if all(term in text for term in p["terms"]))
    return point


@given(GROUPS)
@LAW
def test_the_label_is_the_case_that_turns_on_the_same_point_and_no_part_tells_it(where):
    """Both labels are equally often right for a reader of one document, and for one without A."""
    group = triplet_group(*where)
    for triplet in group:
        own, b, c = (turns_on(text) for text in triplet[:3])
        assert b != c and own == {"B": b, "C": c}[triplet.label]
    assert len({triplet[:3] for triplet in group}) == GROUP
    assert Counter(t.label for t in group) == {"B": 2, "C": 2}
    for parts in ((0,), (1,), (2,), (1, 2)):
        blind = Counter((*(triplet[part] for part in parts), triplet.label) for triplet in group)
        assert sorted(blind.values()) == [1, 1, 1, 1]


@given(st.integers(0, 10_000))
@LAW
def test_the_beginnings_of_late_ones_are_the_same_in_a_group(number):
    """So whatever reads 254 tokens of each, words or characters, gives a group one answer."""
    groups = [triplet_group("test", n) for n in range(number, number + 2)]
    for group in (group for group in groups if group[0].place == "late"):
        for part in range(3):
            assert len({triplet[part][: cases.LATE] for triplet in group}) == 1
            assert len({triplet[part] for triplet in group}) == 2


@pytest.mark.parametrize("level", ["words", "characters"])
def test_512_cuts_late_findings_away_and_keeps_early_ones(level):
    documents = list(case_documents(150, seed=0))
    characters = sorted({character for text in documents for character in text})
    tokenizer = (
        train_words(documents, 8192, lowercase=True)
        if level == "words"
        else WordPiece.bert([*SPECIAL_TOKENS, *characters], lowercase=True)
    )
    for triplet in case_triplets("validation", 100):
        for text in triplet[:3]:
            terms = cases.POINTS[turns_on(text)]["terms"]
            before = len(tokenizer.encode(text[: min(text.index(term) for term in terms)]))
            assert before > HALF if triplet.place == "late" else before < HALF - 100


def test_fewer_are_the_first_of_more_and_no_case_is_in_two_splits():
    assert case_triplets("test", 41) == case_triplets("test", 80)[:40]
    first = list(case_documents(30, seed=3))
    assert first == list(case_documents(50, seed=3))[:30]
    assert not set(first) & set(case_documents(30, seed=4))
    texts = {
        split: {t for triplet in case_triplets(split, 100) for t in triplet[:3]} for split in SPLITS
    }
    texts["documents"] = set(case_documents(100, seed=0))
    assert len(set.union(*texts.values())) == sum(map(len, texts.values()))
    with pytest.raises(InputError, match="a group has 4"):
        case_triplets("test", 3)


def test_cases_are_those_of_this_version():
    """Changes with the templates or the draw: then raise GRAMMAR, for what is cached under it."""
    made = [list(case_documents(10, seed=0)), *(case_triplets(split, 40) for split in SPLITS)]
    assert (
        hashlib.sha256(repr(made).encode()).hexdigest()
        == "aad964536cc2ed61c935888c1bd912098cc4a6d7926c2276b93858aa6bef9275"
    )
