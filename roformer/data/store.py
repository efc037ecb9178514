"""Prepared data: made once, published whole, memory-mapped by every process that reads it.

    <cache_dir>/<kind>/<key>/
        <split>.arrow     columns of the split, one record batch; `datasets.Dataset.from_file` reads it
        tokenizer/ …      what belongs to the data
        manifest.json     what was read and written, the SHA-256 of each file, and its own

The key hashes what decides the content. A folder appears under its name complete or not at all;
where several processes want it, one makes it and the others wait. Every file is checked when the
folder is opened, and trusted from then on.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import pyarrow
from filelock import FileLock, Timeout

from roformer.data.tokens import TokenLists
from roformer.errors import InputError
from roformer.json_files import read_object

FORMAT = 3
"""Version of the folder. A version of what is in it stands in the identity that `prepare` is given."""
MANIFEST = "manifest.json"
PACKAGES = ("datasets", "numpy", "pyarrow", "sacremoses", "tokenizers")


class Prepared:
    """A prepared data set, opened and checked.

    `fingerprint` is equal where the content of the columns and the tokenizer are, on whatever
    machine and wherever the rows came from.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.splits: list[str] = list(manifest["rows"])

    @classmethod
    def open(cls, folder: str | Path, kind: str) -> Prepared:
        """Open a prepared folder and check every byte.

        Raises:
            InputError: not a prepared folder, of another kind or format, or damaged.
        """
        folder = Path(folder)
        file, again = folder / MANIFEST, f"delete {folder} and it will be prepared again"
        try:
            manifest = read_object(file)
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is missing or damaged ({error}): {again}") from error
        found = manifest.get("kind"), manifest.get("format")
        if found != (kind, FORMAT):
            raise InputError(
                f"{folder} is {found[0]} of format {found[1]}, not {kind} of format {FORMAT}: {again}"
            )
        if manifest.pop("seal", None) != _hash(manifest):
            raise InputError(f"{file} is not what was written (SHA-256): {again}")
        for name, stored in manifest["files"].items():
            member = folder / name
            if not member.is_file() or _file_hash(member) != stored["sha256"]:
                raise InputError(f"{member} is not what was written (SHA-256): {again}")
        return cls(folder, manifest)

    def tokens(self, split: str, column: str) -> TokenLists:
        """Map a column of token lists."""
        return TokenLists.open(self._file(split), column)

    def values(self, split: str, column: str) -> Any:
        """Return a column of numbers as an array, (N,), or one of texts as a list."""
        values = read_table(self._file(split))[column]
        texts = pyarrow.types.is_string(values.type)
        return values.to_pylist() if texts else values.to_numpy()

    def _file(self, split: str) -> Path:
        if split not in self.splits:
            raise InputError(f"{self.folder} has no split {split!r}, but {', '.join(self.splits)}")
        return self.folder / f"{split}.arrow"


def prepare(
    kind: str,
    identity: Mapping[str, Any],
    cache_dir: str | Path,
    build: Callable[[Builder], Mapping[str, Any]],
    *,
    progress: bool = True,
) -> Prepared:
    """Open prepared data in `<cache_dir>/<kind>/<key>`, making it first if need be.

    Args:
        kind: of the data.
        identity: everything that decides the content, as JSON.
        cache_dir: of all prepared data.
        build: writes the splits and returns further entries of the manifest.
        progress: print to stderr which process is waited for.

    Raises:
        InputError: the source is not usable, or what was prepared is damaged.
        OSError: the disk is full. What was written is removed.
    """

    def make(folder: Path) -> None:
        builder = Builder(folder)
        builder.seal(kind, build(builder))

    folder = Path(cache_dir) / kind / _hash({"format": FORMAT, **identity})[:16]
    publish(folder, make, progress)
    return Prepared.open(folder, kind)


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _file_hash(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- writing -------------------------------------------------------------------------------------


class Builder:
    """A prepared data set that is being made in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writers: dict[str, SplitWriter] = {}

    def split(self, name: str, **schema: pyarrow.DataType) -> SplitWriter:
        """Return the writer of a split, to be used in a `with` statement."""
        self.writers[name] = SplitWriter(self.folder / f"{name}.arrow", schema)
        return self.writers[name]

    def seal(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Write the manifest; `facts["tokenizer"]["fingerprint"]` is part of the content."""
        content = {split: writer.content() for split, writer in self.writers.items()}
        tokenizer = facts.get("tokenizer", {}).get("fingerprint")
        files = sorted(file for file in self.folder.rglob("*") if file.is_file())
        manifest = {
            "kind": kind,
            "format": FORMAT,
            "fingerprint": _hash([kind, content, tokenizer]),
            "rows": {split: writer.rows for split, writer in self.writers.items()},
            "tokens": {split: writer.tokens for split, writer in self.writers.items()},
            **facts,
            "files": {
                file.relative_to(self.folder).as_posix(): {
                    "bytes": file.stat().st_size,
                    "sha256": _file_hash(file),
                }
                for file in files
            },
            "versions": {"python": platform.python_version()}
            | {name: metadata.version(name) for name in PACKAGES},
        }
        manifest["seal"] = _hash(manifest)
        text = json.dumps(manifest, indent=2) + "\n"
        (self.folder / MANIFEST).write_text(text, encoding="utf-8")


class SplitWriter:
    """Writes the columns of a split bit by bit, in little memory.

    Arrow keeps a column in one piece only where it is written in one record batch. So the tokens of a
    column are collected in a file of their own, which is mapped to write the split. (`Dataset.map`
    writes many batches, and its processes compete with the threads of `tokenizers`.)

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
        """Lengths of a column of tokens; values of any other column."""
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


def read_table(file: Path) -> pyarrow.Table:
    """Map the columns of a split; each is one chunk."""
    with pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))) as stream:
        return stream.read_all()


# --- folders -------------------------------------------------------------------------------------


def publish(folder: Path, make: Callable[[Path], None], progress: bool) -> None:
    """Make a folder unless it is there: complete or not at all, and in one process at a time.

    Raises:
        OSError: the disk is full; names the folder. What was written is removed.
    """
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder, progress):
        if folder.exists():  # made by the process that was waited for
            return
        _remove_abandoned(folder.parent)
        temporary = folder.with_name(f"{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            make(temporary)
            temporary.rename(folder)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                what = "the disk is full; what was written is removed. Move runtime.cache_dir"
                raise OSError(errno.ENOSPC, what, str(folder)) from error
            raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _locked(folder: Path, progress: bool) -> Iterator[None]:
    """Hold the lock of a folder; it ends with the process, however that ends."""
    file = folder.with_name(f"{folder.name}.lock")
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if progress:
            with suppress(OSError):
                holder = file.read_text(encoding="utf-8") or "another process"
                print(f"waiting: {holder} is making {folder}", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        with suppress(OSError):  # a disk that is full
            file.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        file.unlink(missing_ok=True)  # still held: a waiting process notices that it is gone
        lock.release()


def _remove_abandoned(parent: Path) -> None:
    """Remove what killed processes left: nobody holds its lock."""
    for temporary in parent.glob("*.tmp"):
        file = temporary.with_suffix(".lock")
        with suppress(Timeout, OSError), FileLock(file).acquire(blocking=False):
            shutil.rmtree(temporary, ignore_errors=True)
            file.unlink(missing_ok=True)
