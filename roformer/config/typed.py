"""Strict dataclasses for the config, and marks of keys that change no result."""

from __future__ import annotations

from typing import TypeVar, cast, dataclass_transform

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

T = TypeVar("T")
NOT_IN_RESULT = "must not change the result"
"""Annotation of a key that stays out of the run id."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def schema(cls: type[T]) -> type[T]:
    """Make a class a typed, frozen dataclass that refuses unknown keys and wrong types."""
    strict = ConfigDict(extra="forbid")
    return cast(type[T], dataclass(config=strict, frozen=True, kw_only=True)(cls))
