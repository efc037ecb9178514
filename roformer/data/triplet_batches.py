"""Batches of triplets: the two pairs of a triplet are one row, so in one batch and on one rank.

    triplet  →  [CLS] A [SEP] B [SEP]   and   [CLS] A [SEP] C [SEP]
    batch    →  n triplets of two pairs, padded to the longest pair

Order and bucketing are those of `roformer.data.classification`.

Shapes: N triplets of the split, n of the batch, T the batch's longest pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roformer.config.scm import PairConfig
from roformer.data.classification import Ids, Inputs
from roformer.data.examples import ExampleSplit
from roformer.data.tokenizers import WordPiece


class TripletInputs(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Triplets as pairs of token ids; `inputs[numbers]` is a padded batch of both pairs of each.

    Args:
        split: the triplets.
        tokenizer: gives [CLS], [SEP] and [PAD].
        max_length: longest pair, special tokens included; see `Inputs` for how longer ones are cut.
        token_types: see `PairConfig`.
    """

    def __init__(
        self, split: ExampleSplit, tokenizer: WordPiece, max_length: int, pair: PairConfig
    ):
        self.count = len(split)
        self.labels = split.labels
        self.segments = pair.token_types == "segments"
        # Pair n is (A, B) of triplet n, pair N + n is (A, C).
        a, b, c = split.ids
        ids_a, ids_b = [*a, *a], [*b, *c]  # views
        self.pairs = Inputs(ids_a, ids_b, None, tokenizer, max_length)
        self.lengths: Ids = self.pairs.lengths.reshape(2, -1).max(0)
        """Tokens of each triplet's longer pair as the model reads it, (N,)."""
        self.too_long: NDArray[np.bool_] = self.pairs.too_long
        """Which pairs are cut, (2N,): those with B, then those with C."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, numbers: Sequence[int] | Ids) -> dict[str, Tensor]:
        """Return the batch of these triplets.

        Returns:
            input_ids (n, 2, T), the pair with B first; token_type_ids (n, 2, T) where they are not
            all zero; attention_mask (n, 2, T), true for real tokens, left out where nothing is
            padded; labels (n,): 0 where A is closer to B, 1 where it is closer to C.
        """
        rows = np.asarray(numbers, np.int64)
        flat = self.pairs[np.stack([rows, rows + self.count], axis=1).reshape(-1)]
        if not self.segments:
            flat.pop("token_type_ids")
        batch = {name: tensor.unflatten(0, (len(rows), 2)) for name, tensor in flat.items()}
        return {**batch, "labels": torch.from_numpy(self.labels[rows].astype(np.int64))}
