"""Where data comes from: made by a grammar, the user's files, or the Hugging Face Hub.

A source yields the rows of a split and can say what it read. What comes from outside is checked
here and nowhere else; anything wrong with it is one `InputError` line that names the file, the line
and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

Row = TypeVar("Row", covariant=True)


class Source(Protocol[Row]):
    """Rows in an order that the input alone decides, and an account of what was read."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits there are; `("all",)` where the rows are split by who reads them."""

    def rows(self, split: str) -> Iterator[Row]:
        """Yield the rows of a split; raise InputError where the input is wrong."""

    def describe(self) -> dict[str, Any]:
        """Say what was read, for the manifest; complete once the rows are used up."""

    def key(self) -> dict[str, Any]:
        """Identify the input without absolute paths, for a cache key."""
