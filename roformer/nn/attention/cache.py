"""Caches of incremental decoding, one per attention layer.

    KeyValueCache   softmax: keys and values of all tokens; capacity grows by doubling
    RunningSums     linear attention: sums over all tokens, of constant size

Rows are sentences × beams; a search moves only the rows that change.

Shapes: R rows, N heads, T tokens so far, H head dimension, M features.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

FIRST_CAPACITY = 32
"""Tokens that a new cache has room for."""


class KeyValueCache:
    """Keys and values of one layer."""

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add rotated keys and values (R, N, t, H) of t tokens; return those so far, (R, N, T, H)."""
        end = self.length + k.shape[-2]
        self._keys = self._room(self._keys, k, end)
        self._values = self._room(self._values, v, end)
        self._keys[:, :, self.length : end] = k
        self._values[:, :, self.length : end] = v
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _room(self, held: Tensor | None, new: Tensor, end: int) -> Tensor:
        if held is not None and held.shape[-2] >= end:
            return held
        capacity = max(end, FIRST_CAPACITY if held is None else 2 * held.shape[-2])
        larger = new.new_empty(*new.shape[:2], capacity, new.shape[-1])
        if held is not None:
            larger[:, :, : self.length] = held[:, :, : self.length]
        return larger

    def move(self, to: Tensor, origin: Tensor) -> None:
        """Overwrite the rows `to` (n,) with the contents of the rows `origin` (n,)."""
        for held in (self._keys, self._values):
            if held is not None:
                filled = held[:, :, : self.length]
                filled[to] = filled[origin]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (n,)."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[rows], self._values[rows]


class Sums(NamedTuple):
    """Sums over the keys before a causal query."""

    context: Tensor
    """Σ φ(k) vᵀ with positions applied, (R, N, M, H)."""
    total: Tensor
    """Σ φ(k), (R, N, M, 1)."""
    level: Tensor
    """ln of the divisor of both, (R, N or 1, 1, 1)."""


class RunningSums:
    """Sums of one linear attention layer."""

    def __init__(self) -> None:
        self.length = 0
        self.sums: Sums | None = None

    def append(self, sums: Sums, tokens: int) -> None:
        """Replace the sums by those that include `tokens` more tokens."""
        self.sums = sums
        self.length += tokens

    def move(self, to: Tensor, origin: Tensor) -> None:
        """Overwrite the rows `to` (n,) with the contents of the rows `origin` (n,)."""
        for held in self.sums or ():
            held[to] = held[origin]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (n,)."""
        if self.sums is not None:
            self.sums = Sums(*(held[rows] for held in self.sums))
