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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow
from filelock import FileLock, Timeout

from roformer.data.columns import SplitWriter, read_table
from roformer.data.tokens import TokenLists
from roformer.errors import InputError
from roformer.json_files import read_object

FORMAT = 3
"""Of the folder. A version of what is in it stands in the identity that `prepare` is given."""
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
        """Open a prepared folder; every byte is checked.

        Raises:
            InputError: not a prepared folder, of another kind or format, or damaged.
        """
        folder = Path(folder)
        file, again = folder / MANIFEST, f"delete {folder} and it will be prepared again"
        try:
            manifest = read_object(file)
        except FileNotFoundError as error:
            raise InputError(
                f"{folder} has no {MANIFEST}, so it is no prepared data (in a cache: {again})"
            ) from error
        except (OSError, ValueError) as error:
            raise InputError(f"{file} is damaged ({error}): {again}") from error
        found = manifest.get("kind"), manifest.get("format")
        if found != (kind, FORMAT):
            raise InputError(
                f"{folder} is {found[0]} of format {found[1]}, not {kind} of format {FORMAT}: {again}"
            )
        if manifest.pop("seal", None) != _hash(manifest):
            raise InputError(f"{file} is not what was written (SHA-256): {again}")
        for name, stored in manifest["files"].items():
            member = folder / name
            size = member.stat().st_size if member.is_file() else 0
            if size != stored["bytes"] or not member.is_file():
                raise InputError(f"{member} has {size:,} bytes, not {stored['bytes']:,}: {again}")
            if _file_hash(member) != stored["sha256"]:
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


class Builder:
    """A prepared data set that is being made.

    Args:
        folder: takes the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writers: dict[str, SplitWriter] = {}

    def split(self, name: str, **schema: pyarrow.DataType) -> SplitWriter:
        """Return the writer of a split, to be used in a `with` statement."""
        self.writers[name] = SplitWriter(self.folder / f"{name}.arrow", schema)
        return self.writers[name]

    def seal(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Write the manifest.

        Args:
            kind: of the data.
            facts: what it says besides; `facts["tokenizer"]["fingerprint"]` is part of the content.
        """
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


def prepare(
    kind: str,
    identity: Mapping[str, Any],
    cache_dir: str | Path,
    build: Callable[[Builder], Mapping[str, Any]],
    *,
    progress: bool = True,
) -> Prepared:
    """Open prepared data, making it first where that was not done yet.

    Args:
        kind: names the folder below `cache_dir`.
        identity: everything that decides the content, as JSON.
        cache_dir: the data goes to `<cache_dir>/<kind>/<key>`.
        build: writes the splits and returns the facts of the manifest.
        progress: tell on stderr for whom it waits.

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


# --- folders -------------------------------------------------------------------------------------


def publish(folder: Path, make: Callable[[Path], None], progress: bool) -> None:
    """Make a folder unless it is there: complete or not at all, and in one process at a time.

    Args:
        folder: what is made.
        make: writes all of it into the empty folder that it is given.
        progress: tell on stderr for whom it waits.

    Raises:
        OSError: the disk is full; names the folder. What was written is removed.
    """
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder, progress):
        if folder.exists():  # whoever was waited for has made it
            return
        _remove_abandoned(folder.parent)
        temporary = folder.with_name(f"{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            make(temporary)
            _sync(*temporary.rglob("*"), temporary)
            temporary.rename(folder)
            _sync(folder.parent)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                what = "the disk is full; what was written is removed. Move runtime.cache_dir"
                raise OSError(errno.ENOSPC, what, str(folder)) from error
            raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _alone(folder: Path, progress: bool) -> Iterator[None]:
    """Hold the lock of a folder; it ends with the process, however that ends."""
    file = folder.with_name(f"{folder.name}.lock")
    lock = FileLock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if progress:
            with suppress(OSError, UnicodeDecodeError):
                holder = file.read_text(encoding="utf-8") or "another process"
                print(f"waiting: {holder} is making {folder}", file=sys.stderr, flush=True)
        lock.acquire()
    # Where a file system has no locks of the kernel's, filelock keeps its own account in the file.
    kernel = type(lock) is FileLock
    try:
        if kernel:
            with suppress(OSError):  # a disk that is full
                file.write_text(
                    f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8"
                )
        yield
    finally:
        if kernel:
            file.unlink(missing_ok=True)  # still held: a waiting process notices that it is gone
        lock.release()


def _remove_abandoned(parent: Path) -> None:
    """Remove what killed processes left: nobody holds its lock."""
    for temporary in parent.glob("*.tmp"):
        file = temporary.with_suffix(".lock")
        with suppress(Timeout, OSError), FileLock(file).acquire(blocking=False):
            shutil.rmtree(temporary, ignore_errors=True)
            file.unlink(missing_ok=True)


def _sync(*paths: Path) -> None:
    """Have files and folders on disk, not only in memory."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
