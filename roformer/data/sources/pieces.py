"""Pieces of one long text: installed packages, local files, or enwik8 from its own site. Files are:

* `.txt` `.gz` `.zip` and names without a suffix, such as `enwik8`: their bytes, unpacked, as they are;
* `.jsonl(.gz)` `.json(.gz)`: the text of each row, `SEPARATOR` after it.
"""

from __future__ import annotations

import gzip
import hashlib
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from roformer.config.lm import BuiltinBytes, Bytes, Enwik8, FileBytes
from roformer.config.schema import FilesText
from roformer.data.sources import Source
from roformer.data.sources.files import (
    FileDocuments,
    dates,
    find_files,
    first_line,
    identity,
    readable,
)
from roformer.data.store import publish
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.errors import InputError

SEPARATOR = b"\n\n"
"""Between the documents of a source that has documents."""
ROWS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
RAW = (".txt", ".gz", ".zip", "")
ARCHIVES = (".tar.gz", ".parquet.gz")
"""What a .gz may hold and be no text."""
PIECE = 2**20
"""Bytes that are read at once."""
PATIENCE = 30
"""Seconds that a server may take to answer."""


def open_bytes(
    config: Bytes, cache_dir: str | Path, *, workers: int | None = None, progress: bool = False
) -> Source[bytes]:
    """Open the source that the config names, reading nothing yet but a list of files.

    Args:
        config: which text.
        cache_dir: downloads are kept below it.
        workers: processes that parse the built-in text; null: one a core.
        progress: tell of a download.

    Raises:
        InputError: a path that does not exist, or holds no file of a supported kind.
    """
    if isinstance(config, BuiltinBytes):
        return Docstrings(workers)
    if isinstance(config, FileBytes):
        return ByteFiles(config)
    return Downloaded(config, Path(cache_dir), progress)


class Docstrings:
    """The built-in text of pre-training; its files in the order of the hashes of their names.

    So train, valid and test have the same packages in them, and so has any part of the text.
    """

    splits = ("all",)

    def __init__(self, workers: int | None) -> None:
        self.workers = workers
        self.skipped: list[str] = []

    def rows(self, split: str = "all") -> Iterator[bytes]:
        self.skipped = []
        found = docstring_documents(workers=self.workers, skipped=self.skipped, shuffled=True)
        return (document.encode() + SEPARATOR for document in found)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "builtin",
            "packages": docstring_packages(),
            "order": "sha256 of the name of the file",
            "files_skipped": self.skipped,
        }

    def key(self) -> dict[str, Any]:
        return {"packages": docstring_packages()}


# --- files ---------------------------------------------------------------------------------------


class ByteFiles:
    """Local files, in the order of their names relative to the folder, file or glob given."""

    splits = ("all",)

    def __init__(self, config: FileBytes) -> None:
        self.config = config
        self.root, found = find_files(config.path, (*RAW, *ROWS))
        single = found == [Path(config.path).expanduser()]
        # Of a folder, files without a suffix are as likely a licence as a text.
        self.files = [file for file in found if is_text(file) and (single or file.suffix)]
        if not self.files:
            raise InputError(
                f"data.path={config.path} is nothing of .txt, .gz, .zip or .jsonl(.gz): convert it"
            )
        self.tables: list[FileDocuments] = []
        """Of the files of rows that were read."""

    def rows(self, split: str = "all") -> Iterator[bytes]:
        self.tables = []
        for file in self.files:
            empty = True
            for piece in self._pieces(file):
                empty = empty and not piece
                yield piece
            if empty:
                raise InputError(f"{file} is empty: remove it, or take it out of data.path")

    def _pieces(self, file: Path) -> Iterator[bytes]:
        if file.name.endswith(ROWS):
            return self._rows(file)
        if file.suffix == ".zip":
            return member_pieces(file, self.config.member)
        return plain_pieces(file)

    def _rows(self, file: Path) -> Iterator[bytes]:
        config = self.config
        rows = FileDocuments(
            FilesText(
                path=str(file), text_field=config.text_field, max_bad_rows=config.max_bad_rows
            )
        )
        self.tables.append(rows)
        return (text.encode() + SEPARATOR for text in rows.rows())

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "files",
            "files": [identity(file, self.root) for file in self.files],
            "rows_skipped": sum(table.bad.count for table in self.tables),
        }

    def key(self) -> dict[str, Any]:
        return {"files": dates(self.files, self.root)}


def is_text(file: Path) -> bool:
    """Return whether a file's name is one of those that are read."""
    name = file.name.lower()
    return not name.endswith(ARCHIVES) and (name.endswith(ROWS) or file.suffix in RAW)


def plain_pieces(file: Path) -> Iterator[bytes]:
    """Yield the bytes of a file; of a .gz, unpacked.

    Raises:
        InputError: it cannot be read or unpacked.
    """
    opener = cast(Callable[..., IO[bytes]], gzip.open if file.suffix == ".gz" else open)
    with readable(file), opener(file, "rb") as stream:
        while piece := stream.read(PIECE):
            yield piece


def member_pieces(file: Path, member: str | None) -> Iterator[bytes]:
    """Yield the bytes of one file in a .zip.

    Args:
        file: the .zip.
        member: which; None: the only one.

    Raises:
        InputError: no .zip, damaged, encrypted, or it does not have that one file.
    """
    with readable(file), unzippable(file), zipfile.ZipFile(file) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        chosen = [name for name in names if member in (None, name)]
        if len(chosen) != 1:
            listed = ", ".join(names[:10]) or "nothing"
            raise InputError(f"{file} holds {listed}: choose one file with data.member=…")
        with archive.open(chosen[0]) as stream:
            while piece := stream.read(PIECE):
                yield piece


@contextmanager
def unzippable(file: Path) -> Iterator[None]:
    """Turn what goes wrong in unpacking a .zip into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    # RuntimeError: encrypted; NotImplementedError: packed in a way that Python cannot undo.
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError, NotImplementedError) as error:
        raise InputError(
            f"{file} is not a .zip that can be unpacked ({first_line(error)}): fetch it again"
        ) from error


# --- enwik8 --------------------------------------------------------------------------------------


class Downloaded:
    """One file of a .zip on the web, which is known by its SHA-256 and kept in the cache."""

    splits = ("all",)

    def __init__(self, config: Enwik8, cache_dir: Path, progress: bool) -> None:
        self.config, self.progress = config, progress
        self.folder = cache_dir / "downloads" / config.sha256[:16]

    def rows(self, split: str = "all") -> Iterator[bytes]:
        publish(self.folder, lambda folder: self._download(folder / "download.zip"), self.progress)
        return member_pieces(self.folder / "download.zip", self.config.member)

    def _download(self, file: Path) -> None:
        url, digest = self.config.url, hashlib.sha256()
        if self.progress:
            print(f"downloading {url}", flush=True)
        try:
            # The schema lets http and https through alone.
            with (
                urllib.request.urlopen(url, timeout=PATIENCE) as answer,
                open(file, "wb") as stream,
            ):
                while piece := answer.read(PIECE):
                    stream.write(piece)
                    digest.update(piece)
        # urllib, http.client and ssl share no base class but that of a full disk.
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None and error.filename:
                raise
            raise InputError(
                f"{url} cannot be had: {type(error).__name__}, {first_line(error)}; fetch it where "
                "there is a network and give data=files data.path=enwik8.zip"
            ) from error
        if digest.hexdigest() != self.config.sha256:
            raise InputError(
                f"{url} is not the file that data.sha256 names ({digest.hexdigest()[:16]}… instead of "
                f"{self.config.sha256[:16]}…): nothing of it is used; try again, or another data.url"
            )

    def describe(self) -> dict[str, Any]:
        config = self.config
        return {
            "kind": "download",
            "url": config.url,
            "sha256": config.sha256,
            "member": config.member,
        }

    def key(self) -> dict[str, Any]:
        return {}  # the SHA-256 stands in the config


def cut(pieces: Iterable[bytes], most: int | None) -> Iterator[bytes]:
    """Yield pieces up to `most` bytes in all, and ask for no piece beyond them."""
    left = most
    for piece in pieces:
        if left is not None:
            piece, left = piece[:left], left - len(piece)
        yield piece
        if left is not None and left <= 0:
            return
