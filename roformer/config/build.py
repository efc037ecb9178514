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
from typing import Any, TypeVar

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
TYPES = {"int": "a whole number", "float": "a number", "bool": "true or false"}
"""What to give for a value, by the first word of pydantic's `int_parsing`, `bool_type`, …"""
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
        problems: dict[Key, list[Any]] = {}
        for problem in error.errors():
            problems.setdefault(_key_of(content, problem), []).append(problem)
        lines = [_explain(cls, content, key, some) for key, some in problems.items()]
        raise InputError("; ".join(lines)) from error


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
    if typing.get_origin(hint) in (list, dict):
        return hints_at(typing.get_args(hint)[-1], key[1:])
    fields = [hints_of(section) for section in sections_in(hint)]
    return [found for one in fields if key[0] in one for found in hints_at(one[key[0]], key[1:])]


def keys_of(cls: Any, content: Any) -> Iterator[Key]:
    """Yield the keys of a config class, in sections of several kinds only the kind in `content`."""
    for name, hint in hints_of(cls).items():
        yield (name,)
        if {list, dict} & {typing.get_origin(part) for part in parts_of(hint)}:
            continue
        value = content.get(name) if isinstance(content, Mapping) else None
        for section in _chosen(sections_in(hint), value):
            yield from ((name, *key) for key in keys_of(section, value))


def _chosen(sections: list[Any], content: Any) -> list[Any]:
    """Return the sections of the kind that the content has, or all if it has none."""
    kind = content.get("kind") if isinstance(content, Mapping) else None
    return [one for one in sections if getattr(one, "kind", kind) == kind] or sections


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


def _key_of(content: Any, problem: Any) -> Key:
    """Return the key of a mistake; pydantic's `loc` also has kinds and types, which nobody typed."""
    path = list[str]()
    for part in problem["loc"]:
        names = range(len(content)) if isinstance(content, list) else content
        if isinstance(names, (range, Mapping)) and part in names:
            content = content[part]
            path.append(str(part))
    return (*path, str(problem["loc"][-1])) if problem["type"] == "missing" else tuple(path)


def _explain(cls: type, content: Any, path: Key, problems: Sequence[Any]) -> str:
    """Return what is wrong with a key: the key, the value, what to do."""
    key, given = ".".join(path), problems[0]["input"]
    match problems[0]["type"]:
        case "missing" if isinstance(given, list):
            return f"{'.'.join(path[:-1])}={given} has too few values"
        case "missing":
            return f"{key} has no value: give {key}=…"
        case "unexpected_keyword_argument":
            return f"{key}: unknown key; {_valid_keys(cls, content, path)}"
        case "union_tag_invalid":
            known = str(problems[0]["ctx"]["expected_tags"]).replace("'", "")
            kinds = [kind for hint in hints_at(cls, path) for kind in sections_in(hint)]
            line = f"{key}.kind={given['kind']}: choose one of {known}"
            if issubclass(kinds[0], OpenUnion):
                line += f"; a kind of another package needs its module in {registry.EXTENSIONS}"
            return line
        case "dataclass_type":
            first = next(iter(hints_of(sections_in(hints_at(cls, path)[0])[0])))
            return f"{key}={given} is no section: set its keys, such as {key}.{first}"
        case "string_type" if isinstance(given, (bool, int, float)):
            words = "put numbers, and words such as yes and no, in quotes"
            return f"{key}: {json.dumps(given)} is not text: {words}"
        case "value_error":
            return ": ".join(filter(None, [key, problems[0]["msg"].removeprefix("Value error, ")]))
        case "int_type" | "float_type" | "bool_type" | "string_type" | "literal_error" if (
            isinstance(given, list) and given
        ):
            each = f"--multirun {key}={','.join(map(str, given))} trains one run for each"
            return f"{key}: give one value, not {given}; {each}"
    # A key of several types has a problem with each of them.
    wanted = [_wanted(problem) for problem in problems]
    if all(wanted):
        return f"{key}: give {', '.join(reversed(wanted))}, not {given!r}"
    return f"{key}: {' or '.join(problem['msg'] for problem in problems)}, not {given!r}"


def _wanted(problem: Any) -> str:
    """Return what should be given for a value of the wrong type; "": the type is right."""
    if problem["type"] == "literal_error":
        return str(problem["ctx"]["expected"]).replace("'", "")
    return TYPES.get(problem["type"].partition("_")[0], "")


def _valid_keys(cls: type, content: Any, path: Key) -> str:
    """Return the keys that are valid in place of an unknown one, and the keys that it may mean."""
    *parents, word = path
    section = content
    for name in parents:
        items = enumerate(section) if isinstance(section, list) else section.items()
        section = {str(key): value for key, value in items}[name]
    kinds = [one for hint in hints_at(cls, parents) for one in sections_in(hint)]
    chosen = _chosen(kinds, section)
    valid = near_first(word, sorted({name for one in chosen for name in hints_of(one)}))
    advice = f"valid keys here: {', '.join(valid)}"
    # Files of the user's own are data=files in every pipeline, whatever their kind is called.
    files = [one for one in kinds if getattr(one, "kind", "").endswith("files")]
    if any(word in hints_of(one) for one in files):
        advice += f"; {'.'.join(path)} needs data=files"
    meant = near_keys(word, list(keys_of(cls, content)))
    if meant and ".".join((*parents, valid[0])) not in meant:  # else the list begins with it
        advice += f"; did you mean {' or '.join(meant)}?"
    return advice


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
