"""Sources of data: made by templates, the user's files, or the Hugging Face Hub.

A source yields the rows of a split and accounts for what it read. What comes from outside is checked
here and nowhere else; anything wrong with it is one `InputError` line that names the file, the line
and what to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

Row = TypeVar("Row", covariant=True)


class Source(ABC, Generic[Row]):
    """Rows in an order that the input alone decides, and an account of what was read."""

    splits: tuple[str, ...] = ("all",)
    """`("all",)` where the reader splits the rows."""

    @abstractmethod
    def rows(self, split: str = "all") -> Iterator[Row]:
        """Yield the rows of a split; raise InputError where the input is wrong."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what was read, for the manifest; complete once the rows are used up."""

    def key(self) -> dict[str, Any]:
        """Identify the input beyond the configuration, without absolute paths, for a cache key."""
        return {}


class MadeRows(Source[Row]):
    """Built-in rows.

    Args:
        make: returns the rows of a split.
        key: see `Source.key`.
        splits: see `Source`.
        account: see `Source.describe`.
    """

    def __init__(
        self,
        make: Callable[[str], Iterable[Row]],
        key: dict[str, Any],
        splits: tuple[str, ...] = ("all",),
        **account: Any,
    ) -> None:
        self.make, self.splits, self.account, self._key = make, splits, account, key
        self.rows_read = 0

    def rows(self, split: str = "all") -> Iterator[Row]:
        self.rows_read = 0
        for row in self.make(split):
            self.rows_read += 1
            yield row

    def describe(self) -> dict[str, Any]:
        # Rows of several splits are counted by the manifest.
        counts = {"rows_read": self.rows_read, "rows_skipped": 0}
        return {**self.account, **(counts if self.splits == ("all",) else {})}

    def key(self) -> dict[str, Any]:
        return self._key
