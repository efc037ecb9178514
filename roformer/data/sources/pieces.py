"""Pieces of one long text: installed packages, local files, or enwik8 from its own site. Files are:

* `.txt` `.gz` `.zip` and names without a suffix, such as `enwik8`: their bytes, unpacked, as they are;
* `.jsonl(.gz)` `.json(.gz)`: the text of each row, `SEPARATOR` after it.
"""

from __future__ import annotations

import re
import socket
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from roformer.config.lm import BuiltinBytes, Bytes, Enwik8, FileBytes
from roformer.data.sources import Columns, MadeRows, Source
from roformer.data.sources.files import (
    JSON_LINES,
    FoundFiles,
    file_rows,
    first_line,
    has_suffix,
    opened,
    readable,
)
from roformer.data.store import publish
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.errors import InputError

SEPARATOR = b"\n\n"
"""Between the documents of a source that has documents."""
ARCHIVES = (".tar.gz", ".parquet.gz")
"""Suffixes of .gz files that hold no text."""
PIECE = 2**20
"""Bytes that are read at once."""
SILENCE = 30.0
"""Seconds without an answer after which a server is given up."""


def open_bytes(
    config: Bytes, cache_dir: str | Path, *, workers: int | None = None, progress: bool = False
) -> Source[bytes]:
    """Open the source that the config names, reading nothing yet but a list of files."""
    if isinstance(config, FileBytes):
        return ByteFiles(config)
    if not isinstance(config, BuiltinBytes):
        return Download(config, Path(cache_dir), progress)
    skipped: list[str] = []

    def make(_: str) -> Iterator[bytes]:
        # Shuffled, so that train, valid and test have the same packages in them.
        made = docstring_documents(workers=workers, skipped=skipped, shuffled=True)
        return (document.encode() + SEPARATOR for document in made)

    packages = {"packages": docstring_packages()}
    order = "sha256 of the name of the file"
    return MadeRows(make, packages, kind="builtin", order=order, files_skipped=skipped)


class ByteFiles(FoundFiles[bytes]):
    """Local files, in the order of their names."""

    def __init__(self, config: FileBytes) -> None:
        # Of a folder, files without a suffix are as likely a licence as a text.
        suffixes = (".txt", ".gz", ".zip", *JSON_LINES)
        super().__init__(config.path, suffixes, config.max_bad_rows, excluded=ARCHIVES, bare=True)
        self.config = config
        # The same text twice would be in the training part and in the test part.
        texts = Counter(re.sub(r"\.(gz|zip)$", "", str(file), flags=re.I) for file in self.names)
        if twice := [name for name, count in texts.items() if count > 1]:
            raise InputError(f"{twice[0]} is there packed and unpacked: keep one of them")

    def rows(self, split: str = "all") -> Iterator[bytes]:
        for file in self.names:
            piece = None
            for piece in self._pieces(file):
                yield piece
            if piece is None:
                raise InputError(f"{file} is empty: remove it, or take it out of data.path")

    def _pieces(self, file: Path) -> Iterator[bytes]:
        if has_suffix(file, JSON_LINES):
            columns = Columns((self.config.text_field,), set_by="data.text_field")
            for row in self.fitting(file_rows(file, columns), self.name_of(file), columns):
                yield row.texts[0].encode() + SEPARATOR
        elif has_suffix(file, ".zip"):
            yield from unzipped(file, self.config.member)
        else:
            with opened(file) as stream:
                yield from _read(stream)


def _read(stream: IO[bytes]) -> Iterator[bytes]:
    while piece := stream.read(PIECE):
        yield piece


def unzipped(file: Path, member: str | None) -> Iterator[bytes]:
    """Yield the bytes of a .zip's `member`; None: of the only one."""
    with readable(file):
        try:
            with zipfile.ZipFile(file) as archive:
                names = [info.filename for info in archive.infolist() if not info.is_dir()]
                chosen = [name for name in names if member in (None, name)]
                if len(chosen) != 1:
                    listed = ", ".join(names[:10]) or "nothing"
                    raise InputError(f"{file} holds {listed}: choose one file with data.member=…")
                with archive.open(chosen[0]) as stream:
                    yield from _read(stream)
        # RuntimeError: encrypted, or packed in a way that Python cannot undo.
        except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
            raise InputError(
                f"{file} is not a .zip that can be unpacked ({first_line(error)}): fetch it again"
            ) from error


class Download(Source[bytes]):
    """One file of a .zip on the web, which is known by its SHA-256 and kept in the cache."""

    def __init__(self, config: Enwik8, cache_dir: Path, progress: bool) -> None:
        file = {"url": config.url, "sha256": config.sha256, "member": config.member}
        super().__init__(kind="download", **file)
        self.config, self.progress = config, progress
        self.folder = cache_dir / "downloads" / config.sha256[:16]

    def rows(self, split: str = "all") -> Iterator[bytes]:
        publish(self.folder, lambda folder: self._download(folder / "download.zip"), self.progress)
        return unzipped(self.folder / "download.zip", self.config.member)

    def _download(self, file: Path) -> None:
        from torch.hub import download_url_to_file

        url, digest = self.config.url, self.config.sha256
        if self.progress:
            print(f"downloading {url}", flush=True)
        bar = self.progress and sys.stderr.isatty()
        usual = socket.getdefaulttimeout()
        socket.setdefaulttimeout(SILENCE)  # torch.hub would wait for a silent server for ever
        try:
            # The schema allows http and https alone.
            download_url_to_file(url, str(file), hash_prefix=digest, progress=bar)
        except Exception as error:  # urllib, http.client and ssl share no base class
            raise InputError(
                f"{url} cannot be downloaded: {type(error).__name__}, {first_line(error)}; fetch it where "
                "there is a network and give data=files data.path=enwik8.zip"
            ) from error
        finally:
            socket.setdefaulttimeout(usual)
