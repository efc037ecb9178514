"""Chinese loan cases made from templates, alone and in triplets: does B or C turn on what A turns on?

    case      parties · [finding] · claim · pleas · [procedure …] · reasons · [finding] · judgment

The *finding* says in terms of law what the case turns on, one of `POINTS`. It stands near the
beginning (`early`) or behind all else that can differ (`late`); a case is a `digest`, `middle` or
`long`, and of a long one the late finding begins beyond `LATE` characters. The pleas argue a point
in plain words, drawn apart from that of the finding. So A, B and C are told apart by their findings
alone:

* Triplets are drawn in groups of four that have the same three cases but for their findings: of two
  points, A has either and B and C have them either way round. In a group B is the closer one twice,
  and whatever does not read all three findings is right on exactly two of four. That holds for the
  beginning of late ones, for A alone, and for B and C without A.
* The pleas of A agree with those of B or of C, evenly, and are longer than a finding: counting the
  common words of the whole texts is right on some 60 % and no more.

A group is a function of its split and number; fewer triplets are the first of more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from roformer.data.toy import case_sentences as words
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

Place = Literal["early", "late"]


class Kind(NamedTuple):
    """Length of the cases of a group and place of their findings."""

    place: Place
    length: Literal["digest", "middle", "long"]


DIGEST = Kind("early", "digest")
MIDDLE_EARLY, MIDDLE_LATE = Kind("early", "middle"), Kind("late", "middle")
EARLY, LATE_ONE = Kind("early", "long"), Kind("late", "long")
HELD_OUT = (EARLY, LATE_ONE)
TRAIN = (DIGEST, MIDDLE_EARLY, DIGEST, EARLY, DIGEST, DIGEST, MIDDLE_LATE, DIGEST, LATE_ONE, DIGEST)
KINDS: dict[str, tuple[Kind, ...]] = {"train": TRAIN, "validation": HELD_OUT, "test": HELD_OUT}
"""Kinds of consecutive groups of a split, again and again. Digests, which are a finding and little
else, and cases of any length up to long are for training alone: from digests a small model learns
what to compare, in a few hundred steps of short pairs, from the others where to find it."""


class Case(NamedTuple):
    """One case but for its finding, which stands between the two texts."""

    before: str
    after: str
    variants: tuple[int, ...]
    """Which holdings of a point it has."""

    def text(self, point: str) -> str:
        """Return the case, turning on a point."""
        holdings = words.POINTS[point].holdings
        return self.before + "".join(holdings[i] for i in self.variants) + self.after


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
        kind = (EARLY, LATE_ONE)[draw.below(2)]
        yield _case(draw, kind, draw.one(POINTS)).text(draw.one(POINTS))


def case_triplets(split: str, count: int) -> list[Triplet]:
    """Draw the triplets of a split, always the same ones, group by group.

    Args:
        split: one of `SPLITS`.
        count: how many; rounded down to whole groups.

    Raises:
        InputError: less than a group asked for.
    """
    if count < GROUP:
        raise InputError(f"{count} builtin triplets asked for: a group has {GROUP}")
    return [one for number in range(count // GROUP) for one in triplet_group(split, number)]


def triplet_group(split: str, number: int) -> list[Triplet]:
    """Return the four triplets of a group, in random order."""
    draw = Draw(f"triplets/{split}/{GRAMMAR}", number)
    kind = KINDS[split][number % len(KINDS[split])]
    one, other = draw.some(POINTS, 2)
    # What is argued: by A and B or by A and C the same.
    common, rare = draw.some(POINTS, 2)
    argued = [common, common, rare] if draw.below(2) else [common, rare, common]
    a, b, c = (_case(draw, kind, point) for point in argued)
    group: list[Triplet] = []
    for own in (one, other):
        for first, second in ((one, other), (other, one)):
            label: Literal["B", "C"] = "B" if first == own else "C"
            texts = a.text(own), b.text(first), c.text(second)
            group.append(Triplet(*texts, label, kind.place))
    return [group[i] for i in draw.order(GROUP)]


# --- one case ------------------------------------------------------------------------------------

POINTS: tuple[str, ...] = tuple(words.POINTS)


def _case(draw: Draw, kind: Kind, argued: str) -> Case:
    """Return a case in which `argued` is pleaded."""
    fill = _slots(draw)
    variants = tuple(draw.order(4)[:2])
    finding = draw.one(words.FINDING)
    if kind.length == "digest":
        return Case(fill(draw.one(words.DIGESTS)) + finding, "", variants)
    opening = fill(draw.one(words.OPENINGS))
    pleas = "".join(draw.some(words.POINTS[argued].pleas, 4))
    body = fill(draw.one(words.CLAIMS)) + draw.one(words.PLEADING) + pleas
    procedure = [fill(sentence) for sentence in draw.some(words.PROCEDURE, len(words.PROCEDURE))]
    length = len(opening) + len(body)
    longest = draw.below(LONG) if kind.length == "middle" else LONG
    for sentence in procedure:
        if length >= longest:
            break
        body, length = body + sentence, length + len(sentence)
    reasons = "本院认为，" + "".join(draw.some(words.REASONS, 2))
    judgment = fill(draw.one(words.JUDGMENTS))
    if kind.place == "early":
        return Case(opening + finding, body + reasons + judgment, variants)
    return Case(opening + body + reasons + finding, judgment, variants)


def _slots(draw: Draw) -> Callable[[str], str]:
    """Return what fills in the names, places, dates and amounts of a sentence."""
    plaintiff, defendant = draw.some(words.SURNAMES, 2)
    sexes, home = ("男", "女"), draw.one(words.PLACES)

    def fill(sentence: str) -> str:
        year = 2009 + draw.below(9)
        return sentence.format(
            p=plaintiff + "某",
            q=defendant + "某",
            x=draw.one(words.SURNAMES) + "某某",
            s=draw.one(sexes),
            t=draw.one(sexes),
            y=1950 + draw.below(50),
            z=1950 + draw.below(50),
            w=draw.one(words.WORK),
            v=draw.one(words.WORK),
            l=home,
            d=f"{year}年{1 + draw.below(12)}月{1 + draw.below(28)}日",
            n=(1 + draw.below(99)) * 1000,
            f=(1 + draw.below(40)) * 25,
        )

    return fill
