"""The help of a pipeline, from its config's dataclasses: every key, its type, range and meaning."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from roformer.config.build import hints_of, sections_in

WIDTH = 100
BOUNDS = {
    "exclusiveMinimum": ">",
    "minimum": ">=",
    "exclusiveMaximum": "<",
    "maximum": "<=",
    "pattern": "matching",
    "multipleOf": "a multiple of",
}


def describe(cls: Any, config: Any, prefix: str = "") -> Iterator[str]:
    """Yield the lines of every key of a config: `training.steps  integer > 0 = 600` and what it means.

    Where a section is of several kinds, the keys of the chosen one come first, and keys of the others
    behind their kind. Values are the config's; without one (None) they are the defaults.
    """
    meanings = _meanings(cls)
    for field in dataclasses.fields(cls):
        key, hint = f"{prefix}{field.name}", hints_of(cls)[field.name]
        # pydantic keeps a default with constraints within its own description of the field
        default = getattr(field.default, "default", field.default)
        value = default if config is None else getattr(config, field.name)
        sections = sections_in(hint)
        chosen = type(value) if type(value) in sections else None
        if chosen is None:
            kind = "" if sections else f"  {_type(TypeAdapter(hint).json_schema())}"
            shown = "" if value is dataclasses.MISSING else f" = {_value(value)}"
            yield f"  {key}{kind}{shown}"
            yield from _wrapped(meanings.get(field.name, ""), " " * 6, " " * 6)
        for section in sorted(sections, key=lambda one: one is not chosen):
            title = key
            if len(sections) > 1:
                title += f", {'' if section is chosen else 'if '}kind={section.kind}"
            about = inspect.cleandoc(section.__doc__).partition("\n\n")[0]
            yield ""
            yield from _wrapped(f"{title}: {about}", "", "  ")
            yield from describe(section, value if section is chosen else None, f"{key}.")


def _wrapped(text: str, first: str, later: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()), WIDTH, initial_indent=first, subsequent_indent=later
    )


def _meanings(cls: type[Any]) -> dict[str, str]:
    """Return field → the docstring below it, including base classes."""
    found: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        for field, after in pairwise(_classes(base.__module__)[base.__name__].body):
            match field, after:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = text
    return found


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by name, parsed once for all of them."""
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}


def _value(value: Any) -> str:
    """Return a value as it is typed on the command line; of a mapping only the keys."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(value)}}}"
    return json.dumps(to_jsonable_python(value)).replace('"', "")


def _type(schema: Any) -> str:
    """Return what pydantic's JSON schema of a key says: `integer > 0 or null`."""
    match schema:
        case {"anyOf": branches}:
            return " or ".join(map(_type, branches))
        case {"const": value}:
            return _value(value)
        case {"enum": values}:
            return "|".join(map(_value, values))
        case {"prefixItems": items}:
            return f"[{', '.join(map(_type, items))}]"
        case {"items": item}:
            return f"list of {_type(item)}"
    bounds = [f"{sign} {schema[name]}" for name, sign in BOUNDS.items() if name in schema]
    return f"{schema.get('type', 'any')} {' and '.join(bounds)}".rstrip()
