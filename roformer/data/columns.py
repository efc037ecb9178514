"""Columns of a prepared split on disk, as Arrow: who writes them, and who maps them.

Arrow keeps a column in one piece only where it is written in one record batch, so a split is one
batch. In little memory: the tokens of a column are collected in a file of their own, which is mapped
to write the split. The `map` of `datasets` would write many batches, and its processes would start
the threads of `tokenizers` anew, which already use all cores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import pyarrow


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
