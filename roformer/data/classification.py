"""Batches of labelled texts: dynamic padding, similar lengths together, a pure function of the seed.

    example          →  [CLS] a [SEP]   or   [CLS] a [SEP] b [SEP]
    triplet          →  [CLS] A [SEP] B [SEP]   and   [CLS] A [SEP] C [SEP]
    epoch of a seed  →  permutation → windows of 64 batches → sorted by length inside each window
                        → batches, padded to their longest → in random order

`epoch_batches` is the same for every process, worker and restart: there is no state to save.

Shapes: N examples, B batch, T the batch's longest sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roformer.config.scm import PairConfig
from roformer.data.random import Purpose, random_stream
from roformer.data.store import RaggedTokens
from roformer.data.tokenizers import WordPiece

if TYPE_CHECKING:
    from roformer.data.examples import ExampleSplit

WINDOW = 64
"""Batches that are sorted together: wide enough that little is padded, narrow enough that an epoch
of a large task is still shuffled."""

Ids = NDArray[np.int64]
IdLists = Sequence[Sequence[int] | NDArray[np.integer]] | RaggedTokens


class Inputs(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Texts as token ids, cut to the model's length; `inputs[numbers]` is a padded batch.

    `ids` are the pieces of the first texts, and of the second ones if there are any; `labels` are class
    numbers or scores, (N,). In a sequence longer than `max_length`, special tokens included, the longer
    text loses tokens at its end until both fit, as in `transformers`.
    """

    def __init__(
        self,
        ids: Sequence[IdLists],
        labels: NDArray[np.number] | None,
        tokenizer: WordPiece,
        max_length: int,
    ):
        self.ids, self.labels, self.tokenizer = ids, labels, tokenizer
        self.room = max_length - 1 - len(ids)
        whole: Ids = np.array([[len(text) for text in lists] for lists in ids]).sum(0)
        self.too_long: NDArray[np.bool_] = whole > self.room
        """Mask of the examples that are cut, (N,)."""
        self.lengths: Ids = np.minimum(whole, self.room) + (max_length - self.room)
        """Tokens of each example as the model reads it, (N,)."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, numbers: Sequence[int] | Ids) -> dict[str, Tensor]:
        """Return the batch of these examples: input_ids and token_type_ids (B, T), labels (B,) if there are
        any, and attention_mask (B, T), true for real tokens, if something is padded.
        """
        lengths = self.lengths[list(numbers)]
        shape = (len(lengths), int(lengths.max()))
        input_ids = np.full(shape, self.tokenizer.pad_id, dtype=np.int64)
        types = np.zeros(shape, dtype=np.int64)
        input_ids[:, 0] = self.tokenizer.cls_id
        for row, number in enumerate(numbers):
            end = 1
            for part, pieces in enumerate(self._pieces(number)):
                start, end = end, end + len(pieces) + 1
                input_ids[row, start : end - 1] = pieces
                input_ids[row, end - 1] = self.tokenizer.sep_id
                types[row, start:end] = part
        batch: dict[str, NDArray[Any]] = {"input_ids": input_ids, "token_type_ids": types}
        if (lengths < shape[1]).any():
            batch["attention_mask"] = np.arange(shape[1]) < lengths[:, None]
        if self.labels is not None:
            batch["labels"] = self.labels[list(numbers)]
        return {name: torch.from_numpy(values) for name, values in batch.items()}

    def _pieces(self, number: int) -> list[Any]:
        """Return the pieces of an example's texts, cut to the room there is."""
        texts = [lists[number] for lists in self.ids]
        if len(texts) == 1:
            return [texts[0][: self.room]]
        a, b = map(len, texts)
        if a + b > self.room:
            # The shorter one keeps all it has, up to half of the room; as in `transformers`.
            shorter = min(a, b, self.room // 2)
            a, b = (self.room - shorter, shorter) if a > b else (shorter, self.room - shorter)
        return [texts[0][:a], texts[1][:b]]


class TripletInputs(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Triplets as pairs of token ids; `inputs[numbers]` is a padded batch of both pairs of each.

    The two pairs of a triplet are one row, so they are in one batch and on one rank. `Inputs` cuts pairs
    longer than `max_length`.
    """

    def __init__(
        self, split: ExampleSplit, tokenizer: WordPiece, max_length: int, pair: PairConfig
    ):
        self.labels = split.labels
        self.segments = pair.token_types == "segments"
        # Pair n is (A, B) of triplet n, pair N + n is (A, C).
        a, b, c = split.ids
        self.pairs = Inputs([[*a, *a], [*b, *c]], None, tokenizer, max_length)  # views
        self.lengths: Ids = self.pairs.lengths.reshape(2, -1).max(0)
        """Tokens of each triplet's longer pair as the model reads it, (N,)."""
        self.too_long: NDArray[np.bool_] = self.pairs.too_long
        """Mask of the pairs that are cut, (2N,): pairs with B, then pairs with C."""

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, numbers: Sequence[int] | Ids) -> dict[str, Tensor]:
        """Return the batch of n triplets: input_ids (n, 2, T), the pair with B first; labels (n,), 0 where A
        is closer to B; token_type_ids unless all are zero, and attention_mask as in `Inputs`.
        """
        rows = np.asarray(numbers, np.int64)
        flat = self.pairs[np.stack([rows, rows + len(self)], axis=1).reshape(-1)]
        if not self.segments:
            flat.pop("token_type_ids")
        batch = {name: tensor.unflatten(0, (len(rows), 2)) for name, tensor in flat.items()}
        return {**batch, "labels": torch.from_numpy(self.labels[rows].astype(np.int64))}


def epoch_batches(lengths: Ids, batch_size: int, seed: int, epoch: int) -> list[Ids]:
    """Return the example numbers of the ⌈N / batch_size⌉ batches of an epoch, equal to one example.

    Lengths are the tokens of each example, (N,). Each epoch 0, 1, … of a seed has its own order.
    """
    random = random_stream(seed, Purpose.EXAMPLE_ORDER, epoch)
    count = -(-len(lengths) // batch_size)
    batches = np.array_split(random.permutation(len(lengths)), count)
    bucketed: list[Ids] = []
    for first in range(0, count, WINDOW):
        window = batches[first : first + WINDOW]
        numbers = np.concatenate(window)
        numbers = numbers[np.argsort(lengths[numbers], kind="stable")]
        bucketed += np.split(numbers, np.cumsum([len(batch) for batch in window])[:-1])
    return [bucketed[place] for place in random.permutation(count)]


def evaluation_batches(lengths: Ids, batch_size: int) -> list[Ids]:
    """Return batches that cover every example once, the longest first, so that memory peaks first."""
    numbers = np.argsort(-lengths, kind="stable")
    return [numbers[i : i + batch_size] for i in range(0, len(numbers), batch_size)]
