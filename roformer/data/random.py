"""All random streams: a draw is a function of (seed, purpose, epoch, index) and of nothing else.

So there is no state to save, and examples are the same whatever the number of processes, workers or
restarts.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

IGNORED = -100
"""Label of what is not to be predicted, as in torch and transformers."""


class Purpose(IntEnum):
    """Purpose of a random stream: streams of one seed never overlap. A number is never reused."""

    BLOCK_ORDER = 0
    TRAIN_MASK = 1
    VALID_SAMPLE = 2
    VALID_MASK = 3
    EXAMPLE_ORDER = 4
    EXAMPLE_SUBSET = 5  # data.max_train_examples
    BUCKET_ORDER = 6  # of sentence pairs and their buckets
    PAPER_SPLIT = 8  # data.split=paper622
    TRIPLET_SUBSET = 9  # data.max_train_triplets and data.max_held_out_triplets
    TRAIN_PAIR = 10  # of segments: where they begin and end, and whether they belong together
    VALID_PAIR = 11


def random_stream(seed: int, purpose: int, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """Return the generator that belongs to (seed, purpose, epoch, index); counter-based, stateless."""
    return np.random.Generator(np.random.Philox(key=[seed, purpose], counter=[0, 0, epoch, index]))


class EpochOrder:
    """The endless sequence of samples: all of `count`, in a new order each epoch."""

    def __init__(self, count: int, seed: int, purpose: Purpose, first_epoch: int = 0) -> None:
        self.count, self.seed, self.purpose = count, seed, purpose
        self.first_epoch = first_epoch
        self._order: tuple[int, NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    def __getitem__(self, number: int) -> tuple[int, int]:
        """Return the epoch of sample `number`, from 0, and which of `count` it is."""
        epoch, place = divmod(number, self.count)
        epoch += self.first_epoch
        if self._order[0] != epoch:
            stream = random_stream(self.seed, self.purpose, epoch)
            self._order = (epoch, stream.permutation(self.count))
        return epoch, int(self._order[1][place])


def unigram_entropy(labels: NDArray[np.integer]) -> float:
    """Return the entropy in nats of the tokens to predict: the loss of one who knows their frequencies.

    A causal model that has learnt nothing of context cannot have a lower loss on them; a masked one can,
    see `roformer.data.mlm.Masker.context_free_loss`.
    """
    _, counts = np.unique(labels[labels != IGNORED], return_counts=True)
    share = counts / counts.sum()
    return float(-(share * np.log(share)).sum())
