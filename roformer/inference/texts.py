"""One text or a list of texts: what the methods of trained models take."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, TypeVar

from roformer.errors import InputError, prefixed

T = TypeVar("T")


def answer(given: object, check: Callable[[object], T], ask: Callable[[list[T]], Any]) -> Any:
    """Return the answer to one text or pair, or the answers to many, in order.

    Args:
        given: a str or tuple is one text or pair; any other ordered collection has many.
        check: returns a text or pair as it is asked, or raises InputError.
        ask: returns one answer for each checked text or pair.
    """
    if isinstance(given, (str, tuple)):
        return ask([check(given)])[0]
    unordered = isinstance(given, (bytes, bytearray, memoryview, Mapping, Set))
    # A table or matrix would be read by the names of its columns or by its rows.
    if unordered or not isinstance(given, Iterable) or getattr(given, "ndim", 1) != 1:
        raise InputError(f"give one text or a list of texts, not {shown(given)}")
    checked = []
    for number, text in enumerate(given, 1):
        with prefixed(f"text {number}: "):
            checked.append(check(text))
    return ask(checked)


def check_text(given: object) -> str:
    """Return a text as it is, or raise InputError for anything else."""
    if not isinstance(given, str):
        raise InputError(f"a text is a str, not {shown(given)}")
    if any("\ud800" <= character <= "\udfff" for character in given):
        raise InputError(f"{given!r} holds half of a surrogate pair, which is no character")
    return given


def shown(given: object) -> str:
    """Return a value with its type, shortened, for an error message."""
    many = ": give many texts as a list" if isinstance(given, tuple) else ""
    return f"{reprlib.repr(given)} ({type(given).__name__}){many}"
