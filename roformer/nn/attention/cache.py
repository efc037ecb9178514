"""Keys and values of tokens that were read already, so that a decoder reads each token once.

Rows are sentences × beams. Memory grows by doubling; a search moves only the rows that change.

Shapes: R rows, N heads, T tokens so far, H head dimension.
"""

from __future__ import annotations

from torch import Tensor

FIRST_CAPACITY = 32
"""Tokens to make room for at first."""


class KeyValueCache:
    """Of one attention layer."""

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add t tokens and return keys and values of all so far.

        Args:
            k: (R, N, t, H), with positions applied.
            v: (R, N, t, H).

        Returns:
            (R, N, T, H) and (R, N, T, H).
        """
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
        """Overwrite the rows `to` (n,) by what the rows `origin` (n,) hold."""
        for held in (self._keys, self._values):
            if held is not None:
                filled = held[:, :, : self.length]
                filled[to] = filled[origin]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (n,)."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[rows], self._values[rows]
