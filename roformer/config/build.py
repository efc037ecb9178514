"""Build a typed config from a composed one, and its run id.

Hydra accepts any key after `+`, so the config is built here from the dataclasses of `schema`: an unknown
key, a wrong value or an impossible combination stops with one line that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from pydantic import ValidationError

from roformer import registry
from roformer.config.typed import NOT_IN_RESULT, OpenUnion, adapter_of
from roformer.errors import InputError

C = TypeVar("C")
Key = tuple[str, ...]
"""A dotted key in its parts."""
MOST_SHOWN = 3
"""Mistakes shown at once."""
ALIASES = {
    "lr": ("learning_rate",),
    "gradient_accumulation": ("micro_batch_size",),
    "grad_accum": ("micro_batch_size",),
    "epochs": ("epochs", "steps"),
    "fp16": ("precision",),
    "bf16": ("precision",),
    "seq_len": ("sequence_length", "max_length"),
    "seq_length": ("sequence_length", "max_length"),
    "logging_steps": ("log_every",),
    "eval_steps": ("evaluate_every",),
    "save_steps": ("checkpoint_every",),
    "output_dir": ("runs_dir",),
}
"""Other libraries' words for keys, in names between underscores."""
TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false"}
"""What to give for a value, by the first word of pydantic's `int_parsing`, `bool_type`, …"""


def build(cls: type[C], config: DictConfig | Mapping[str, Any]) -> C:
    """Return the typed config of a composed Hydra config, or of plain data."""
    content: Any = config
    schema: Any = cls
    if isinstance(config, DictConfig):
        try:
            content = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        except MissingMandatoryValue as error:
            raise InputError(f"{error.full_key} has no value: give {error.full_key}=…") from error
        except OmegaConfBaseException as error:
            raise InputError(" ".join(str(error).split())) from error
    try:
        return adapter_of(schema).validate_python(content)
    except ValidationError as error:
        places: dict[Key, tuple[_Place, list[Any]]] = {}
        for problem in error.errors():
            place = _place(cls, content, problem["loc"])
            places.setdefault(place.path, (place, []))[1].append(problem)
        keys = list(keys_of(cls, content))
        lines = [line for place, some in places.values() for line in _explain(place, some, keys)]
        more = [f"and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        raise InputError("; ".join([*lines[:MOST_SHOWN], *more])) from error


def plain(config: Any) -> dict[str, Any]:
    """Return a config as JSON-able data, with every key except `later` keys that have their default."""
    content: dict[str, Any] = adapter_of(config.__class__).dump_python(config, mode="json")
    return content


def to_yaml(config: Any) -> str:
    """Return a config as YAML; see `plain`."""
    return OmegaConf.to_yaml(OmegaConf.create(plain(config)))


def from_yaml(cls: type[C], text: str) -> C:
    """Return the typed config that `to_yaml` wrote; nothing in it is resolved."""
    return build(cls, read_yaml(text))


def read_yaml(text: str) -> dict[str, Any]:
    """Return what `to_yaml` wrote as plain data, or raise InputError."""
    try:
        content = yaml.safe_load(text)  # not the loader in C: deep nesting would end the process
        json.dumps(content)
    except Exception as error:  # yaml's constructors share no base class
        line = " ".join(str(error).split())
        raise InputError(f"unreadable YAML: {line}") from error
    if not isinstance(content, dict):
        raise InputError("no mapping of keys to values")
    return {str(key): value for key, value in content.items()}


# --- run ids -------------------------------------------------------------------------------------


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """Return field → type of a config class, with its annotations."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def sections_in(hint: Any) -> list[Any]:
    """Return the config classes that a type is made of."""
    if not isinstance(hint, type):  # some annotations are instances
        return [cls for part in typing.get_args(hint) for cls in sections_in(part)]
    if issubclass(hint, OpenUnion) and OpenUnion in hint.__bases__:
        return list(hint.kinds().values())
    return [hint] if dataclasses.is_dataclass(hint) else []


def parts_of(hint: Any) -> list[Any]:
    """Return a type, and the types and annotations that it is made of."""
    return [hint, *(part for inner in typing.get_args(hint) for part in parts_of(inner))]


def hints_at(hint: Any, key: Sequence[str]) -> list[Any]:
    """Return the types that a dotted key below a type has: one for each kind of its sections."""
    if not key:
        return [hint]
    if typing.get_origin(hint) is typing.Annotated:
        return hints_at(typing.get_args(hint)[0], key)
    if typing.get_origin(hint) is dict:
        return hints_at(typing.get_args(hint)[1], key[1:])
    fields = [hints_of(section) for section in sections_in(hint)]
    return [found for one in fields if key[0] in one for found in hints_at(one[key[0]], key[1:])]


def keys_of(cls: Any, content: Any) -> Iterator[Key]:
    """Yield the keys of a config class, in sections of several kinds only the kind in `content`."""
    for name, hint in hints_of(cls).items():
        yield (name,)
        if {list, dict} & {typing.get_origin(part) for part in parts_of(hint)}:
            continue
        value = content.get(name) if isinstance(content, Mapping) else None
        kind = value.get("kind") if isinstance(value, Mapping) else None
        sections = sections_in(hint)
        chosen = [section for section in sections if getattr(section, "kind", kind) == kind]
        for section in chosen or sections:
            yield from ((name, *key) for key in keys_of(section, value))


@cache
def free_keys(cls: type) -> frozenset[Key]:
    """Return the keys that a config class, or one within it, marks as `NOT_IN_RESULT`."""
    found = set[Key]()
    for name, hint in hints_of(cls).items():
        if NOT_IN_RESULT in getattr(hint, "__metadata__", ()):
            found.add((name,))
        else:
            found |= {(name, *key) for part in sections_in(hint) for key in free_keys(part)}
    return frozenset(found)


def configuration(cls: type, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded config without seed and free keys: the runs of one configuration share it."""
    return _without(content, free_keys(cls) | {("seed",)})


def _without(content: Mapping[str, Any], keys: Collection[Key]) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, value in content.items():
        below = {key[1:] for key in keys if key[0] == name}
        if () not in below:
            found[name] = _without(value, below) if below and isinstance(value, dict) else value
    return found


def changes_result(pipeline: str, key: str) -> bool:
    """Return whether a dotted key of a recorded config is part of its configuration (see above)."""
    if pipeline not in registry.pipelines():
        return key != "seed"
    free, parts = free_keys(registry.get(pipeline).config_of_run), tuple(key.split("."))
    return parts != ("seed",) and not any(parts[: len(one)] == one for one in free)


def run_id(config: Any) -> str:
    """Return `<model>-<position>-<recipe>-<hash>-s<seed>`: one id for one result.

    The id of a fine-tuning begins with its task; attention that is not softmax follows the position. The
    hash covers everything that changes the result except the seed, so that the seeds of a configuration
    are listed together.
    """
    content = configuration(type(config), plain(config))
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    model, attention = content["model"], content["model"]["attention"]["kind"]
    words = [*content.get("task", ()), model["name"], *config.model.position.name.split("+")]
    words += [*([] if attention == "softmax" else [attention]), content["recipe"]]
    return "-".join([*words, digest, f"s{config.seed}"])


# --- mistakes ------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Place of a mistake in a config."""

    path: Key
    section: type
    """The config class that the key is of."""
    kinds: list[Any]
    """The config classes that could stand for the section."""
    inner: type
    """The config class of the value, where it is a section itself."""


def _place(cls: type, content: Any, loc: Sequence[int | str]) -> _Place:
    """Return the place that pydantic's `loc` names; it also has kinds and types, which nobody typed."""
    path, section, kinds, inner, found = list[str](), cls, list[Any](), cls, list[Any]()
    for part in loc:
        parts = range(len(content)) if isinstance(content, list) else content
        if isinstance(parts, (range, Mapping)) and part in parts:
            content, section, kinds = content[part], inner, found
            path.append(str(part))
            found = sections_in(hints_of(section).get(str(part)))
            kind = content.get("kind") if isinstance(content, Mapping) else None
            inner = next(
                (one for one in found if getattr(one, "kind", kind) == kind), [*found, inner][0]
            )
    return _Place(tuple(path), section, kinds, inner)


def _explain(place: _Place, problems: Sequence[Any], keys: Sequence[Key]) -> list[str]:
    """Return what is wrong at a place in lines: the key, the value, what to do; `keys` are all keys."""
    if isinstance(problems[0]["input"], bool):
        problems = problems[:1]  # a truth value is neither text nor a number: one line says so
    wanted = [_wanted(problem) for problem in problems]
    if not all(wanted):
        return [_explain_one(place, problem, keys) for problem in problems]
    key, given = ".".join(place.path), problems[0]["input"]
    if isinstance(given, list) and given and not place.path[-1].isdigit():
        each = f"--multirun {key}={','.join(map(str, given))} trains one run for each"
        return [f"{key}: give one value, not {given}; {each}"]
    # A value of several types: true or false come before the other words that are valid.
    return [f"{key}: give {', '.join(reversed(wanted))}, not {given!r}"]


def _wanted(problem: Any) -> str:
    """Return what should be given for a value of the wrong type; "": the type is right."""
    if problem["type"] == "literal_error":
        return str(problem["ctx"]["expected"]).replace("'", "")
    return TYPES.get(problem["type"].partition("_")[0], "")


def _explain_one(place: _Place, problem: Any, keys: Sequence[Key]) -> str:
    path, given = place.path, problem["input"]
    key = ".".join(path)
    match problem["type"]:
        case "missing" if isinstance(given, list):
            return f"{key}={given} has too few values"
        case "missing":
            key = ".".join([*path, str(problem["loc"][-1])])
            return f"{key} has no value: give {key}=…"
        case "unexpected_keyword_argument":
            valid = near_first(path[-1], sorted(hints_of(place.section)))
            meant = near_keys(path[-1], keys)
            if ".".join((*path[:-1], valid[0])) in meant:  # the list begins with it
                meant = []
            asked = f"; did you mean {' or '.join(meant)}?" if meant else ""
            # Files of the user's own are data=files in every pipeline, whatever their kind is called.
            files = [one for one in place.kinds if getattr(one, "kind", "").endswith("files")]
            theirs = any(path[-1] in hints_of(one) for one in files)
            more = f"; {key} needs data=files" if theirs else ""
            return f"{key}: unknown key; valid keys here: {', '.join(valid)}{more}{asked}"
        case "dataclass_type":
            first = next(iter(hints_of(place.inner)))
            return f"{key}={given} is no section: set its keys, {key}.{first}=…"
        case "string_type" if isinstance(given, bool):
            words = '"yes" or "on"' if given else '"no" or "off"'
            return f"{key}: {str(given).lower()} is not text: quote words such as {words}"
        case "string_type" if isinstance(given, (int, float)):
            return f'{key}: the number {given} is not text: quote it, "{given}"'
        case "value_error":
            return ": ".join(filter(None, [key, problem["msg"].removeprefix("Value error, ")]))
    return f"{key}: {problem['msg']}, not {given!r}"


def near_first(word: str, choices: Sequence[str]) -> list[str]:
    """Return the choices, those that look like the word first: what was meant is likely among them."""
    near = [one for one in choices if word and (word in one.split("_") or one in word.split("_"))]
    near += difflib.get_close_matches(word, choices, n=3, cutoff=0.6)
    return list(dict.fromkeys([*near, *choices]))


def near_keys(word: str, keys: Sequence[Key]) -> list[str]:
    """Return the dotted keys that a word most likely means, at most three, all equally likely."""
    words, names = {*word.split("_")}, {name: {*name.split("_")} for *_, name in keys}
    inside = sorted((own for own in names.values() if own <= words), key=len)[-1:]
    alias = next((alias for alias in ALIASES if f"_{alias}_" in f"_{word}_"), "")
    found = (
        [name for name in names if name == word]
        or [name for name in ALIASES.get(alias, ()) if name in names][:1]
        or [name for name, own in names.items() if own in inside]
        or [name for name, own in names.items() if own >= words]
        or difflib.get_close_matches(word, names, cutoff=0.75)
    )
    return [".".join(key) for name in found for key in keys if key[-1] == name][:3]
