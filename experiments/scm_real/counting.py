"""What counting is worth on this study's validation triplets, for the numbers of REPORT.md.

    python experiments/scm_real/counting.py data/cail2019-scm

Prints the share of triplets answered right by how often a document was the closer and how often
the other one of a training triplet; by the character pairs of B and C, each by the logarithm of
how many closer ones against how many others of the training have it, plus one; and by how many of
its character pairs A shares with B and with C (Jaccard). A tie is half right.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable

from roformer.config.scm import FilesTriplets
from roformer.data.sources import Example
from roformer.data.sources.examples import LABELS, FileTriplets

Score = Callable[[str, str], float]
"""How close a document (the second) is to A (the first)."""


def character_pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(len(text) - 1)}


def closer_and_other(row: Example) -> tuple[str, str]:
    _, b, c = row.texts
    return (b, c) if LABELS[row.label] == "B" else (c, b)


def right(rows: list[Example], score: Score) -> float:
    points = 0.0
    for row in rows:
        closer, other = (score(row.texts[0], text) for text in closer_and_other(row))
        points += (closer > other) + 0.5 * (closer == other)
    return points / len(rows)


def main() -> None:
    source = FileTriplets(FilesTriplets(path=sys.argv[1]))
    documents: Counter[str] = Counter()
    in_closer: Counter[str] = Counter()
    in_other: Counter[str] = Counter()
    for row in source.rows("train"):
        closer, other = closer_and_other(row)
        documents[closer] += 1
        documents[other] -= 1
        in_closer.update(character_pairs(closer))
        in_other.update(character_pairs(other))

    def odds(_: str, text: str) -> float:
        return sum(
            math.log((in_closer[pair] + 1) / (in_other[pair] + 1))
            for pair in sorted(character_pairs(text))
        )

    def jaccard(a: str, text: str) -> float:
        ours, theirs = character_pairs(a), character_pairs(text)
        return len(ours & theirs) / len(ours | theirs)

    scores: dict[str, Score] = {
        "documents": lambda _, text: documents[text],
        "character pairs of B and C": odds,
        "character pairs shared with A": jaccard,
    }
    rows = list(source.rows("validation"))
    for name, score in scores.items():
        print(f"{name}: {right(rows, score):.1%} of {len(rows)}")


if __name__ == "__main__":
    main()
