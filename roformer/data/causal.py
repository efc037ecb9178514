"""Blocks for causal language models, out of a stream of tokens or bytes, and their order.

    block i  →  reads tokens i·T … i·T+T-1 and predicts i·T+1 … i·T+T, each from those before it in
                the block: so every token of a stream but its first is predicted exactly once
    sample n →  epoch n // N, n-th entry of that epoch's permutation of the N blocks

The first prediction of a block has one token of context, the last one T: nothing is carried over from
the block before. The last block is shorter where the stream ends; what it lacks is padding, which
predicts nothing. Everything is a pure function of (seed, epoch, index), see `roformer.data.random`.

Shapes: B batch, T sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roformer.data.random import IGNORED, EpochOrder, Purpose, random_stream
from roformer.data.store import TokenStream
from roformer.errors import InputError

Ids = NDArray[np.int64]


class CausalBlocks:
    """A stream cut into blocks of `length` tokens read and as many predicted."""

    def __init__(self, stream: TokenStream, length: int):
        self.stream, self.length = stream, length
        if len(stream) <= length:
            raise InputError(
                f"the split has {len(stream):,} tokens, less than one block of {length} and the one "
                "after it: give more text or lower training.sequence_length"
            )
        self.predicted = len(stream) - 1
        """Tokens that are predicted in one pass over the stream."""

    def __len__(self) -> int:
        return -(-self.predicted // self.length)

    def __getitem__(self, index: int) -> tuple[Ids, Ids]:
        """Return what block `index` reads and what it predicts, int64 (T,); IGNORED beyond the end."""
        first = index * self.length
        tokens = self.stream[first : first + self.length + 1]
        inputs, labels = np.zeros(self.length, np.int64), np.full(self.length, IGNORED, np.int64)
        inputs[: len(tokens) - 1], labels[: len(tokens) - 1] = tokens[:-1], tokens[1:]
        return inputs, labels


class CausalBatches(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Batches of blocks, addressed by the sample numbers they hold; `seed` decides the order."""

    def __init__(self, blocks: CausalBlocks, seed: int):
        self.blocks = blocks
        self.order = EpochOrder(len(blocks), seed, Purpose.BLOCK_ORDER)

    def block_of(self, number: int) -> int:
        """Return which block of the split sample `number` is."""
        return self.order[number][1]

    def __getitem__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the batch of these samples, see `batch_of`."""
        return batch_of(self.blocks, [self.block_of(number) for number in numbers])


def batch_of(blocks: CausalBlocks, indices: Sequence[int]) -> dict[str, Tensor]:
    """Return input_ids and labels of blocks, each (B, T).

    If the last block, which is not full, is among them, also `kept`, true where a label exists.
    """
    inputs, labels = (np.stack(rows) for rows in zip(*(blocks[i] for i in indices), strict=True))
    batch = {"input_ids": torch.from_numpy(inputs), "labels": torch.from_numpy(labels)}
    kept = labels != IGNORED
    return batch if kept.all() else {**batch, "kept": torch.from_numpy(kept)}


def validation_sample(stream: TokenStream, length: int, count: int, longest: int) -> list[int]:
    """Return the numbers of the blocks of a frozen sample, in the order of the text.

    It is one sample of windows of `longest` blocks in a row, whatever the seed: so the same tokens can
    be read in blocks of 2·length, … up to longest·length. Blocks that the stream does not fill are
    skipped, and so is a part of a window if `count` blocks of T = `length` end inside it.
    """
    full = (len(stream) - 1) // (length * longest)
    if not full:
        raise InputError(
            f"the split has {len(stream):,} tokens, less than one block of {length * longest} "
            "(training.longer): give more text or shorter blocks"
        )
    windows = random_stream(0, Purpose.VALID_SAMPLE).permutation(full)[: count // longest]
    return [int(window) * longest + block for window in sorted(windows) for block in range(longest)]
