"""Documents in local files: text, JSON lines and Parquet.

What a document is:

* `.jsonl` `.json` (one JSON object a line) and `.parquet`: a row, its text in `data.text_field`;
* `.txt`: a run of lines between blank lines, as in BERT's own input format. A WikiText paragraph is
  thus a document of its own, and a file without blank lines is one document. With
  `data.document_separator=line_break` each line that is not blank is a document.

A `.gz` is read through. Text is UTF-8 (a byte-order mark is ignored); memory holds one document.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from roformer.config.schema import FilesText
from roformer.data.sources import Source
from roformer.errors import InputError

SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
PLAIN = (".txt", ".txt.gz")

Value = TypeVar("Value")

Checked = tuple[int, Value | None, str]
"""Line or row number from 1, what it holds, and what is wrong with it where that is None."""


class FileDocuments(Source[str]):
    """Local files, in the order of their names relative to the folder, file or glob given."""

    def __init__(self, config: FilesText) -> None:
        self.config = config
        self.root, self.files = find_files(config.path, SUFFIXES)
        self.documents, self.text_lines = 0, 0
        self.bad = BadRows(config.max_bad_rows, self.root)

    def rows(self, split: str = "all") -> Iterator[str]:
        self.documents, self.text_lines = 0, 0
        self.bad = BadRows(self.config.max_bad_rows, self.root)
        for file in self.files:
            before = self.documents + self.bad.count
            plain = file.name.endswith(PLAIN)
            for text in usable(file, _rows(file, self.config), self.bad):
                self.documents += 1
                self.text_lines += text.count("\n") + 1 if plain else 0
                yield text
            if self.documents + self.bad.count == before:
                raise InputError(f"{file} is empty: remove it, or take it out of data.path")

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "files",
            "files": [identity(file, self.root) for file in self.files],
            "rows_read": self.documents + self.bad.count,
            "rows_skipped": self.bad.count,
            "first_skipped": self.bad.first,
        }

    def separation(self) -> str:
        """Return how text that was read is cut into documents, for a message about too few."""
        if not self.text_lines or self.config.document_separator == "line_break":
            return ""
        return (
            f" (from {self.text_lines:,} lines of .txt, where blank lines part documents: put them "
            "between documents, or read each line as one with data.document_separator=line_break)"
        )

    def key(self) -> dict[str, Any]:
        return {"files": dates(self.files, self.root)}


class BadRows:
    """Counts the bad rows of a source or of one file of it, and stops at one too many.

    Args:
        most: `data.max_bad_rows`.
        root: the folder that places are relative to.
    """

    def __init__(self, most: int, root: Path) -> None:
        self.most, self.root = most, root
        self.count = 0
        self.first: str | None = None
        """Place of the first one and what is wrong with it."""

    def skip(self, file: Path, line: int, problem: str) -> None:
        """Count a bad row.

        Raises:
            InputError: it is one too many; names the first.
        """
        self.count += 1
        if self.first is None:
            self.first = f"{file.relative_to(self.root).as_posix()}:{line}: {problem}"
            self._message = f"{file}:{line}: {problem}"
        if self.count > self.most:
            raise InputError(
                f"{self._message} (bad rows so far: {self.count}): mend it, or allow more "
                f"bad rows with data.max_bad_rows (now {self.most})"
            )


def usable(file: Path, rows: Iterable[Checked[Value]], bad: BadRows) -> Iterator[Value]:
    """Yield what the rows of a file hold; count those that have something wrong."""
    for line, value, problem in rows:
        if value is None:
            bad.skip(file, line, problem)
        else:
            yield value


def identity(file: Path, root: Path) -> dict[str, Any]:
    """Return name, bytes and SHA-256 of a file."""
    with readable(file), open(file, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
    return {"file": file.relative_to(root).as_posix(), "bytes": size, "sha256": digest}


def dates(files: Iterable[Path], root: Path) -> list[list[Any]]:
    """Return name, bytes and time of files: cheap, where reading them is not."""
    stats = [(file.relative_to(root).as_posix(), file.stat()) for file in files]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]


def find_files(given: str, suffixes: tuple[str, ...]) -> tuple[Path, list[Path]]:
    """Return the folder that names are relative to, and the files of a file, folder or glob, sorted.

    Raises:
        InputError: there is nothing, or nothing of these suffixes.
    """
    path, listed = Path(given).expanduser(), ", ".join(filter(None, suffixes))
    if path.is_file():
        if not path.name.endswith(suffixes):
            raise InputError(f"data.path={given} is none of {listed}: convert it")
        return path.parent, [path]
    if path.is_dir():
        root, found = path, (file for file in path.rglob("*") if not _hidden(file, path))
    elif glob.has_magic(given):
        root = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
        found = (Path(file) for file in glob.glob(str(path), recursive=True))
    else:
        raise InputError(f"data.path={given} does not exist: give a file, a folder or a glob")
    files = [file for file in found if file.is_file() and file.name.endswith(suffixes)]
    if not files:
        raise InputError(f"data.path={given} holds no file of {listed}")
    return root, sorted(files, key=lambda file: file.relative_to(root).as_posix())


def _hidden(file: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(root).parts)


def _rows(file: Path, config: FilesText) -> Iterator[Checked[str]]:
    if file.suffix == ".parquet":
        return _parquet_rows(file, config.text_field)
    if not file.name.endswith(PLAIN):
        return json_texts(file, config.text_field)
    if config.document_separator == "line_break":
        return ((number, line, "") for number, line in text_lines(file) if line.strip())
    return _paragraphs(file)


def _paragraphs(file: Path) -> Iterator[Checked[str]]:
    paragraph: list[str] = []
    for number, line in text_lines(file):
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield number - len(paragraph), "\n".join(paragraph), ""
            paragraph = []
    if paragraph:
        yield number - len(paragraph) + 1, "\n".join(paragraph), ""


def json_texts(file: Path, text_field: str) -> Iterator[Checked[str]]:
    """Yield the text of each row of a file of JSON lines."""
    for number, row, problem in json_objects(file, repr(text_field)):
        if row is None:
            yield number, None, problem
        elif text_field not in row:
            yield number, None, f"no {text_field!r} among its keys {sorted(row)} (data.text_field)"
        else:
            yield (number, *checked_text(row[text_field], text_field))


def json_objects(file: Path, keys: str) -> Iterator[Checked[dict[str, Any]]]:
    """Yield the objects of JSON lines; `keys` names what an object should have."""
    for number, line in text_lines(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, None, f"not JSON, {error}"
            continue
        if isinstance(row, dict):
            yield number, row, ""
        else:
            yield number, None, f"a JSON {type(row).__name__}, not an object with {keys}"


def _parquet_rows(file: Path, text_field: str) -> Iterator[Checked[str]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            columns = table.schema_arrow.names
            if text_field not in columns:
                raise InputError(
                    f"{file} has no column {text_field!r}: set data.text_field to one of "
                    f"{', '.join(columns)}"
                )
            number = 0
            for batch in table.iter_batches(batch_size=1024, columns=[text_field]):
                for value in batch.column(0).to_pylist():
                    number += 1
                    yield (number, *checked_text(value, text_field))
    except InputError:
        raise
    # ValueError, OverflowError: text that is not UTF-8, or a date that Python has not.
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError(f"{file} cannot be read as Parquet: {first_line(error)}") from error


def checked_text(value: object, text_field: str) -> tuple[str | None, str]:
    """Return the value if it is a text that can be learned from, else None and what is wrong."""
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        return None, f"{text_field!r} is {kind}, not text"
    if not value.strip():
        return None, f"{text_field!r} is empty"
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell one half alone
        return None, f"{text_field!r} holds half of a surrogate pair, which is no character"
    return value, ""


def text_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 and lines, cut at newlines only, without them.

    Raises:
        InputError: a file that cannot be read, or a line that is not UTF-8.
    """
    opener = cast(Callable[..., IO[bytes]], gzip.open if file.suffix == ".gz" else open)
    with readable(file), opener(file, "rb") as stream:
        yield from decoded(stream, str(file))


def decoded(stream: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Yield what `text_lines` does of an open stream; `name` is what an error calls it.

    Raises:
        InputError: a line that is not UTF-8.
    """
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}:{number}: not UTF-8 (byte {error.start + 1} of the line is "
                f"0x{line[error.start]:02x}): convert the file, e.g. with iconv"
            ) from error
        yield number, text.rstrip("\r\n")


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
