"""Columns of a prepared split: tokens as one memory-mapped array with offsets, and who writes them.

Arrow keeps a column in one piece only where it is written in one record batch, so a split is one
batch. In little memory: the tokens of a column are collected in a file of their own, which is mapped
to write the split. The `map` of `datasets` would write many batches, and its processes would start
the threads of `tokenizers` anew, which already use all cores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import pyarrow
from numpy.typing import NDArray


class TokenLists:
    """Lists of token ids, N of them, one after the other in one array.

    Of prepared data it is a view of the file and pickles as the file's name, so it is cheap to hand
    to the workers of a DataLoader.

    Args:
        tokens: all lists one after the other.
        offsets: where each begins and the last one ends, int64 (N + 1,).
    """

    def __init__(self, tokens: NDArray[np.integer], offsets: NDArray[np.int64]) -> None:
        self.tokens, self.offsets = tokens, offsets
        self.lengths: NDArray[np.int64] = np.diff(offsets)
        """Tokens of each list, (N,)."""
        self._place: tuple[Path, str] | None = None

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> TokenLists:
        """Return lists in memory, int32."""
        lengths = [len(ids) for ids in lists]
        tokens = np.fromiter(chain.from_iterable(lists), np.int32, sum(lengths))
        return cls(tokens, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))))

    @classmethod
    def open(cls, file: Path, column: str) -> TokenLists:
        """Map a column of a split."""
        lists = read_table(file)[column].chunk(0)
        opened = cls(lists.values.to_numpy(), lists.offsets.to_numpy())
        opened._place = file, column
        return opened

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self._place is not None:
            return TokenLists.open, self._place
        return TokenLists, (self.tokens, self.offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[NDArray[np.integer]]:
        """Yield the lists as views, which cannot be written to where the tokens are mapped."""
        return (self.tokens[start:end] for start, end in pairwise(self.offsets))

    def __getitem__(self, index: int) -> NDArray[np.integer]:
        """Return a copy of one list, of shape (lengths[index],)."""
        if not 0 <= index < len(self):
            raise IndexError(f"list {index} of {len(self)}")
        return np.array(self.tokens[self.offsets[index] : self.offsets[index + 1]])


class TokenStream:
    """Token lists as one long sequence.

    `len(stream)` is the number of tokens and `stream[a:b]` a copy of shape (b - a,), int64.
    """

    def __init__(self, lists: TokenLists) -> None:
        self.lists = lists

    def __len__(self) -> int:
        return len(self.lists.tokens)

    def __getitem__(self, index: slice) -> NDArray[np.int64]:
        if index.step not in (None, 1):
            raise ValueError(f"a stream is read token by token, not in steps of {index.step}")
        return self.lists.tokens[index].astype(np.int64)


def read_table(file: Path) -> pyarrow.Table:
    """Map the columns of a split; each is one chunk."""
    with pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))) as stream:
        return stream.read_all()


class SplitWriter:
    """Writes the columns of a split bit by bit; tokens wait on disk, so that memory stays flat.

    Args:
        file: `<split>.arrow`.
        schema: types of the columns; one of token lists is `large_list` of an integer.
    """

    def __init__(self, file: Path, schema: Mapping[str, pyarrow.DataType]) -> None:
        self.file, self.schema = file, pyarrow.schema(dict(schema))
        self.rows = self.tokens = 0
        self._files = {
            field.name: file.with_suffix(f".{field.name}.tokens")
            for field in self.schema
            if pyarrow.types.is_large_list(field.type)
        }
        self._numbers: dict[str, list[Any]] = {name: [] for name in self.schema.names}
        """Of a column of tokens, the lengths; of another one, the values."""
        self._sums = {name: hashlib.sha256() for name in self.schema.names}

    def __enter__(self) -> SplitWriter:
        with ExitStack() as stack:
            self._streams: dict[str, IO[bytes]] = {
                name: stack.enter_context(open(file, "wb")) for name, file in self._files.items()
            }
            self._stack = stack.pop_all()
        return self

    def append(self, **columns: Sequence[Any]) -> None:
        """Add rows; tokens are given as sequences of ids or as arrays of the column's type."""
        for name, values in columns.items():
            if name not in self._files:
                array = pyarrow.array(values, self.schema.field(name).type)
                self._numbers[name].append(array)
                self._sums[name].update("".join(f"{value!r}\n" for value in values).encode())
                continue
            dtype = self.schema.field(name).type.value_type.to_pandas_dtype()
            lengths = np.fromiter(map(len, values), np.int64, len(values))
            if len(values) and isinstance(values[0], np.ndarray):
                tokens = np.concatenate(values).astype(dtype, copy=False)
            else:
                tokens = np.fromiter(chain.from_iterable(values), dtype, int(lengths.sum()))
            content = tokens.tobytes()
            self._streams[name].write(content)
            self._sums[name].update(content)
            self._numbers[name].append(lengths)
            self.tokens += len(tokens)
        self.rows += len(next(iter(columns.values())))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        if error is None:
            columns = [self._column(field) for field in self.schema]
            batch = pyarrow.record_batch(columns, self.schema)
            with pyarrow.ipc.new_stream(str(self.file), self.schema) as stream:
                stream.write_batch(batch)
        for file in self._files.values():
            file.unlink()

    def _column(self, field: pyarrow.Field) -> pyarrow.Array:
        parts = self._numbers[field.name]
        if field.name not in self._files:
            return pyarrow.chunked_array(parts, field.type).combine_chunks()
        offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *parts]))
        self._sums[field.name].update(offsets.tobytes())
        file = self._files[field.name]
        buffer = pyarrow.py_buffer(b"")
        if file.stat().st_size:
            with pyarrow.memory_map(str(file)) as mapped:
                buffer = mapped.read_buffer()
        count = int(offsets[-1])
        tokens = pyarrow.Array.from_buffers(field.type.value_type, count, [None, buffer])
        return pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), tokens)

    def content(self) -> dict[str, str]:
        """Return the SHA-256 of each column but `index`, which says where a row stood."""
        return {name: one.hexdigest() for name, one in self._sums.items() if name != "index"}
