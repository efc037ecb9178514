"""What makes a class of the config strict, and the kinds of values that many have."""

from __future__ import annotations

from typing import Annotated, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

T = TypeVar("T")
Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
Name = Annotated[str, Field(min_length=1)]


class NotInResult:
    """Marks a key that must not change what comes out of a run: it stays out of the run id."""


NOT_IN_RESULT = NotInResult()


@dataclass_transform(kw_only_default=True, frozen_default=True)
def schema(cls: type[T]) -> type[T]:
    """Make a class a typed, frozen dataclass that refuses unknown keys and wrong types."""
    strict = ConfigDict(extra="forbid")
    return cast(type[T], dataclass(config=strict, frozen=True, kw_only=True)(cls))
