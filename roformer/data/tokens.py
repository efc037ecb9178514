"""Ragged arrays of token ids: concatenated ids with offsets, in memory or memory-mapped.

<name>.npy           the ids of all lists
<name>.offsets.npy   start of each list and end of the last one, int64 (N + 1,)
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class RaggedTokens:
    """N lists of token ids in one array.

    A memory-mapped array pickles as the name of its files, so it is cheap to send to the workers of a
    DataLoader.

    Args:
        tokens: concatenated lists.
        offsets: start of each list and end of the last one, int64 (N + 1,).
        files: path of the files that they are mapped from, without the suffix.
    """

    def __init__(
        self, tokens: NDArray[np.integer], offsets: NDArray[np.int64], files: Path | None = None
    ) -> None:
        self.tokens, self.offsets, self._files = tokens, offsets, files
        self.lengths: NDArray[np.int64] = np.diff(offsets)
        """Tokens of each list, (N,)."""

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> RaggedTokens:
        """Return lists in memory, int32."""
        lengths = [len(ids) for ids in lists]
        tokens = np.fromiter(chain.from_iterable(lists), np.int32, sum(lengths))
        return cls(tokens, _offsets(lengths))

    @classmethod
    def open(cls, files: Path) -> RaggedTokens:
        """Map the files that `TokenWriter` wrote."""
        # Slices of a plain array are faster than slices of `np.memmap`.
        tokens, offsets = (np.asarray(np.load(file, mmap_mode="r")) for file in _names(files))
        return cls(tokens, offsets, files)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self._files is not None:
            return RaggedTokens.open, (self._files,)
        return RaggedTokens, (self.tokens, self.offsets)

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

    def __init__(self, lists: RaggedTokens) -> None:
        self.lists = lists

    def __len__(self) -> int:
        return len(self.lists.tokens)

    def __getitem__(self, index: slice) -> NDArray[np.int64]:
        return self.lists.tokens[index].astype(np.int64)


class TokenWriter:
    """Writes the files of a `RaggedTokens` in batches; memory holds only the lengths."""

    def __init__(self, files: Path, dtype: DTypeLike) -> None:
        self.dtype, self.count = np.dtype(dtype), 0
        self._file, self._offsets_file = _names(files)
        self._lengths = array("q")
        self._digest = hashlib.sha256()
        self._file.touch()
        self._write_header()

    def append(self, lists: Sequence[Sequence[int]]) -> None:
        """Add lists."""
        arrays = [np.asarray(ids, self.dtype) for ids in lists]
        content = np.concatenate([np.empty(0, self.dtype), *arrays]).tobytes()
        with open(self._file, "ab") as stream:
            stream.write(content)
        self._digest.update(content)
        self._lengths.extend(map(len, arrays))
        self.count += sum(map(len, arrays))

    def close(self) -> str:
        """Complete the files; return the SHA-256 of their content."""
        offsets = _offsets(self._lengths)
        np.save(self._offsets_file, offsets)
        self._write_header()
        self._digest.update(offsets.tobytes())
        return self._digest.hexdigest()

    def _write_header(self) -> None:
        # NumPy pads the header so that one of another count has the same length.
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.count,)}
        with open(self._file, "r+b") as stream:
            np.lib.format.write_array_header_1_0(stream, header)


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _names(files: Path) -> tuple[Path, Path]:
    return files.with_name(f"{files.name}.npy"), files.with_name(f"{files.name}.offsets.npy")
