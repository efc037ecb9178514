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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from roformer.config.lm import BuiltinBytes, Bytes, Enwik8, FileBytes
from roformer.data.sources import MadeRows, Source
from roformer.data.sources.files import (
    BadRows,
    dates,
    find_files,
    first_line,
    identity,
    json_texts,
    readable,
    usable,
)
from roformer.data.store import publish
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.errors import InputError

SEPARATOR = b"\n\n"
"""Between the documents of a source that has documents."""
ROWS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
RAW = (".txt", ".gz", ".zip", "")
ARCHIVES = (".tar.gz", ".parquet.gz")
"""Kinds of .gz that hold no text."""
PIECE = 2**20
"""Bytes that are read at once."""
PATIENCE = 30
"""Seconds that a server may take to answer."""


def open_bytes(
    config: Bytes, cache_dir: str | Path, *, workers: int | None = None, progress: bool = False
) -> Source[bytes]:
    """Open the source that the config names, reading nothing yet but a list of files.

    Raises:
        InputError: a path that does not exist, or holds no file of a supported kind.
    """
    if isinstance(config, BuiltinBytes):
        return BuiltinDocstrings(workers)
    if isinstance(config, FileBytes):
        return ByteFiles(config)
    return Download(config, Path(cache_dir), progress)


class BuiltinDocstrings(MadeRows[bytes]):
    """The built-in text of pre-training; its files in the order of the hashes of their names.

    So train, valid and test have the same packages in them, and so has any part of the text.
    """

    def __init__(self, workers: int | None) -> None:
        skipped: list[str] = []
        packages = docstring_packages()
        super().__init__(
            lambda _: (
                document.encode() + SEPARATOR
                for document in docstring_documents(workers=workers, skipped=skipped, shuffled=True)
            ),
            {"packages": packages},
            kind="builtin",
            packages=packages,
            order="sha256 of the name of the file",
            files_skipped=skipped,
        )

    def describe(self) -> dict[str, Any]:
        return self.account


class ByteFiles(Source[bytes]):
    """Local files, in the order of their names relative to the folder, file or glob given."""

    def __init__(self, config: FileBytes) -> None:
        self.config = config
        self.root, found = find_files(config.path, (*RAW, *ROWS))
        single = found == [Path(config.path).expanduser()]
        # Of a folder, files without a suffix are as likely a licence as a text.
        self.files = [file for file in found if _is_text(file) and (single or file.suffix)]
        if not self.files:
            raise InputError(
                f"data.path={config.path} is nothing of .txt, .gz, .zip or .jsonl(.gz): convert it"
            )
        self.skipped = 0

    def rows(self, split: str = "all") -> Iterator[bytes]:
        self.skipped = 0
        for file in self.files:
            empty = True
            for piece in self._pieces(file):
                empty = empty and not piece
                yield piece
            if empty:
                raise InputError(f"{file} is empty: remove it, or take it out of data.path")

    def _pieces(self, file: Path) -> Iterator[bytes]:
        if file.name.endswith(ROWS):
            bad = BadRows(self.config.max_bad_rows, self.root)
            for text in usable(file, json_texts(file, self.config.text_field), bad):
                yield text.encode() + SEPARATOR
            self.skipped += bad.count
        elif file.suffix == ".zip":
            yield from unzipped(file, self.config.member)
        else:
            opener = cast(Callable[..., IO[bytes]], gzip.open if file.suffix == ".gz" else open)
            with readable(file), opener(file, "rb") as stream:
                while piece := stream.read(PIECE):
                    yield piece

    def describe(self) -> dict[str, Any]:
        files = [identity(file, self.root) for file in self.files]
        return {"kind": "files", "files": files, "rows_skipped": self.skipped}

    def key(self) -> dict[str, Any]:
        return {"files": dates(self.files, self.root)}


def _is_text(file: Path) -> bool:
    name = file.name.lower()
    return not name.endswith(ARCHIVES) and (name.endswith(ROWS) or file.suffix in RAW)


def unzipped(file: Path, member: str | None) -> Iterator[bytes]:
    """Yield the bytes of a .zip's `member`; None: of the only one.

    Raises:
        InputError: no .zip, damaged, encrypted, or it does not have that one file.
    """
    with readable(file):
        try:
            with zipfile.ZipFile(file) as archive:
                names = [info.filename for info in archive.infolist() if not info.is_dir()]
                chosen = [name for name in names if member in (None, name)]
                if len(chosen) != 1:
                    listed = ", ".join(names[:10]) or "nothing"
                    raise InputError(f"{file} holds {listed}: choose one file with data.member=…")
                with archive.open(chosen[0]) as stream:
                    while piece := stream.read(PIECE):
                        yield piece
        # RuntimeError: encrypted, or packed in a way that Python cannot undo.
        except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
            raise InputError(
                f"{file} is not a .zip that can be unpacked ({first_line(error)}): fetch it again"
            ) from error


class Download(Source[bytes]):
    """One file of a .zip on the web, which is known by its SHA-256 and kept in the cache."""

    def __init__(self, config: Enwik8, cache_dir: Path, progress: bool) -> None:
        self.config, self.progress = config, progress
        self.folder = cache_dir / "downloads" / config.sha256[:16]

    def rows(self, split: str = "all") -> Iterator[bytes]:
        publish(self.folder, lambda folder: self._download(folder / "download.zip"), self.progress)
        return unzipped(self.folder / "download.zip", self.config.member)

    def _download(self, file: Path) -> None:
        url, digest = self.config.url, hashlib.sha256()
        if self.progress:
            print(f"downloading {url}", flush=True)
        try:
            # The schema allows http and https alone.
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
