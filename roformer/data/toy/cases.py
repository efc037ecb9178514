"""Chinese loan cases made from templates, single and in triplets: which of B and C turns on the point of A?

    case      parties · [finding] · claim · pleas · [procedure …] · reasons · [finding] · judgment

The *finding* says in terms of law what the case turns on, one of `POINTS`. It is near the beginning
(`early`) or behind all else that can differ (`late`); a case is a `digest`, `middle` or `long`, and in a
long case the late finding begins beyond `LATE` characters. The pleas argue a point in plain words, drawn
independently of the finding. So only their findings distinguish A, B and C:

* Triplets are drawn in groups of four, which have the same three cases except for the findings. A has one of
  two points; of B and C, one has the first point and the other the second. All four combinations occur, so B
  is closer in two of them. A reader of only the beginnings of late cases, of only A, or of only B and C is
  right on exactly two.
* The pleas of A agree with the pleas of B or C, evenly, and are longer than a finding, so common words of
  the whole texts are right on some 60 %.

A group is a function of its split and number; fewer triplets are the first of more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from roformer.data.toy import table
from roformer.data.toy.draw import Draw
from roformer.errors import InputError

GRAMMAR = 1
"""Version of the templates and the draw: another number, other cases."""
GROUP = 4
"""Triplets of a group."""
SPLITS = ("train", "validation", "test")
LATE = 560
"""Characters of a long case before its late finding: above 254 words, which is what each case of a
pair keeps where a pair is cut to 512."""
LONG = 600
"""Characters of a long case at which its procedure ends."""

_TABLE = table("cases")
POINTS: dict[str, dict[str, list[str]]] = {
    name: {part: text.split() for part, text in parts.items()}
    for name, parts in _TABLE.pop("points").items()
}
"""The points that a case can turn on: two terms of law, four holdings and the pleas."""
SENTENCES: dict[str, list[str]] = {name: text.split() for name, text in _TABLE.items()}

Place = Literal["early", "late"]


class Kind(NamedTuple):
    """Length of the cases of a group and place of their findings."""

    place: Place
    length: Literal["digest", "middle", "long"]


DIGEST = Kind("early", "digest")
MIDDLE_EARLY, MIDDLE_LATE = Kind("early", "middle"), Kind("late", "middle")
HELD_OUT = Kind("early", "long"), Kind("late", "long")
EARLY, LATE_ONE = HELD_OUT
TRAIN = (DIGEST, MIDDLE_EARLY, DIGEST, EARLY, DIGEST, DIGEST, MIDDLE_LATE, DIGEST, LATE_ONE, DIGEST)
"""Kinds of consecutive groups, again and again. Digests, a finding and little else, and cases of any length
are only for training: from digests a small model learns what to compare, from the others where to find it."""


class Triplet(NamedTuple):
    """Three cases, and which of the last two is closer to the first."""

    a: str
    b: str
    c: str
    label: Literal["B", "C"]
    place: Place
    """Place of the deciding findings."""


def case_documents(count: int, seed: int) -> Iterator[str]:
    """Yield `count` long cases, each on any point, none of a triplet; fewer are the first of more."""
    for number in range(count):
        draw = Draw(f"documents/{seed}/{GRAMMAR}", number)
        kind = HELD_OUT[draw.below(2)]
        yield _case(draw, kind, draw.one(tuple(POINTS)))(draw.one(tuple(POINTS)))


def case_triplets(split: str, count: int) -> list[Triplet]:
    """Return the triplets of a split, always the same ones, `count` rounded down to whole groups."""
    if count < GROUP:
        raise InputError(f"{count} builtin triplets asked for: a group has {GROUP}")
    numbers = range(count // GROUP)
    return [triplet for number in numbers for triplet in triplet_group(split, number)]


def triplet_group(split: str, number: int) -> list[Triplet]:
    """Return the four triplets of a group, in random order."""
    draw = Draw(f"triplets/{split}/{GRAMMAR}", number)
    kinds = TRAIN if split == "train" else HELD_OUT
    kind = kinds[number % len(kinds)]
    one, other = draw.some(tuple(POINTS), 2)
    # A and B, or A and C, argue the same point.
    common, rare = draw.some(tuple(POINTS), 2)
    argued = [common, common, rare] if draw.below(2) else [common, rare, common]
    a, b, c = (_case(draw, kind, point) for point in argued)
    group = []
    for own in (one, other):
        group.append(Triplet(a(own), b(one), c(other), "B" if own == one else "C", kind.place))
        group.append(Triplet(a(own), b(other), c(one), "B" if own == other else "C", kind.place))
    return draw.shuffled(group)


# --- one case ------------------------------------------------------------------------------------


def _case(draw: Draw, kind: Kind, argued: str) -> Callable[[str], str]:
    """Return a case in which `argued` is pleaded: the function of the point that its finding is on."""
    fill = _slots(draw)
    variants = draw.shuffled(range(4))[:2]
    finding = draw.one(SENTENCES["finding"])

    def case(before: str, after: str) -> Callable[[str], str]:
        def text(point: str) -> str:
            holdings = POINTS[point]["holdings"]
            return before + finding + "".join(holdings[i] for i in variants) + after

        return text

    if kind.length == "digest":
        return case(fill(draw.one(SENTENCES["digests"])), "")
    opening = fill(draw.one(SENTENCES["openings"]))
    pleas = "".join(draw.some(POINTS[argued]["pleas"], 4))
    body = fill(draw.one(SENTENCES["claims"])) + draw.one(SENTENCES["pleading"]) + pleas
    sentences = SENTENCES["procedure"]
    procedure = [fill(sentence) for sentence in draw.some(sentences, len(sentences))]
    longest = draw.below(LONG) if kind.length == "middle" else LONG
    for sentence in procedure:
        if len(opening) + len(body) < longest:
            body += sentence
    body += "本院认为，" + "".join(draw.some(SENTENCES["reasons"], 2))
    judgment = fill(draw.one(SENTENCES["judgments"]))
    if kind.place == "early":
        return case(opening, body + judgment)
    return case(opening + body, judgment)


def _slots(draw: Draw) -> Callable[[str], str]:
    """Return what fills in the names, places, dates and amounts of a sentence."""
    plaintiff, defendant = draw.some(SENTENCES["surnames"], 2)
    home = draw.one(SENTENCES["places"])

    def fill(sentence: str) -> str:
        year = 2009 + draw.below(9)
        return sentence.format(
            p=plaintiff + "某",
            q=defendant + "某",
            x=draw.one(SENTENCES["surnames"]) + "某某",
            s=draw.one("男女"),
            t=draw.one("男女"),
            y=1950 + draw.below(50),
            z=1950 + draw.below(50),
            w=draw.one(SENTENCES["work"]),
            v=draw.one(SENTENCES["work"]),
            l=home,
            d=f"{year}年{1 + draw.below(12)}月{1 + draw.below(28)}日",
            n=(1 + draw.below(99)) * 1000,
            f=(1 + draw.below(40)) * 25,
        )

    return fill
