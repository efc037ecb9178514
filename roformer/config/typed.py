"""Base class of every part of a config, strict and with rules between keys, and types of values."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, dataclass_transform

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PositiveInt,
    TypeAdapter,
)
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema, core_schema

from roformer.errors import InputError
from roformer.registry import extensions

NOT_IN_RESULT = "must not change the result"
"""Annotation of a key that stays out of the run id."""
VERBATIM = "read from the command line as typed"
"""Annotation of a key that holds the name of a file, which Hydra's grammar must not cut up."""


Rules = Iterator[tuple[object, str]]
"""Pairs (violated, message)."""


def refuse(rules: Rules) -> None:
    """Raise InputError with the line of the first rule that is broken."""
    for wrong, message in rules:
        if wrong:
            raise InputError(message)


Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Base = Annotated[float, Field(gt=1.0)]
Name = Annotated[str, Field(min_length=1)]
FileName = Annotated[Name, VERBATIM]
PathName = Annotated[Name, AfterValidator(os.path.expanduser), VERBATIM]
"""A path, or a word or id that a path may replace; the only place where `~` is expanded."""
Column = str | Annotated[int, Field(ge=0, strict=True)]
"""A column of a .tsv or .csv file: its name in the header, or its number in a file without one."""
Label = Annotated[str, Field(pattern=r"^[\w-]+$")]
"""Part of a run id, so of a folder's name."""
Repository = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Length = Annotated[int, Field(ge=8)]
Interval = Annotated[PositiveInt, NOT_IN_RESULT]


def later(default: Any) -> Any:
    """Return the default of a key that came when runs were recorded already.

    At this value the key is omitted from records and ids, so that earlier ids stay valid.
    """
    return Field(default=default, exclude_if=lambda value: value == default)


@cache
def adapter_of(cls: Any) -> TypeAdapter[Any]:
    """Return the reader and writer of a config class, which takes pydantic long to build."""
    return TypeAdapter(cls)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Config:
    """Base class: a subclass is a frozen dataclass that rejects unknown keys and wrong values."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        strict = ConfigDict(extra="forbid", defer_build=True)
        dataclass(config=strict, frozen=True, kw_only=True)(cls)
        adapter_of.cache_clear()  # the class may be a new kind of an open union

    def __post_init__(self) -> None:
        refuse(self.rules())

    def rules(self) -> Rules:
        """Yield the rules between keys; the first violation is reported."""
        yield from ()


class OpenUnion(Config):
    """A config of one of several kinds: a key of such a type holds any subclass of it, chosen by `kind`.

    The kinds include kinds from the modules in ROFORMER_EXTENSIONS.
    """

    kind: str

    @classmethod
    def kinds(cls) -> dict[str, type[Any]]:
        """Return all classes below this one by `kind`."""
        extensions()
        below = {one.kind: one for one in cls.__subclasses__()}
        return below | {name: one for each in below.values() for name, one in each.kinds().items()}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        if OpenUnion not in cls.__bases__:  # one of the kinds
            return handler(source)
        schemas = {kind: handler.generate_schema(one) for kind, one in cls.kinds().items()}
        return core_schema.tagged_union_schema(schemas, discriminator="kind")
