"""What fine-tunings share: epochs of batches of similar lengths, and outputs of all held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from roformer.config.schema import LoopConfig
from roformer.config.scm import Order
from roformer.data.classification import epoch_batches

Scores = NDArray[np.float32]


class Epochs:
    """Which rows an update reads: a function of the seed and the update.

    Args:
        lengths: of the rows, (N,).
        batch_size: rows an update.
        seed: of the order.
        order: `short_first`: the first epoch begins with the batches of short rows.
    """

    def __init__(
        self, lengths: NDArray[Any], batch_size: int, seed: int, order: Order = "shuffled"
    ):
        self.lengths, self.batch_size, self.seed, self.order = lengths, batch_size, seed, order
        self.updates = -(-len(lengths) // batch_size)
        """Of one epoch."""
        self._epoch: tuple[int, list[Any]] = (-1, [])

    def share(self, update: int, rank: int, world_size: int) -> Any:
        """Return the rows of update 1, 2, … that a rank reads."""
        epoch, place = divmod(update - 1, self.updates)
        if self._epoch[0] != epoch:
            batches = epoch_batches(self.lengths, self.batch_size, self.seed, epoch)
            if epoch == 0 and self.order == "short_first":
                # By powers of two: inside, the order stays random, for length may tell kinds apart.
                batches.sort(key=lambda batch: int(self.lengths[batch].max()).bit_length())
            self._epoch = (epoch, batches)
        batch = self._epoch[1][place]
        return batch[rank * len(batch) // world_size : (rank + 1) * len(batch) // world_size]

    def loop(self, epochs: int, precision: Any, *, logs: int, most_unsaved: int) -> LoopConfig:
        """Return how long the loop runs; it evaluates at the end of every epoch, nowhere else.

        Args:
            epochs: how many.
            precision: see `LoopConfig`.
            logs: of an epoch.
            most_unsaved: updates between two checkpoints, or an epoch where that is shorter.
        """
        return LoopConfig(
            steps=epochs * self.updates,
            precision=precision,
            log_every=-(-self.updates // logs),
            evaluate_every=self.updates,
            checkpoint_every=min(self.updates, most_unsaved),
        )


def checked(outputs: Tensor, count: int) -> Scores:
    """Return the outputs (N, C) of all held-out rows, having asserted that each was made once.

    Args:
        outputs: (N, C + 1), the last column how often the row was made; summed over the ranks.
        count: N.
    """
    times = outputs[:, -1]
    if len(outputs) != count or not bool((times == 1).all()):
        raise AssertionError(f"outputs of {int((times == 1).sum())} of {count} rows")
    scores: Scores = outputs[:, :-1].cpu().numpy()
    return scores
