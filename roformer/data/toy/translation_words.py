"""English and German words and their forms, read from `translation.yaml`, which says how to read them."""

from __future__ import annotations

import re
from typing import NamedTuple

from roformer.data.toy import table

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
PLURAL = 3
"""Column of the plural in the endings, after the genders m, f and n."""
_TABLE = table("translation")


def entries(text: str) -> list[list[str]]:
    """Return the entries of a table as their parts."""
    found = text.strip().replace("\n", "|").split("|")
    return [[part.strip() for part in entry.split(";")] for entry in found]


class Noun(NamedTuple):
    """A noun in both languages."""

    singular: str
    plural: str
    german: str
    german_plural: str
    gender: str


class Determiner(NamedTuple):
    """A determiner in both languages, with the endings of its stem and of an adjective after it."""

    singular: str
    plural: str
    stem: str
    endings: list[str]
    adjective: list[str]
    definite: bool


class Verb(NamedTuple):
    """A verb in both languages, what follows the English one, and what the German one governs."""

    base: str
    past: str
    participle: str
    particle: str
    prefix: str
    infinitive: str
    """German, without its separable prefix."""
    third: str
    german_past: str
    german_participle: str
    auxiliary: str
    preposition: str
    case: int


def with_s(word: str) -> str:
    """Return an English noun in the plural or a verb in the third person."""
    return re.sub("(?<=s|x)$|(?<=ch|sh)$", "e", re.sub("(?<=[^aeiou])y$", "ie", word)) + "s"


def _nouns(name: str) -> list[Noun]:
    found = [(english.split(), german.split()) for english, german in entries(_TABLE[name])]
    return [Noun(*(*english, with_s(english[0]))[:2], *german) for english, german in found]


def _verbs(name: str) -> list[Verb]:
    verbs = []
    for english, german, *governs in entries(_TABLE[name]):
        words, _, particle = english.partition(" +")
        base, *irregular = words.split()
        regular = re.sub("(?<=[^aeiou])y$", "i", base).removesuffix("e") + "ed"
        past, participle = irregular or (regular, regular)
        infinitive, third, german_past, german_participle, *auxiliary = german.split()
        prefix, _, infinitive = infinitive.rpartition("-")
        *preposition, case = governs[0].split() if governs else ["accusative"]
        verbs.append(
            Verb(
                *(base, past, participle, particle, prefix, infinitive, third, german_past),
                *(german_participle, "".join(auxiliary) or "haben", "".join(preposition)),
                DATIVE if case == "dative" else ACCUSATIVE,
            )
        )
    return verbs


BEINGS, THINGS = _nouns("beings"), _nouns("things")
DEEDS, GIVING, USING, DOING = (_verbs(name) for name in ("deeds", "giving", "using", "doing"))
SAYING, ASKING = _verbs("saying"), _verbs("asking")
LIVELY, LIFELESS, PLACES, FREQUENCIES, FORMS = (
    entries(_TABLE[name]) for name in ("lively", "lifeless", "places", "frequencies", "forms")
)
TIMES = {tense: entries(text) for tense, text in _TABLE["times"].items()}
AUXILIARIES = {tense: entries(text)[0] for tense, text in _TABLE["auxiliaries"].items()}
ENDINGS: dict[str, list[str]] = _TABLE["endings"]
DETERMINERS = [
    Determiner(singular, plural, stem, ENDINGS[own], ENDINGS[adjective], not indefinite)
    for singular, plural, stem, own, adjective, *indefinite in entries(_TABLE["determiners"])
]
NEGATABLE, A = DETERMINERS[:4], DETERMINERS[4]
NO = A._replace(singular="no", stem="kein")
