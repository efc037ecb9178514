"""One text or many: how a trained model is asked, and that it answers in kind."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, TypeVar

from roformer.errors import InputError

T = TypeVar("T")


def answer(
    given: object, check: Callable[[object], T], ask: Callable[[Iterator[T]], Iterator[Any]]
) -> Any:
    """Return the answer to one text or pair, or the answers to many, in order.

    Args:
        given: a str or a tuple is one text or pair and has one answer; an iterator (a generator, an
            open file) is read as its answers are taken; any other ordered collection has a list of
            answers.
        check: returns a text or pair as it is asked, or raises InputError.
        ask: yields one answer for each checked text or pair.
    """
    if isinstance(given, (str, tuple)):
        (result,) = ask(iter([check(given)]))
        return result
    unordered = isinstance(given, (bytes, bytearray, memoryview, Mapping, Set))
    # A table or matrix would be read by the names of its columns or by its rows.
    if unordered or not isinstance(given, Iterable) or getattr(given, "ndim", 1) != 1:
        raise InputError(f"give one text or a list of texts, not {shown(given)}")
    texts = _each(given, check)
    return ask(texts) if isinstance(given, Iterator) else list(ask(iter(list(texts))))


def _each(given: Iterable[object], check: Callable[[object], T]) -> Iterator[T]:
    for number, text in enumerate(given, 1):
        try:
            yield check(text)
        except InputError as error:
            raise InputError(f"text {number}: {error}") from error


def check_text(given: object) -> str:
    """Return a text as it is, or raise InputError: it is no str, or holds half a surrogate pair."""
    if not isinstance(given, str):
        raise InputError(f"a text is a str, not {shown(given)}{as_list(given)}")
    if any("\ud800" <= character <= "\udfff" for character in given):
        raise InputError(f"{given!r} holds half of a surrogate pair, which is no character")
    return given


def as_list(given: object) -> str:
    """Return what to do where a tuple was given."""
    return ": give many texts as a list" if isinstance(given, tuple) else ""


def shown(given: object) -> str:
    """Return a value with its type, shortened, for an error message."""
    return f"{reprlib.repr(given)} ({type(given).__name__})"
