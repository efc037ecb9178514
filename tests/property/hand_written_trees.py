"""What the tests of the English-German grammar share: its trees, written by hand in English words."""

from roformer.data.builtin import translation_lexicon as words
from roformer.data.builtin import translation_verbs as verbs
from roformer.data.builtin.translation_trees import (
    Adjunct,
    Clause,
    Gap,
    NounPhrase,
    Pronoun,
    Sentence,
)

NOUNS = {noun.singular: noun for kind in words.NOUNS.values() for noun in kind}
ADJECTIVES = {adjective.english: adjective for adjective in words.ADJECTIVES}
TIMES = {time.english: time for time in words.TIMES}
PREPOSITIONS = {
    preposition.english: preposition
    for table in (words.STATIC, words.DIRECTION)
    for sort in table.values()
    for preposition in sort
} | {"with": words.WITH, "without": words.WITHOUT}
TABLES = (verbs.ACTIONS, verbs.TRANSFERS, verbs.INTRANSITIVES, verbs.MOTIONS, verbs.CONTROL)
VERBS = {
    " ".join(filter(None, (verb.base, verb.particle, verb.preposition))): verb
    for table in (verbs.SPEECH, verbs.INQUIRIES, *TABLES)
    for verb in table
} | {"be": verbs.BE}


def noun(text, **more):
    """Read "the old dog"; with + before a noun it is plural."""
    determiner, *adjectives, name = text.split()
    return NounPhrase(
        NOUNS[name.lstrip("+")],
        "" if determiner == "-" else determiner,
        name.startswith("+"),
        tuple(ADJECTIVES[adjective] for adjective in adjectives),
        **more,
    )


def phrase(text):
    return (
        Pronoun(text) if text in words.PRONOUNS else noun(text) if isinstance(text, str) else text
    )


def clause(subject, verb, tense="present", **more):
    for role in ("object", "indirect", "agent", "standard"):
        if role in more:
            more[role] = phrase(more[role])
    for role in ("place", "companion"):
        if role in more:
            preposition, inner = more[role]
            more[role] = Adjunct(PREPOSITIONS[preposition], phrase(inner))
    if "time" in more:
        more["time"] = TIMES[more["time"]]
    if "predicate" in more:
        more["predicate"] = ADJECTIVES[more["predicate"]]
    return Clause(VERBS[verb], phrase(subject) if subject else None, tense, **more)


def gap(name=None):
    return Gap(NOUNS[name.lstrip("+")], name.startswith("+")) if name else Gap()


def one(*arguments, **more):
    return Sentence(clause(*arguments, **more))
