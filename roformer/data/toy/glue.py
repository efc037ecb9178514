"""Six GLUE-shaped tasks made from templates, in which word order decides, provably.

Examples are drawn in *groups*: the same words in another order, one example per label (stsb: two whose
scores add up to 5). A model without positions gives one answer for a group, so it is right on exactly 1/2
of the examples (mnli: 1/3), and its correlation with the scores is exactly 0.

In tasks of two texts, the two words that can change places are of two kinds, and in the second text the
usual kind comes first in `TYPICAL` of the groups. So the order of only the first text gives 80 %. Without
this first step a small model finds nothing in a thousand steps, because the label would depend on the orders
of both texts together. The order that changes is in the first text, near [CLS], for the same reason.

One endless sequence of groups is drawn per task, no two of the same words. A hash of the words decides
between training and validation, so the splits are disjoint, and fewer examples are the first of more. Words
and punctuation are separated by one space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from roformer.data.toy import table
from roformer.data.toy.draw import Draw
from roformer.errors import InputError

GRAMMAR = 1
"""Version of the templates and the draw: another number, other examples."""
VALIDATION_SHARE = 8
"""One group in so many is for validation."""
TYPICAL = 0.8
"""Share of the second texts in which the two words that can change places are in the usual order."""
GROUP: dict[str, int] = {"mrpc": 2, "sst2": 2, "qnli": 2, "stsb": 2, "qqp": 2, "mnli": 3}
"""Examples of a group, by task."""
TASKS: tuple[str, ...] = tuple(GROUP)
WORDS: dict[str, list[str]] = table("glue")


class Example(NamedTuple):
    """One text or two, and the name of the class or the score."""

    text_a: str
    text_b: str | None
    label: str | float


# --- groups --------------------------------------------------------------------------------------


def _pair(draw: Draw, usual: list[str], other: list[str]) -> tuple[str, str]:
    """Return one of each kind, the usual kind first in `TYPICAL` of the cases."""
    pair = draw.one(usual), draw.one(other)
    return pair if draw.chance(TYPICAL) else pair[::-1]


def _both_orders(
    template: str, pair: tuple[str, str], text: str, label: str, more: dict[str, Any]
) -> list[Example]:
    """Return two examples: with the pair in the order given, which is the label's, and exchanged."""
    orders = (pair, label), (pair[::-1], f"not_{label}")
    return [Example(template.format(*order, **more), text, label) for order, label in orders]


def _mrpc(draw: Draw) -> list[Example]:
    """Two sentences about one deed: in the first the two are as in the second, or swapped."""
    first, second = draw.some(WORDS["told"], 2)
    pair = _pair(draw, WORDS["names"], WORDS["groups"])
    more = {"does": draw.one(WORDS["deeds"]), "when": draw.one(WORDS["when"])}
    return _both_orders(first, pair, second.format(*pair, **more), "equivalent", more)


def _sst2(draw: Draw) -> list[Example]:
    """A good word and a bad one; the main clause, or the one after "but", decides."""
    x, y = draw.some(WORDS["aspects"], 2)
    good, bad = draw.one(WORDS["good"]), draw.one(WORDS["bad"])
    review = draw.one(WORDS["reviews"])
    more = {"opening": draw.one(WORDS["openings"]), "how": draw.one(WORDS["how"]), "x": x, "y": y}
    return [
        Example(review.format(less=bad, most=good, **more), None, "positive"),
        Example(review.format(less=good, most=bad, **more), None, "negative"),
    ]


def _qnli(draw: Draw) -> list[Example]:
    """A question for the time of a deed; the answer gives the time of the same deed or of its reverse."""
    pair = _pair(draw, WORDS["animals"], WORDS["groups"])
    do, did = draw.shuffled(list(zip(WORDS["acts"], WORDS["deeds"], strict=False)))[0]
    more = {"do": do, "did": did, "then": draw.one(WORDS["then"])}
    asked = draw.one(WORDS["questions"])
    answer = draw.one(WORDS["answers"]).format(*pair, **more)
    return _both_orders(asked, pair, answer, "entailment", more)


def _stsb(draw: Draw) -> list[Example]:
    """Two sentences about one sale; in the first two pairs of words are as in the second, or not.

    3 points for agreeing in who sold to whom, 2 in what was sold for what. Four scores, equally
    frequent: unless the predictions are tied as the scores are, a Spearman correlation can reach
    √(1 - 1/16) = 0.968.
    """
    first, second = draw.some(WORDS["sales"], 2)
    sellers = _pair(draw, WORDS["names"], WORDS["groups"])
    goods = _pair(draw, WORDS["materials"], WORDS["foods"])
    text = second.format(*sellers, *goods)
    same = [draw.shuffled((True, False))[0] for _ in range(2)]
    group = []
    for who, what in (same, [not agrees for agrees in same]):
        words = chain(sellers if who else sellers[::-1], goods if what else goods[::-1])
        group.append(Example(first.format(*words), text, 3.0 * who + 2.0 * what))
    return group


def _qqp(draw: Draw) -> list[Example]:
    """Two questions for a way: the first goes from and to the same as the second, or back."""
    first, second = draw.some(WORDS["ways"], 2)
    pair = _pair(draw, WORDS["names"][:16], WORDS["groups"])
    more = {"what": draw.one(WORDS["goods"])}
    return _both_orders(first, pair, second.format(*pair, **more), "duplicate", more)


def _mnli(draw: Draw, other: str = "") -> list[Example]:
    """A comparison of two persons, and a third; the hypothesis has two of the three."""
    x, y = _pair(draw, WORDS["materials"], WORDS["foods"])
    z = draw.one(WORDS["names"])
    more = draw.one(WORDS[f"{other}comparatives"])
    premise, hypothesis = draw.one(WORDS[f"{other}premises"]), draw.one(WORDS["hypotheses"])
    # Orders that say nothing of the two.
    neutral = draw.shuffled([(x, z, y), (z, x, y), (y, z, x), (z, y, x)])[0]
    orders = {"entailment": (x, y, z), "contradiction": (y, x, z), "neutral": neutral}
    text = hypothesis.format(x, y, more=more)
    return [
        Example(premise.format(*order, more=more), text, label) for label, order in orders.items()
    ]


def _mismatched(draw: Draw) -> list[Example]:
    """Examples of mnli with other comparatives, and other sentences around them."""
    return _mnli(draw, "other_")


MAKERS = {"mrpc": _mrpc, "sst2": _sst2, "qnli": _qnli, "stsb": _stsb, "qqp": _qqp, "mnli": _mnli}

# --- the draw ------------------------------------------------------------------------------------


def bags(example: Example) -> str:
    """Return the key of the example's group: the words of each text in alphabetical order."""
    texts = example.text_a, example.text_b or ""
    return " | ".join(" ".join(sorted(text.split())) for text in texts)


def _groups(
    make: Callable[[Draw], list[Example]], name: str
) -> Iterator[tuple[str, list[Example]]]:
    """Yield the key and the examples of one group after another, no key twice."""
    draw, seen, repeats = Draw(f"{name}/{GRAMMAR}"), set(), 0
    while repeats < 1000:
        group = make(draw)
        key = bags(group[0])
        repeats = repeats + 1 if key in seen else 0
        if not repeats:
            seen.add(key)
            yield key, draw.shuffled(group)
    raise InputError(f"the templates of {name} have no more than {len(seen)} groups: ask for fewer")


def builtin_examples(task: str, split: str, count: int) -> list[Example]:
    """Return the examples of one split: always the same ones, `count` rounded down to whole groups.

    Splits are `train` and `validation`; mnli has `validation_matched` (the words of training) and
    `validation_mismatched` (other words).
    """
    if task not in TASKS:
        raise InputError(
            f"data=builtin has no {task!r}, but {', '.join(TASKS)}; for other tasks use data=files "
            "or data=hub"
        )
    if count < GROUP[task]:
        raise InputError(f"{count} examples of {task!r} asked for: a group has {GROUP[task]}")
    if split == "validation_mismatched":
        groups = (group for _, group in _groups(_mismatched, "mnli mismatched"))
    else:
        drawn = _groups(MAKERS[task], task)
        groups = (group for key, group in drawn if _held_out(key) == (split != "train"))
    return [example for group in islice(groups, count // GROUP[task]) for example in group]


def _held_out(key: str) -> bool:
    return hashlib.blake2b(key.encode(), digest_size=1).digest()[0] % VALIDATION_SHARE == 0
