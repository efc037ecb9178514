"""Pairs of segments for next-sentence and sentence-order prediction, cut from the prepared tokens.

    stretch n   →  M = T-3 consecutive tokens of one document, which has ⌊its tokens / M⌋ of them; each
                   begins at its own random distance within the remaining tokens, so two may overlap
    split       →  the stretch falls into A and B at a random place: for `mlm_nsp` where a sentence
                   begins, or else any word
    mlm_nsp     →  half of the stretches as they are; in the other half B, or A, is of another document
    mlm_sop     →  half of the stretches as they are; in the other half B precedes A
    pair        →  [CLS] A [SEP] B [SEP], exactly T tokens: nothing is padded

Devlin et al. 2019, section 3.1 and A.2; Lan et al. 2020, section 3.1. Where BERT fills a pair with whole
sentences, pads it and truncates what is too long at a random end, here the outer ends of A and B are cut
wherever T tokens are full. A document of fewer than M tokens is skipped.

The replacement has the length of B and follows the split of another stretch; if that part is shorter, A
is replaced instead, by as many tokens before that split. So neither lengths nor the ends of segments show
whether two belong together. For `mlm_sop` the split is at any word, because a split at a sentence would
show the order: the first segment begins anywhere, the second with a sentence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roformer.config.schema import Objective
from roformer.data.store import TokenStream
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError

Ids = NDArray[np.int64]
SENTENCE_ENDS = frozenset(".!?。！？")


class Pair(NamedTuple):
    """Two segments as a model reads them."""

    input_ids: Ids
    """(T,)."""
    token_type_ids: Ids
    """(T,): 0 of [CLS] A [SEP], 1 of B [SEP]."""
    relation: int
    """0 where B follows A in its document, 1 where not, as in BERT."""


class SegmentPairs:
    """The pairs of T tokens of a stream of documents, one for each stretch."""

    def __init__(
        self, stream: TokenStream, tokenizer: WordPiece, sequence_length: int, objective: Objective
    ):
        self.stream, self.tokenizer, self.objective = stream, tokenizer, objective
        self.body = sequence_length - 3
        """M: tokens of A and B together."""
        self.lengths = stream.lists.lengths - 1  # without [SEP]
        self.counts = self.lengths // self.body
        """Stretches of each document."""
        self.first = np.concatenate(([0], np.cumsum(self.counts)))
        """Number of each document's first stretch, and at the end of all."""
        self.ends_sentence = np.array([piece in SENTENCE_ENDS for piece in tokenizer.vocabulary])
        fewest = 2 if objective == "mlm_nsp" else 1
        if (documents := int((self.counts > 0).sum())) < fewest:
            raise InputError(
                f"objective={objective} needs {fewest} documents of at least {self.body} tokens, and the "
                f"split has {documents}: give longer documents or lower training.sequence_length"
            )

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def left_out(self) -> int:
        """Number of documents that are shorter than a stretch."""
        return int((self.counts == 0).sum())

    def document_of(self, index: int) -> int:
        """Return the document of a stretch."""
        return int(np.searchsorted(self.first, index, side="right")) - 1

    def pair(self, index: int, random: np.random.Generator) -> Pair:
        """Return the pair of stretch `index`; draws only from `random`."""
        tokens, place = self._split(index, random)
        a, b = tokens[:place], tokens[place:]
        relation = int(random.integers(2))
        if relation and self.objective == "mlm_sop":
            a, b = b, a
        elif relation:
            tokens, there = self._split(self._elsewhere(index, random), random)
            if there < len(a):
                b = tokens[there : there + len(b)]
            else:
                a = tokens[there - len(a) : there]
        cls, sep = [self.tokenizer.cls_id], [self.tokenizer.sep_id]
        types = np.zeros(self.body + 3, dtype=np.int64)
        types[len(a) + 2 :] = 1
        return Pair(np.concatenate([cls, a, sep, b, sep]), types, relation)

    def _split(self, index: int, random: np.random.Generator) -> tuple[Ids, int]:
        """Return the tokens of a stretch, (M,), and where its second segment begins: 1, …, M-1."""
        document = self.document_of(index)
        over = int(self.lengths[document] - self.counts[document] * self.body)
        start = int(self.stream.lists.offsets[document]) + int(random.integers(over + 1))
        start += int(index - self.first[document]) * self.body
        tokens = self.stream[start : start + self.body]
        places: Ids = np.arange(1, self.body)
        if self.objective == "mlm_nsp":
            words = places[~self.tokenizer.continuation[tokens[1:]]]
            sentences = words[self.ends_sentence[tokens[words - 1]]]
            places = next(filter(len, (sentences, words, places)))
        return tokens, int(random.choice(places))

    def _elsewhere(self, index: int, random: np.random.Generator) -> int:
        """Return a stretch of another document, each equally likely."""
        document = self.document_of(index)
        own = int(self.counts[document])
        drawn = int(random.integers(len(self) - own))
        return drawn if drawn < self.first[document] else drawn + own
