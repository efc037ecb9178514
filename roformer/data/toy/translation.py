"""English sentences and their German translations from templates, in which word order decides.

English shows by order who does what to whom, German by case, and German verbs have other places: the
finite verb is second in a main clause, first in a question, last in a subordinate clause; infinitives,
participles and separable prefixes are at the end.

Sentences are drawn in *groups*: the same words, with two noun phrases of a clause exchanged or not
("The old man sees a dog." and "A dog sees the old man."), so a bag of English words has as many
translations as its group has members. One endless sequence of groups is drawn, no bag twice. A hash
of the bag, not the place in the sequence, says which split a group is of: the splits are disjoint
even in bags of words, and fewer pairs are the first of more.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Literal, NamedTuple

from roformer.data.toy import translation_words as words
from roformer.data.toy.draw import Draw
from roformer.data.toy.translation_words import Determiner, Noun, Verb, entries, with_s
from roformer.errors import InputError

TRANSLATION_GRAMMAR = 2
"""Version of the templates, the words and the draw: another number, other pairs."""

SPLITS = {"train": range(6), "valid": range(6, 7), "test": range(7, 8)}
"""The values of the hash, 0 to 7, that belong to each split."""

FORMS = [tuple(form) for share, *form in words.FORMS for _ in range(int(share))]
"""Tenses, verbs of the first clause, and sentences of clauses; see `Clause.__format__`."""
PRESENT = ("present", "present", "perfect", "future", "can", "should")
PAST = ("past", "past", "pluperfect")
KINDS = (*(words.DEEDS,) * 3, *(words.GIVING,) * 2, words.USING, words.DOING)
"""Verbs by what they take, some more often than others."""

# --- clauses -------------------------------------------------------------------------------------


class Phrase(NamedTuple):
    """A noun phrase or, with a determiner that has no words, a pronoun."""

    determiner: Determiner
    adjective: Sequence[str]
    """English and German stem, or empty."""
    noun: Noun
    plural: bool

    def english(self) -> str:
        """Return the English words."""
        parts = self.determiner[:2][self.plural], *self.adjective[:1], self.noun[self.plural]
        return re.sub("^a (?=[aeiou])", "an ", _join(*parts))

    def german(self, case: int, negated: bool = False) -> str:
        """Return the German words; if negated, with kein for ein."""
        determiner = words.NO if negated and self.determiner is words.A else self.determiner
        column = words.PLURAL if self.plural else "mfnw".index(self.noun.gender) % 3
        parts = [determiner.stem + determiner.endings[case].split(" ")[column]]
        parts += [stem + determiner.adjective[case].split()[column] for stem in self.adjective[1:]]
        noun = self.noun.german
        if self.plural or (self.noun.gender == "w" and case != words.NOMINATIVE):
            noun = self.noun.german_plural
        if self.plural and case == words.DATIVE and noun[-1] not in "ns":
            noun += "n"
        return _join(*parts, noun)


NONE = Determiner("", "", "", words.ENDINGS["none"], words.ENDINGS["strong"], True)
PRONOUNS = [
    Phrase(NONE, (), Noun(word, word, german, german, "m"), word in ("we", "they"))
    for word, german in entries("he; er | she; sie | we; wir | they; sie")
]
"""Only subjects."""


class Clause(NamedTuple):
    """The meaning of a clause, in neither language; adverbials in both."""

    verb: Verb
    tense: str
    subject: Phrase
    object: Phrase | None
    recipient: Phrase | None
    negated: bool
    frequency: Sequence[str]
    time: Sequence[str]
    fronted: bool
    """The time comes first."""
    place: Sequence[str]

    def __format__(self, form: str) -> str:
        """Return the words: English `says` or `asks`; German by where the finite verb is."""
        return self._english(form == "asks") if form in ("says", "asks") else self._german(form)

    def _english(self, asks: bool) -> str:
        verb, plural = self.verb, self.subject.plural
        if self.tense in words.AUXILIARIES:
            auxiliary = words.AUXILIARIES[self.tense][0].split()[plural]
            word = verb.participle if self.tense in ("perfect", "pluperfect") else verb.base
        elif asks or self.negated:
            auxiliary = "did" if self.tense == "past" else "do" if plural else "does"
            word = verb.base
        else:
            present = verb.base if plural else with_s(verb.base)
            auxiliary, word = "", verb.past if self.tense == "past" else present
        if self.negated:
            auxiliary = f"{auxiliary} not".replace("can not", "cannot")
        subject = self.subject.english()
        return _join(
            self.fronted and self.time[0],
            *((auxiliary, subject) if asks else (subject, auxiliary)),
            *(self.frequency[0], word, verb.particle),
            self.object and self.object.english(),
            self.recipient and f"to {self.recipient.english()}",
            self.place[0],
            not self.fronted and self.time[0],
        )

    def _german(self, form: str) -> str:
        verb, plural = self.verb, self.subject.plural
        ending = verb.prefix + verb.infinitive
        if self.tense in words.AUXILIARIES:
            finite = words.AUXILIARIES[self.tense][-1 if verb.auxiliary == "sein" else 1].split()[
                plural
            ]
            if self.tense in ("perfect", "pluperfect"):
                ending = verb.german_participle
        else:
            past = verb.german_past
            pasts = past, past + ("n" if past.endswith("e") else "en")
            finite = (pasts if self.tense == "past" else (verb.third, verb.infinitive))[plural]
            ending = verb.prefix

        told = [(self.recipient, words.DATIVE)] if self.recipient else []
        told += [(self.object, verb.case)] if self.object else []
        direct = not verb.preposition
        objects = [phrase.german(case, self.negated and direct) for phrase, case in told]
        governed = "" if direct else f"{verb.preposition} {objects.pop()}"
        # Adverbs of frequency follow a definite object and precede any other.
        objects.insert(bool(objects) and told[0][0].determiner.definite, self.frequency[1])
        if self.negated and not (
            direct and any(phrase.determiner is words.A for phrase, _ in told)
        ):
            objects.append("nicht")
        time = not self.fronted and self.time[1]
        middle = _join(time, *objects, self.place[1], governed)

        subject = self.subject.german(words.NOMINATIVE)
        if form == "last":
            return _join(subject, middle, ending + " " * (ending != verb.prefix) + finite)
        front = (self.time[1], finite, subject) if self.fronted else (subject, finite)
        return _join(*(front if form == "second" else (finite, subject)), middle, ending)

    def variants(self) -> list[Clause]:
        """Return the clause, and the one of the same words in which two beings change places."""
        name = "recipient" if self.recipient else "object"
        other = getattr(self, name)
        among = other and self.subject.noun in words.BEINGS and other.noun in words.BEINGS
        if not among or self.subject.plural != other.plural:
            return [self]
        return [self, self._replace(**{"subject": other, name: self.subject})]


def _join(*words: str | Literal[False] | None) -> str:
    return " ".join(word for word in words if word)


# --- the draw ------------------------------------------------------------------------------------


def _clause(
    draw: Draw, beings: list[Noun], tense: str, verbs: list[Verb], simple: bool, fronted: bool
) -> Clause:
    """Draw a clause, with beings taken off the list; a simple one has no adverbs or negation."""
    negated = not simple and draw.chance(0.15)
    often = not simple and not negated and draw.chance(0.15)
    determiners = words.NEGATABLE if negated or often else words.DETERMINERS

    def phrase(nouns: list[Noun], adjectives: list[list[str]], plural: bool) -> Phrase:
        among = determiners if nouns is beings else (*determiners, words.A)
        adjective = draw.one(adjectives) if draw.chance(0.5) else ()
        noun = beings.pop() if nouns is beings else draw.one(nouns)
        return Phrase(draw.one([one for one in among if one[plural]]), adjective, noun, plural)

    subject = phrase(beings, words.LIVELY, draw.chance(0.3))
    if draw.chance(0.1):
        subject = draw.one(PRONOUNS)
    object = recipient = None
    other = subject.plural if draw.chance(0.8) else not subject.plural
    if verbs is words.DEEDS:
        object = phrase(beings, words.LIVELY, other)
    elif verbs is words.GIVING:
        recipient = phrase(beings, words.LIVELY, other)
    if verbs in (words.GIVING, words.USING):
        object = phrase(words.THINGS, words.LIFELESS, draw.chance(0.3))

    nothing = ("", "")
    times = words.TIMES.get("future" if tense in ("can", "should") else tense, [])
    timed = bool(times) and not simple and not often and draw.chance(0.4)
    placed = (
        not simple
        and verbs is not words.GIVING
        and draw.chance(0.5 if verbs is words.DOING else 0.15)
    )
    return Clause(
        *(draw.one(verbs), tense, subject, object, recipient, negated),
        frequency=draw.one(words.FREQUENCIES) if often else nothing,
        time=draw.one(times) if timed else nothing,
        fronted=timed and fronted and draw.chance(0.4),
        place=draw.one(words.PLACES) if placed else nothing,
    )


def _group(draw: Draw) -> list[tuple[str, str]]:
    """Draw (English, German) pairs of the same English words."""
    tenses, saying, english, german = draw.one(FORMS)
    group = draw.one((PRESENT, PAST))
    beings, clauses = draw.some(words.BEINGS, 4), []
    for i in range(german.count("{")):
        verbs = {"saying": words.SAYING, "asking": words.ASKING}.get(saying) if i == 0 else None
        tense = tenses if tenses in words.TIMES else group[0] if verbs else draw.one(group)
        clauses.append(
            _clause(
                *(draw, beings, tense),
                verbs or draw.one(KINDS),
                simple=verbs is not None or "asks" in english,
                fronted=f"{{{i}:second}}" in german,
            )
        )
    # Two clauses at the same time name it once.
    if tenses in words.TIMES:
        clauses[1] = clauses[1]._replace(time=("", ""))
    return [
        (_capital(english.format(*told)), _capital(german.format(*told)))
        for told in product(*(clause.variants() for clause in clauses))
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
