"""The bytes of one long text: read once, cut into train, valid and test, memory-mapped by every run.

Of N bytes valid has round(valid_fraction·N) and test round(test_fraction·N), the last ones: of enwik8's 10^8
the usual 90, 5 and 5 million. The text is installed packages, local files, or enwik8 from its own site. Files
are:

* `.txt` `.gz` `.zip` and names without a suffix, such as `enwik8`: their bytes, decompressed;
* `.jsonl(.gz)` `.json(.gz)`: the text of each row, `SEPARATOR` after it.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

import numpy as np

from roformer.config.lm import BuiltinBytes, Bytes, Enwik8, FileBytes
from roformer.data.files import (
    JSON_LINES,
    Columns,
    Source,
    file_rows,
    find_files,
    first_line,
    has_suffix,
    opened,
    readable,
)
from roformer.data.store import Builder, Prepared, TokenStream, publish, settings
from roformer.data.tokenizers import ByteVocabulary
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.data.work import print_skipped, progress_bar
from roformer.errors import InputError

SEPARATOR = b"\n\n"
"""Between the documents of a source that has documents."""
ARCHIVES = (".tar.gz", ".parquet.gz")
"""Suffixes of .gz files that hold no text."""
PIECE = 2**22
"""Bytes read at once; a row of the prepared data."""
SILENCE = 30.0
"""Seconds without an answer after which a server is given up."""


class PreparedBytes(Prepared):
    """A prepared text: three streams of bytes."""

    vocabulary = ByteVocabulary()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.train, self.valid, self.test = (
            TokenStream(self.tokens(split, "ids")) for split in ("train", "valid", "test")
        )

    @property
    def summary(self) -> str:
        """The size of the text and its folder, in one line."""
        sizes, limit = self.manifest["tokens"], self.manifest["max_bytes"]
        reached = f" (data.max_bytes={limit} reached)" if sum(sizes.values()) == limit else ""
        return (
            f"text: {sum(sizes.values()):,} bytes{reached}, {sizes['train']:,} for training, "
            f"{sizes['valid']:,} for validation, {sizes['test']:,} for the test: {self.folder}"
        )


def prepare_bytes(
    config: Bytes, cache_dir: str | Path, *, workers: int | None = None, progress: bool = True
) -> PreparedBytes:
    """Open a text's bytes in `<cache_dir>/bytes/<key>`; see `roformer.data.text.prepare_text`."""
    if isinstance(config, FileBytes):
        source = _byte_files(config)
    elif isinstance(config, BuiltinBytes):
        source = _docstrings(workers)
    else:
        source = _download(config, Path(cache_dir), progress)

    def build(builder: Builder) -> dict[str, Any]:
        whole = builder.folder / "whole.bin"
        with (
            open(whole, "wb") as stream,
            progress_bar("reading", "B", config.max_bytes, progress, "bytes") as bar,
        ):
            for piece in source.rows():
                left = None if config.max_bytes is None else config.max_bytes - stream.tell()
                bar.update(stream.write(piece[:left]))
                if left is not None and left <= len(piece):
                    break
        count = whole.stat().st_size
        valid, test = (
            round(part * count) for part in (config.valid_fraction, config.test_fraction)
        )
        sizes = {"train": count - valid - test, "valid": valid, "test": test}
        if min(sizes.values()) < 2:
            counts = ", ".join(f"{size:,} {split}" for split, size in sizes.items())
            raise InputError(
                f"the text has {count:,} bytes, which would be {counts}: give more text "
                f"(data.max_bytes={config.max_bytes})"
            )
        with open(whole, "rb") as stream:
            for split, size in sizes.items():
                writer = builder.split(split, ids=np.uint8)
                while size:
                    piece = stream.read(min(size, PIECE))
                    writer.append(ids=[np.frombuffer(piece, np.uint8)])
                    size -= len(piece)
        whole.unlink()
        account = source.describe()
        print_skipped("text", account)
        return {
            "source": account,
            "max_bytes": config.max_bytes,
            "split_rule": "consecutive: train, valid, test",
            "valid_fraction": config.valid_fraction,
            "test_fraction": config.test_fraction,
        }

    identity = {"data": settings(config), "source": source.key}
    return PreparedBytes.prepare("bytes", identity, cache_dir, build, progress)


# --- sources -------------------------------------------------------------------------------------


def _docstrings(workers: int | None) -> Source[bytes]:
    skipped: list[str] = []

    def read(source: Source[bytes], split: str) -> Iterator[bytes]:
        # Shuffled, so that train, valid and test have the same packages in them.
        documents = docstring_documents(workers=workers, skipped=skipped, shuffled=True)
        return source.count((document.encode() + SEPARATOR for document in documents), split)

    packages = {"packages": docstring_packages()}
    order = "sha256 of the name of the file"
    return Source(read, key=packages, kind="builtin", order=order, files_skipped=skipped)


def _byte_files(config: FileBytes) -> Source[bytes]:
    # Files without a suffix in a folder are as likely a licence as a text.
    suffixes = (".txt", ".gz", ".zip", *JSON_LINES)
    files, others = find_files(config.path, suffixes, excluded=ARCHIVES, bare=True)
    # The same text twice would be in the training part and in the test part.
    texts = Counter(re.sub(r"\.(gz|zip)$", "", str(file), flags=re.I) for file in files)
    if twice := [name for name, count in texts.items() if count > 1]:
        raise InputError(f"{twice[0]} exists packed and unpacked: keep one of them")
    columns = Columns((config.text_field,), set_by="data.text_field")

    def read(source: Source[bytes], split: str) -> Iterator[bytes]:
        for file in files:
            piece = None
            for piece in pieces(source, file):
                yield piece
            if piece is None:
                raise InputError(f"{file} is empty: remove it, or take it out of data.path")

    def pieces(source: Source[bytes], file: Path) -> Iterator[bytes]:
        if has_suffix(file, JSON_LINES):
            rows = source.checked(file_rows(file, columns), files[file], columns)
            yield from (row.texts[0].encode() + SEPARATOR for row in rows)
        elif has_suffix(file, ".zip"):
            yield from unzipped(file, config.member)
        else:
            with opened(file) as stream:
                yield from _pieces(stream)

    bad = config.max_bad_rows
    return Source(read, files=files, max_bad_rows=bad, kind="files", other_files=others)


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
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
                    yield from _pieces(stream)
        # RuntimeError: encrypted, or packed in a way that Python cannot undo.
        except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
            raise InputError(
                f"{file} is not a .zip that can be unpacked ({first_line(error)}): fetch it again"
            ) from error


def _download(config: Enwik8, cache_dir: Path, progress: bool) -> Source[bytes]:
    """Open one file of a .zip on the web, which is known by its SHA-256 and kept in the cache."""
    folder = cache_dir / "downloads" / config.sha256[:16]

    def fetch(target: Path) -> None:
        digest = hashlib.sha256()
        try:
            # The schema allows only http and https.
            with (
                urlopen(config.url, timeout=SILENCE) as answer,
                open(target / "download.zip", "wb") as file,
                progress_bar("downloading", "B", answer.length, progress, config.url) as bar,
            ):
                for piece in _pieces(answer):
                    digest.update(piece)
                    bar.update(file.write(piece))
            if digest.hexdigest() != config.sha256:
                raise ValueError(f"its SHA-256 is {digest.hexdigest()}, not {config.sha256}")
        except (OSError, HTTPException, ValueError) as error:  # of a wrong URL too
            raise InputError(
                f"{config.url} cannot be downloaded: {type(error).__name__}, {first_line(error)}; fetch it "
                "where there is a network and give data=files data.path=enwik8.zip"
            ) from error

    def read(source: Source[bytes], split: str) -> Iterator[bytes]:
        publish(folder, fetch, progress)
        return unzipped(folder / "download.zip", config.member)

    facts = {name: getattr(config, name) for name in ("url", "sha256", "member")}
    return Source(read, kind="download", **facts)
