"""English and German words, and their forms, for `roformer.data.builtin.translation`.

Every English entry has one German translation, whatever stands around it. Tables are text: entries
are separated by `|` or a new line, their parts by `;`, forms by spaces; what is regular is left out
and made by a rule.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CASES = ("nominative", "accusative", "dative", "genitive")
NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
GENDERS = "mfn"
PLURAL = 3
"""Column of the plural in the tables of determiners: it knows no gender."""


def rows(table: str) -> list[list[str]]:
    """Return the parts of the entries of a table."""
    entries = table.strip().replace("\n", "|").split("|")
    return [[part.strip() for part in entry.split(";")] for entry in entries]


# --- nouns ---------------------------------------------------------------------------------------


class Noun(NamedTuple):
    """A noun in both languages."""

    singular: str
    plural: str
    german: str
    german_plural: str
    gender: str
    """One of `GENDERS`."""
    weak: bool
    """Ends in -(e)n in all cases but the nominative singular: den Jungen, dem Bären."""
    kind: str
    """p person, a animal, t thing, l place."""
    spatial: str = ""
    """Of places: the sort that decides which prepositions fit, a key of `STATIC`."""


def english_s(word: str) -> str:
    """Return a noun in the plural or a verb in the third person."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|ch|sh)$", word) else "s")


def _nouns(kind: str, table: str) -> tuple[Noun, ...]:
    """Read `singular [plural]; german plural gender [sort]`; gender w is masculine, weak."""
    nouns = []
    for english, german in rows(table):
        singular, *plural = english.split()
        word, german_plural, gender, *spatial = german.split()
        nouns.append(
            Noun(
                singular,
                plural[0] if plural else english_s(singular),
                word,
                german_plural,
                "m" if gender == "w" else gender,
                gender == "w",
                kind,
                *spatial,
            )
        )
    return tuple(nouns)


PERSONS = """
man men; Mann Männer m | woman women; Frau Frauen f | child children; Kind Kinder n
girl; Mädchen Mädchen n | boy; Junge Jungen w | student; Student Studenten w
teacher; Lehrer Lehrer m | doctor; Arzt Ärzte m | farmer; Bauer Bauern w | king; König Könige m
queen; Königin Königinnen f | princess; Prinzessin Prinzessinnen f | soldier; Soldat Soldaten w
neighbor; Nachbar Nachbarn w | brother; Bruder Brüder m | sister; Schwester Schwestern f
son; Sohn Söhne m | daughter; Tochter Töchter f | aunt; Tante Tanten f | uncle; Onkel Onkel m
grandmother; Großmutter Großmütter f | friend; Freund Freunde m | guest; Gast Gäste m
thief thieves; Dieb Diebe m | hunter; Jäger Jäger m | painter; Maler Maler m | witch; Hexe Hexen f
actress; Schauspielerin Schauspielerinnen f | judge; Richter Richter m
"""
ANIMALS = """
dog; Hund Hunde m | cat; Katze Katzen f | horse; Pferd Pferde n | bird; Vogel Vögel m
cow; Kuh Kühe f | pig; Schwein Schweine n | fox; Fuchs Füchse m | wolf wolves; Wolf Wölfe m
bear; Bär Bären w | lion; Löwe Löwen w | mouse mice; Maus Mäuse f | duck; Ente Enten f
goose geese; Gans Gänse f | rabbit; Kaninchen Kaninchen n | snake; Schlange Schlangen f
elephant; Elefant Elefanten w | monkey; Affe Affen w | goat; Ziege Ziegen f
"""
THINGS = """
book; Buch Bücher n | letter; Brief Briefe m | key; Schlüssel Schlüssel m | picture; Bild Bilder n
lamp; Lampe Lampen f | ball; Ball Bälle m | bicycle; Fahrrad Fahrräder n | car; Auto Autos n
clock; Uhr Uhren f | knife knives; Messer Messer n | cup; Tasse Tassen f | coat; Mantel Mäntel m
hat; Hut Hüte m | bottle; Flasche Flaschen f | newspaper; Zeitung Zeitungen f
apple; Apfel Äpfel m | bag; Tasche Taschen f | gift; Geschenk Geschenke n | chair; Stuhl Stühle m
flower; Blume Blumen f | box; Kiste Kisten f | umbrella; Regenschirm Regenschirme m
egg; Ei Eier n
"""
PLACES = """
garden; Garten Gärten m room | forest; Wald Wälder m room | house; Haus Häuser n room
kitchen; Küche Küchen f room | school; Schule Schulen f room | park; Park Parks m room
church; Kirche Kirchen f room | castle; Schloss Schlösser n room | village; Dorf Dörfer n room
city; Stadt Städte f room | cellar; Keller Keller m room | hotel; Hotel Hotels n room
bridge; Brücke Brücken f surface | street; Straße Straßen f surface
market; Markt Märkte m surface | mountain; Berg Berge m surface | field; Feld Felder n surface
island; Insel Inseln f surface | tree; Baum Bäume m object | river; Fluss Flüsse m object
lake; See Seen m object | wall; Mauer Mauern f object
"""
NOUNS: dict[str, tuple[Noun, ...]] = {
    kind: _nouns(kind, table)
    for kind, table in (("p", PERSONS), ("a", ANIMALS), ("t", THINGS), ("l", PLACES))
}


def noun_form(noun: Noun, case: int, plural: bool) -> str:
    """Return the German noun in a case (an index of `CASES`) and number."""
    if plural:
        word = noun.german_plural
        return word + "n" if case == DATIVE and word[-1] not in "ns" else word
    if noun.weak and case != NOMINATIVE:
        return noun.german_plural
    if case == GENITIVE and noun.gender != "f":
        syllables = len(re.findall(r"[aeiouyäöü]+", noun.german.lower()))
        return noun.german + ("es" if syllables == 1 else "s")
    return noun.german


# --- determiners and pronouns --------------------------------------------------------------------

DEFINITE = ("der die das die", "den die das die", "dem der dem den", "des der des der")
RELATIVE = (
    "der die das die",
    "den die das die",
    "dem der dem denen",
    "dessen deren dessen deren",
)
"""Rows are cases; columns masculine, feminine, neuter, plural."""
_STRONG = ("er e es e", "en e es e", "em er em en", "es er es er")
"""Endings of dieser, and of an adjective without an article in the plural."""
_MIXED = (". e . e", "en e . e", "em er em en", "es er es er")
"""Endings of ein, kein and the possessives."""
_WEAK_ADJECTIVE = ("e e e en", "en e e en", "en en en en", "en en en en")
_MIXED_ADJECTIVE = ("er e es en", "en e es en", "en en en en", "en en en en")


def _table(rows: tuple[str, ...], stem: str = "") -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(stem + form.replace(".", "") for form in row.split()) for row in rows)


class Determiner(NamedTuple):
    """A determiner: its German forms and the endings of adjectives after it, [case][column]."""

    forms: tuple[tuple[str, ...], ...]
    endings: tuple[tuple[str, ...], ...]
    definite: bool
    """Its noun phrase, as the first object, stands before adverbs of frequency."""


def _determiner(stem: str, definite: bool) -> Determiner:
    return Determiner(_table(_MIXED, stem), _table(_MIXED_ADJECTIVE), definite)


RELATIVE_PRONOUNS = _table(RELATIVE)
DETERMINERS: dict[str, Determiner] = {
    "the": Determiner(_table(DEFINITE), _table(_WEAK_ADJECTIVE), True),
    "this": Determiner(_table(_STRONG, "dies"), _table(_WEAK_ADJECTIVE), True),
    "these": Determiner(_table(_STRONG, "dies"), _table(_WEAK_ADJECTIVE), True),
    "every": Determiner(_table(_STRONG, "jed"), _table(_WEAK_ADJECTIVE), True),
    "a": _determiner("ein", False),
    "no": _determiner("kein", False),
    "some": Determiner(_table(_STRONG, "einig"), _table(_STRONG), False),
    "": Determiner(((),) * 4, _table(_STRONG), False),
    "two": Determiner((("zwei",) * 4,) * 4, _table(_STRONG), False),
    "three": Determiner((("drei",) * 4,) * 4, _table(_STRONG), False),
    "my": _determiner("mein", True),
    "his": _determiner("sein", True),
    "her": _determiner("ihr", True),
    "our": _determiner("unser", True),
    "their": _determiner("ihr", True),
}
_POSSESSIVES = ("my", "his", "her", "our", "their")
SINGULAR_DETERMINERS = (*("the",) * 6, *("a",) * 3, *_POSSESSIVES, "this", "every")
PLURAL_DETERMINERS = (*("the",) * 6, *_POSSESSIVES, "these", "two", "three", "some", "")
"""As often as drawn."""

PRONOUNS: dict[str, tuple[str, str, str, str]] = {
    "I": ("me", "ich", "mich", "mir"),
    "we": ("us", "wir", "uns", "uns"),
    "he": ("him", "er", "ihn", "ihm"),
    "she": ("her", "sie", "sie", "ihr"),
    "they": ("them", "sie", "sie", "ihnen"),
}
"""English object form; German nominative, accusative, dative."""
INTERROGATIVE = ("wer", "wen", "wem")

# --- adjectives and adverbs ----------------------------------------------------------------------


class Adjective(NamedTuple):
    """An adjective; `stem` takes the endings, the comparatives are empty where none is used."""

    english: str
    comparative: str
    german: str
    stem: str
    german_comparative: str
    kinds: str


def _adjectives(table: str) -> tuple[Adjective, ...]:
    """Read `english [comparative]; german[/stem] [comparative]; kinds`."""
    adjectives = []
    for english, german, kinds in rows(table):
        word, *comparative = english.split(" ", 1)
        base, *german_comparative = german.split()
        predicative, _, stem = base.partition("/")
        adjectives.append(
            Adjective(
                word,
                "".join(comparative),
                predicative,
                stem or predicative,
                "".join(german_comparative),
                kinds,
            )
        )
    return tuple(adjectives)


ADJECTIVES = _adjectives("""
strange; seltsam; patl | beautiful more beautiful; schön schöner; patl
ugly uglier; hässlich hässlicher; patl | famous more famous; berühmt berühmter; pl
dangerous more dangerous; gefährlich gefährlicher; pal
friendly friendlier; freundlich freundlicher; pa | brave braver; mutig mutiger; pa
clever cleverer; klug klüger; pa | curious; neugierig; pa | sad sadder; traurig trauriger; pa
happy happier; glücklich glücklicher; pa | lazy lazier; faul fauler; pa
hungry hungrier; hungrig hungriger; pa | tired; müde/müd; pa | sick; krank; pa
strong stronger; stark stärker; pa | rich richer; reich reicher; p | poor poorer; arm ärmer; p
expensive more expensive; teuer/teur teurer; t | cheap cheaper; billig billiger; t
heavy heavier; schwer schwerer; t | big bigger; groß größer; patl
small smaller; klein kleiner; patl | old older; alt älter; patl | new newer; neu neuer; tl
young younger; jung jünger; pa | dark; dunkel/dunkl; l | quiet quieter; ruhig ruhiger; l
white; weiß; at | black; schwarz; at | brown; braun; at | red; rot; t | green; grün; t
blue; blau; t
""")
"""In the order in which two of them stand before a noun."""

FREQUENCY = {
    "often": "oft",
    "never": "nie",
    "always": "immer",
    "sometimes": "manchmal",
    "rarely": "selten",
}
MANNER = {"quickly": "schnell", "slowly": "langsam", "quietly": "leise", "alone": "allein"}


class Time(NamedTuple):
    """An adverbial of time; `tenses` are the values of `TENSE_TIMES` that it goes with."""

    english: str
    german: str
    tenses: str


TIMES = tuple(
    Time(*row)
    for row in rows("""
today; heute; nprf | yesterday; gestern; p | tomorrow; morgen; f | every day; jeden Tag; np
on Monday; am Montag; pf | on Sunday; am Sonntag; pf | last week; letzte Woche; p
next week; nächste Woche; f | last year; letztes Jahr; p | two days ago; vor zwei Tagen; p
this week; diese Woche; prf | in winter; im Winter; npf | in summer; im Sommer; npf
in the morning; am Morgen; npf | in the evening; am Abend; npf | soon; bald; f | now; jetzt; n
""")
)

# --- prepositions and conjunctions ---------------------------------------------------------------


class Preposition(NamedTuple):
    """A preposition and the case it takes in German."""

    english: str
    german: str
    case: int


_IN = Preposition("in", "in", DATIVE)
_ON = Preposition("on", "auf", DATIVE)
_NEAR = tuple(
    Preposition(english, german, DATIVE)
    for english, german in (("behind", "hinter"), ("in front of", "vor"), ("next to", "neben"))
)
_INTO = Preposition("into", "in", ACCUSATIVE)
_OUT_OF = Preposition("out of", "aus", DATIVE)
_THROUGH = Preposition("through", "durch", ACCUSATIVE)
_OVER = Preposition("over", "über", ACCUSATIVE)
_AROUND = Preposition("around", "um", ACCUSATIVE)
TO = Preposition("to", "zu", DATIVE)
WITH = Preposition("with", "mit", DATIVE)
WITHOUT = Preposition("without", "ohne", ACCUSATIVE)
BY = Preposition("by", "von", DATIVE)
STATIC = {"room": (_IN, _IN, _IN, *_NEAR), "surface": (_ON, _ON, _NEAR[2]), "object": _NEAR}
"""Where somebody is: what goes with each sort of place, oftener what stands twice."""
DIRECTION = {
    "room": (_INTO, _INTO, _OUT_OF, _THROUGH, TO),
    "surface": (_OVER, TO),
    "object": (_AROUND, TO),
}
CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
}
"""Before a noun that no relative clause follows."""

SUBORDINATORS = {
    "because": "weil",
    "although": "obwohl",
    "if": "wenn",
    "while": "während",
    "before": "bevor",
    "after": "nachdem",
    "until": "bis",
    "as soon as": "sobald",
    "that": "dass",
    "whether": "ob",
    "why": "warum",
    "where": "wo",
    "when": "wann",
}
"""Of these, why, where and when ask in main clauses too."""
