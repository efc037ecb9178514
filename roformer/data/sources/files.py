"""Local files: finding them and reading their rows by the kind of file.

Text is UTF-8 (a byte-order mark is ignored), lines end in LF or CRLF, a `.gz` is read through; memory
holds one document.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import json
import os
import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby, takewhile
from pathlib import Path
from typing import IO, Any, cast

from roformer.data.sources import Columns, Example, Rows, Source, T
from roformer.errors import InputError

JSON_LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
PLAIN = (".txt", ".txt.gz")


class Files(Source[T]):
    """Local files, named relative to `root`."""

    by_content = False
    """Identify files by SHA-256 in the cache key and not by time, for small ones."""

    def __init__(self, root: Path, max_bad_rows: int = 0) -> None:
        super().__init__(kind="files")
        self.root, self.max_bad_rows = root, max_bad_rows

    @abstractmethod
    def files(self, split: str) -> list[Path]:
        """Return the files of a split; raise InputError where one is missing."""

    def fitting(self, rows: Rows, split: str, columns: Columns) -> Iterator[Example]:
        """Yield the rows that have these columns; skip others as far as that is allowed."""
        most = self.max_bad_rows
        remedy = f"fix it, or allow more bad rows with data.max_bad_rows (now {most})"
        return self.checked(rows, split, columns, most, remedy)

    def describe(self) -> dict[str, Any]:
        account = super().describe() | {"files": self._identities(by_content=True)}
        if self.first_skipped:
            account["first_skipped"] = self.first_skipped.removeprefix(f"{self.root}/")
        return account

    def key(self) -> dict[str, Any]:
        return {"files": self._identities(self.by_content)}

    def _identities(self, by_content: bool) -> list[dict[str, Any]]:
        told = []
        for file in dict.fromkeys(file for split in self.splits for file in self.files(split)):
            with readable(file), open(file, "rb") as stream:
                stat = os.fstat(stream.fileno())
                last: dict[str, Any] = {"time": stat.st_mtime_ns}
                if by_content:
                    last = {"sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
            name = file.relative_to(self.root).as_posix()
            told.append({"file": name, "bytes": stat.st_size, **last})
        return told


# --- finding files -------------------------------------------------------------------------------


def find_files(given: str, suffixes: tuple[str, ...]) -> tuple[Path, list[Path]]:
    """Return the folder that names are relative to, and the files of a file, folder or glob, sorted."""
    path = Path(given)
    if path.is_file():
        root, found = path.parent, [path]
    elif path.is_dir():
        # Not rglob: it follows no linked folder. Neither finds hidden ones this way.
        inside = glob.glob("**", root_dir=path, recursive=True)
        root, found = path, [path / name for name in inside]
    elif glob.has_magic(given):
        root = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
        found = [Path(file) for file in glob.glob(str(path), recursive=True)]
    else:
        raise InputError(f"data.path={given} does not exist: give a file, a folder or a glob")
    files = [file for file in found if file.is_file() and file.name.endswith(suffixes)]
    if not files:
        raise InputError(f"data.path={given} gives no file of {', '.join(suffixes)}: convert it")
    return root, sorted(files, key=lambda file: file.relative_to(root).as_posix())


def absent(folder: Path, wanted: str, remedy: str) -> InputError:
    """Return the error about something that a folder does not have, with what it has."""
    if not folder.is_dir():
        return InputError(f"data.path: {folder} is no folder: {remedy}")
    names = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
    return InputError(f"{folder} has no {wanted}, but {', '.join(names) or 'nothing'}: {remedy}")


# --- rows by the kind of file --------------------------------------------------------------------


def file_rows(file: Path, columns: Columns, separator: str = "blank_line") -> Rows:
    """Yield the rows of a .txt, .jsonl, .tsv, .csv or .parquet; it must not be empty."""
    number = 0
    if file.suffix == ".parquet":
        rows = _parquet_rows(file, columns)
    elif file.suffix in (".tsv", ".csv"):
        rows = _table_rows(file, columns)
    elif not file.name.endswith(PLAIN):
        rows = _json_lines(file)
    else:
        documents = _lines(file) if separator == "line_break" else _paragraphs(file)
        rows = ((number, {columns.texts[0]: text}) for number, text in documents)
    for number, row in rows:
        yield str(file), number, row
    if not number:
        raise InputError(f"{file} is empty: remove it, or fetch it again")


Numbered = Iterator[tuple[int, dict[Any, Any] | str]]


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in text_lines(file) if line.strip())


def _paragraphs(file: Path) -> Iterator[tuple[int, str]]:
    for filled, run in groupby(text_lines(file), lambda line: bool(line[1].strip())):
        if filled:
            numbers, lines = zip(*run, strict=True)
            yield numbers[0], "\n".join(lines)


def _json_lines(file: Path) -> Numbered:
    for number, line in _lines(file):
        try:
            row = json.loads(line)
            kind = type(row).__name__
            yield number, row if isinstance(row, dict) else f"a JSON {kind}, not an object"
        except (ValueError, RecursionError) as error:
            yield number, f"not JSON, {error}"


def _table_rows(file: Path, columns: Columns) -> Numbered:
    """The first line is a header unless columns are numbers."""
    lines = _comma_separated(file) if file.suffix == ".csv" else _tab_separated(file)
    names: list[Any] = []
    for number, cells in lines:
        if not names:
            if isinstance(cells, str):
                raise InputError(f"{file}:{number}: {cells}")
            header = any(isinstance(column, str) for column in columns.names)
            names = cells if header else list(range(len(cells)))
            columns.find(f"{file}:{number}", names)
            if header:
                continue
        if isinstance(cells, str):
            yield number, cells
        elif len(cells) == len(names):
            yield number, dict(zip(names, cells, strict=True))
        elif cells not in ([], [""]):  # a blank line, as some editors leave at the end
            kind = "comma" if file.suffix == ".csv" else "tab"
            yield number, f"{len(cells)} {kind}-separated fields, not {len(names)} as in line 1"


def _tab_separated(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Quotes are text like any other."""
    return ((number, text.split("\t")) for number, text in text_lines(file))


def _comma_separated(file: Path) -> Iterator[tuple[int, list[str] | str]]:
    """A field in quotes may have commas, line breaks and doubled quotes; all fields are text."""
    csv.field_size_limit(2**31 - 1)  # a text may be longer than the usual limit, 128 KiB
    reader = csv.reader((f"{text}\n" for _, text in text_lines(file)), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, f"not CSV, {error}"


def _parquet_rows(file: Path, columns: Columns) -> Numbered:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            columns.find(str(file), table.schema_arrow.names)
            batches = table.iter_batches(batch_size=1024, columns=columns.names)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    except InputError:
        raise
    # ValueError, OverflowError: text that is not UTF-8, or a date that Python has not.
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError(f"{file} cannot be read as Parquet: {first_line(error)}") from error


def text_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 and lines, cut at newlines only, without them."""
    with opened(file) as stream:
        yield from decoded(stream, str(file))


def decoded(stream: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Yield what `text_lines` does of an open stream; `name` is what an error calls it."""
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}:{number}: not UTF-8 (byte {error.start + 1} of the line is "
                f"0x{line[error.start]:02x}): convert the file, e.g. with iconv -f latin1 -t utf-8"
            ) from error
        yield number, text.rstrip("\r\n")


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, a .gz unpacked; what goes wrong is an InputError that names it."""
    opener = cast(Callable[..., IO[bytes]], gzip.open if file.suffix == ".gz" else open)
    with readable(file), opener(file, "rb") as stream:
        yield stream


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn what goes wrong in reading a file into an InputError that names it."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{file} is not a complete gzip file: {error}; fetch it again") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its name where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
