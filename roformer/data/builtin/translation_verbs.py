"""English and German verbs and their forms, for `roformer.data.builtin.translation`.

As in `translation_lexicon`, an English verb, with its particle and preposition, has one German
translation, and what is regular is made by a rule.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from roformer.data.builtin.translation_lexicon import ACCUSATIVE, CASES, english_s, rows


class Verb(NamedTuple):
    """A verb, what it governs in both languages, and who can do it to whom."""

    base: str
    third: str
    past: str
    participle: str
    particle: str
    """English, after the verb: picks *up*."""
    preposition: str
    """English, before the object; of ditransitives before the indirect object."""
    prefix: str
    """German, separable."""
    infinitive: str
    """Without the prefix, as are all German forms but the participle."""
    german_first: str
    german_third: str
    german_past: str
    german_participle: str
    auxiliary: str
    """haben or sein."""
    german_preposition: str
    case: int
    """Case of the object."""
    subjects: str
    objects: str
    """Kinds of nouns; empty: none."""


def _english_forms(base: str) -> list[str]:
    past = base + ("d" if base.endswith("e") else "ed")
    if re.search(r"[^aeiou]y$", base):
        return [base, base[:-1] + "ies", base[:-1] + "ied", base[:-1] + "ied"]
    return [base, english_s(base), past, past]


def _german_forms(infinitive: str) -> list[str]:
    """Return first and third person, past and participle of a weak verb."""
    stem = infinitive[: -1 if re.search(r"e[lr]n$", infinitive) else -2]
    link = "e" if re.search(r"([td]|ffn)$", stem) else ""
    ge = "" if re.match(r"(be|er|ver|über)", stem) or stem.endswith("ier") else "ge"
    return [stem + "e", stem + link + "t", stem + link + "te", ge + stem + link + "t"]


def _verbs(table: str) -> tuple[Verb, ...]:
    """Read `english; german; government; subjects > objects`.

    English: the base, or base, past and participle, then `+particle` and `@preposition`.
    German: `prefix-infinitive`, or with third person, past and participle, and the first person
    where it is not regular. Government: the case, or the preposition and its case; and sein, or
    haben alone where nothing is governed.
    """
    verbs = []
    for english, german, government, kinds in rows(table):
        words = english.split()
        marks = {word[0]: word[1:] for word in words if word[0] in "+@"}
        forms = [word for word in words if word[0] not in "+@"]
        regular = _english_forms(forms[0])
        third = {"be": "is", "have": "has", "go": "goes"}.get(forms[0], regular[1])
        past, participle = forms[1:] or regular[2:]
        infinitive, *parts = german.split()
        prefix, _, infinitive = infinitive.rpartition("-")
        own = _german_forms(infinitive)
        if parts:
            own[1:4] = parts[:3]
            own[0] = parts[3] if len(parts) > 3 else own[0]
        governs = government.split()
        cases = [CASES.index(word) for word in governs if word in CASES]
        prepositions = [word for word in governs if word not in (*CASES, "haben", "sein")]
        subjects, _, objects = (part.strip() for part in kinds.partition(">"))
        verbs.append(
            Verb(
                forms[0],
                third,
                past,
                participle,
                marks.get("+", ""),
                marks.get("@", ""),
                prefix,
                infinitive,
                own[0],
                own[1],
                own[2],
                prefix + own[3],
                "sein" if "sein" in governs else "haben",
                "".join(prepositions),
                cases[0] if cases else ACCUSATIVE,
                subjects,
                objects,
            )
        )
    return tuple(verbs)


ACTIONS = _verbs("""
see saw seen; sehen sieht sah gesehen; accusative; pa > patl
hear heard heard; hören; accusative; pa > pa
find found found; finden findet fand gefunden; accusative; pa > pat
love; lieben; accusative; pa > pa | hate; hassen; accusative; pa > pa
look @for; suchen; accusative; pa > pat
look @at; an-sehen sieht sah gesehen; accusative; pa > patl
recognize; erkennen erkennt erkannte erkannt; accusative; pa > pat
visit; besuchen; accusative; p > pl | call; an-rufen ruft rief gerufen; accusative; p > p
invite; ein-laden lädt lud geladen; accusative; p > p
pick +up; ab-holen; accusative; p > pat
meet met met; treffen trifft traf getroffen; accusative; pa > pa
greet; begrüßen; accusative; p > pa | watch; beobachten; accusative; pa > pa
catch caught caught; fangen fängt fing gefangen; accusative; pa > pa
bite bit bitten; beißen beißt biss gebissen; accusative; a > pa | kiss; küssen; accusative; p > pa
wash; waschen wäscht wusch gewaschen; accusative; p > pat
carry; tragen trägt trug getragen; accusative; p > pat | save; retten; accusative; pa > pa
chase; jagen; accusative; pa > pa | attack; an-greifen greift griff gegriffen; accusative; pa > pa
forget forgot forgotten; vergessen vergisst vergaß vergessen; accusative; pa > pat
lose lost lost; verlieren verliert verlor verloren; accusative; p > at
buy bought bought; kaufen; accusative; p > at | paint; malen; accusative; p > patl
repair; reparieren; accusative; p > t | hide hid hidden; verstecken; accusative; p > pat
bring brought brought +back; zurück-bringen bringt brachte gebracht; accusative; p > pat
throw threw thrown +away; weg-werfen wirft warf geworfen; accusative; p > t
help; helfen hilft half geholfen; dative; pa > pa | thank; danken; dative; p > pa
follow; folgen; dative sein; pa > pa | trust; vertrauen; dative; pa > pa
answer; antworten; dative; p > p | listen @to; zu-hören; dative; pa > p
run ran run @after; nach-laufen läuft lief gelaufen; dative sein; pa > pa
belong @to; gehören gehört gehörte gehört; dative; at > p
wait @for; warten; auf accusative; pa > pat
think thought thought @of; denken denkt dachte gedacht; an accusative; p > patl
laugh @at; lachen; über accusative; p > pa | dream @of; träumen; von dative; pa > patl
speak spoke spoken @with; sprechen spricht sprach gesprochen; mit dative; p > pa
play @with; spielen; mit dative; pa > pat
fight fought fought @against; kämpfen; gegen accusative; pa > pa
""")
TRANSFERS = _verbs("""
give gave given @to; geben gibt gab gegeben; accusative; p > at
show showed shown @to; zeigen; accusative; p > patl
send sent sent @to; schicken; accusative; p > at
lend lent lent @to; leihen leiht lieh geliehen; accusative; p > at
sell sold sold @to; verkaufen; accusative; p > at
bring brought brought @to; bringen bringt brachte gebracht; accusative; pa > pat
promise @to; versprechen verspricht versprach versprochen; accusative; p > at
recommend @to; empfehlen empfiehlt empfahl empfohlen; accusative; p > pt
describe @to; beschreiben beschreibt beschrieb beschrieben; accusative; p > patl
introduce @to; vor-stellen; accusative; p > p | entrust @to; an-vertrauen; accusative; p > pat
give gave given +back @to; zurück-geben gibt gab gegeben; accusative; p > at
steal stole stolen @from; stehlen stiehlt stahl gestohlen; accusative; p > at
take took taken +away @from; weg-nehmen nimmt nahm genommen; accusative; p > at
""")
"""Ditransitives; the indirect object is a person or an animal, in the dative."""
DOUBLE_OBJECT = ("give", "show", "send", "lend", "sell", "bring", "promise")
"""The transfers that also say "gives the man the book"."""
INTRANSITIVES = _verbs("""
sleep slept slept; schlafen schläft schlief geschlafen; haben; pa | wait; warten; none; pa
play; spielen; haben; pa | laugh; lachen; none; p | cry; weinen; none; p | work; arbeiten; none; p
dance; tanzen; haben; p | sing sang sung; singen singt sang gesungen; none; p
fall fell fallen +asleep; ein-schlafen schläft schlief geschlafen; sein; pa
wake woke woken +up; auf-wachen; sein; pa
get got gotten +up; auf-stehen steht stand gestanden; sein; pa
stay; bleiben bleibt blieb geblieben; sein; pa
disappear; verschwinden verschwindet verschwand verschwunden; sein; pa
arrive; an-kommen kommt kam gekommen; sein; pa
come came come +back; zurück-kommen kommt kam gekommen; sein; pa
""")
MOTIONS = _verbs("""
go went gone; gehen geht ging gegangen; sein; pa
run ran run; laufen läuft lief gelaufen; sein; pa
come came come; kommen kommt kam gekommen; sein; pa | hurry; eilen; sein; pa
travel traveled traveled; reisen; sein; p
drive drove driven; fahren fährt fuhr gefahren; sein; p
""")
SPEECH = _verbs("""
know knew known; wissen weiß wusste gewusst weiß; haben; p | say said said; sagen; none; p
believe; glauben; haben; p | hope; hoffen; none; p
think thought thought; denken denkt dachte gedacht; haben; p
see saw seen; sehen sieht sah gesehen; haben; p | hear heard heard; hören; none; p
claim; behaupten; haben; p | tell told told; erzählen; dative; p > p
assure; versichern; dative; p > p
""")
"""With a clause of "that", some after an object."""
INQUIRIES = _verbs("""
ask; fragen; accusative; p > p | know knew known; wissen weiß wusste gewusst weiß; haben; p
""")
"""With a clause of "whether", "why" or "where"."""
CONTROL = _verbs("""
try; versuchen; haben; p | forget forgot forgotten; vergessen vergisst vergaß vergessen; none; p
hope; hoffen; haben; p | decide; beschließen beschließt beschloss beschlossen; none; p
begin began begun; beginnen beginnt begann begonnen; haben; p
plan planned planned; planen; haben; p
beg begged begged; bitten bittet bat gebeten; accusative; p > p
force; zwingen zwingt zwang gezwungen; accusative; p > p | persuade; überreden; accusative; p > p
advise; raten rät riet geraten; dative; p > p | allow; erlauben; dative; p > p
forbid forbade forbidden; verbieten verbietet verbot verboten; dative; p > p
order; befehlen befiehlt befahl befohlen; dative; p > p
""")
"""With an infinitive, some after an object."""
BE = _verbs("be was been; sein ist war gewesen bin; sein; patl")[0]

AUXILIARIES: dict[str, tuple[str, str, str, str]] = {
    "haben": ("habe", "hat", "haben", "hatte"),
    "sein": ("bin", "ist", "sind", "war"),
    "werden": ("werde", "wird", "werden", "wurde"),
}
"""First, third person and plural of the present; singular of the past."""
MODALS: dict[str, tuple[str, str]] = {
    "can": ("kann", "können"),
    "must": ("muss", "müssen"),
    "should": ("sollte", "sollten"),
    "may": ("darf", "dürfen"),
    "could": ("konnte", "konnten"),
    "want": ("will", "wollen"),
    "wanted": ("wollte", "wollten"),
    "had": ("musste", "mussten"),
}
"""Singular and plural; want, wanted and had are followed by "to"."""
TENSE_TIMES = {
    **dict(zip(("present", "past", "perfect", "future"), "nprf", strict=True)),
    "pluperfect": "",
    **dict.fromkeys(("can", "must", "should", "may", "want"), "f"),
    **dict.fromkeys(("could", "wanted", "had"), "p"),
}
"""Sort of adverbials of time that go with a tense or modal."""
