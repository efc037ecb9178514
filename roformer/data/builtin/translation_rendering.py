"""Trees told in English and in German.

Who does what to whom is told by order alone in English and by case in German, where the order is
another one: the finite verb second or last, participles, infinitives and separable prefixes at the
end, relative clauses behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from roformer.data.builtin import translation_lexicon as words
from roformer.data.builtin import translation_verbs as verbs
from roformer.data.builtin.translation_lexicon import DATIVE, GENITIVE, NOMINATIVE, Noun
from roformer.data.builtin.translation_trees import (
    Clause,
    Gap,
    NounPhrase,
    Phrase,
    Pronoun,
    Sentence,
    gap_of,
    number_of,
)

# --- English -------------------------------------------------------------------------------------


def _english_phrase(phrase: Phrase | None, subject: bool = False) -> list[str]:
    """Return the words; none for a gap."""
    if phrase is None or isinstance(phrase, Gap):
        return []
    if isinstance(phrase, Pronoun):
        return [phrase.word if subject else words.PRONOUNS[phrase.word][0]]
    noun = phrase.noun.plural if phrase.plural else phrase.noun.singular
    tokens = [*(adjective.english for adjective in phrase.adjectives), noun]
    if phrase.possessor:
        owner = _english_phrase(phrase.possessor)
        plural_s = phrase.possessor.plural and owner[-1].endswith("s")
        tokens = [*owner[:-1], owner[-1] + ("'" if plural_s else "'s"), *tokens]
    elif phrase.determiner == "a":
        tokens = ["an" if tokens[0][0] in "aeiou" else "a", *tokens]
    elif phrase.determiner:
        tokens = [phrase.determiner, *tokens]
    if phrase.relative:
        tokens += _english_clause(phrase.relative)
    return tokens


def _english_pronoun(gap: Gap, subject: bool = False, preposition: str = "") -> list[str]:
    person = gap.noun is None or gap.noun.kind == "p"
    if preposition:
        return [*preposition.split(), "whom" if person else "which"]
    return [("who" if subject else "whom") if person else "that"]


def _english_verb(clause: Clause, support: bool) -> tuple[str, list[str]]:
    """Return the auxiliary, empty if there is none, and the other verbs; `support`: with do."""
    number, verb = number_of(clause.subject), verbs.BE if clause.passive else clause.verb
    after = [clause.verb.participle] if clause.passive else []
    is_be = verb is verbs.BE
    third = number == "sg"
    if clause.subject is None:
        return "", [verb.base, *after]
    if clause.tense in ("perfect", "pluperfect"):
        have = "had" if clause.tense == "pluperfect" else "has" if third else "have"
        return have, [verb.participle, *after]
    if clause.tense in ("want", "wanted", "had"):
        base = "have" if clause.tense == "had" else "want"
        form = base if clause.tense != "want" else "wants" if third else "want"
        form = form if clause.tense == "want" else clause.tense
        do = ("does" if third else "do") if clause.tense == "want" else "did"
        return (do if support else ""), [base if support else form, "to", verb.base, *after]
    if clause.tense not in ("present", "past"):
        modal = "will" if clause.tense == "future" else clause.tense
        return modal, [verb.base, *after]
    past = clause.tense == "past"
    if is_be:
        present = {"I": "am", "sg": "is", "pl": "are"}[number]
        return ("were" if number == "pl" else "was") if past else present, after
    if support:
        return ("did" if past else "does" if third else "do"), [verb.base, *after]
    return "", [verb.past if past else verb.third if third else verb.base, *after]


def _english_clause(clause: Clause, question: str | None = None) -> list[str]:
    """Return the words of a clause; what a gap stands for comes first."""
    verb, gap = clause.verb, gap_of(clause)
    subject_gap = isinstance(clause.subject, Gap)
    asks = question is not None and not subject_gap
    auxiliary, others = _english_verb(clause, clause.negated or asks)
    front = question.split() if question else []
    if gap:
        before = ""
        if clause.place and clause.place.phrase is gap:
            before = clause.place.preposition.english
        elif clause.indirect is gap or (clause.object is gap and clause.indirect is None):
            before = verb.preposition
        front = _english_pronoun(gap, subject_gap, before)

    objects, particle = _english_phrase(clause.object), [verb.particle] * bool(verb.particle)
    if clause.indirect is not None:
        indirect = _english_phrase(clause.indirect)
        marked = [*([verb.preposition] * bool(indirect)), *indirect]
        tail = [*indirect, *objects] if clause.double else [*particle, *objects, *marked]
    elif verb.preposition:
        tail = [*particle, *([verb.preposition] * bool(objects)), *objects]
    else:
        # "picks up the man" but "picks him up"
        pronoun = isinstance(clause.object, Pronoun)
        tail = [*objects, *particle] if pronoun else [*particle, *objects]
    if clause.passive:
        tail = [*particle, *verb.preposition.split(), "by", *_english_phrase(clause.agent)]
    if clause.predicate:
        standard = _english_phrase(clause.standard)
        tail = (
            [clause.predicate.comparative, "than", *standard]
            if standard
            else [clause.predicate.english]
        )
    tail += clause.manner.split()
    for adjunct in (clause.place, clause.companion):
        if adjunct and not isinstance(adjunct.phrase, Gap):
            tail += [adjunct.preposition.english, *_english_phrase(adjunct.phrase)]
    time = clause.time.english.split() if clause.time else []
    if clause.fronted:
        front = time
    else:
        tail += time
    if clause.complement:
        word, inner = clause.complement
        tail += [word, *_english_clause(inner)]

    subject = _english_phrase(clause.subject, subject=True)
    first = [auxiliary] * bool(auxiliary)
    middle = ["not"] * clause.negated + clause.frequency.split()
    if clause.negated and auxiliary == "can" and not asks:
        first, middle = ["cannot"], []
    order = [*first, *subject] if asks else [*subject, *first]
    return [*front, *order, *middle, *others, *tail]


def english(sentence: Sentence) -> str:
    """Return the sentence in English."""
    main = _english_clause(sentence.main, sentence.question)
    if sentence.second is None:
        tokens = main
    else:
        second = [*sentence.link.split(), *_english_clause(sentence.second)]
        if sentence.second_first:
            tokens = [*second, ",", *main]
        else:
            tokens = [*main, *([","] * (sentence.link == "but")), *second]
    return _text(tokens, "." if sentence.question is None else "?")


def _text(tokens: list[str], end: str) -> str:
    """Join the words; of commas that meet one stays, and none before the end."""
    kept: list[str] = []
    for token in tokens:
        if token != ",":
            kept.append(token)
        elif kept and not kept[-1].endswith(","):
            kept[-1] += ","
    text = " ".join(kept).rstrip(",") + end
    return text[0].upper() + text[1:]


# --- German --------------------------------------------------------------------------------------

Part = tuple[list[str], list[str]]
"""The words of a phrase, and its relative clause with both commas: it can stand further behind."""


def _column(noun: Noun, plural: bool) -> int:
    return words.PLURAL if plural else words.GENDERS.index(noun.gender)


def _german_phrase(phrase: Phrase | None, case: int, none: bool = False) -> Part:
    """Return the phrase in a case; `none`: with kein for its indefinite article."""
    if phrase is None or isinstance(phrase, Gap):
        return [], []
    if isinstance(phrase, Pronoun):
        return [words.PRONOUNS[phrase.word][1 + case]], []
    determiner = words.DETERMINERS["the" if phrase.possessor else phrase.determiner]
    if none and phrase.determiner in ("a", "") and not phrase.possessor:
        determiner = words.DETERMINERS["no"]
    column = _column(phrase.noun, phrase.plural)
    tokens = [determiner.forms[case][column]] if determiner.forms[case] else []
    ending = determiner.endings[case][column]
    tokens += [adjective.stem + ending for adjective in phrase.adjectives]
    tokens.append(words.noun_form(phrase.noun, case, phrase.plural))
    if phrase.possessor:
        tokens += _german_phrase(phrase.possessor, GENITIVE)[0]
    relative = [",", *_german_clause(phrase.relative, "last"), ","] if phrase.relative else []
    return tokens, relative


def _german_adjunct(preposition: str, phrase: Phrase | None, case: int) -> Part:
    tokens, relative = _german_phrase(phrase, case)
    if not tokens:
        return [], []
    tokens = [preposition, *tokens]
    # "im Haus", but "in dem Haus, das ..."
    contraction = words.CONTRACTIONS.get(" ".join(tokens[:2]))
    if contraction and not relative and not isinstance(phrase, Pronoun):
        tokens = [contraction, *tokens[2:]]
    return tokens, relative


def _german_pronoun(clause: Clause, gap: Gap) -> list[str]:
    """Return the relative or interrogative pronoun, with the preposition it depends on."""
    verb, preposition = clause.verb, ""
    if clause.subject is gap:
        case = NOMINATIVE
    elif clause.indirect is gap:
        case = DATIVE
    elif clause.place and clause.place.phrase is gap:
        preposition, case = clause.place.preposition.german, clause.place.preposition.case
    else:
        preposition, case = verb.german_preposition, verb.case
    if gap.noun is None:
        pronoun = words.INTERROGATIVE[case]
    else:
        pronoun = words.RELATIVE_PRONOUNS[case][_column(gap.noun, gap.plural)]
    return [*preposition.split(), pronoun]


def _conjugated(verb: str, number: str, past: bool = False) -> str:
    """Return a form of haben, sein or werden."""
    first, third, plural, singular_past = verbs.AUXILIARIES[verb]
    if past:
        return _past(singular_past, number)
    return {"I": first, "sg": third, "pl": plural}[number]


def _past(singular: str, number: str) -> str:
    plural = singular + ("n" if singular.endswith("e") else "en")
    return plural if number == "pl" else singular


def _german_verb(clause: Clause) -> tuple[str, list[str], str]:
    """Return the finite verb, the others in their order at the end, and the separable prefix."""
    verb, number, tense = clause.verb, number_of(clause.subject), clause.tense
    infinitive = [verb.prefix + verb.infinitive]
    participle, auxiliary = [verb.german_participle], verb.auxiliary
    if clause.passive:
        infinitive, participle = [*participle, "werden"], [*participle, "worden"]
        auxiliary = "sein"
    if tense in ("perfect", "pluperfect"):
        return _conjugated(auxiliary, number, tense == "pluperfect"), participle, ""
    if tense == "future":
        return _conjugated("werden", number), infinitive, ""
    if tense not in ("present", "past"):
        return verbs.MODALS[tense][number == "pl"], infinitive, ""
    if clause.passive:
        return _conjugated("werden", number, tense == "past"), [verb.german_participle], ""
    if verb is verbs.BE:
        return _conjugated("sein", number, tense == "past"), [], ""
    if tense == "past":
        return _past(verb.german_past, number), [], verb.prefix
    present = {"I": verb.german_first, "sg": verb.german_third, "pl": verb.infinitive}
    return present[number], [], verb.prefix


def _is_definite(phrase: Phrase | None) -> bool:
    return isinstance(phrase, NounPhrase) and (
        phrase.possessor is not None or words.DETERMINERS[phrase.determiner].definite
    )


def _german_middle(clause: Clause) -> list[Part]:
    """Return what stands between the finite verb and the end, without the subject.

    Pronouns first (accusative before dative), then time, objects (dative before accusative),
    companion, manner, place, agent, prepositional object. Adverbs of frequency stand after the
    first object if it is definite and has no relative clause; nicht stands before all that depends
    on a preposition.
    """
    verb = clause.verb
    governed = bool(verb.german_preposition)
    objects = [(clause.indirect, DATIVE), *([] if governed else [(clause.object, verb.case)])]
    pronouns = [(p, case) for p, case in objects if isinstance(p, Pronoun)]
    nominal = [(p, case) for p, case in objects if isinstance(p, NounPhrase)]
    none = clause.negated and bool(nominal) and not _is_definite(nominal[-1][0])
    parts = [_german_phrase(p, case) for p, case in sorted(pronouns, key=lambda pair: pair[1])]
    if clause.time and not clause.fronted:
        parts.append((clause.time.german.split(), []))
    told = [_german_phrase(p, case, none) for p, case in nominal]
    definite = int(bool(told) and _is_definite(nominal[0][0]) and not told[0][1])
    parts += told[:definite]
    if clause.frequency:
        parts.append(([words.FREQUENCY[clause.frequency]], []))
    parts += told[definite:]
    if clause.negated and not none:
        parts.append((["nicht"], []))
    place = clause.place
    if clause.companion:
        preposition = clause.companion.preposition
        parts.append(_german_adjunct(preposition.german, clause.companion.phrase, preposition.case))
    if clause.manner:
        parts.append(([words.MANNER[clause.manner]], []))
    if place:
        parts.append(
            _german_adjunct(place.preposition.german, place.phrase, place.preposition.case)
        )
    parts.append(_german_adjunct("von", clause.agent, DATIVE))
    if governed:
        parts.append(_german_adjunct(verb.german_preposition, clause.object, verb.case))
    if clause.predicate:
        standard, relative = _german_phrase(clause.standard, NOMINATIVE)
        if standard:
            parts.append(([clause.predicate.german_comparative, "als", *standard], relative))
        else:
            parts.append(([clause.predicate.german], []))
    return [part for part in parts if part[0]]


def _german_clause(clause: Clause, order: str, front: Sequence[str] = ()) -> list[str]:
    """Return the words of a clause.

    Args:
        order: where the finite verb stands: first, second or last; or infinitive (with zu).
        front: what stands before the verb in second place; without it the time that is fronted,
            the pronoun of a gap, or the subject.
    """
    finite, others, prefix = _german_verb(clause)
    gap = gap_of(clause)
    pronoun = _german_pronoun(clause, gap) if gap else []
    subject = _german_phrase(clause.subject, NOMINATIVE)
    middle = _german_middle(clause)
    after: list[str] = []
    if middle and not clause.complement:
        # The relative clause of the last phrase follows the verbs: "hat den Mann gesehen, der ..."
        after = middle[-1][1]
        middle[-1] = middle[-1][0], []
    if order == "infinitive":
        zu = [f"{prefix}zu{clause.verb.infinitive}"] if prefix else ["zu", clause.verb.infinitive]
        start, end = [], zu
    elif order == "last":
        start, end = pronoun, [*others, prefix + finite]
    else:
        end = [*others, *([prefix] * bool(prefix))]
        start = list(front) or pronoun
        if clause.time and clause.fronted:
            start = clause.time.german.split()
        if order == "second" and not start:
            start, subject = [*subject[0], *subject[1]], ([], [])
        start = [*start, finite]
    if subject[0]:
        middle.insert(0, subject)
    tokens = [*start, *(token for part in middle for token in (*part[0], *part[1])), *end, *after]
    if clause.complement:
        word, inner = clause.complement
        if word == "to":
            tokens += [",", *_german_clause(inner, "infinitive"), ","]
        else:
            tokens += [",", words.SUBORDINATORS[word], *_german_clause(inner, "last"), ","]
    return tokens


def german(sentence: Sentence) -> str:
    """Return the sentence in German."""
    main, second, link = sentence.main, sentence.second, sentence.link
    if sentence.question is not None:
        word = words.SUBORDINATORS[sentence.question] if sentence.question else ""
        order = "second" if word or gap_of(main) else "first"
        return _text(_german_clause(main, order, word.split()), "?")
    if second is None:
        tokens = _german_clause(main, "second")
    elif link in ("and", "but"):
        joint = ["und"] if link == "and" else [",", "aber"]
        tokens = [*_german_clause(main, "second"), *joint, *_german_clause(second, "second")]
    else:
        if link == "in order to":
            clause = ["um", *_german_clause(second, "infinitive")]
        elif link == "when":
            # Of the past it is als, because the draw means one event.
            word = "als" if second.tense in ("past", "pluperfect") else "wenn"
            clause = [word, *_german_clause(second, "last")]
        else:
            clause = [words.SUBORDINATORS[link], *_german_clause(second, "last")]
        if sentence.second_first:
            tokens = _german_clause(main, "second", [*clause, ","])
        else:
            tokens = [*_german_clause(main, "second"), ",", *clause]
    return _text(tokens, ".")
