"""From a composed config to a typed one, and from that to a run id.

Hydra accepts any key after `+`, so its own check is not enough: the config is rebuilt here from the
dataclasses of `schema`, and an unknown key, a wrong type or an impossible combination stops with
one line that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from roformer.config.typed import NOT_IN_RESULT
from roformer.errors import InputError

C = TypeVar("C")

Key = tuple[str, ...]
"""A dotted key in its parts."""
MOST_SHOWN = 3
"""Mistakes shown at once."""


def build(cls: type[C], config: DictConfig | Mapping[str, Any]) -> C:
    """Return the typed config.

    Args:
        cls: a dataclass of `schema`.
        config: what Hydra composed, or plain data.

    Raises:
        InputError: an unknown, missing or impossible value; the key and the valid ones are named.
    """
    if isinstance(config, DictConfig):
        try:
            content = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except MissingMandatoryValue as error:
            raise InputError(f"{error.full_key} has no value: give {error.full_key}=…") from error
        except OmegaConfBaseException as error:
            raise InputError(" ".join(str(error).split())) from error
    else:
        content = dict(config)
    try:
        return TypeAdapter(cls).validate_python(content)
    except ValidationError as error:
        raise InputError("; ".join(_explain(cls, error.errors()))) from error


def plain(config: Any) -> dict[str, Any]:
    """Return a config as JSON-able data, every key present."""
    content: dict[str, Any] = TypeAdapter(type(config)).dump_python(config, mode="json")
    return content


def to_yaml(config: Any) -> str:
    """Return a config as YAML, every key present."""
    return OmegaConf.to_yaml(OmegaConf.create(plain(config)))


def from_yaml(cls: type[C], text: str) -> C:
    """Return the typed config that `to_yaml` wrote; nothing in it is resolved.

    Raises:
        InputError: see `build`; or it is not what `to_yaml` wrote.
    """
    return build(cls, read_yaml(text))


def read_yaml(text: str) -> dict[str, Any]:
    """Return what `to_yaml` wrote as plain data.

    Raises:
        InputError: it did not write this.
    """
    try:
        # Nested brackets take hours to parse, and aliases of aliases any memory.
        if len(text) > 50_000 or text.count("[") + text.count("{") > 200:
            raise ValueError("longer or deeper than a run's config")
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError("an alias, which a run's config does not have")
        content = OmegaConf.to_container(OmegaConf.create(text))
    # yaml, OmegaConf and its grammar share no base class; a number may be too long, a date no date.
    except Exception as error:
        line = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"not the config of a run: {line}") from error
    if not isinstance(content, dict):
        raise InputError("not the config of a run: no mapping")
    return {str(key): value for key, value in content.items()}


@cache
def free_keys(cls: type) -> frozenset[Key]:
    """Return the keys that a class of the config, or one within it, marks as `NOT_IN_RESULT`."""
    found = set[Key]()
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        if NOT_IN_RESULT in getattr(hint, "__metadata__", ()):
            found.add((name,))
        else:
            found |= {(name, *key) for part in _classes(hint) for key in free_keys(part)}
    return frozenset(found)


def _classes(hint: Any) -> list[type]:
    """Return the dataclasses that a type is made of."""
    if dataclasses.is_dataclass(hint):
        return [typing.cast(type, hint)]
    return [cls for part in typing.get_args(hint) for cls in _classes(part)]


def configuration(cls: type, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without its seed and its free keys: the runs of one configuration share it.

    Args:
        cls: of the config.
        content: the config as plain data, as its record holds it.
    """
    return _without(content, free_keys(cls) | {("seed",)})


def _without(content: Mapping[str, Any], keys: Collection[Key]) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, value in content.items():
        below = {key[1:] for key in keys if key[0] == name}
        if () not in below:
            found[name] = _without(value, below) if below and isinstance(value, dict) else value
    return found


def run_id(config: Any) -> str:
    """Return `<model>-<position>-<recipe>-<hash>-s<seed>`: one id for one result.

    A fine-tuning's begins with its task; attention that is not softmax stands after the position. The
    hash covers everything that changes the result but the seed, so that runs that differ in the seed
    alone stand side by side.
    """
    content = configuration(type(config), plain(config))
    text = json.dumps(content, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    model = content["model"]
    attention = model["attention"]["kind"]
    words = [*content.get("task", ()), model["name"], model["position"]["kind"]]
    words += [*([] if attention == "softmax" else [attention]), content["recipe"]]
    return "-".join([*words, digest, f"s{config.seed}"])


def _explain(cls: type, problems: Sequence[Any]) -> list[str]:
    """Return a line for each key that pydantic refuses: what is wrong, and what to do."""
    told: dict[str, str] = {}
    unknown: dict[type, list[str]] = {}
    for problem in problems:
        path, owner = _locate(cls, problem["loc"])
        key = ".".join(path)
        if problem["type"] == "unexpected_keyword_argument":
            unknown.setdefault(owner, []).append(key)
            continue
        line = _wrong(key, owner, problem)
        if key in told and key and line.startswith(f"{key}: "):  # the branches of a union
            line = f"{told[key]}; or {line.removeprefix(f'{key}: ')}"
        told[key] = line
    lines = []
    for owner, keys in unknown.items():
        valid = ", ".join(near_first(keys[0].rpartition(".")[2], sorted(_fields(owner))))
        word = "unknown key" if len(keys) == 1 else "unknown keys"
        lines.append(f"{', '.join(keys)}: {word}; valid keys here: {valid}")
    lines += told.values()
    more = len(lines) - MOST_SHOWN
    return [*lines[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]


def _wrong(key: str, owner: type, problem: Any) -> str:
    """Return what is wrong with the value of one key, and what to do."""
    given = problem["input"]
    if problem["type"] == "missing":
        return f"{key} has no value: give {key}=…"
    if problem["type"] == "dataclass_type":
        section = next((m for m in _members(_hint(owner, key)) if _fields(m)), None)
        keys = ", ".join(_fields(section))
        return f"{key}={given}: {key} is no value but a section; set its keys, as {key}.<key>=…: {keys}"
    if isinstance(given, Mapping) and problem["type"].endswith("_type"):
        part, inner = key.rpartition(".")[0], next(iter(given), "")
        near = f"; there is {part}.{inner}" if inner in _fields(owner) else ""
        return f"{key}.{inner}: {key} is one value and has no keys{near}"
    message = problem["msg"].removeprefix("Value error, ")
    told = f", not {given!r}" if isinstance(given, (str, int, float)) else ""
    return f"{key}: {message}{told}" if key else f"{message}{told}"


def near_first(word: str, choices: Sequence[str]) -> list[str]:
    """Return the choices, those that look like the word first: what was meant is likely among them."""
    near = [one for one in choices if word and (word in one.split("_") or one in word.split("_"))]
    near += difflib.get_close_matches(word, choices, n=3, cutoff=0.6)
    return list(dict.fromkeys([*near, *choices]))


def _hint(cls: type, key: str) -> Any:
    """Return the type of a dataclass's field, named by the last word of a key."""
    return typing.get_type_hints(cls).get(key.rpartition(".")[2])


def _locate(cls: type, location: tuple[Any, ...]) -> tuple[list[str], type]:
    """Return the key path and the dataclass that owns its last key.

    pydantic puts the tag of a union (`rotary`) into its location; a user does not type it.
    """
    path: list[str] = []
    owner: Any = cls
    hint: Any = cls
    for part in location:
        members = _members(hint)
        tagged = [m for m in members if _fields(m).get("kind") == part]
        if len(members) > 1 and tagged:
            hint = tagged[0]
            continue
        if path and not any(dataclasses.is_dataclass(m) for m in members) and isinstance(part, str):
            continue  # the branch of a union of plain types
        path.append(str(part))
        owner = next((m for m in members if dataclasses.is_dataclass(m)), owner)
        hints = typing.get_type_hints(owner, include_extras=False)
        hint = (
            hints.get(str(part))
            if not isinstance(part, int)
            else next(iter(typing.get_args(hint)), None)
        )
    return path, owner


def _members(hint: Any) -> list[Any]:
    """Return the alternatives of a union type, or the type alone."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [m for m in typing.get_args(hint) if m is not type(None)]
    return [hint]


def _fields(cls: Any) -> dict[str, Any]:
    """Return field names with their defaults, or nothing for what is no dataclass."""
    if not dataclasses.is_dataclass(cls):
        return {}
    return {field.name: field.default for field in dataclasses.fields(cls)}
