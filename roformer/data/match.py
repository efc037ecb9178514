"""Unmasked text of several shapes in turns, for a model that learns to reproduce another one.

    turn      →  blocks of T tokens; pairs of segments and single texts, each of T/4 and of T/16 tokens
    step      →  one turn, of as many tokens as the others
    sample n  →  the turn it falls into, then the n-th entry of an epoch's permutation, as in
                 `roformer.data.mlm`

Blocks teach long texts. Pairs have token types and end in a second [SEP], as fine-tuning has them.
"""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from roformer.data.mlm import PackedBlocks
from roformer.data.random import EpochOrder, Purpose, random_stream
from roformer.data.segments import SegmentPairs
from roformer.data.store import TokenStream
from roformer.data.tokenizers import WordPiece

SHAPES = (("block", 1), ("pair", 4), ("pair", 16), ("block", 16))
"""Kind of the rows of each turn, and the factor by which they are shorter than T."""
SHORTEST = 8
"""Tokens of a row at least."""


class Turns(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Batches of plain text, addressed by the sample numbers of one turn.

    `length` is T, the tokens of the longest rows, and `rows` their number in a turn; shorter rows are as
    many more. `seed` decides the order and the pairs; None is frozen, for validation.
    """

    def __init__(
        self, stream: TokenStream, tokenizer: WordPiece, length: int, rows: int, seed: int | None
    ):
        lengths = [max(SHORTEST, length // part) for _, part in SHAPES]
        self.tokenizer = tokenizer
        self.readers: list[PackedBlocks | SegmentPairs] = [
            PackedBlocks(stream, tokenizer, size)
            if shape == "block"
            else SegmentPairs(stream, tokenizer, size, "mlm_nsp")
            for (shape, _), size in zip(SHAPES, lengths, strict=True)
        ]
        self.parts = [length // size for size in lengths]
        """Rows of each turn that are as long as one of T tokens."""
        self.starts = [0, *accumulate(rows * part for part in self.parts)]
        """Number of each turn's first sample, and at the end of all turns."""
        self.seed = seed or 0
        self.purpose = Purpose.VALID_PAIR if seed is None else Purpose.TRAIN_PAIR
        order = Purpose.VALID_SAMPLE if seed is None else Purpose.BLOCK_ORDER
        self.orders = [EpochOrder(len(reader), self.seed, order) for reader in self.readers]

    def turn(self, number: int) -> range:
        """Return the samples of turn 0, 1, …"""
        cycle, kind = divmod(number, len(self.readers))
        first = cycle * self.starts[-1]
        return range(first + self.starts[kind], first + self.starts[kind + 1])

    def part(self, number: int) -> int:
        """Return how many rows of turn `number` are as long as one of T tokens."""
        return self.parts[number % len(self.parts)]

    def place(self, number: int) -> tuple[int, int, int]:
        """Return the kind of turn of a sample, its epoch, and which row of its reader it is."""
        cycle, within = divmod(number, self.starts[-1])
        kind = bisect(self.starts, within) - 1
        start, end = self.starts[kind : kind + 2]
        return kind, *self.orders[kind][cycle * (end - start) + within - start]

    def block_of(self, number: int) -> int:
        """Return which row of its reader sample `number` is."""
        return self.place(number)[2]

    def __getitem__(self, numbers: range) -> dict[str, Tensor]:
        """Return the batch of these samples: input_ids (B, t), of pairs also token_type_ids."""
        rows: list[tuple[np.ndarray, ...]] = []
        for number in numbers:
            kind, epoch, index = self.place(number)
            reader = self.readers[kind]
            if isinstance(reader, SegmentPairs):
                draw = random_stream(self.seed, self.purpose, epoch, index)
                rows.append(reader.pair(index, draw)[:2])
            else:
                rows.append((reader[index],))
        names = ("input_ids", "token_type_ids")
        columns = zip(names, zip(*rows, strict=True), strict=False)
        return {name: torch.from_numpy(np.stack(column)) for name, column in columns}
