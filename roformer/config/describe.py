"""The help of a pipeline, from its config's dataclasses: every key, its type, range and meaning."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
WIDTH = 100


def describe(schema: type[Any], config: Any) -> str:
    """Return every key of a config: `training.steps  integer > 0 = 600` and what it means.

    Where a section is of several kinds, the keys of the chosen one come first, and those of the others
    behind their kind.

    Args:
        schema: the dataclass.
        config: an instance, whose values are shown.
    """
    return "\n".join(_section(schema, config, ""))


def plain_in_full(config: Any) -> dict[str, Any]:
    """Return a config as plain data with all keys, also those that a record leaves out at their default."""
    content: dict[str, Any] = TypeAdapter(Any).dump_python(dataclasses.asdict(config), mode="json")
    return content


def _section(schema: type[Any], config: Any, prefix: str) -> Iterator[str]:
    """Yield the lines of a section's keys; `config` is an instance, or None of a kind not chosen."""
    meanings = _meanings(schema)
    hints = typing.get_type_hints(schema, include_extras=True)
    for field in dataclasses.fields(schema):
        key = f"{prefix}{field.name}"
        value = getattr(config, field.name) if config is not None else _default(field)
        members = _members(hints[field.name])
        sections: list[Any] = [one for one in members if dataclasses.is_dataclass(one)]
        if not sections:
            shown = "" if value is dataclasses.MISSING else f" = {_value(value)}"
            yield f"  {key}  {_type(hints[field.name])}{shown}"
            yield from _indented(meanings.get(field.name, ""))
            continue
        chosen: Any = type(value) if type(value) in sections else None
        if chosen is None:
            yield f"  {key} = {_value(value)}"
            yield from _indented(meanings.get(field.name, ""))
        for section in sorted(sections, key=lambda one: one is not chosen):
            kind = f"kind={_kind(section)}"
            several = f", {kind}" if section is chosen else f", if {kind}"
            yield from _heading(f"{key}{several if len(sections) > 1 else ''}:", section)
            yield from _section(section, value if section is chosen else None, f"{key}.")


def _heading(title: str, section: type[Any]) -> Iterator[str]:
    about = inspect.cleandoc(section.__doc__ or "").partition("\n\n")[0]
    yield ""
    yield from textwrap.wrap(f"{title} {' '.join(about.split())}", WIDTH, subsequent_indent="  ")


def _indented(meaning: str) -> list[str]:
    return textwrap.wrap(
        " ".join(meaning.split()), WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
    )


def _meanings(schema: type[Any]) -> dict[str, str]:
    """Return field → the docstring below it, those of base classes included."""
    found: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (cls,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(cls, ast.ClassDef)
        for field, after in zip(cls.body, cls.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[field.target.id] = str(after.value.value)
    return found


def _members(hint: Any) -> list[Any]:
    """Return the alternatives of a type, whatever is annotated."""
    if typing.get_origin(hint) is typing.Annotated:
        return _members(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, type(int | None)):
        return [member for one in typing.get_args(hint) for member in _members(one)]
    return [hint]


def _kind(section: type[Any]) -> str:
    return next((str(f.default) for f in dataclasses.fields(section) if f.name == "kind"), "")


def _default(field: dataclasses.Field[Any]) -> Any:
    default = field.default
    # pydantic keeps a default with constraints within its own description of the field
    return getattr(default, "default", default)


def _value(value: Any) -> str:
    """Return a value as it is typed on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    if dataclasses.is_dataclass(value):
        return f"{{{', '.join(f'{k}: {_value(v)}' for k, v in vars(value).items())}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(map(str, value))}}}"
    return str(value)


def _type(hint: Any) -> str:
    """Return a leaf's type and range: `integer > 0 or null`."""
    return _told(TypeAdapter(hint).json_schema())


def _told(schema: Mapping[str, Any], defined: Mapping[str, Any] | None = None) -> str:
    defined = defined or schema.get("$defs", {})
    if reference := schema.get("$ref"):
        return str(reference).rpartition("/")[2]
    if branches := schema.get("anyOf"):
        return " or ".join(_told(branch, defined) for branch in branches)
    if "const" in schema:
        return _value(schema["const"])
    if "enum" in schema:
        return "|".join(map(_value, schema["enum"]))
    told = str(schema.get("type", "any"))
    if told == "array":
        items = schema.get("prefixItems")
        one = _told(schema["items"], defined) if isinstance(schema.get("items"), dict) else "any"
        told = f"[{', '.join(_told(i, defined) for i in items)}]" if items else f"list of {one}"
    if told == "object" and isinstance(schema.get("additionalProperties"), dict):
        told = f"mapping to {_told(schema['additionalProperties'], defined)}"
    bounds = [f"{sign} {schema[name]}" for name, sign in BOUNDS.items() if name in schema]
    if "pattern" in schema:
        bounds.append(f"matching {schema['pattern']}")
    if "multipleOf" in schema:
        bounds.append(f"a multiple of {schema['multipleOf']}")
    return " ".join([told, " and ".join(bounds)]).strip()
