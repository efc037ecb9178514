"""English and German words and their forms, for `roformer.data.toy.translation`.

Every English entry has one translation. Tables are text: entries are separated by `|` or a new
line, their parts by `;`, forms by spaces; regular English forms are left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
PLURAL = 3
"""Column of the plural in the tables of endings, after the genders m, f and n."""


def table(text: str) -> list[list[str]]:
    """Return the entries of a table as their parts."""
    entries = text.strip().replace("\n", "|").split("|")
    return [[part.strip() for part in entry.split(";")] for entry in entries]


class Noun(NamedTuple):
    """A noun in both languages."""

    singular: str
    plural: str
    german: str
    german_plural: str
    gender: str
    """m, f, n, or w: masculine and weak, with the ending -(e)n in all cases but the nominative."""


def with_s(word: str) -> str:
    """Return an English noun in the plural or a verb in the third person."""
    return re.sub("(?<=s|x)$|(?<=ch|sh)$", "e", re.sub("(?<=[^aeiou])y$", "ie", word)) + "s"


def _nouns(text: str) -> list[Noun]:
    entries = [(english.split(), german.split()) for english, german in table(text)]
    return [Noun(*(*english, with_s(english[0]))[:2], *german) for english, german in entries]


BEINGS = _nouns("""
man men; Mann Männer m | woman women; Frau Frauen f | child children; Kind Kinder n
girl; Mädchen Mädchen n | boy; Junge Jungen w | student; Student Studenten w
teacher; Lehrer Lehrer m | doctor; Arzt Ärzte m | king; König Könige m
queen; Königin Königinnen f | soldier; Soldat Soldaten w | neighbor; Nachbar Nachbarn w
brother; Bruder Brüder m | sister; Schwester Schwestern f | son; Sohn Söhne m
aunt; Tante Tanten f | daughter; Tochter Töchter f | uncle; Onkel Onkel m | guest; Gast Gäste m
friend; Freund Freunde m | thief thieves; Dieb Diebe m | witch; Hexe Hexen f
hunter; Jäger Jäger m | judge; Richter Richter m | actress; Schauspielerin Schauspielerinnen f
dog; Hund Hunde m | cat; Katze Katzen f | horse; Pferd Pferde n | bird; Vogel Vögel m
cow; Kuh Kühe f | pig; Schwein Schweine n | wolf wolves; Wolf Wölfe m | bear; Bär Bären w
lion; Löwe Löwen w | duck; Ente Enten f | monkey; Affe Affen w
""")
THINGS = _nouns("""
book; Buch Bücher n | letter; Brief Briefe m | key; Schlüssel Schlüssel m | picture; Bild Bilder n
lamp; Lampe Lampen f | ball; Ball Bälle m | bicycle; Fahrrad Fahrräder n | car; Auto Autos n
clock; Uhr Uhren f | knife knives; Messer Messer n | cup; Tasse Tassen f | coat; Mantel Mäntel m
hat; Hut Hüte m | bottle; Flasche Flaschen f | newspaper; Zeitung Zeitungen f
apple; Apfel Äpfel m | bag; Tasche Taschen f | gift; Geschenk Geschenke n | chair; Stuhl Stühle m
flower; Blume Blumen f | box; Kiste Kisten f
""")
LIVELY = table("""
old; alt | young; jung | small; klein | big; groß | tired; müd | clever; klug | poor; arm
strong; stark | happy; glücklich | sad; traurig | friendly; freundlich | lazy; faul
""")
"""Adjectives of beings, with their German stems."""
LIFELESS = table("""
old; alt | new; neu | small; klein | big; groß | red; rot | green; grün | expensive; teur
heavy; schwer | beautiful; schön | cheap; billig
""")
PLACES = table("""
in the garden; im Garten | in the forest; im Wald | in the kitchen; in der Küche
at the station; am Bahnhof | in the city; in der Stadt | on the bridge; auf der Brücke
on the island; auf der Insel | at school; in der Schule | behind the house; hinter dem Haus
""")
TIMES = {
    "present": table("today; heute | now; jetzt | this week; diese Woche"),
    "past": table("yesterday; gestern | last week; letzte Woche | on Monday; am Montag"),
    "future": table("tomorrow; morgen | soon; bald | next week; nächste Woche"),
}
FREQUENCIES = table(
    "often; oft | always; immer | never; nie | sometimes; manchmal | rarely; selten"
)

# Endings: of a case in a row, in its columns those of m, f, n and of the plural.
THE = ("er ie as ie", "en ie as ie", "em er em en")
THIS = ("er e es e", "en e es e", "em er em en")
MY = (" e  e", "en e  e", "em er em en")
WEAK = ("e e e en", "en e e en", "en en en en")
MIXED = ("er e es en", "en e es en", "en en en en")
STRONG = ("er e es e", "en e es e", "em er em en")


class Determiner(NamedTuple):
    """A determiner in both languages, with the endings of its stem and of an adjective after it."""

    singular: str
    plural: str
    stem: str
    endings: tuple[str, str, str]
    adjective: tuple[str, str, str]
    definite: bool


NEGATABLE = (
    Determiner("the", "the", "d", THE, WEAK, True),
    Determiner("this", "these", "dies", THIS, WEAK, True),
    Determiner("my", "my", "mein", MY, MIXED, True),
    Determiner("our", "our", "unser", MY, MIXED, True),
)
"""The determiners of a negated clause; of others it would have to say what is negated."""
A = Determiner("a", "", "ein", MY, MIXED, False)
NO = Determiner("no", "", "kein", MY, MIXED, False)
DETERMINERS = (
    *NEGATABLE,
    A,
    Determiner("every", "", "jed", THIS, WEAK, True),
    Determiner("", "some", "einig", THIS, STRONG, False),
    Determiner("", "two", "zwei", ("   ",) * 3, STRONG, False),
)


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


def _verbs(text: str) -> list[Verb]:
    """Read `base [past participle] [+particle]; German forms [sein]; [preposition] [case]`."""
    verbs = []
    for english, german, *governs in table(text):
        words, _, particle = english.partition(" +")
        base, *irregular = words.split()
        regular = re.sub("(?<=[^aeiou])y$", "i", base).removesuffix("e") + "ed"
        past, participle = irregular or (regular, regular)
        infinitive, third, german_past, german_participle, *sein = german.split()
        prefix, _, infinitive = infinitive.rpartition("-")
        *preposition, case = governs[0].split() if governs else ["accusative"]
        verbs.append(
            Verb(
                *(base, past, participle, particle, prefix, infinitive, third, german_past),
                *(german_participle, "sein" if sein else "haben", "".join(preposition)),
                DATIVE if case == "dative" else ACCUSATIVE,
            )
        )
    return verbs


DEEDS = _verbs("""
see saw seen; sehen sieht sah gesehen | visit; besuchen besucht besuchte besucht
find found found; finden findet fand gefunden | hear heard heard; hören hört hörte gehört
love; lieben liebt liebte geliebt | greet; begrüßen begrüßt begrüßte begrüßt
invite; ein-laden lädt lud eingeladen | call; an-rufen ruft rief angerufen
wake woke woken; auf-wecken weckt weckte aufgeweckt | warn; warnen warnt warnte gewarnt
recognize; erkennen erkennt erkannte erkannt | look +at; an-sehen sieht sah angesehen
understand understood understood; verstehen versteht verstand verstanden
watch; beobachten beobachtet beobachtete beobachtet | pick +up; ab-holen holt holte abgeholt
help; helfen hilft half geholfen; dative | thank; danken dankt dankte gedankt; dative
follow; folgen folgt folgte gefolgt sein; dative | listen +to; zu-hören hört hörte zugehört; dative
trust; vertrauen vertraut vertraute vertraut; dative
answer; antworten antwortet antwortete geantwortet; dative
wait +for; warten wartet wartete gewartet; auf accusative
dance +with; tanzen tanzt tanzte getanzt; mit dative
talk +to; sprechen spricht sprach gesprochen; mit dative
think thought thought +of; denken denkt dachte gedacht; an accusative
""")
"""Verbs with a person as object."""
GIVING = _verbs("""
give gave given; geben gibt gab gegeben | show showed shown; zeigen zeigt zeigte gezeigt
send sent sent; schicken schickt schickte geschickt | lend lent lent; leihen leiht lieh geliehen
bring brought brought; bringen bringt brachte gebracht | return; zurück-geben gibt gab zurückgegeben
sell sold sold; verkaufen verkauft verkaufte verkauft
""")
"""Verbs with a thing and a receiver: English "a book to the child", German "dem Kind ein Buch"."""
USING = _verbs("""
buy bought bought; kaufen kauft kaufte gekauft | lose lost lost; verlieren verliert verlor verloren
forget forgot forgotten; vergessen vergisst vergaß vergessen
carry; tragen trägt trug getragen | repair; reparieren repariert reparierte repariert
need; brauchen braucht brauchte gebraucht | steal stole stolen; stehlen stiehlt stahl gestohlen
clean; putzen putzt putzte geputzt | look +for; suchen sucht suchte gesucht
""")
"""Verbs with a thing as object."""
DOING = _verbs("""
sleep slept slept; schlafen schläft schlief geschlafen | cry; weinen weint weinte geweint
sing sang sung; singen singt sang gesungen | work; arbeiten arbeitet arbeitete gearbeitet
arrive; an-kommen kommt kam angekommen sein | play; spielen spielt spielte gespielt
get got gotten +up; auf-stehen steht stand aufgestanden sein
""")
"""Without an object."""
SAYING = _verbs("""
say said said; sagen sagt sagte gesagt | know knew known; wissen weiß wusste gewusst
believe; glauben glaubt glaubte geglaubt | hope; hoffen hofft hoffte gehofft
""")
ASKING = _verbs("ask; fragen fragt fragte gefragt")
"""Before a clause of "that"; of "whether" and "why"."""

AUXILIARIES = {
    "perfect": ("has have", "hat haben", "ist sind"),
    "pluperfect": ("had had", "hatte hatten", "war waren"),
    "future": ("will will", "wird werden"),
    "can": ("can can", "kann können"),
    "should": ("should should", "sollte sollten"),
}
"""English, German and, with verbs that have it, of sein; each singular and plural."""
PRESENT = ("present", "present", "perfect", "future", "can", "should")
PAST = ("past", "past", "pluperfect")
