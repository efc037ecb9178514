"""Choices at random for the toy data: functions of a name and a number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Draw:
    """Choices from stream `number` of the counter-based streams that belong to a name."""

    def __init__(self, name: str, number: int = 0):
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        key = np.frombuffer(digest, dtype="<u8")
        self._stream = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, number]))

    def below(self, limit: int) -> int:
        """Return an integer from 0 to limit - 1."""
        return int(self._stream.integers(limit))

    def chance(self, probability: float) -> bool:
        """Return true with the given probability."""
        return bool(self._stream.random() < probability)

    def one(self, among: Sequence[T]) -> T:
        """Return one of a sequence."""
        return among[self.below(len(among))]

    def some(self, among: Sequence[T], count: int) -> list[T]:
        """Return `count` different ones, in random order."""
        return [among[i] for i in self._stream.choice(len(among), count, replace=False)]

    def shuffled(self, among: Sequence[T]) -> list[T]:
        """Return all of a sequence, in random order."""
        return [among[i] for i in self._stream.permutation(len(among))]
