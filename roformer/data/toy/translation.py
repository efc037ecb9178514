"""English sentences and their German translations from templates, in which word order decides.

English shows by order who does what to whom, German by case, and German verbs have other places: the
finite verb is second in a main clause, first in a question, last in a subordinate clause; infinitives,
participles and separable prefixes are at the end.

Sentences are drawn in *groups*: the same words, with two noun phrases of a clause exchanged or not
("The old man sees this dog." and "This dog sees the old man."), so a bag of English words has as many
translations as its group has members. One endless sequence of groups is drawn, no bag twice. A hash
of the bag, not the place in the sequence, says which split a group is of: the splits are disjoint
even in bags of words, and fewer pairs are the first of more.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import islice, product
from typing import NamedTuple

from roformer.data.toy import table
from roformer.data.toy.draw import Draw
from roformer.errors import InputError

TRANSLATION_GRAMMAR = 3
"""Version of the templates, the words and the draw: another number, other pairs."""

SPLITS = {"train": range(6), "valid": range(6, 7), "test": range(7, 8)}
"""The values of the hash, 0 to 7, that belong to each split."""

CASES = ("nominative", "accusative", "dative")
_WORDS = table("translation")
TENSES = ("present", *_WORDS["auxiliaries"])

# --- clauses -------------------------------------------------------------------------------------


class Noun(NamedTuple):
    """A noun in both languages."""

    english: str
    german: str
    gender: str
    """m, f or n."""


class Phrase(NamedTuple):
    """A noun phrase."""

    determiner: str
    adjective: str
    """English, or empty."""
    noun: Noun

    def english(self) -> str:
        """Return the English words."""
        return _join(self.determiner, self.adjective, self.noun.english)

    def german(self, case: str) -> str:
        """Return the German words."""
        forms = _WORDS["determiners"][self.determiner][self.noun.gender].split()
        ends_in_n = case == "dative" or (case == "accusative" and self.noun.gender == "m")
        adjective = self.adjective and _WORDS["adjectives"][self.adjective] + "e" + "n" * ends_in_n
        return _join(forms[CASES.index(case)], adjective, self.noun.german)


class Verb(NamedTuple):
    """A verb in both languages: third person, infinitive and participle."""

    english: list[str]
    german: list[str]
    kind: str
    """The case of its object, or "giving": a thing to someone."""


class Clause(NamedTuple):
    """The meaning of a clause, in neither language."""

    verb: Verb
    tense: str
    subject: Phrase
    object: Phrase
    recipient: Phrase | None
    place: str
    """English, or empty."""

    def __format__(self, form: str) -> str:
        """Return the words: English `says` or `asks`; German by where the finite verb is."""
        return self._english(form == "asks") if form in ("says", "asks") else self._german(form)

    def _english(self, asks: bool) -> str:
        third, base, participle = self.verb.english
        if self.tense == "present":
            auxiliary, word = ("does", base) if asks else ("", third)
        else:
            auxiliary = _WORDS["auxiliaries"][self.tense].split()[0]
            word = participle if self.tense == "perfect" else base
        subject = self.subject.english()
        return _join(
            *((auxiliary, subject) if asks else (subject, auxiliary)),
            *(word, self.object.english()),
            f"to {self.recipient.english()}" if self.recipient else "",
            self.place,
        )

    def _german(self, form: str) -> str:
        third, infinitive, participle = self.verb.german
        finite, _, prefix = third.partition("-")
        ending, both = prefix, prefix + finite
        if self.tense != "present":
            finite = _WORDS["auxiliaries"][self.tense].split()[1]
            ending = participle if self.tense == "perfect" else infinitive
            both = f"{ending} {finite}"
        subject, place = self.subject.german("nominative"), _WORDS["places"].get(self.place, "")
        if self.recipient:
            objects = _join(self.recipient.german("dative"), self.object.german("accusative"))
        else:
            objects = self.object.german(self.verb.kind)
        if form == "last":
            return _join(subject, place, objects, both)
        if form == "first":
            return _join(finite, subject, place, objects, ending)
        front = (place, finite, subject) if place else (subject, finite)
        return _join(*front, objects, ending)

    def variants(self) -> list[Clause]:
        """Return the clause, and the one of the same words in which two beings change places."""
        if self.recipient:
            return [self, self._replace(subject=self.recipient, recipient=self.subject)]
        return [self, self._replace(subject=self.object, object=self.subject)]


def _join(*words: str) -> str:
    return " ".join(word for word in words if word)


# --- the draw ------------------------------------------------------------------------------------


def _nouns(name: str) -> list[Noun]:
    return [
        Noun(english, german, gender)
        for gender, nouns in _WORDS[name].items()
        for english, german in nouns.items()
    ]


BEINGS, THINGS = _nouns("beings"), _nouns("things")
DETERMINERS, ADJECTIVES, PLACES = (
    [*_WORDS[name]] for name in ("determiners", "adjectives", "places")
)
VERBS = [
    Verb(english.split(), german.split(), kind)
    for kind, verbs in _WORDS["verbs"].items()
    for english, german in verbs.items()
]


def _group(draw: Draw) -> list[tuple[str, str]]:
    """Draw (English, German) pairs of the same English words."""
    english, german = draw.one(_WORDS["sentences"])
    beings = draw.some(BEINGS, 2 * german.count("{"))

    def phrase(noun: Noun) -> Phrase:
        adjective = draw.one(ADJECTIVES) if draw.chance(0.5) else ""
        return Phrase(draw.one(DETERMINERS), adjective, noun)

    clauses = []
    while beings:
        verb, subject, other = draw.one(VERBS), phrase(beings.pop()), phrase(beings.pop())
        gives = verb.kind == "giving"
        object = phrase(draw.one(THINGS)) if gives else other
        recipient = other if gives else None
        place = draw.one(PLACES) if draw.chance(0.3) else ""
        clauses.append(Clause(verb, draw.one(TENSES), subject, object, recipient, place))
    return [
        (_capital(english.format(*variant)), _capital(german.format(*variant)))
        for variant in product(*(clause.variants() for clause in clauses))
    ]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def bag(english: str) -> str:
    """Return the words of a sentence in alphabetical order."""
    return " ".join(sorted(re.findall(r"\w+", english.lower())))


def split_of(english: str) -> str:
    """Return the split of all English sentences with the words of this one."""
    value = hashlib.sha256(bag(english).encode()).digest()[0] % 8
    return next(split for split, values in SPLITS.items() if value in values)


def groups() -> Iterator[list[tuple[str, str]]]:
    """Yield the groups of all splits, always the same sequence, no bag of English words twice."""
    draw, seen = Draw(f"translation/{TRANSLATION_GRAMMAR}"), set()
    while True:
        group = _group(draw)
        key = bag(group[0][0])
        if key not in seen:
            seen.add(key)
            yield draw.shuffled(group)


def builtin_pairs(split: str, count: int) -> Iterator[tuple[str, str]]:
    """Yield `count` distinct (English, German) pairs of a split: train, valid or test.

    They are always the same pairs, and the first of any larger count; no sentence of either language
    occurs twice, within or between splits.
    """
    if split not in SPLITS:
        raise InputError(f"no split {split!r}: the splits are {', '.join(SPLITS)}")
    made = (pair for group in groups() if split_of(group[0][0]) == split for pair in group)
    return islice(made, max(count, 0))
