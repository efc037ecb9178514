"""Sources of data: made from templates, the user's files, or the Hugging Face Hub.

A source yields the rows of a split and says what it read. What comes from outside is checked here
and nowhere else, against the `Columns` that a row must have. Anything wrong is one `InputError` line
that names the file, the line and what to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from roformer.errors import InputError

T = TypeVar("T")
U = TypeVar("U")
Column = str | int
"""A column: its name, or its number in a table without a header."""
Rows = Iterable[tuple[str, int, dict[Any, Any] | str]]
"""File or table, row or line number from 1, and the columns of the row or what is wrong with it."""
NOWHERE = -1
"""`Example.place` of all but built-in triplets."""


class Example(NamedTuple):
    """A document, a pair or a triplet, with its label if it has one."""

    number: int
    """Row number in its source, bad rows counted."""
    texts: tuple[str, ...]
    label: int | float = -1
    """The class number or the score; of a triplet 0 where A is closer to B and 1 if to C."""
    place: int = NOWHERE
    """Place of the evidence in a built-in triplet: number in `PLACES`."""


class BadRow(ValueError):
    """A row that cannot be used; the message says why."""


class EmptyText(BadRow):
    """A row without the text of a column."""


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
    filled: int = 1
    """Number of texts that must not be empty."""
    skip_empty: bool = False
    """Skip any number of rows with fewer; they are no bad rows."""
    set_by: str = ""
    """Keys that name the columns, for messages."""

    @property
    def names(self) -> list[Column]:
        return [*self.texts, *(name for name in (self.label, self.index) if name is not None)]

    def find(self, where: str, available: Sequence[Column]) -> None:
        """Raise InputError where a column is not one of those available, once."""
        for column in self.names:
            if (count := available.count(column)) != 1:
                raise InputError(
                    f"{where} has {count or 'no'} column{'s' * (count > 1)} {column!r}, but "
                    f"{', '.join(map(str, available))}: set {self.set_by}"
                )

    def check(self, number: int, row: Mapping[Column, Any]) -> Example:
        """Return what a row holds; raise BadRow where that cannot be used."""
        for column in self.names:
            if column not in row:
                by = f" ({self.set_by})" if self.set_by else ""
                raise BadRow(f"no {column!r} among its keys {sorted(map(str, row))}{by}")
        texts = tuple(_text(column, row[column]) for column in self.texts)
        empty = [column for column, text in zip(self.texts, texts, strict=True) if not text.strip()]
        if len(texts) - len(empty) < self.filled:
            raise EmptyText(f"{empty[0]!r} is empty")
        number = number if self.index is None else row[self.index]
        return Example(number, texts, -1 if self.label is None else self._label(row[self.label]))

    def _label(self, label: Any) -> int | float:
        if self.scores is None:
            if (number := self.labels.get(str(label))) is None:
                raise BadRow(f"label {label!r} is none of {', '.join(self.labels)}")
            return number
        lowest, highest = self.scores
        try:
            score = float(label)
        except (TypeError, ValueError):
            score = float("nan")
        if not lowest <= score <= highest:
            raise BadRow(f"score {label!r} is no number from {lowest:g} to {highest:g}")
        return score


def _text(column: Column, value: object) -> str:
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise BadRow(f"{column!r} is {kind}, not text")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell one half alone
        raise BadRow(f"{column!r} holds half of a surrogate pair, no character") from None
    return value


class Source(ABC, Generic[T]):
    """Rows in an order that the input alone decides, and an account of what was read."""

    splits: Sequence[str] = ("all",)
    """`("all",)` where the reader splits the rows."""

    def __init__(self, **account: Any) -> None:
        self.account = account
        self.rows_read: dict[str, int] = {}
        """Rows of each split, skipped ones too."""
        self.skipped: dict[str, int] = {}
        self.bad: dict[str, int] = {}
        """Skipped rows that count as bad."""
        self.first_skipped: str | None = None

    @abstractmethod
    def rows(self, split: str = "all") -> Iterator[T]:
        """Yield the rows of a split; raise InputError where the input is wrong."""

    def key(self) -> dict[str, Any]:
        """Identify the input beyond the configuration, without absolute paths, for a cache key."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Return what was read, for the manifest; complete once the rows are used up."""
        return {
            **self.account,
            "rows": self.rows_read,
            "rows_read": sum(self.rows_read.values()),
            "rows_skipped": sum(self.skipped.values()),
            "bad_rows": sum(self.bad.values()),
            "first_skipped": self.first_skipped,
        }

    def count(self, rows: Iterable[U], split: str) -> Iterator[U]:
        """Yield the rows and count them."""
        self.rows_read[split] = self.skipped[split] = self.bad[split] = 0
        for row in rows:
            self.rows_read[split] += 1
            yield row

    def checked(
        self, rows: Rows, split: str, columns: Columns, most: int | None, remedy: str
    ) -> Iterator[Example]:
        """Yield the rows that have these columns, and count the others."""
        first = None
        for number, (where, line, row) in enumerate(self.count(rows, split)):
            try:
                if isinstance(row, str):
                    raise BadRow(row)
                example = columns.check(number, row)
            except BadRow as problem:
                self.skipped[split] += 1
                if columns.skip_empty and isinstance(problem, EmptyText):
                    continue
                self.bad[split] += 1
                first = first or f"{where}:{line}: {problem}"
                self.first_skipped = self.first_skipped or first
                count = sum(self.bad.values())
                if most is not None and count > most:
                    so_far = f" (bad rows so far: {count})" if most else ""
                    raise InputError(f"{first}{so_far}: {remedy}") from None
            else:
                yield example


class MadeRows(Source[T]):
    """Rows that `make` returns of a split; `key` identifies them."""

    def __init__(
        self,
        make: Callable[[str], Iterable[T]],
        key: dict[str, Any],
        splits: Sequence[str] = ("all",),
        **account: Any,
    ) -> None:
        super().__init__(**account, **key)
        self.make, self.made, self.splits = make, key, splits

    def rows(self, split: str = "all") -> Iterator[T]:
        return self.count(self.make(split), split)

    def key(self) -> dict[str, Any]:
        return self.made
