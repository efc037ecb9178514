"""Laws of the toy English and German: order decides, the splits share nothing, both are as pinned."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.config.wmt import BuiltinParallel
from roformer.data.toy import translation as toy
from roformer.data.toy.translation import Clause, Phrase, bag, builtin_pairs
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


def phrase(text):
    """Read `the old man`."""
    determiner, *adjective, noun = text.split()
    nouns = {noun.english: noun for noun in (*toy.BEINGS, *toy.THINGS)}
    return Phrase(determiner, " ".join(adjective), nouns[noun])


def clause(text):
    """Read `subject; verb; tense; object; recipient; place`; the last two may be missing."""
    subject, verb, tense, thing, *others = text.split("; ")
    recipient, place = (*others, "", "")[:2]
    return Clause(
        next(one for one in toy.VERBS if one.english[0] == verb),
        *(tense, phrase(subject), phrase(thing)),
        *(phrase(recipient) if recipient else None, place),
    )


# The beings exchanged; adjectives and genders; the dative, alone and before the accusative; a
# separable prefix; each place of the verb, and a place in front of it.
CLAUSES = """
the old man; sees; present; this dog | says | the old man sees this dog
the old man; sees; present; this dog | asks | does the old man see this dog
the old man; sees; present; this dog | second | der alte Mann sieht diesen Hund
this dog; sees; present; the old man | second | dieser Hund sieht den alten Mann
the woman; hears; future; every cat | says | the woman will hear every cat
the woman; hears; future; every cat | first | wird die Frau jede Katze hören
every cat; thanks; perfect; the young woman | asks | has every cat thanked the young woman
every cat; thanks; perfect; the young woman | last | jede Katze der jungen Frau gedankt hat
this small child; helps; can; the poor pig | last | dieses kleine Kind dem armen Schwein helfen kann
the king; calls; present; the big horse | second | der König ruft das große Pferd an
the king; calls; present; the big horse | last | der König das große Pferd anruft
the king; calls; must; the big horse | second | der König muss das große Pferd anrufen
the bird; gives; present; the red hat; this cow; in the garden | says | \
    the bird gives the red hat to this cow in the garden
the bird; gives; present; the red hat; this cow; in the garden | second | \
    im Garten gibt der Vogel dieser Kuh den roten Hut
the bird; gives; perfect; the red hat; this cow; in the garden | last | \
    der Vogel im Garten dieser Kuh den roten Hut gegeben hat
"""


@pytest.mark.parametrize("line", CLAUSES.strip().splitlines())
def test_a_clause_is_what_was_written_by_hand(line):
    meaning, form, text = (part.strip() for part in line.split("|"))
    assert format(clause(meaning), form) == text


def test_sentences_are_written_as_both_languages_write_them(corpus):
    """Mutations: a lost capital or full stop; a place left empty."""
    for pair in (pair for pairs in corpus.values() for pair in pairs):
        for text in pair:
            assert text[0].isupper() and text[-1] in ".?" and text.count(text[-1]) == 1
            assert text == " ".join(text.split())
            assert not any(wrong in text for wrong in (",,", " ,", "{", "None", "False"))
        assert pair[0][-1] == pair[1][-1]
