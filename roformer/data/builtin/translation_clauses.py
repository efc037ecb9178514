"""Noun phrases and clauses drawn at random, for `roformer.data.builtin.translation`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from roformer.data.builtin import translation_lexicon as words
from roformer.data.builtin import translation_verbs as verbs
from roformer.data.builtin.translation_lexicon import Adjective, Noun, Preposition
from roformer.data.builtin.translation_trees import (
    Adjunct,
    Clause,
    Gap,
    NounPhrase,
    Phrase,
    Pronoun,
)
from roformer.data.builtin.translation_verbs import BE, Verb

T = TypeVar("T")

PRESENT = (*("present",) * 6, *("perfect",) * 2, "future", "can", "must", "should", "may", "want")
PAST = (*("past",) * 7, "could", "wanted", "had")
"""Tenses as often as they are drawn."""

FORMS = "aaaaaaaaappttttiimmc"
"""Kinds of clauses as often as they are drawn: action, passive, transfer, intransitive, motion,
copula."""

_ADJECTIVES = {kind: [a for a in words.ADJECTIVES if kind in a.kinds] for kind in "patl"}
_SIZE = next(i for i, adjective in enumerate(words.ADJECTIVES) if adjective.english == "big")
"""From here on adjectives tell size, age or colour; two of a noun are one of before and one of
after, so that nothing is big and small."""
_QUALITIES = {k: [a for a in _ADJECTIVES[k] if a in words.ADJECTIVES[:_SIZE]] for k in "patl"}
_LOOKS = {k: [a for a in _ADJECTIVES[k] if a in words.ADJECTIVES[_SIZE:]] for k in "patl"}
_COMPARABLE = {k: [a for a in _ADJECTIVES[k] if a.comparative] for k in "patl"}
_PASSIVE = [v for v in verbs.ACTIONS if not v.german_preposition and v.case == words.ACCUSATIVE]
_BELONG = next(verb for verb in verbs.ACTIONS if verb.base == "belong")
TIMES_OF = {
    sort: [time for time in words.TIMES if sort in time.tenses]
    for sort in verbs.TENSE_TIMES.values()
    if sort
}
NEGATABLE = tuple(d for d in words.SINGULAR_DETERMINERS if d != "every")
NEGATABLE_PLURAL = tuple(d for d in words.PLURAL_DETERMINERS if d not in ("some", "two", "three"))
_DEFINITE = tuple(d for d in NEGATABLE if d != "a")
_DEFINITE_PLURAL = tuple(d for d in NEGATABLE_PLURAL if d)


def _kind(phrase: Phrase) -> str:
    """Return the kind of noun; p for pronouns and who."""
    return "p" if isinstance(phrase, Pronoun) or phrase.noun is None else phrase.noun.kind


class ClauseDraw:
    """Draws clauses from one stream of random numbers."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._numbers: list[float] = []
        self.used: set[Noun] = set()

    def _number(self) -> float:
        if not self._numbers:
            self._numbers = self._generator.random(4096).tolist()
        return self._numbers.pop()

    def chance(self, probability: float) -> bool:
        return self._number() < probability

    def one(self, among: Sequence[T]) -> T:
        return among[int(self._number() * len(among))]

    # --- phrases

    def noun_phrase(
        self,
        kinds: str,
        singular: Sequence[str] = words.SINGULAR_DETERMINERS,
        plural: Sequence[str] = words.PLURAL_DETERMINERS,
        owned: float = 0.08,
    ) -> NounPhrase:
        """Draw a noun that the sentence does not have yet, with all but a relative clause."""
        kind = self.one(kinds)
        noun = self.one(words.NOUNS[kind])
        while noun in self.used:
            noun = self.one(words.NOUNS[kind])
        self.used.add(noun)
        many = self.chance(0.1 if kind == "l" else 0.3)
        determiner = self.one(plural if many else singular)
        share = self._number()
        adjectives: tuple[Adjective, ...]
        if share < 0.1:
            adjectives = (self.one(_QUALITIES[kind]), self.one(_LOOKS[kind]))
        else:
            adjectives = (self.one(_ADJECTIVES[kind]),) * (share < 0.42)
        possessor = None
        if kind != "l" and self.chance(owned):
            possessor = self.noun_phrase("p" if kind != "a" else "pa", _DEFINITE[:-1], ("the",), 0)
            determiner = "the"
        return NounPhrase(noun, determiner, many, adjectives, possessor)

    def object(self, kinds: str, subject: Phrase | None, negated: bool, definite: bool) -> Phrase:
        """Draw an object: a pronoun sometimes, never we or I if the subject is one of them."""
        if "p" in kinds and self.chance(0.1):
            first = isinstance(subject, Pronoun) and subject.word in ("I", "we")
            return Pronoun(self.one(("he", "she", "they") if first else tuple(words.PRONOUNS)))
        if definite and negated:
            return self.noun_phrase(kinds, _DEFINITE, _DEFINITE_PLURAL)
        if negated:
            return self.noun_phrase(kinds, NEGATABLE, NEGATABLE_PLURAL)
        return self.noun_phrase(kinds)

    def place(self, table: dict[str, tuple[Preposition, ...]]) -> Adjunct:
        phrase = self.noun_phrase("l")
        return Adjunct(self.one(table[phrase.noun.spatial]), phrase)

    # --- clauses

    def clause(
        self,
        tenses: Sequence[str],
        forms: str = FORMS,
        subject: Phrase | None = None,
        object: Gap | None = None,
        indirect: Gap | None = None,
        place: Gap | None = None,
        infinitive: bool = False,
        plain: bool = False,
        adverbials: bool = True,
        fronted: bool = False,
    ) -> Clause:
        """Draw a clause.

        Args:
            tenses: to draw from.
            forms: as in `FORMS`, to draw from.
            subject: given, or drawn; so are object, indirect object and place, if they are gaps.
            infinitive: without a subject, which is a person.
            plain: without a relative clause and negation.
            adverbials: with time, place and frequency, sometimes.
            fronted: the time may stand first.
        """
        form, kinds = self.one(forms), "p" if infinitive else "pa"
        if subject is not None:
            kinds = _kind(subject)
        target = object or indirect
        wanted = _kind(target) if target and not indirect else ""
        if infinitive and form in "pc":
            form = "a"
        negated = not plain and not infinitive and form != "p" and self.chance(0.12)
        tense = self.one(tenses)
        verb = self._verb(form, kinds, kinds if form == "p" and subject is not None else wanted)
        if verb is _BELONG:
            tense = "past" if tense in PAST else "present"
        elif tense == "must" and negated:
            tense = "should"
        elif tense in ("want", "wanted") and form in "pc":
            tense = "past" if tense == "wanted" else "present"
        clause = Clause(BE if form == "c" else verb, subject, tense, negated=negated)
        if subject is None and not infinitive:
            clause = replace(clause, subject=self._subject(form, verb, negated))
        clause = self._with_objects(clause, form, object, indirect)
        if place:
            assert place.noun is not None
            static = self.one(words.STATIC[place.noun.spatial])
            clause = replace(clause, place=Adjunct(static, place))
        elif verb is not _BELONG:
            clause = self._with_adverbials(clause, form, adverbials, fronted)
        return clause if plain or not self.chance(0.25) else self._with_relative(clause)

    def _verb(self, form: str, subjects: str, target: str) -> Verb:
        """Draw a verb that somebody of `subjects` does, to the kind `target` if one is given."""
        among: Sequence[Verb] = {
            "a": verbs.ACTIONS,
            "p": _PASSIVE,
            "t": verbs.TRANSFERS,
            "i": verbs.INTRANSITIVES,
            "m": verbs.MOTIONS,
            "c": (BE,),
        }[form]
        while True:
            verb = self.one(among)
            fits = form in "pc" or any(kind in verb.subjects for kind in subjects)
            if fits and target in verb.objects:
                return verb

    def _subject(self, form: str, verb: Verb, negated: bool) -> Phrase:
        kinds = verb.objects if form == "p" else verb.subjects
        if "p" in kinds and self.chance(0.15):
            return Pronoun(self.one(tuple(words.PRONOUNS)))
        phrase = self.noun_phrase(kinds)
        if negated and phrase.determiner == "every":
            return replace(phrase, determiner="this")
        if not negated and phrase.determiner == "a" and self.chance(0.15):
            return replace(phrase, determiner="no")
        return phrase

    def _with_objects(
        self, clause: Clause, form: str, object: Gap | None, indirect: Gap | None
    ) -> Clause:
        verb, subject, negated = clause.verb, clause.subject, clause.negated
        if form == "a":
            drawn = object or self.object(
                verb.objects, subject, negated, bool(verb.german_preposition)
            )
            return replace(clause, object=drawn)
        if form == "p":
            return replace(
                clause, passive=True, agent=self.object(verb.subjects, subject, False, False)
            )
        if form == "c":
            assert subject is not None
            kind = _kind(subject)
            standard = self.noun_phrase(kind)
            return replace(clause, predicate=self.one(_COMPARABLE[kind]), standard=standard)
        if form != "t":
            return clause
        double = verb.base in verbs.DOUBLE_OBJECT and not verb.particle and self.chance(0.5)
        double = double and not object and not indirect
        # "gives him to the king", but not "gives the king him"
        first: Phrase = object or (
            self.noun_phrase(verb.objects, NEGATABLE, NEGATABLE_PLURAL)
            if double or negated
            else self.object(verb.objects, subject, negated, False)
        )
        receiver = indirect or self.object("pa", subject, negated, True)
        if isinstance(receiver, Pronoun) and isinstance(first, NounPhrase) and double:
            # "gives her dogs" could mean her own dogs.
            double = bool(first.determiner)
        if isinstance(first, Pronoun) and isinstance(receiver, Pronoun):
            receiver = self.noun_phrase("p", _DEFINITE, _DEFINITE_PLURAL)
        return replace(clause, object=first, indirect=receiver, double=double)

    def _with_adverbials(
        self, clause: Clause, form: str, adverbials: bool, fronted: bool
    ) -> Clause:
        negated, tense = clause.negated, clause.tense
        if form == "m":
            clause = replace(clause, place=self._direction())
        elif (
            adverbials
            and form != "c"
            and not negated
            and not self._holds_place(clause)
            and self.chance(0.6 if form == "i" else 0.2)
        ):
            clause = replace(clause, place=self.place(words.STATIC))
        if form in "im" and not negated:
            share = self._number()
            if share < 0.2:
                preposition = self.one((words.WITH, words.WITH, words.WITHOUT))
                clause = replace(clause, companion=Adjunct(preposition, self.noun_phrase("pa")))
            elif share < 0.4:
                among = tuple(words.MANNER) if form == "m" else ("quietly", "alone")
                clause = replace(clause, manner=self.one(among))
        sort = verbs.TENSE_TIMES[tense]
        if adverbials and sort and clause.subject is not None and self.chance(0.3):
            return replace(
                clause, time=self.one(TIMES_OF[sort]), fronted=fronted and self.chance(0.6)
            )
        simple = tense in ("present", "past", "perfect") and clause.subject is not None
        no = isinstance(clause.subject, NounPhrase) and clause.subject.determiner == "no"
        if adverbials and simple and form != "c" and not negated and not no and self.chance(0.18):
            return replace(clause, frequency=self.one(tuple(words.FREQUENCY)))
        return clause

    def _direction(self) -> Adjunct:
        if self.chance(0.15):
            return Adjunct(words.TO, self.noun_phrase("p"))
        return self.place(words.DIRECTION)

    @staticmethod
    def _holds_place(clause: Clause) -> bool:
        return any(
            phrase is not None and _kind(phrase) == "l"
            for phrase in (clause.subject, clause.object)
        )

    # --- relative clauses

    def _with_relative(self, clause: Clause) -> Clause:
        """Add a relative clause to the subject or to what English says last, where that is clear."""
        subject, past = clause.subject, clause.tense in (*PAST, "pluperfect")
        if (
            isinstance(subject, NounPhrase)
            and not subject.possessor
            # "the man who sleeps often sees": when?
            and not clause.frequency
            and self.chance(0.4)
        ):
            return replace(clause, subject=self._related(subject, past))
        if (clause.time and not clause.fronted) or clause.companion:
            return clause
        place = clause.place
        if place:
            if isinstance(place.phrase, NounPhrase):
                return replace(
                    clause, place=replace(place, phrase=self._related(place.phrase, past))
                )
            return clause
        if clause.predicate and clause.standard and not clause.standard.possessor:
            return replace(clause, standard=self._related(clause.standard, past))
        last = clause.agent if clause.passive else clause.object
        indirect = clause.indirect is not None and not clause.double
        if indirect:
            last = clause.indirect
        if not isinstance(last, NounPhrase) or last.possessor or clause.manner:
            return clause
        related = self._related(last, past)
        if clause.passive:
            return replace(clause, agent=related)
        return replace(clause, indirect=related) if indirect else replace(clause, object=related)

    def _related(self, phrase: NounPhrase, past: bool) -> NounPhrase:
        gap, kind = Gap(phrase.noun, phrase.plural), phrase.noun.kind
        tenses, share = PAST if past else PRESENT, self._number()
        if kind == "l":
            relative = (
                self.clause(tenses, "aaiit", place=gap, plain=True)
                if share < 0.6
                else self.clause(tenses, "a", object=gap, plain=True)
            )
        elif kind != "t" and share < 0.4:
            relative = self.clause(tenses, "aaaaipm" + "t" * 2 * (kind == "p"), gap, plain=True)
        elif kind != "t" and share < 0.55:
            relative = self.clause(tenses, "t", indirect=gap, plain=True)
        else:
            relative = self.clause(tenses, "aaat", object=gap, plain=True)
        return replace(phrase, relative=relative)
