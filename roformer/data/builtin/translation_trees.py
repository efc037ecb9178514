"""What the sentences of `roformer.data.builtin.translation` say, in neither language."""

from __future__ import annotations

from dataclasses import dataclass

from roformer.data.builtin.translation_lexicon import Adjective, Noun, Preposition, Time
from roformer.data.builtin.translation_verbs import Verb


@dataclass(frozen=True)
class NounPhrase:
    """A noun with what belongs to it; a possessor ("the king's dog") excludes a determiner."""

    noun: Noun
    determiner: str = "the"
    """A key of `DETERMINERS`."""
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    possessor: NounPhrase | None = None
    relative: Clause | None = None
    """A clause with one `Gap`."""


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun: a key of `PRONOUNS`."""

    word: str


@dataclass(frozen=True)
class Gap:
    """Where the relative or interrogative pronoun would stand; it stands in front instead."""

    noun: Noun | None = None
    """What the relative pronoun refers to; None in a question: who."""
    plural: bool = False


Phrase = NounPhrase | Pronoun | Gap


@dataclass(frozen=True)
class Adjunct:
    """A preposition with its noun phrase."""

    preposition: Preposition
    phrase: Phrase


@dataclass(frozen=True)
class Clause:
    """A verb with all that depends on it."""

    verb: Verb
    subject: Phrase | None
    """None in infinitives."""
    tense: str = "present"
    """A key of `TENSE_TIMES`."""
    object: Phrase | None = None
    indirect: Phrase | None = None
    double: bool = False
    """English has the indirect object first, without a preposition."""
    passive: bool = False
    agent: Phrase | None = None
    """Who does it in a passive clause; the object is the subject then."""
    predicate: Adjective | None = None
    standard: NounPhrase | None = None
    """What it is compared with: older than the standard."""
    negated: bool = False
    """The object is then definite, or indefinite in the accusative or dative (German kein)."""
    frequency: str = ""
    manner: str = ""
    place: Adjunct | None = None
    companion: Adjunct | None = None
    time: Time | None = None
    fronted: bool = False
    """The time stands first."""
    complement: tuple[str, Clause] | None = None
    """A subordinator and its clause, or "to" and an infinitive."""


@dataclass(frozen=True)
class Sentence:
    """A main clause or two, or one with a subordinate clause before or after it."""

    main: Clause
    question: str | None = None
    """None: a statement; "": yes or no; why, when, where; a gap in the clause asks for who."""
    link: str = ""
    """A subordinator, "in order to", "and" or "but"."""
    second: Clause | None = None
    second_first: bool = False


def gap_of(clause: Clause) -> Gap | None:
    """Return the gap of a clause that has one."""
    for phrase in (clause.subject, clause.object, clause.indirect, clause.place):
        inner = phrase.phrase if isinstance(phrase, Adjunct) else phrase
        if isinstance(inner, Gap):
            return inner
    return None


def number_of(phrase: Phrase | None) -> str:
    """Return what the verb agrees with: I, sg or pl."""
    if isinstance(phrase, Pronoun):
        return {"I": "I", "we": "pl", "they": "pl"}.get(phrase.word, "sg")
    return "pl" if phrase and phrase.plural else "sg"
