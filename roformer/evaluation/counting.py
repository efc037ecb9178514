"""Model-free baselines: bag of words for texts, overlap for triplets, n-grams for language models.

All are learnt from the training set in seconds; nothing is selected on the scored data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = re.compile(r"\w+")
SCORERS = {"matthews": "matthews_corrcoef"}
"""Metric of GLUE → scikit-learn's name of it, if it differs."""
Texts = Sequence[tuple[str, ...]]
"""Examples of one text each, or of as many as a task has."""
Floats = NDArray[np.float64]
Ids = NDArray[np.integer]


# --- texts and pairs -----------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """Return the words in lower case, at least one: a text without words has an empty one."""
    return WORD.findall(text.lower()) or [""]


def overlaps(pairs: Texts) -> Floats:
    """Return the shared words of two texts as shares of all words, the first's and the second's: (N, 3)."""
    rows = []
    for first, second in pairs:
        one, other = set(words_of(first)), set(words_of(second))
        rows.append([len(one & other) / len(part) for part in (one | other, one, other)])
    return np.array(rows)


def bag_of_words(
    train: Texts,
    labels: NDArray[Any],
    held_out: Sequence[Texts],
    *,
    metric: str,
    constant: float,
) -> list[NDArray[Any]]:
    """Predict labels from the words of texts, ignoring their order.

    One text is classified by naive Bayes on its word counts. Two texts are compared by their overlaps: a
    linear model predicts a score, logistic regression classes, and two classes use the threshold that is
    best for `metric`, the task's first, on the training set. If words say nothing, the prediction is
    `constant`. Labels (N,) are class numbers, or scores if they are floats.
    """
    # scikit-learn takes a second to import; a wrong override must be reported before.
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.model_selection import TunedThresholdClassifierCV
    from sklearn.naive_bayes import MultinomialNB

    same = [np.full(len(part), constant).astype(labels.dtype) for part in held_out]
    if len(np.unique(labels)) == 1:
        return same
    if len(train[0]) == 1:
        counts = CountVectorizer(analyzer=words_of)
        bayes = MultinomialNB().fit(counts.fit_transform(text for (text,) in train), labels)
        return [bayes.predict(counts.transform(text for (text,) in part)) for part in held_out]
    features, others = overlaps(train), [overlaps(part) for part in held_out]
    if labels.dtype.kind == "f":
        line = LinearRegression().fit(features, labels)
        # Rounding errors would rank equal scores.
        return [line.predict(rows).round(6) for rows in others]
    model: Any = LogisticRegression(C=1e4).fit(features, labels)  # as good as unregularised
    if np.ptp(model.predict_proba(features), axis=0).max() < 1e-3:
        return same
    if len(model.classes_) == 2:
        scorer = SCORERS.get(metric, metric)
        model = TunedThresholdClassifierCV(model, scoring=scorer, cv="prefit", refit=False)
        model.fit(features, labels)
    return [model.predict(rows) for rows in others]


# --- triplets ------------------------------------------------------------------------------------


def document_overlap(triplets: Texts) -> Floats:
    """Return the Jaccard overlap of character pairs of A with B and with C: (N, 2).

    Character pairs also work for text without spaces; nothing is learnt.
    """
    return np.array(
        [
            [len(a & other) / max(1, len(a | other)) for other in others]
            for a, *others in ([*map(_character_pairs, texts)] for texts in triplets)
        ]
    )


def known_documents(train: Texts, labels: Sequence[int | float], held_out: Texts) -> Floats:
    """Return how often B and C were the closer document in training minus how often they were not, (N, 2)."""
    known: Counter[str] = Counter()
    for (_, *others), label in zip(train, labels, strict=True):
        for number, text in enumerate(others):
            known[text] += 1 if number == label else -1
    return np.array([[known[b], known[c]] for _, b, c in held_out], float)


def _character_pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(len(text) - 1)}


# --- language models -----------------------------------------------------------------------------


def ngram_losses(train: Ids, grams: Ids, size: int) -> Floats:
    """Return the losses in nats of the last id of each n-gram given those before it: (M,).

    Interpolated Kneser-Ney (Chen and Goodman 1999, section 2.7): one discount per order, from the numbers of
    n-grams seen once and twice; below the lowest order all ids are equally likely.

    It counts the ids `train` (N,), N ≥ n, and predicts the last id of each row of `grams` (M, n). `size` is
    the size of the vocabulary; size^n is below 2^63.
    """
    order = grams.shape[1]
    powers = size ** np.arange(order - 1, -1, -1, dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(train, order)
    seen, counts = np.unique(windows @ powers, return_counts=True)
    levels = []
    for length in range(order, 0, -1):
        levels.append((size**length, seen, counts))
        # A shorter n-gram counts the different ids that precede it.
        seen, counts = np.unique(seen % size ** (length - 1), return_counts=True)
    keys, chance = grams @ powers, np.full(len(grams), 1 / size)
    for span, seen, counts in reversed(levels):
        once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
        discount = (once + 1) / (once + 2 * twice + 2)  # plus one: a large text has none seen once
        contexts, first, followers = np.unique(seen // size, return_index=True, return_counts=True)
        totals = np.add.reduceat(counts, first)
        place, there = _find(seen, keys % span)
        own = np.where(there, np.maximum(counts[place] - discount, 0), 0)
        place, known = _find(contexts, keys % span // size)
        share = (own + discount * followers[place] * chance) / totals[place]
        chance = np.where(known, share, chance)
    losses: Floats = -np.log(chance)
    return losses


def _find(known: Ids, wanted: Ids) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the places of numbers among sorted known ones, and whether each is known."""
    place = np.searchsorted(known, wanted).clip(max=len(known) - 1)
    return place, known[place] == wanted
