"""Reading a run's record: what a table takes out of it is there and of its type, or one line says not.

Like the tables it imports no torch, so that tables come at once, wherever a record is copied to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, NotRequired

import yaml
from omegaconf import OmegaConf
from pydantic import Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict

from roformer.config.runs import arm_settings
from roformer.errors import InputError

FOLDER = "runs"
"""What stands between study and id where a recorded run is named: `experiments/STUDY/runs/ID`."""
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Metrics = dict[str, Number | None]
"""Metric → value; null where it was not finite."""


@dataclass(frozen=True)
class RecordedFile:
    """A file of a recorded run; `content` is None where the run does not have it."""

    path: Path
    content: Any

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    def is_file(self) -> bool:
        return self.content is not None


@dataclass(frozen=True)
class RecordedRun:
    """A run that a study recorded, read like the run's folder."""

    path: Path
    """`experiments/STUDY/runs/ID`, by which it is named; there is no such folder."""
    files: dict[str, Any] = field(compare=False)
    """Name → content, parsed."""

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The run id."""
        return self.path.name

    @property
    def study(self) -> Path:
        """The study's folder."""
        return self.path.parents[1]

    def __truediv__(self, name: str) -> RecordedFile:
        return RecordedFile(self.path / name, self.files.get(name))


File = Path | RecordedFile
Folder = Path | RecordedRun
"""Of a run: one on disk, or one that a study recorded; see `roformer.report.recorded`."""


class TestSet(TypedDict):
    """What a translation run translated."""

    name: str
    lines: Count
    fingerprint: str


class Best(TypedDict):
    """The best epoch, or step."""

    metrics: NotRequired[Metrics]


class Summary(TypedDict, total=False):
    """The types of what tables take out of a summary; which keys there must be is each table's."""

    pipeline: str
    model: str
    position: str
    attention: str
    recipe: str
    data: str
    task: str
    init_from: str | None
    learning_rate: Number
    max_length: int
    seed: Annotated[int, Field(ge=-(10**15), le=10**15)]
    status: str
    error: str
    headline: str
    metrics: Metrics
    best: Best | None
    majority: Metrics
    test_set: TestSet
    signatures: dict[str, str]
    steps: Count
    tokens: Count
    parameters: Count
    wall_seconds: Number
    tokens_per_second: Number
    commit: str | None


class Environment(TypedDict, total=False):
    """The types of what is taken out of an env.json."""

    data: str
    commit: str | None
    dirty: bool | None
    processor: str


class _Row(TypedDict):
    step: Annotated[int, Field(ge=0)]


class RecordError(InputError):
    """A record that cannot be read: which file, and what is wrong with it, in one line."""


def read_summary(folder: Folder, *keys: str) -> dict[str, Any]:
    """Return a run's summary.json, which has these keys.

    Raises:
        RecordError: it cannot be read, or a key is missing or of another type.
    """
    return _with_keys(folder / "summary.json", Summary, keys)


def read_environment(folder: Folder, *keys: str) -> dict[str, Any]:
    """Return a run's env.json, which has these keys; see `read_summary`."""
    return _with_keys(folder / "env.json", Environment, keys)


def configuration(summary: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return, as JSON, what of a run's config changes its result, but the seed.

    Runs with the same one are the seeds of one configuration.
    """
    return json.dumps(arm_settings(summary.get("pipeline", ""), config), sort_keys=True)


def read_json(file: File, shape: Any) -> dict[str, Any]:
    """Return the JSON object of a file, which has the shape, a TypedDict.

    Raises:
        RecordError: it cannot be read, or a key is missing or of another type.
    """
    if isinstance(file, Path):
        return _checked(read_bytes(file), shape, str(file))
    try:
        check(shape, content := kept(file))
    except ValueError as error:
        raise RecordError(f"{file} is not what a run wrote: {error}") from error
    found: dict[str, Any] = content
    return found


def read_metrics(file: File) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl: a `step`, and numbers or nulls by name.

    Raises:
        RecordError: names the line that is something else.
    """
    if not isinstance(file, Path):
        return list(kept(file))
    lines = read_bytes(file).removesuffix(b"\n").split(b"\n")
    rows = [_checked(line, _Row, f"{file}:{number}") for number, line in enumerate(lines, 1)]
    for number, row in enumerate(rows, 1):
        try:
            check(Metrics, row)
        except ValueError as error:
            raise RecordError(f"{file}:{number} is not what a run wrote: {error}") from error
    return rows


def read_config(folder: Folder) -> dict[str, Any]:
    """Return a run's config.yaml as plain data, without resolving anything in it.

    Raises:
        RecordError: see `read_yaml`.
    """
    if not isinstance(folder, Path):
        return dict(kept(folder / "config.yaml"))
    return read_yaml(folder / "config.yaml", what="the config of a run")


def read_yaml(file: Path, *, what: str) -> dict[str, Any]:
    """Return a YAML file as plain data, without resolving anything in it.

    Raises:
        RecordError: it cannot be read, is no mapping, or holds what a config or a plan cannot.
    """
    try:
        content: dict[str, Any] = json.loads(_as_json(read_bytes(file).decode()))
    except RecordError:
        raise
    # yaml, OmegaConf and its grammar share no base class; a number may be too long, a date no date.
    except Exception as error:
        line = " ".join(str(error).split()) or type(error).__name__
        raise RecordError(f"{file} is not {what}: {line}") from error
    return content


@lru_cache(maxsize=1024)
def _as_json(text: str) -> str:
    """Return YAML as JSON: a config is asked for by several tables, and takes 10 ms to read."""
    # What a short text can take: hours for brackets in brackets, any memory for aliases of aliases.
    if len(text) > 50_000 or text.count("[") + text.count("{") > 200:
        raise ValueError("longer or deeper than it can be")
    if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
        raise ValueError("an alias, which it cannot have")
    content = OmegaConf.to_container(OmegaConf.create(text))
    check(dict[str, JsonValue], content)
    assert isinstance(content, dict)
    return json.dumps({str(key): value for key, value in content.items()})


def read_lines(file: File) -> list[str]:
    r"""Return the lines of a text; only \n ends one: others, such as U+2028, may stand in it."""
    try:
        text = read_bytes(file).decode() if isinstance(file, Path) else str(kept(file))
    except UnicodeDecodeError as error:
        raise RecordError(f"{file} is not UTF-8: {error}") from error
    *lines, rest = text.split("\n")
    return [*lines, rest] if rest else lines


def check(shape: Any, content: object) -> None:
    """Raise ValueError where content has not the shape; names the first key."""
    try:
        _adapter(shape).validate_python(content, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"])) or "content"
        raise ValueError(f"{key}: {problem['msg']}") from None


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _with_keys(file: File, shape: type, keys: Iterable[str]) -> dict[str, Any]:
    found = read_json(file, shape)
    for key in keys:
        if key not in found:
            raise RecordError(f"{file} is not what a run wrote: {key}: is missing")
    return found


def _checked(content: bytes, shape: type, place: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = from_json(content, allow_inf_nan=False)
        check(shape, found)
    except ValueError as error:
        raise RecordError(f"{place} is not what a run wrote: {error}") from error
    return found


def kept(file: RecordedFile) -> Any:
    """Return the content of a recorded run's file."""
    if not file.is_file():
        raise RecordError(f"{file} is not recorded")
    return file.content


def read_bytes(file: Path) -> bytes:
    """Return the content of a file; RecordError where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror or error}") from error
