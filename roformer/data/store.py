"""On-disk cache of tokenized data: made under a lock, renamed into place, memory-mapped.

    <cache_dir>/<kind>/<key>/
        <split>.<column>.npy           token ids of all lists
        <split>.<column>.offsets.npy   start of each list and end of the last, int64 (N + 1,)
        <split>.json                   other columns: labels, texts, …
        tokenizer/ …                   other files of the data
        manifest.json                  the source and what was read

The key hashes what decides the content. A folder is complete once it has its name. Where several
processes want it, one makes it and the others wait.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from roformer.config.build import plain
from roformer.data.work import UNGUARDED
from roformer.errors import InputError, naming
from roformer.json_files import read_object

FORMAT = 4
"""Version of the folder's format, in its key."""
MANIFEST = "manifest.json"


class Prepared:
    """A prepared data set; `fingerprint` hashes the columns and the tokenizer, but no place of the source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.manifest = read_object(folder / MANIFEST)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{folder / MANIFEST} is missing or damaged ({error}): delete {folder} and it will "
                "be prepared again"
            ) from error
        self.fingerprint: str = self.manifest["fingerprint"]
        self.splits: list[str] = list(self.manifest["rows"])

    @classmethod
    def prepare(
        cls,
        kind: str,
        identity: Mapping[str, Any],
        cache_dir: str | Path,
        build: Callable[[Builder], Mapping[str, Any]],
        progress: bool,
    ) -> Self:
        """Open prepared data in `<cache_dir>/<kind>/<key>`, making it first if it is missing.

        `identity` decides the content; `build` writes the splits and returns entries of the manifest.
        """

        def make(folder: Path) -> None:
            builder = Builder(folder)
            builder.finish(kind, build(builder))

        folder = folder_of(kind, identity, cache_dir)
        publish(folder, make, progress)
        return cls(folder)

    def tokens(self, split: str, column: str) -> RaggedTokens:
        """Map a column of token lists."""
        return RaggedTokens.open(self.folder / f"{split}.{column}")

    def values(self, split: str) -> dict[str, list[Any]]:
        """Read the other columns of a split."""
        return read_object(self.folder / f"{split}.json")


def settings(config: Any) -> dict[str, Any]:
    """Return the settings that decide the content: not a local path or the way of the transport."""
    excluded = {"streaming", "url", *([] if hasattr(config, "revision") else ["path"])}
    return {name: value for name, value in plain(config).items() if name not in excluded}


def folder_of(kind: str, identity: Mapping[str, Any], cache_dir: str | Path) -> Path:
    """Return the folder of prepared data, which may not exist yet."""
    return Path(cache_dir) / kind / _hash({"format": FORMAT, "version": 2, **identity})[:16]


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# --- token lists ---------------------------------------------------------------------------------


class RaggedTokens:
    """N lists of token ids: concatenated `tokens`, and `offsets` (N + 1,) of each start and the last end.

    Tokens mapped from `files` (a path without the suffix) pickle as this name, for DataLoader workers.
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
        """Return a copy of one list."""
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
    """Writer of the files of a `RaggedTokens`, in batches; memory holds only the lengths."""

    def __init__(self, files: Path, dtype: DTypeLike) -> None:
        self.dtype, self.count = np.dtype(dtype), 0
        self._file, self._offsets_file = _names(files)
        self._lengths, self._digest = array("q"), hashlib.sha256()
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


# --- writing -------------------------------------------------------------------------------------


class Builder:
    """A prepared data set that is being made in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writers: dict[str, SplitWriter] = {}

    def split(self, name: str, **tokens: DTypeLike) -> SplitWriter:
        """Begin a split with these columns of token lists."""
        self.writers[name] = SplitWriter(self.folder / name, tokens)
        return self.writers[name]

    def finish(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Complete splits and manifest; the fingerprint includes `facts["tokenizer"]["fingerprint"]`."""
        content = {split: writer.close() for split, writer in self.writers.items()}
        tokenizer = facts.get("tokenizer", {}).get("fingerprint")
        manifest = {
            "fingerprint": _hash([kind, content, tokenizer]),
            "rows": {split: writer.rows for split, writer in self.writers.items()},
            "tokens": {split: writer.tokens for split, writer in self.writers.items()},
            **facts,
        }
        text = json.dumps(manifest, indent=2) + "\n"
        (self.folder / MANIFEST).write_text(text, encoding="utf-8")


class SplitWriter:
    """Writer of a split, in batches: token lists go to disk at once, other values at the end."""

    def __init__(self, path: Path, tokens: Mapping[str, DTypeLike]) -> None:
        self.rows, self._file = 0, path.with_name(f"{path.name}.json")
        self._tokens = {
            name: TokenWriter(path.with_name(f"{path.name}.{name}"), dtype)
            for name, dtype in tokens.items()
        }
        self._values: dict[str, list[Any]] = {}

    @property
    def tokens(self) -> int:
        return sum(writer.count for writer in self._tokens.values())

    def append(self, **columns: Sequence[Any]) -> None:
        """Add rows."""
        for name, rows in columns.items():
            if name in self._tokens:
                self._tokens[name].append(rows)
            else:
                self._values.setdefault(name, []).extend(rows)
        self.rows += len(rows)

    def close(self) -> dict[str, str]:
        """Complete the split; return the SHA-256 of each column except `index`, a place in the source."""
        hashes = {name: writer.close() for name, writer in self._tokens.items()}
        for name, rows in self._values.items():
            if name != "index":
                lines = "".join(f"{value!r}\n" for value in rows)
                hashes[name] = hashlib.sha256(lines.encode()).hexdigest()
        if self._values:
            self._file.write_text(json.dumps(self._values, ensure_ascii=False), encoding="utf-8")
        return hashes


_JSON = json.JSONEncoder(ensure_ascii=False)
"""One for all rows: `json.dumps` with options makes one per call."""


class Spool:
    """Rows on disk, as JSON, that can be read any number of times."""

    def __init__(self, folder: Path) -> None:
        self.rows = 0
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 closed with the spool

    @staticmethod
    def line(row: Any) -> bytes:
        """Return a row as JSON."""
        return _JSON.encode(row).encode() + b"\n"

    def append(self, row: Any) -> None:
        """Add a row."""
        self.extend([self.line(row)])

    def extend(self, lines: Iterable[bytes]) -> None:
        """Add rows that are JSON already."""
        for line in lines:
            self._file.write(line)
            self.rows += 1

    def lines(self) -> Iterator[bytes]:
        """Read the rows as JSON from the first one on; one reader at a time."""
        self._file.seek(0)
        return iter(self._file)

    def __iter__(self) -> Iterator[Any]:
        """Read the rows from the first one on; one reader at a time."""
        return map(json.loads, self.lines())


# --- folders -------------------------------------------------------------------------------------


def publish(folder: Path, make: Callable[[Path], None], progress: bool) -> None:
    """Make a folder unless it exists: complete or not at all, in one process at a time."""
    if folder.exists():
        return
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InputError(UNGUARDED)  # the process that makes it waits for this worker
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f"{folder.name}.tmp")
    with _locked(folder, progress), naming(folder):
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        if folder.exists():  # made by the process that was waited for
            return
        try:
            temporary.mkdir()
            make(temporary)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _locked(folder: Path, progress: bool) -> Iterator[None]:
    """Hold the lock of a folder; the lock ends with the process."""
    from filelock import FileLock, Timeout  # part of the extra `train`

    file = folder.with_name(f".{folder.name}.lock")
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if progress:
            print(f"waiting: another process is making {folder}", file=sys.stderr, flush=True)
        lock.acquire()
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # still held: a waiting process notices that it is gone
        lock.release()
