"""Lists of token ids as one array with offsets, in memory or mapped from prepared data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TokenLists:
    """N lists of token ids, one after the other in one array.

    Lists of prepared data are a view of the file and pickle as its name, so they are cheap to hand
    to the workers of a DataLoader.

    Args:
        tokens: all lists one after the other.
        offsets: where each begins and the last one ends, int64 (N + 1,).
        place: file and column that they are mapped from.
    """

    def __init__(
        self,
        tokens: NDArray[np.integer],
        offsets: NDArray[np.int64],
        place: tuple[Path, str] | None = None,
    ) -> None:
        self.tokens, self.offsets, self._place = tokens, offsets, place
        self.lengths: NDArray[np.int64] = np.diff(offsets)
        """Tokens of each list, (N,)."""

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> TokenLists:
        """Return lists in memory, int32."""
        lengths = [len(ids) for ids in lists]
        tokens = np.fromiter(chain.from_iterable(lists), np.int32, sum(lengths))
        return cls(tokens, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))))

    @classmethod
    def open(cls, file: Path, column: str) -> TokenLists:
        """Map a column of a split."""
        from roformer.data.store import read_table  # imports pyarrow

        lists = read_table(file)[column].chunk(0)
        return cls(lists.values.to_numpy(), lists.offsets.to_numpy(), (file, column))

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self._place is not None:
            return TokenLists.open, self._place
        return TokenLists, (self.tokens, self.offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[NDArray[np.integer]]:
        """Yield the lists as views, read-only where the tokens are mapped."""
        return (self.tokens[start:end] for start, end in pairwise(self.offsets))

    def __getitem__(self, index: int) -> NDArray[np.integer]:
        """Return a copy of one list, (lengths[index],)."""
        if not 0 <= index < len(self):
            raise IndexError(f"list {index} of {len(self)}")
        return np.array(self.tokens[self.offsets[index] : self.offsets[index + 1]])


class TokenStream:
    """Token lists as one sequence; `stream[a:b]` is a copy of shape (b - a,), int64."""

    def __init__(self, lists: TokenLists) -> None:
        self.lists = lists

    def __len__(self) -> int:
        return len(self.lists.tokens)

    def __getitem__(self, index: slice) -> NDArray[np.int64]:
        return self.lists.tokens[index].astype(np.int64)
