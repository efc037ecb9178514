"""A parallel corpus made by a grammar: English and German sentences in which order decides.

Each English sentence has one German translation, and it follows from the English alone: a word has
one translation, and trees whose English would not tell what belongs to what are not drawn (no
adverbial after a relative clause, for one). Who does what to whom is told by order in English and
by case in German; a bag of English words has as many translations as its nouns can change places.

One endless sequence of trees is drawn. A hash of the German, not the place in the sequence, says
which split a pair is of: then neither a German nor an English sentence is in two splits, and fewer
pairs are the first of more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from roformer.data.builtin import translation_lexicon as words
from roformer.data.builtin import translation_verbs as verbs
from roformer.data.builtin.translation_clauses import (
    FORMS,
    NEGATABLE,
    PAST,
    PRESENT,
    TIMES_OF,
    ClauseDraw,
)
from roformer.data.builtin.translation_rendering import english, german
from roformer.data.builtin.translation_trees import Clause, Gap, Phrase, Pronoun, Sentence
from roformer.data.random import random_stream
from roformer.errors import InputError

TRANSLATION_GRAMMAR = 1
"""Version of the grammar, the words and the draw: another number, other pairs."""

SPLITS = {"train": range(6), "valid": range(6, 7), "test": range(7, 8)}
"""Which of the eight values of the hash belong to a split."""

LONGEST = 32
"""English words at most; longer sentences are not used."""

REPEATS = 1000
"""So many sentences in a row that are known already: the grammar is exhausted."""

PAIRS = 7
"""Purpose of the random stream (see `roformer.data.random.Purpose`)."""

LINKS = (
    *("because", "although", "when", "while", "before", "after", "if"),
    *("until", "as soon as", "in order to", "because", "although"),
)


class _Draw(ClauseDraw):
    """Draws sentences."""

    def sentence(self) -> Sentence:
        """Draw the next tree."""
        self.used.clear()
        share = self._number()
        tenses = self.one((PRESENT, PAST))
        if share < 0.3:
            return Sentence(self.clause(tenses, fronted=True))
        if share < 0.52:
            return Sentence(self._complex())
        if share < 0.82:
            return self._linked()
        if share < 0.9:
            first, second = self.clause(tenses, fronted=True), self.clause(tenses)
            return Sentence(first, link=self.one(("and", "but")), second=second)
        return self._question(tenses)

    def _complex(self) -> Clause:
        """Draw a clause with a clause of "that", "whether" or an infinitive."""
        past = self.chance(0.5)
        inner = (*PAST, "pluperfect", "pluperfect") if past else (*PRESENT, "past", "past")
        share = self._number()
        if share < 0.4:
            verb = self.one(verbs.SPEECH)
            complement = ("that", self.clause(inner))
        elif share < 0.65:
            verb, word = self.one(verbs.INQUIRIES), self.one(("whether", "why", "where"))
            forms = "aaapt" if word == "where" else FORMS
            complement = (word, self.clause(inner, forms, adverbials=word != "where"))
        else:
            verb = self.one(verbs.CONTROL)
            complement = ("to", self.clause(("present",), infinitive=True))
        subject: Phrase = (
            Pronoun(self.one(tuple(words.PRONOUNS)))
            if self.chance(0.15)
            else self.noun_phrase("p", NEGATABLE)
        )
        told = self.object("p", subject, False, False) if verb.objects else None
        clause = Clause(
            verb,
            subject,
            "past" if past else "present",
            object=told,
            negated=told is None and self.chance(0.2),
            complement=complement,
        )
        if self.chance(0.2):
            time = self.one(TIMES_OF[verbs.TENSE_TIMES[clause.tense]])
            return replace(clause, time=time, fronted=True)
        return clause

    def _linked(self) -> Sentence:
        link = self.one(LINKS)
        past = link != "if" and self.chance(0.5)
        simple = ("past",) if past else ("present",)
        tenses = PAST if past else PRESENT
        first = self.chance(0.4)
        if link == "in order to":
            subject = self.noun_phrase("p")
            main = self.clause(tenses, "aaattm", subject, adverbials=False)
            return Sentence(main, None, link, self.clause(("present",), infinitive=True), first)
        if link in ("because", "although"):
            second = self.clause((*tenses, "pluperfect", "pluperfect") if past else tenses)
        elif link == "after":
            second = self.clause(("pluperfect",) if past else ("perfect",))
        else:
            second = self.clause(simple)
        plain_main = simple if link in ("when", "while", "before", "after", "until") else tenses
        main = self.clause(plain_main, fronted=not first)
        return Sentence(main, None, link, second, first)

    def _question(self, tenses: Sequence[str]) -> Sentence:
        share = self._number()
        if share < 0.4:
            return Sentence(self.clause(tenses, plain=self.chance(0.5)), "")
        if share < 0.55:
            return Sentence(self.clause(tenses, plain=True), "why")
        if share < 0.65:
            simple = ("past",) if tenses is PAST else ("present", "future")
            return Sentence(self.clause(simple, adverbials=False, plain=True), "when")
        if share < 0.75:
            return Sentence(self.clause(tenses, "aaapt", adverbials=False, plain=True), "where")
        if share < 0.87:
            return Sentence(self.clause(tenses, "aaatmi", Gap(), plain=True), "")
        if share < 0.95:
            return Sentence(self.clause(tenses, "a", object=Gap(), plain=True), "")
        return Sentence(self.clause(tenses, "t", indirect=Gap(), plain=True), "")


# --- pairs ---------------------------------------------------------------------------------------


def sentences() -> Iterator[Sentence]:
    """Yield the trees of all splits, always the same sequence."""
    draw = _Draw(random_stream(TRANSLATION_GRAMMAR, PAIRS))
    while True:
        yield draw.sentence()


def split_of(translation: str) -> str:
    """Return the split of a German sentence."""
    value = hashlib.sha256(translation.encode()).digest()[0] % 8
    return next(split for split, values in SPLITS.items() if value in values)


def builtin_pairs(split: str, count: int) -> Iterator[tuple[str, str]]:
    """Yield `count` distinct (English, German) pairs of a split: train, valid or test.

    They are always the same ones, and the first of any larger count; within and between splits no
    sentence is there twice, in either language.

    Raises:
        InputError: no such split; or, while pairs are drawn, the grammar has (nearly) no other.
    """
    if split not in SPLITS:
        raise InputError(f"no split {split!r}: the splits are {', '.join(SPLITS)}")
    return islice(_pairs(split), max(count, 0))


def _pairs(split: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    repeats = 0
    for tree in sentences():
        translation = german(tree)
        if split_of(translation) != split:
            continue
        source = english(tree)
        if source.count(" ") >= LONGEST:
            continue
        if source in seen or translation in seen:
            repeats += 1
            if repeats >= REPEATS:
                raise InputError(f"the grammar has no more than {len(seen) // 2} pairs of {split}")
            continue
        repeats = 0
        seen |= {source, translation}
        yield source, translation
