"""Rows of data from local files: finding files, reading rows by the kind of file, and checking them.

A source yields the rows of a split and counts them. Rows are checked only here, against the `Columns` that
a row must have. A problem is one line that names the file, the line and what to do.

Text is UTF-8 (a byte-order mark is ignored), lines end in LF or CRLF, a `.gz` is decompressed; memory holds
one document.
"""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain, groupby, pairwise, takewhile
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, NoReturn, TypeVar, cast

from roformer.errors import InputError

JSON_LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
PLAIN = (".txt", ".txt.gz")
HEADING = re.compile("= (?!=).*(?<!=) =")
"""A WikiText heading of the first level: ` = Title = `, and not ` = = Section = = `."""
CSV = (".csv", ".csv.gz")
TABLES = (".tsv", ".tsv.gz", *CSV)


T = TypeVar("T")
U = TypeVar("U")
Column = str | int
"""A column: its name, or its number in a table without a header."""
Rows = Iterable[tuple[str, int, dict[Any, Any] | str]]
"""File or table, row or line number from 1, and the columns of the row or what is wrong with it."""
NO_EVIDENCE = -1
"""`Example.place` of all but built-in triplets."""


class Example(NamedTuple):
    """A document, a pair or a triplet, with its label if it has one."""

    number: int
    """Row number in its source, bad rows counted."""
    texts: tuple[str, ...]
    label: int | float = -1
    """The class number or the score; of a triplet 0 where A is closer to B and 1 if to C."""
    place: int = NO_EVIDENCE
    """Place of the evidence in a built-in triplet: number in `PLACES`."""


class BadRow(ValueError):
    """A row that cannot be used; the message says why."""


@dataclass(frozen=True)
class Columns:
    """The columns that a row must have: texts and, in labelled data, a class or a score."""

    texts: Sequence[Column]
    label: Column | None = None
    labels: Mapping[str, int] = field(default_factory=dict)
    """Number of each spelling of a class."""
    scores: tuple[float, float] | None = None
    """Lowest and highest score, in place of classes."""
    index: Column | None = None
    """Column of the row number; None: rows are counted."""
    min_nonempty: int = 1
    """Number of texts that must not be empty."""
    set_by: str = ""
    """Keys that name the columns, for messages."""

    @property
    def names(self) -> list[Column]:
        return [*self.texts, *(name for name in (self.label, self.index) if name is not None)]

    def find(self, where: str, available: Sequence[Column]) -> None:
        """Raise InputError unless each column is available exactly once."""
        for column in self.names:
            if (count := available.count(column)) != 1:
                raise InputError(
                    f"{where} has {count or 'no'} column{'s' * (count > 1)} {column!r}, but "
                    f"{', '.join(map(str, available))}: set {self.set_by}"
                )

    def check(self, number: int, row: Mapping[Column, Any] | str) -> Example:
        """Return the example in a row; raise BadRow where it cannot be used."""
        if isinstance(row, str):
            raise BadRow(row)
        for column in self.names:
            if column not in row:
                by = f" ({self.set_by})" if self.set_by else ""
                raise BadRow(f"no {column!r} among its keys {sorted(map(str, row))}{by}")
        texts = tuple(_text(column, row[column]) for column in self.texts)
        empty = [column for column, text in zip(self.texts, texts, strict=True) if not text.strip()]
        if len(texts) - len(empty) < self.min_nonempty:
            raise BadRow(f"{empty[0]!r} is empty")
        number = number if self.index is None else row[self.index]
        return Example(number, texts, -1 if self.label is None else self._label(row[self.label]))

    def _label(self, label: Any) -> int | float:
        if self.scores is None:
            if (number := self.labels.get(str(label))) is None:
                raise BadRow(f"label {label!r} is none of {', '.join(self.labels)}")
            return number
        lowest, highest = self.scores
        with suppress(TypeError, ValueError):
            if lowest <= (score := float(label)) <= highest:
                return score
        raise BadRow(f"score {label!r} is no number from {lowest:g} to {highest:g}")


def _text(column: Column, value: object) -> str:
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise BadRow(f"{column!r} is {kind}, not text")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell half of a pair
        raise BadRow(f"{column!r} holds half of a surrogate pair, no character") from None
    return value


class Source(Generic[T]):
    """Rows per split, in an order that only the input decides, and an account of what was read.

    Args:
        read: yields the rows of a split; called with the source, which counts them, and the split.
        splits: `("all",)` where the reader splits the rows.
        key: identifies the input beyond the configuration, without absolute paths.
        files: local files and their names in the key and in the account.
        max_bad_rows: bad rows that `checked` skips; None: any number.
        account: further entries of the account.
    """

    def __init__(
        self,
        read: Callable[[Source[T], str], Iterator[T]],
        splits: Sequence[str] = ("all",),
        *,
        key: Mapping[str, Any] | None = None,
        files: Mapping[Path, str] | None = None,
        max_bad_rows: int | None = 0,
        **account: Any,
    ) -> None:
        self.splits, self.files, self.max_bad_rows = splits, files or {}, max_bad_rows
        self._read, self._key, self._account = read, key or {}, account
        self.rows_read: dict[str, int] = {}
        """Rows of each split, skipped ones too."""
        self.skipped: dict[str, int] = {}
        self.first_skipped: str | None = None

    def rows(self, split: str = "all") -> Iterator[T]:
        """Yield the rows of a split."""
        return self._read(self, split)

    @cached_property
    def key(self) -> Mapping[str, Any]:
        """Identity of the input."""
        files = [{"file": name, **content_identity(file)} for file, name in self.files.items()]
        return {**self._key, **({"files": files} if files else {})}

    def describe(self) -> dict[str, Any]:
        """Return what was read, for the manifest; complete once all rows are read."""
        first = self.first_skipped
        for file, name in self.files.items():
            if first and first.startswith(str(file)):
                first = name + first.removeprefix(str(file))
                break
        return {
            **self._account,
            **self.key,
            "rows": self.rows_read,
            "rows_read": sum(self.rows_read.values()),
            "rows_skipped": sum(self.skipped.values()),
            "first_skipped": first,
        }

    def count(self, rows: Iterable[U], split: str) -> Iterator[U]:
        """Yield the rows and count them."""
        self.rows_read[split] = self.skipped[split] = 0
        for row in rows:
            self.rows_read[split] += 1
            yield row

    def checked(
        self, rows: Rows, split: str, columns: Columns, remedy: str = ""
    ) -> Iterator[Example]:
        """Yield the rows that have these columns; skip up to `max_bad_rows` others, or 0 with a remedy."""
        most = 0 if remedy else self.max_bad_rows
        remedy = remedy or f"fix it, or allow more bad rows with data.max_bad_rows (now {most})"
        first = None
        for number, (where, line, row) in enumerate(self.count(rows, split)):
            try:
                yield columns.check(number, row)
            except BadRow as problem:
                self.skipped[split] += 1
                first = first or f"{where}:{line}: {problem}"
                self.first_skipped = self.first_skipped or first
                count = sum(self.skipped.values())
                if most is not None and count > most:
                    so_far = f" (bad rows so far: {count})" if most else ""
                    raise InputError(f"{first}{so_far}: {remedy}") from None


# --- finding files -------------------------------------------------------------------------------


def has_suffix(file: Path, suffixes: str | tuple[str, ...]) -> bool:
    """Return whether a file's name ends in one of the suffixes, in any case."""
    return file.name.lower().endswith(suffixes)


def content_identity(file: Path) -> dict[str, Any]:
    """Return the size and the hash of a file's content."""
    import xxhash  # ten times as fast as SHA-256

    with readable(file), open(file, "rb") as stream:
        content = hashlib.file_digest(stream, xxhash.xxh3_128)
        return {"bytes": stream.tell(), "xxh3": content.hexdigest()}


def find_files(
    paths: str | Sequence[str],
    suffixes: tuple[str, ...],
    excluded: tuple[str, ...] = (),
    bare: bool = False,
) -> tuple[dict[Path, str], list[str]]:
    """Find the files that `data.path` gives: a file, a folder or a glob, or a list of these.

    A file has one of the suffixes, in any case, and none that is excluded; `bare`: a file that is named
    itself needs none. Each real file is found once.

    Returns:
        The files by name, each with its name relative to the folder that was given, after the number
        of its path in a list of paths; the names of the files that are skipped.
    """
    several = not isinstance(paths, str)
    names, skipped, real = dict[Path, str](), list[str](), set[tuple[int, ...]]()
    for number, given in enumerate(paths if several else [paths], 1):
        root, matches = _find(cast(str, given))
        own = {file: file.relative_to(root).as_posix() for file in matches}
        found = sorted(own, key=own.__getitem__)
        wanted = [
            file
            for file in found
            if file.is_file()
            and (has_suffix(file, suffixes) or (bare and found == [file] and not file.suffix))
            and not has_suffix(file, excluded)
        ]
        if not wanted:
            kinds = ", ".join(suffixes)
            if not found:
                raise InputError(f"data.path={given} matches no file: give files of {kinds}")
            others = ", ".join(own[file] for file in found[:10]) + (" …" if found[10:] else "")
            raise InputError(
                f"data.path={given} gives no file of {kinds}, but {others}: convert or unpack it"
            )
        prefix = f"{number}/" if several else ""
        for file in wanted:
            if (inode := file.stat()[1:3]) not in real:  # and the device
                real.add(inode)
                names[file] = prefix + own[file]
        skipped += [prefix + own[file] for file in found if file not in wanted]
    return names, skipped


def _find(given: str) -> tuple[Path, Iterable[Path]]:
    """Return the folder that names are relative to, and the files of a path or a glob."""
    path = Path(given)
    if path.is_file():
        return path.parent, [path]
    if path.is_dir():
        return path, _below(path)
    if not glob.has_magic(given):
        raise InputError(f"data.path={given} does not exist: give a file, a folder or a glob")
    root = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
    pattern = path.parts[len(root.parts) :]
    if "**" in pattern:  # the library's never ends where links make circles
        files = _below(root) if root.is_dir() else ()
        return root, (file for file in files if _fits(file.relative_to(root).parts, pattern))
    return root, (file for file in map(Path, glob.iglob(given)) if not file.is_dir())


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the parts of a path match the parts of a glob, in which `**` is any number of parts."""
    if not (pattern and parts):
        return not (pattern or parts)
    first, *rest = pattern
    if first == "**":
        return not rest or any(_fits(parts[start:], rest) for start in range(len(parts)))
    return fnmatchcase(parts[0], first) and _fits(parts[1:], rest)


def _below(root: Path) -> Iterator[Path]:
    """Yield the files below a folder that are not hidden; linked folders are followed once."""

    def unreadable(error: OSError) -> NoReturn:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}") from error

    seen = {root.resolve()}
    for folder, inside, files in os.walk(root, onerror=unreadable, followlinks=True):
        yield from (Path(folder, name) for name in files if name[0] != ".")
        new = {name: Path(folder, name).resolve() for name in sorted(inside) if name[0] != "."}
        inside[:] = [name for name, path in new.items() if path not in seen]
        seen.update(new.values())


def named_file(folder: Path, stems: Sequence[str], suffixes: Sequence[str]) -> Path | None:
    """Return the only file of these names, its suffix in any case; None: the folder has none."""
    files = [
        file
        for stem in stems
        for file in sorted(folder.glob(f"{glob.escape(stem)}*"))
        if file.is_file() and file.name.removeprefix(stem).lower() in suffixes
    ]
    if len(files) > 1:
        names = " and ".join(file.name for file in files)
        raise InputError(f"{folder} has {names}: keep one of them")
    return files[0] if files else None


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
    if has_suffix(file, ".parquet"):
        rows = _parquet_rows(file, columns)
    elif has_suffix(file, TABLES):
        rows = _table_rows(file, columns)
    elif not has_suffix(file, PLAIN):
        rows = _json_lines(file)
    else:
        cut = {"line_break": filled_lines, "blank_line": paragraphs, "heading": articles}[separator]
        documents = cut(text_lines(file))
        rows = ((number, {columns.texts[0]: text}) for number, text in documents)
    for number, row in rows:
        yield str(file), number, row
    if not number:
        raise InputError(f"{file} is empty: remove it, or fetch it again")


Numbered = Iterator[tuple[int, dict[Any, Any] | str]]
Lines = Iterator[tuple[int, str]]
"""Line numbers and texts."""


def filled_lines(lines: Lines) -> Lines:
    """Yield the lines that are not blank."""
    return ((number, line) for number, line in lines if line.strip())


def paragraphs(lines: Lines) -> Lines:
    """Yield the runs of lines between blank lines."""
    for filled, run in groupby(lines, lambda line: bool(line[1].strip())):
        if filled:
            numbers, texts = zip(*run, strict=True)
            yield numbers[0], "\n".join(texts)


def articles(lines: Lines) -> Lines:
    """Yield the articles of WikiText without blank lines; each begins with a heading between blank lines."""
    article, first, before = list[str](), 1, ""
    for (number, line), (_, after) in pairwise(chain(lines, [(0, "")])):
        line = line.strip()
        if HEADING.fullmatch(line) and not before and not after.strip() and article:
            yield first, "\n".join(article)
            article = []
        if line:
            first = first if article else number
            article.append(line)
        before = line
    if article:
        yield first, "\n".join(article)


def _json_lines(file: Path) -> Numbered:
    for place, (number, line) in enumerate(filled_lines(text_lines(file))):
        if not place and line.lstrip().startswith("["):
            raise InputError(
                f"{file} holds a JSON list: write one JSON object per line, e.g. "
                f"jq -c '.[]' {file.name} > {file.name.partition('.')[0]}.jsonl"
            )
        try:
            row = json.loads(line)
            kind = type(row).__name__
            yield number, row if isinstance(row, dict) else f"a JSON {kind}, not an object"
        except (ValueError, RecursionError) as error:
            yield number, f"not JSON, {error}; a line must be one JSON object"


def _table_rows(file: Path, columns: Columns) -> Numbered:
    """Yield the rows of a table; the first line is a header unless columns are numbers."""
    # In a .tsv quotes are text like any other.
    lines: Iterable[tuple[int, list[str] | str]] = (
        _comma_separated(file)
        if has_suffix(file, CSV)
        else ((number, text.split("\t")) for number, text in text_lines(file))
    )
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
            kind = "comma" if has_suffix(file, CSV) else "tab"
            yield number, f"{len(cells)} {kind}-separated fields, not {len(names)} as in line 1"


def _comma_separated(file: Path) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the fields of each row; a field in quotes may have commas, line breaks and doubled quotes."""
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
    """Yield the `text_lines` of an open stream, which errors call `name`."""
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            likely = "utf-16" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
            raise InputError(
                f"{name}:{number}: not UTF-8 (byte {error.start + 1} of the line is "
                f"0x{line[error.start]:02x}): convert the file, e.g. with iconv -f {likely} -t utf-8"
            ) from error
        yield number, text.rstrip("\r\n")


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading and unpack a .gz; failures are InputErrors that name the file."""
    opener = cast(Callable[..., IO[bytes]], gzip.open if has_suffix(file, ".gz") else open)
    with readable(file), opener(file, "rb") as stream:
        yield stream


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn failures to read a file into InputErrors that name it."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{file} is not a complete gzip file: {error}; fetch it again") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its name where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
