"""Prepared data: made once, published whole, memory-mapped by every process that reads it.

    <cache_dir>/<kind>/<key>/
        <split>.arrow     columns of the split, one record batch; `datasets.Dataset.from_file` reads it
        tokenizer/ …      what belongs to the data
        manifest.json     what was read and written, the SHA-256 of each file, and its own

The key hashes what decides the content. A folder appears under its name complete or not at all;
where several processes want it, one makes it and the others wait. Every file is checked when the
folder is first opened; its inode and time of change are remembered in `.<key>.checked` beside the
folder, and while they stay, later runs and ranks do not read it again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow
from filelock import FileLock, SoftFileLock, Timeout

from roformer.config.build import plain
from roformer.data.tokens import TokenLists
from roformer.errors import InputError, one_line
from roformer.json_files import read_object

FORMAT = 3
"""Version of the folder; that of what is in it is `version` in the key."""
MANIFEST = "manifest.json"
PACKAGES = ("datasets", "numpy", "pyarrow", "sacremoses", "tokenizers")
SETTLED = 2 * 10**9
"""Nanoseconds after which another change to a file shows in its time, on any file system."""


class Prepared:
    """A prepared data set, opened and checked; a subclass for each kind.

    `fingerprint` is equal where the content of the columns and the tokenizer are, on whatever
    machine and wherever the rows came from.
    """

    kind: ClassVar[str]

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.splits: list[str] = list(manifest["rows"])

    @classmethod
    def prepare(
        cls,
        identity: Mapping[str, Any],
        cache_dir: str | Path,
        build: Callable[[Builder], Mapping[str, Any]],
        progress: bool,
    ) -> Self:
        """Open prepared data in `<cache_dir>/<kind>/<key>`, making it first if need be.

        `identity` is all that decides the content, as JSON; `build` writes the splits and returns
        further entries of the manifest.

        Raises:
            InputError: the source is not usable, or what was prepared is damaged.
            OSError: the disk is full. What was written is removed.
        """

        def make(folder: Path) -> None:
            builder = Builder(folder)
            builder.seal(cls.kind, build(builder))

        folder = cls._folder(identity, cache_dir)
        publish(folder, make, progress)
        return cls.open(folder)

    @classmethod
    def find(cls, identity: Mapping[str, Any], cache_dir: str | Path) -> Self | None:
        """Open prepared data if it exists."""
        folder = cls._folder(identity, cache_dir)
        return cls.open(folder) if folder.exists() else None

    @classmethod
    def _folder(cls, identity: Mapping[str, Any], cache_dir: str | Path) -> Path:
        key = _hash({"format": FORMAT, "version": 1, **identity})[:16]
        return Path(cache_dir) / cls.kind / key

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open a prepared folder and check every byte, unless that was done and no file is changed.

        Raises:
            InputError: not a prepared folder, or damaged.
        """
        folder = Path(folder)
        file, again = folder / MANIFEST, f"delete {folder} and it will be prepared again"
        try:
            manifest = read_object(file)
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is missing or damaged ({error}): {again}") from error
        whole = manifest.pop("seal", None) == _hash(manifest)
        damaged = _damaged(folder, manifest["files"]) if whole else []
        if not whole or damaged:
            raise InputError(
                f"{folder / damaged[0] if whole else file} is not what was written (SHA-256): {again}"
            )
        return cls(folder, manifest)

    def tokens(self, split: str, column: str) -> TokenLists:
        """Map a column of token lists."""
        return TokenLists.open(self.folder / f"{split}.arrow", column)

    def values(self, split: str, column: str) -> Any:
        """Return a column of numbers as an array, (N,), or one of texts as a list."""
        values = read_table(self.folder / f"{split}.arrow")[column]
        texts = pyarrow.types.is_string(values.type)
        return values.to_pylist() if texts else values.to_numpy()


def settings(config: Any, *left_out: str) -> dict[str, Any]:
    """Return a config for a key, without what does not decide the content: where files lie, …"""
    return {name: value for name, value in plain(config).items() if name not in left_out}


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(folder: Path, files: Mapping[str, Any]) -> list[str]:
    """Return the files that are not what was written; those that passed before are not read again."""
    passed, found = folder.with_name(f".{folder.name}.checked"), list[Any]()
    for name, stored in files.items():
        with suppress(OSError):
            stat = (folder / name).stat()
            # The time of change, unlike that of modification, cannot be set.
            found.append([name, stored["sha256"], stat.st_size, stat.st_ino, stat.st_ctime_ns])
    with suppress(OSError, ValueError):
        if len(found) == len(files) and json.loads(passed.read_text(encoding="utf-8")) == found:
            return []
    damaged = [n for n, stored in files.items() if _file_hash(folder / n) != stored["sha256"]]
    if not damaged and all(time.time_ns() - changed > SETTLED for *_, changed in found):
        with suppress(OSError):  # of a disk that can only be read
            passed.write_text(json.dumps(found), encoding="utf-8")
    return damaged


def _file_hash(file: Path) -> str | None:
    """Return the SHA-256 of a file; None where there is none."""
    with suppress(FileNotFoundError, IsADirectoryError), open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
    return None


# --- writing -------------------------------------------------------------------------------------


class Builder:
    """A prepared data set that is being made in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writers: dict[str, SplitWriter] = {}

    def split(self, name: str, **schema: pyarrow.DataType) -> SplitWriter:
        """Begin a split; token lists are columns of `large_list` of an integer."""
        self.writers[name] = SplitWriter(self.folder / f"{name}.arrow", schema)
        return self.writers[name]

    def seal(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Write splits and manifest; `facts["tokenizer"]["fingerprint"]` is part of the content."""
        content = {split: writer.close() for split, writer in self.writers.items()}
        tokenizer = facts.get("tokenizer", {}).get("fingerprint")
        files = {
            file.relative_to(self.folder).as_posix(): {
                "bytes": file.stat().st_size,
                "sha256": _file_hash(file),
            }
            for file in sorted(self.folder.rglob("*"))
            if file.is_file()
        }
        versions = {name: metadata.version(name) for name in PACKAGES}
        manifest = {
            "kind": kind,
            "format": FORMAT,
            "fingerprint": _hash([kind, content, tokenizer]),
            "rows": {split: writer.rows for split, writer in self.writers.items()},
            "tokens": {split: writer.tokens for split, writer in self.writers.items()},
            **facts,
            "files": files,
            "versions": {"python": platform.python_version(), **versions},
        }
        manifest["seal"] = _hash(manifest)
        text = json.dumps(manifest, indent=2) + "\n"
        (self.folder / MANIFEST).write_text(text, encoding="utf-8")


class SplitWriter:
    """Writes the columns of a split bit by bit, in little memory.

    Arrow keeps a column in one piece only where it is written in one record batch. So the tokens of a
    column are collected in a file of their own, which is mapped to write the split. (`Dataset.map`
    writes many batches, and its processes compete with the threads of `tokenizers`.)
    """

    def __init__(self, file: Path, schema: Mapping[str, pyarrow.DataType]) -> None:
        self.file, self.schema = file, pyarrow.schema(dict(schema))
        self.rows = self.tokens = 0
        self._tokens = {
            name: TemporaryFile(dir=file.parent)  # noqa: SIM115 closed with the split
            for name, type_ in schema.items()
            if pyarrow.types.is_large_list(type_)
        }
        self._numbers: dict[str, list[Any]] = {name: [] for name in schema}
        """Lengths of a column of tokens; values of any other column."""
        self._sums = {name: hashlib.sha256() for name in schema}

    def append(self, **columns: Sequence[Any]) -> None:
        """Add rows; tokens are given as sequences of ids."""
        for name, values in columns.items():
            type_ = self.schema.field(name).type
            if name not in self._tokens:
                self._numbers[name].append(pyarrow.array(values, type_))
                self._sums[name].update("".join(f"{value!r}\n" for value in values).encode())
                continue
            dtype = type_.value_type.to_pandas_dtype()
            lists = [np.asarray(ids, dtype) for ids in values]
            content = np.concatenate([np.empty(0, dtype), *lists]).tobytes()
            self._tokens[name].write(content)
            self._sums[name].update(content)
            self._numbers[name].append(np.array([len(ids) for ids in lists], np.int64))
            self.tokens += int(self._numbers[name][-1].sum())
        self.rows += len(next(iter(columns.values())))

    def close(self) -> dict[str, str]:
        """Write the split; return the SHA-256 of each column but `index`, where a row stood."""
        columns = [self._column(field) for field in self.schema]
        with pyarrow.ipc.new_stream(str(self.file), self.schema) as stream:
            stream.write_batch(pyarrow.record_batch(columns, self.schema))
        return {name: one.hexdigest() for name, one in self._sums.items() if name != "index"}

    def _column(self, field: pyarrow.Field) -> pyarrow.Array:
        parts = self._numbers[field.name]
        if field.name not in self._tokens:
            return pyarrow.chunked_array(parts, field.type).combine_chunks()
        offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *parts]))
        self._sums[field.name].update(offsets.tobytes())
        with self._tokens[field.name] as file:
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if offsets[-1] else b""
        buffers = [None, pyarrow.py_buffer(mapped)]
        tokens = pyarrow.Array.from_buffers(field.type.value_type, int(offsets[-1]), buffers)
        return pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), tokens)


def read_table(file: Path) -> pyarrow.Table:
    """Map the columns of a split; each is one chunk."""
    with pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))) as stream:
        return stream.read_all()


class Spool:
    """Rows that wait on disk to be read again, any number of times, as JSON."""

    def __init__(self, folder: Path) -> None:
        self.rows = 0
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 closed with the spool

    def append(self, row: Any) -> None:
        """Add a row."""
        self._file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        self.rows += 1

    def __iter__(self) -> Iterator[Any]:
        """Read the rows from the first one on; one reader at a time."""
        self._file.seek(0)
        return map(json.loads, self._file)


# --- folders -------------------------------------------------------------------------------------


def publish(folder: Path, make: Callable[[Path], None], progress: bool) -> None:
    """Make a folder unless it is there: complete or not at all, and in one process at a time.

    Raises:
        OSError: the disk is full; names the folder. What was written is removed.
    """
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f"{folder.name}.tmp")
    with _locked(folder, progress):
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        if folder.exists():  # made by the process that was waited for
            return
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
    file = folder.with_name(f".{folder.name}.lock")
    lock = FileLock(file)
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        if progress:
            holder = ""
            with suppress(OSError):  # it may have been released meanwhile
                holder = file.read_text(encoding="utf-8")
            told = f"waiting: {one_line(holder) or 'another process is at work'}"
            print(told, file=sys.stderr, flush=True)
        held = lock.acquire()
    with held:
        try:
            # On a disk without flock the content of the file is the lock, and is the library's.
            if not isinstance(lock, SoftFileLock):
                with suppress(OSError):  # of a full disk
                    holder = f"process {os.getpid()} on {socket.gethostname()} is making {folder}"
                    file.write_text(holder, encoding="utf-8")
            yield
        finally:
            file.unlink(missing_ok=True)  # still held: a waiting process notices that it is gone
