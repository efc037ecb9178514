"""Six GLUE-shaped tasks made from templates, in which word order decides, provably.

Examples are drawn in *groups*: text by text the same words the same number of times, in another order
alone, one example of each label (stsb: two whose scores add up to 5). Whatever does not see positions
says the same of all members of a group, so it is right on exactly 1/2 of them (mnli: 1/3), and the
correlation of what it says with the scores is exactly 0.

In tasks of two texts, the two words that can change places are of two kinds, and in the second text
the usual kind comes first in `TYPICAL` of the groups. So a model that reads the order of the first
text alone gets that far (80 %) and no further. Without this halfway house a small model finds
nothing in a thousand steps: the label would depend on the orders of both texts together and on
neither alone. The order that changes is in the first text, near [CLS], for the same reason.

One endless sequence of groups is drawn for a task, no two of the same words; a hash of the words, not
the place in the sequence, says whether a group is for training or for validation. So the splits are
disjoint whatever is asked for, and fewer examples are the first of more. Words and punctuation stand
apart by one space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from roformer.data.toy import lexicon as words
from roformer.data.toy.draw import Draw
from roformer.errors import InputError

GRAMMAR = 1
"""Version of the templates and the draw: another number, other examples."""

VALIDATION_SHARE = 8
"""One group in so many is for validation."""

TYPICAL = 0.8
"""Share of the second texts in which the two words that can change places are in the usual order."""


class Example(NamedTuple):
    """One text or two, and the name of the class or the score."""

    text_a: str
    text_b: str | None
    label: str | float


GROUP: dict[str, int] = {"mrpc": 2, "sst2": 2, "qnli": 2, "stsb": 2, "qqp": 2, "mnli": 3}
"""Examples of a group."""

TASKS: tuple[str, ...] = tuple(GROUP)


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()


def _pair(draw: Draw, usual: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """Return one of each kind, the usual kind first in `TYPICAL` of the cases."""
    pair = draw.one(usual), draw.one(other)
    return pair if draw.chance(TYPICAL) else pair[::-1]


def _told(
    template: str, words: tuple[str, str], text: str, labels: Sequence[str], more: Mapping[str, str]
) -> list[Example]:
    """Return two examples: with the words in the order given, and exchanged."""
    orders = zip((words, words[::-1]), labels, strict=True)
    return [Example(template.format(*order, **more), text, label) for order, label in orders]


# --- the templates -------------------------------------------------------------------------------

WHEN = (
    *("on monday", "at noon", "last week", "in may", "at first", "once again", "this time"),
    *("in the end", "after the meeting", "before the test", "at the start"),
)
TOLD = _lines("""
{0} {does} {1} {when} .
{when} {0} {does} {1} .
{when} , it was {0} who {does} {1} .
it was {0} who {does} {1} {when} .
""")


def _mrpc(draw: Draw) -> list[Example]:
    """Two tellings of one deed: in the first the two are as in the second, or swapped."""
    first, second = draw.some(TOLD, 2)
    pair = _pair(draw, words.NAMES, words.GROUPS)
    more = {"does": draw.one(words.DEEDS), "when": draw.one(WHEN)}
    return _told(first, pair, second.format(*pair, **more), ("equivalent", "not_equivalent"), more)


REVIEWS = _lines("""
{opening} the {x} is {how} {less} , but the {y} is {most} .
{opening} although the {x} is {how} {less} , the {y} is {most} .
{opening} the {y} is {most} , although the {x} is {how} {less} .
{opening} the {x} may be {how} {less} , but the {y} is {most} .
{opening} while the {x} is {how} {less} , the {y} is {most} .
""")
OPENINGS = ("overall ,", "in short ,", "in this film ,", "again ,", "here ,", "to me ,", "i think")
HOW = ("very", "rather", "often", "really", "quite", "simply", "at times")


def _sst2(draw: Draw) -> list[Example]:
    """A good word and a bad one; the main clause, or the one after "but", decides."""
    x, y = draw.some(words.ASPECTS, 2)
    good, bad = draw.one(words.GOOD), draw.one(words.BAD)
    review = draw.one(REVIEWS)
    more = {"opening": draw.one(OPENINGS), "how": draw.one(HOW), "x": x, "y": y}
    return [
        Example(review.format(less=bad, most=good, **more), None, "positive"),
        Example(review.format(less=good, most=bad, **more), None, "negative"),
    ]


QUESTIONS = _lines("""
when did {0} {do} {1} ?
do we know when {0} {did} {1} ?
on which day did {0} {do} {1} ?
was it {0} who {did} {1} , and when ?
""")
ANSWERS = _lines("""
{0} {did} {1} {then} .
{then} , {0} {did} {1} .
it was {then} that {0} {did} {1} .
{0} {did} {1} again {then} .
{0} {did} {1} {then} for the first time .
""")
THEN = ("on monday", "on friday", "on sunday", "last week", "this week", "today", "long ago")


def _qnli(draw: Draw) -> list[Example]:
    """A question for the time of a deed; the answer tells that of the same deed or of the reverse."""
    pair = _pair(draw, words.ANIMALS, words.GROUPS)
    deed = draw.order(len(words.ACTS))[0]
    more = {"do": words.ACTS[deed], "did": words.DEEDS[deed], "then": draw.one(THEN)}
    asked = draw.one(QUESTIONS)
    answer = draw.one(ANSWERS).format(*pair, **more)
    return _told(asked, pair, answer, ("entailment", "not_entailment"), more)


SALES = _lines("""
{0} sold {2} to {1} for {3} .
{0} sold {2} for {3} to {1} .
it was {0} who sold {2} to {1} for {3} .
for {3} , {0} sold {2} to {1} .
""")
WEIGHTS = (3.0, 2.0)
"""Points for agreeing in who sold to whom, and in what was sold for what.

Four scores, equally frequent: unless the predictions are tied as the scores are, a Spearman
correlation can reach √(1 - 1/16) = 0.968.
"""


def _stsb(draw: Draw) -> list[Example]:
    """Two tellings of one sale; in the first two pairs of words are as in the second, or not."""
    first, second = draw.some(SALES, 2)
    pairs = _pair(draw, words.NAMES, words.GROUPS), _pair(draw, words.MATERIALS, words.FOODS)
    text = second.format(*chain(*pairs))
    same = [draw.order(2)[0] == 0 for _ in pairs]
    group = []
    for bits in (same, [not s for s in same]):
        told = chain(*(pair if s else pair[::-1] for pair, s in zip(pairs, bits, strict=True)))
        score = sum(weight for weight, s in zip(WEIGHTS, bits, strict=True) if s)
        group.append(Example(first.format(*told), text, float(score)))
    return group


WAYS = _lines("""
how do i send {what} from {0} to {1} ?
how can i get {what} to {1} from {0} ?
can we move {what} from {0} to {1} ?
who brings {what} to {1} from {0} ?
what sends {what} from {0} to {1} ?
""")
GOODS = ("data", "text", "code", "files", "images", "money", "books", "letters", "keys", "tables")


def _qqp(draw: Draw) -> list[Example]:
    """Two questions for a way: the first goes from and to the same as the second, or back."""
    first, second = draw.some(WAYS, 2)
    pair = _pair(draw, words.NAMES[:16], words.GROUPS)
    more = {"what": draw.one(GOODS)}
    return _told(first, pair, second.format(*pair, **more), ("duplicate", "not_duplicate"), more)


PREMISES = _lines("""
{0} is {more} than {1} , and {2} knows it .
{0} is {more} than {1} , as {2} said .
as {2} said , {0} is {more} than {1} .
{2} said that {0} is {more} than {1} .
{2} knows that {0} is {more} than {1} .
""")
OTHER_PREMISES = _lines("""
{2} wrote that {0} is {more} than {1} .
{2} found that {0} is {more} than {1} .
{0} is {more} than {1} , and {2} likes it .
as {2} wrote , {0} is {more} than {1} .
""")
HYPOTHESES = _lines("""
{0} is {more} than {1} .
so {0} is {more} than {1} .
in fact {0} is {more} than {1} .
""")
NEUTRAL = ((0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0))
"""Orders of the hypothesis' two and the third name that say nothing of the two."""


def _mnli(
    draw: Draw,
    comparatives: Sequence[str] = words.COMPARATIVES,
    premises: Sequence[str] = PREMISES,
) -> list[Example]:
    """A comparison of two persons, and a third; the hypothesis has two of the three."""
    x, y = _pair(draw, words.MATERIALS, words.FOODS)
    z = draw.one(words.NAMES)
    more = draw.one(comparatives)
    premise, hypothesis = draw.one(premises), draw.one(HYPOTHESES)
    neutral = NEUTRAL[draw.order(len(NEUTRAL))[0]]
    text = hypothesis.format(x, y, more=more)
    orders = {
        "entailment": (x, y, z),
        "contradiction": (y, x, z),
        "neutral": tuple((x, y, z)[i] for i in neutral),
    }
    return [
        Example(premise.format(*order, more=more), text, label) for label, order in orders.items()
    ]


def _mismatched(draw: Draw) -> list[Example]:
    """Examples of mnli with other comparatives, and other sentences around them."""
    return _mnli(draw, words.OTHER_COMPARATIVES, OTHER_PREMISES)


# --- the draw ------------------------------------------------------------------------------------

_Templates = Callable[[Draw], list[Example]]
_TEMPLATES: Mapping[str, _Templates] = {
    "mrpc": _mrpc,
    "sst2": _sst2,
    "qnli": _qnli,
    "stsb": _stsb,
    "qqp": _qqp,
    "mnli": _mnli,
}


def bags(example: Example) -> str:
    """Return the key of the example's group: the words of each text in alphabetical order."""
    texts = example.text_a, example.text_b or ""
    return " | ".join(" ".join(sorted(text.split())) for text in texts)


def _is_validation(key: str) -> bool:
    return hashlib.blake2b(key.encode(), digest_size=1).digest()[0] % VALIDATION_SHARE == 0


def _groups(templates: _Templates, name: str) -> Iterator[tuple[str, list[Example]]]:
    """Yield the key and the examples of one group after another, no key twice.

    Raises:
        InputError: the templates have (nearly) no other group left.
    """
    draw, seen, repeats = Draw(f"{name}/{GRAMMAR}"), set(), 0
    while repeats < 1000:
        group = templates(draw)
        key = bags(group[0])
        repeats = repeats + 1 if key in seen else 0
        if not repeats:
            seen.add(key)
            yield key, [group[i] for i in draw.order(len(group))]
    raise InputError(f"the templates of {name} have no more than {len(seen)} groups: ask for fewer")


def builtin_examples(task: str, split: str, count: int) -> list[Example]:
    """Draw the examples of one split: always the same ones, group by group.

    Args:
        task: one of `TASKS`.
        split: `train` or `validation`; of mnli `train`, `validation_matched` (the words of training)
            or `validation_mismatched` (other ones).
        count: how many; rounded down to whole groups (see `GROUP`).

    Raises:
        InputError: no templates for the task, no such split, or less than one group asked for.
    """
    if task not in TASKS:
        raise InputError(
            f"data=builtin has no {task!r}, but {', '.join(TASKS)}; for other tasks use data=files "
            "or data=hub"
        )
    parts = ("_matched", "_mismatched") if task == "mnli" else ("",)
    splits = ("train", *(f"validation{part}" for part in parts))
    if split not in splits:
        raise InputError(
            f"task {task!r} has no split {split!r}: its splits are {', '.join(splits)}"
        )
    if count < GROUP[task]:
        raise InputError(f"{count} examples of {task!r} asked for: a group has {GROUP[task]}")
    mismatched = split == "validation_mismatched"
    drawn = (
        _groups(_mismatched, "mnli mismatched") if mismatched else _groups(_TEMPLATES[task], task)
    )
    held_out = split != "train"
    groups = (group for key, group in drawn if mismatched or _is_validation(key) == held_out)
    return [example for group in islice(groups, count // GROUP[task]) for example in group]
