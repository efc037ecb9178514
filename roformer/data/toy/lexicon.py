"""Common English words for the templates of `roformer.data.toy.glue`, by what they can do.

Chosen so that a vocabulary learnt from software documentation has nearly all of them in one piece
or two. No list holds a word twice.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GOOD = _words(
    "good great fine fresh strong rich warm smooth perfect moving clear natural original robust"
    " clean useful nice clever sharp bright smart solid superb charming powerful sensible"
    " interesting"
)
BAD = _words(
    "bad weak flat slow empty wrong lazy trivial redundant naive poor dull cold boring thin tired"
    " silly messy broken heavy dry rough harsh useless crude"
)
"""Opposites of GOOD, not one by one."""

ASPECTS = _words(
    "plot music script cast ending action direction title sound design style idea start middle"
    " text role book show series story acting opening scene drama theme picture pace hero"
)
"""Subjects of reviews."""

NAMES = _words(
    "ben john bob paul mark robert max sam tim adam ray jan anne anna carl mary alice tom peter"
    " james david george jack eric kim luke emma jim joe kate leo nick"
)
GROUPS = _words("users students writers drivers workers managers readers experts guards farmers")
ANIMALS = _words("dogs cats horses birds cows rats bees ducks bears wolves")
MATERIALS = _words("iron gold silver copper steel wood stone glass paper plastic")
FOODS = _words("bread rice milk coffee sugar fish meat fruit corn butter")

DEEDS = _words(
    "called met followed joined found trained tested helped visited paid hired warned trusted"
    " asked watched told"
)
"""Done by one to another; past tense."""

ACTS = _words("call meet follow join find train test help visit pay")
"""The first of DEEDS in the infinitive."""

COMPARATIVES = _words(
    "faster smaller larger slower shorter better older stronger richer lighter bigger"
)
OTHER_COMPARATIVES = _words("newer cleaner closer safer cheaper")
"""Disjoint from COMPARATIVES."""
