"""The records of runs as two frames: the one place where a record is read, and the only check of it.

A run leaves a folder; a study keeps its runs in two files:

    runs.jsonl    one line a run: id, summary, config, environment, command, and further files for tables
    metrics.csv   one line for each line of the runs' metrics.jsonl; empty: not logged, nan: not finite
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired

import pandas as pd
from pydantic import Field, JsonValue
from pydantic_core import from_json
from typing_extensions import TypedDict

from roformer.config.build import read_yaml
from roformer.config.runs import changes_result
from roformer.errors import InputError, one_line
from roformer.json_files import check_shape
from roformer.pipelines import registry

RUNS = "runs.jsonl"
METRICS = "metrics.csv"
FILES = ("summary.json", "metrics.jsonl", "config.yaml", "env.json", "command.txt")
"""A folder with one of these is a run's."""
FURTHER = (
    "bleu_statistics.json",
    "positions.json",
    "predictions/validation.tsv",
    "predictions/test.tsv",
)
"""Files of a run that tables read besides, where it has them."""
YOURS = "your runs"
"""The study of a run that is not recorded: it was made on this machine."""
STATUSES = ("done", "degenerate", "failed", "running", "damaged")
ENDED = ("done", "degenerate")
LOSSES = {name: one.loss for name, one in registry.pipelines().items() if one.loss is not None}
"""Pipeline → what its curves are of."""
HEADLINES = ("test/sacrebleu", *(loss.metric for loss in LOSSES.values()))
"""The headline metric of a run whose summary names none."""
DEGENERATE = {
    "glue": "it always gives the same answer",
    "scm": "its validation accuracy is not above chance by two standard errors",
    **dict.fromkeys((*LOSSES, "wmt"), "its loss is not below the unigram entropy"),
}

Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Metrics = dict[str, Number | None]
"""Metric → value; null where it was not finite."""


class RecordError(InputError):
    """A record that cannot be read: which file, and what is wrong with it, in one line."""


class Runs(NamedTuple):
    """Records as frames."""

    runs: pd.DataFrame
    """One row a run, by (study, run); columns as `Row`."""
    metrics: pd.DataFrame
    """One row a logged value: study, run, step, samples, tokens, metric, value (NaN: not finite)."""

    def where(self, chosen: Any) -> Runs:
        """Return the runs that a mask, or a list of (study, run), chooses."""
        runs = self.runs.loc[chosen]
        keys = pd.MultiIndex.from_frame(self.metrics[["study", "run"]])
        return Runs(runs, self.metrics[keys.isin(runs.index)])


class Row(TypedDict):
    """A row of the frame of runs; None where the record does not say."""

    study: str
    """Folder under experiments/, or `YOURS`."""
    run: str
    """The run id."""
    folder: str
    """As messages name it; of a recorded run `experiments/STUDY/runs/ID`."""
    status: str
    """One of `STATUSES`; running is what has no summary yet."""
    reason: str
    """Why it is failed, degenerate or damaged, or since when a running one wrote nothing; one line."""
    pipeline: str
    model: str
    position: str
    attention: str
    recipe: str
    task: str
    data: str
    seed: int | None
    headline: str
    """Name of its headline metric."""
    score: float
    """Value of this metric, the last one where the run has not ended; NaN without one."""
    steps: int | None
    tokens: int | None
    wall_seconds: float | None
    """For a running one, from its start to its last line."""
    tokens_per_second: float | None
    parameters: int | None
    commit: str | None
    command: str
    label: str
    """As tables name its configuration: `roformer (rotary)`."""
    configuration: str
    """Hash of what of the config changes the result, but the seed."""
    written: float
    """Time of the last write to the record, in seconds since the epoch."""
    summary: dict[str, Any]
    config: dict[str, Any]
    """Dotted key → value."""
    environment: dict[str, Any]
    files: dict[str, Any]
    """Name of a `FURTHER` file → its content: JSON, or text."""


class _TestSet(TypedDict):
    name: str
    lines: Count
    fingerprint: str


class _Best(TypedDict):
    metrics: NotRequired[Metrics]


class _Summary(TypedDict):
    """The used keys of a summary.json; `NEEDED` has further ones by pipeline."""

    pipeline: str
    model: str
    position: str
    recipe: str
    seed: Annotated[int, Field(ge=-(10**15), le=10**15)]
    status: Annotated[str, Field(pattern="^(done|degenerate|failed)$")]
    metrics: Metrics
    steps: Count
    tokens: Count
    parameters: Count
    wall_seconds: Number
    tokens_per_second: Number
    attention: NotRequired[str]
    data: NotRequired[str]
    task: NotRequired[str]
    init_from: NotRequired[str | None]
    learning_rate: NotRequired[Number]
    max_length: NotRequired[int]
    error: NotRequired[str]
    headline: NotRequired[str]
    best: NotRequired[_Best | None]
    majority: NotRequired[Metrics]
    test_set: NotRequired[_TestSet]
    signatures: NotRequired[dict[str, str]]
    commit: NotRequired[str | None]


NEEDED = {
    "glue": ("task", "data", "learning_rate", "headline", "best", "majority"),
    "scm": ("data", "max_length", "best"),
}


class _Environment(TypedDict):
    commit: str | None
    dirty: bool | None
    data: NotRequired[str]
    processor: NotRequired[str]


class _Record(TypedDict):
    """A line of runs.jsonl, and what the folder of a run is read as."""

    id: str
    summary: _Summary
    config: dict[str, JsonValue]
    environment: _Environment
    command: str
    files: NotRequired[dict[str, dict[str, JsonValue] | str]]


class _Step(TypedDict):
    step: Count


Record = dict[str, Any]
Rows = list[dict[str, Any]]
"""The lines of a metrics.jsonl."""


# --- the frames ----------------------------------------------------------------------------------


def read_runs(places: Iterable[Path], *, strict: bool = True) -> Runs:
    """Return the runs of some places, in their order.

    Args:
        places: folders of runs; folders of studies; `STUDY/runs/PATTERN` for the recorded runs whose id
            matches; or roots such as experiments/ and runs/, in which runs that were set aside
            (`ID.before-N`) are left out, and which may be absent.
        strict: a damaged record is an error; else a row of status "damaged" with its reason.

    Raises:
        RecordError: a record is damaged, or a pattern matches nothing.
    """
    found: dict[tuple[str, str], tuple[dict[str, Any], pd.DataFrame]] = {}
    for place, study, pattern in _sources(places, strict):
        matched = [one for one in _read(place, study) if fnmatchcase(one[0]["run"], pattern)]
        if pattern != "*" and not matched:
            raise RecordError(f"no run is {place / 'runs' / pattern}")
        for row, metrics in matched:
            if strict and row["status"] == "damaged":
                raise RecordError(row["reason"])
            key = (row["study"], row["run"])
            if found.setdefault(key, (row, metrics))[0]["folder"] != row["folder"]:
                row = {**row, "run": row["folder"]}
                found[row["study"], row["run"]] = (row, metrics.assign(run=row["run"]))
    rows = [row for row, _ in found.values()]
    runs = pd.DataFrame(rows, columns=list(Row.__annotations__), dtype=object)
    metrics = pd.concat([_long("", "", []), *(metrics for _, metrics in found.values())])
    return Runs(runs.set_index(["study", "run"], drop=False), metrics.reset_index(drop=True))


def settings_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a run's config changes its result, but the seed: dotted key → value."""
    return {key: v for key, v in run["config"].items() if _changes(run["pipeline"], key)}


def run_label(run: Mapping[str, Any]) -> str:
    """Return what a run is called by model, position and attention: `roformer (rotary)`."""
    attention = run.get("attention") or "softmax"
    return f"{run['model'] if attention == 'softmax' else attention} ({run['position']})"


def flattened(content: Any, key: str = "") -> dict[str, Any]:
    """Return nested plain data as dotted keys and values; a list is one value."""
    if not isinstance(content, dict):
        return {key: content}
    below = [flattened(value, f"{key}.{name}" if key else name) for name, value in content.items()]
    return {name: value for part in below for name, value in part.items()}


def _sources(places: Iterable[Path], strict: bool) -> Iterator[tuple[Path, str, str]]:
    """Yield (folder, study, pattern of ids) of each study and each run."""
    for place in places:
        if (place / RUNS).is_file():
            yield place, one_line(place.name), "*"
        elif place.parent.name == "runs" and (place.parents[1] / RUNS).is_file():
            yield place.parents[1], one_line(place.parents[1].name), place.name
        elif any((place / name).is_file() for name in FILES):
            yield place, YOURS, "*"
        elif below := [*_below(place)]:
            yield from below
        elif strict:  # said to be a run: one that has not begun
            yield place, YOURS, "*"


def _below(root: Path) -> Iterator[tuple[Path, str, str]]:
    for file in sorted(root.glob(f"*/{RUNS}")):
        yield file.parent, one_line(file.parent.name), "*"
    for folder in sorted(root.glob("*/*")):
        hidden = any(part.startswith(".") for part in folder.relative_to(root).parts)
        if hidden or ".before-" in folder.name:
            continue
        if any((folder / name).is_file() for name in FILES):
            yield folder, YOURS, "*"


_known: dict[str, tuple[object, list[tuple[dict[str, Any], pd.DataFrame]]]] = {}


def _read(place: Path, study: str) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Return the runs of a folder, read again only where a file in it was written since."""
    state = []
    for name in (RUNS, METRICS) if study != YOURS else (*FILES, *FURTHER):
        try:
            found = (place / name).stat()
            state.append((name, found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            continue
    if (known := _known.get(str(place))) and known[0] == (study, state):
        return known[1]
    written = max((modified for _, modified, *_ in state), default=0) / 1e9
    try:
        if study == YOURS:
            records = {place: read_folder(place)}
        else:
            records = {place / "runs" / run: one for run, one in read_recorded(place).items()}
        read = [
            (_row(study, folder, *one, written), _long(study, one[0]["id"], one[1]))
            for folder, one in records.items()
        ]
    except RecordError as error:
        read = [(_damaged(study, place, str(error), written), _long("", "", []))]
    _known[str(place)] = ((study, state), read)
    return read


def _damaged(study: str, place: Path, reason: str, written: float) -> dict[str, Any]:
    name, folder = one_line(place.resolve().name), one_line(str(place))
    empty: Any = {
        key: "" if kind in ("str", str) or "'str'" in str(kind) else None
        for key, kind in Row.__annotations__.items()
    }
    told: Any = {"study": study, "run": name, "folder": folder, "label": name, "reason": reason}
    told |= {"status": "damaged", "configuration": folder, "score": math.nan, "written": written}
    told |= {"pipeline": one_line(place.parent.name) if study == YOURS else ""}
    return {**empty, **told, "summary": {}, "config": {}, "environment": {}, "files": {}}


def _row(study: str, folder: Path, record: Record, rows: Rows, written: float) -> dict[str, Any]:
    summary, environment = record["summary"], record["environment"]
    config = flattened(record["config"])
    status = summary.get("status", "running")
    # A run that has not ended is told by its config and its last line.
    last = rows[-1] if rows and not summary else {}
    values: dict[str, Any] = summary.get("metrics", {})
    if not summary:
        values = {metric: value for row in rows for metric, value in row.items()}
    headline = summary.get("headline") or next(
        (metric for metric in (*HEADLINES, *values) if metric in values and _is_score(metric)), ""
    )
    score = values.get(headline)
    tasks, seed = record["config"].get("task"), config.get("seed")
    pipeline = summary.get("pipeline", folder.parent.name)
    attention = summary.get("attention") or config.get("model.attention.kind") or "softmax"
    row: dict[str, Any] = {
        "study": study,
        "run": one_line(record["id"]),
        "folder": one_line(str(folder)),
        "status": status,
        "reason": _reason(status, pipeline, summary, written),
        "pipeline": pipeline,
        "model": summary.get("model", str(config.get("model.name") or "")),
        "position": summary.get("position", str(config.get("model.position.kind") or "")),
        "attention": str(attention),
        "recipe": summary.get("recipe", str(config.get("recipe") or "")),
        "task": summary.get("task", str(next(iter(tasks), "")) if isinstance(tasks, dict) else ""),
        "data": summary.get("data", str(config.get("data.kind") or "")),
        "seed": summary.get("seed", seed if type(seed) is int else None),
        "headline": headline,
        "score": math.nan if score is None else float(score),
        "steps": summary.get("steps", last.get("step")),
        "tokens": summary.get("tokens", _count(last.get("data/tokens"))),
        "wall_seconds": summary.get("wall_seconds", _elapsed(environment, written)),
        "tokens_per_second": summary.get("tokens_per_second", last.get("perf/tokens_per_second")),
        "parameters": summary.get("parameters"),
        "commit": summary.get("commit", environment.get("commit")),
        "command": record["command"],
        "written": written,
        "summary": summary,
        "config": config,
        "environment": environment,
        "files": record.get("files", {}),
    }
    row["label"] = run_label(row) if row["model"] else row["run"]
    settings = json.dumps([pipeline, settings_of(row)], sort_keys=True)
    row["configuration"] = hashlib.sha256(settings.encode()).hexdigest()[:12]
    return row


def _is_score(metric: str) -> bool:
    kind = metric.partition("/")[0]
    return metric in HEADLINES or kind not in ("step", "train", "perf", "data", "valid")


def _reason(status: str, pipeline: str, summary: dict[str, Any], written: float) -> str:
    if status == "failed":
        return one_line(summary.get("error", "its summary does not say why"))
    if status == "degenerate":
        return DEGENERATE.get(pipeline, "the run counts itself as degenerate")
    if status == "running":
        latest = datetime.datetime.fromtimestamp(written, datetime.UTC)
        return f"no summary yet; last written {latest:%Y-%m-%d %H:%M} UTC"
    return ""


def _elapsed(environment: dict[str, Any], written: float) -> float | None:
    """Return the seconds from the start of a run to what it wrote last; None without a start."""
    try:
        started = datetime.datetime.fromisoformat(environment["started"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
    return max(0.0, written - started)


def _long(study: str, run: str, rows: Rows) -> pd.DataFrame:
    """Return a run's metrics, one row a value."""
    values = [
        (row["step"], row.get("data/samples"), row.get("data/tokens"), metric, value)
        for row in rows
        for metric, value in row.items()
        if metric != "step"
    ]
    columns = {"step": "int64", "samples": float, "tokens": float, "metric": str, "value": float}
    frame = pd.DataFrame(values, columns=list(columns)).astype(columns)
    frame.insert(0, "study", pd.Series(study, frame.index, dtype=str))
    frame.insert(1, "run", pd.Series(one_line(run), frame.index, dtype=str))
    return frame


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


@cache
def _changes(pipeline: str, key: str) -> bool:
    return changes_result(pipeline, key)


# --- the files -----------------------------------------------------------------------------------


def read_folder(folder: Path) -> tuple[Record, Rows]:
    """Return the record of a run's folder; of one that has not ended what is there.

    Raises:
        RecordError: names the file, and of metrics the line, that is missing or damaged.
    """
    ended = (folder / "summary.json").is_file()

    def part(name: str, parse: Any, empty: Any, *, optional: bool = not ended) -> Any:
        file = folder / name
        if optional and not file.is_file():
            return empty
        try:
            return parse(file.read_bytes())
        except OSError as error:
            raise RecordError(f"{file} cannot be read: {error.strerror or error}") from error
        except _LineError as error:
            raise RecordError(f"{file}:{error.line} is not what a run wrote: {error}") from error
        except ValueError as error:
            raise RecordError(f"{file} is not what a run wrote: {error}") from error

    summary = part("summary.json", _summary, {})
    whole = summary.get("status") in ENDED
    record = {
        "id": folder.resolve().name,
        "summary": summary,
        "config": part("config.yaml", _config, {}),
        "environment": part("env.json", lambda content: _json(_Environment, content), {}),
        "command": part(
            "command.txt", lambda c: c.decode(errors="replace").strip(), "", optional=True
        ),
    }
    rows = part("metrics.jsonl", lambda content: _rows(content, torn=not whole), [])
    files = {
        name: part(name, bytes.decode if name.endswith(".tsv") else _object, None, optional=True)
        for name in FURTHER
    }
    if found := {name: content for name, content in files.items() if content is not None}:
        record["files"] = found
    return record, rows


def read_recorded(study: Path) -> dict[str, tuple[Record, Rows]]:
    """Return the records of a study by run id, in its order; none without runs.jsonl.

    Raises:
        RecordError: names the file and line that is damaged.
    """
    file = study / RUNS
    rows = _read_csv(study / METRICS)
    found: dict[str, tuple[Record, Rows]] = {}
    for number, line in enumerate(_text(file).split("\n") if file.is_file() else (), 1):
        if not line:
            continue
        try:
            record = _json(_Record, line.encode())
            _check_needed(record["summary"])
            if record["id"] in found:
                raise ValueError(f"id: {record['id']} is there twice")
        except ValueError as error:
            raise RecordError(f"{file}:{number} is no recorded run: {error}") from error
        found[record["id"]] = (record, rows.pop(record["id"], []))
    if rows:
        raise RecordError(
            f"{study / METRICS} has lines of {next(iter(rows))}, which {RUNS} has not"
        )
    return dict(sorted(found.items()))


def write_recorded(study: Path, folders: Iterable[Path]) -> list[str]:
    """Add the records of run folders to a study's two files; one of the same id is replaced.

    Returns:
        The ids added.

    Raises:
        RecordError: a folder's record, or one of the study, is damaged, or a run has not ended.
    """
    added = {}
    for folder in folders:
        record, rows = read_folder(folder)
        if not record["summary"]:
            raise RecordError(f"{folder} has no summary.json: it did not end")
        added[record["id"]] = (record, rows)
    found = dict(sorted({**read_recorded(study), **added}.items()))
    columns = {"step": None} | {
        key: None for _, rows in found.values() for row in rows for key in row
    }
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["run", *columns])
    for name, (_, rows) in found.items():
        writer.writerows([name, *(_cell(row, key) for key in columns)] for row in rows)
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record, _ in found.values()]
    study.mkdir(parents=True, exist_ok=True)
    for file, text in ((METRICS, table.getvalue()), (RUNS, "".join(lines))):
        partial = study / f".{file}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(study / file)
    return list(added)


class _LineError(ValueError):
    def __init__(self, line: int, problem: object) -> None:
        super().__init__(str(problem))
        self.line = line


def _summary(content: bytes) -> dict[str, Any]:
    summary = _json(_Summary, content)
    _check_needed(summary)
    return summary


def _check_needed(summary: dict[str, Any]) -> None:
    for key in NEEDED.get(summary["pipeline"], ()):
        if key not in summary:
            raise ValueError(f"{key}: is missing")


def _object(content: bytes) -> dict[str, Any]:
    return _json(dict[str, JsonValue], content)


def _config(content: bytes) -> dict[str, Any]:
    return dict(_yaml(content.decode()))


@lru_cache(maxsize=1024)
def _yaml(text: str) -> dict[str, Any]:
    found = read_yaml(text)
    check_shape(dict[str, JsonValue], found)
    json.dumps(found)  # a number of thousands of digits cannot be written
    return found


def _rows(content: bytes, *, torn: bool) -> Rows:
    """Return the lines of a metrics.jsonl; a torn one may end in the middle of a line."""
    *lines, last = content.split(b"\n")
    rows = []
    for number, line in enumerate([*lines, last] if last else lines, 1):
        try:
            row = _json(Metrics, line)
            check_shape(_Step, row)
        except ValueError as error:
            if torn and number > len(lines):
                break
            raise _LineError(number, error) from error
        rows.append(row)
    return rows


def _read_csv(file: Path) -> dict[str, Rows]:
    """Return run → the lines of its metrics.jsonl."""
    found: dict[str, Rows] = {}
    number = 1
    try:
        header, *lines = csv.reader(io.StringIO(_text(file))) if file.is_file() else [[]]
        for line in lines:
            number += 1
            run, *cells = line
            row = {
                name: None
                if cell == "nan"
                else int(cell)
                if cell.lstrip("-").isdigit()
                else float(cell)
                for name, cell in zip(header[1:], cells, strict=True)
                if cell != ""
            }
            check_shape(Metrics, row)
            check_shape(_Step, row)
            found.setdefault(run, []).append(row)
    except (ValueError, csv.Error) as error:
        raise RecordError(f"{file}:{number} is no line of a recorded run: {error}") from error
    return found


def _cell(row: dict[str, Any], name: str) -> str:
    if name not in row:
        return ""
    value = row[name]
    return "nan" if value is None or not math.isfinite(value) else json.dumps(value)


def read_yaml_file(file: Path, *, what: str) -> dict[str, Any]:
    """Return a YAML file as plain data, without resolving anything in it.

    Raises:
        RecordError: it cannot be read, is no mapping, or holds what a config or a plan cannot.
    """
    try:
        return _config(_text(file).encode())
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(f"{file} is not {what}: {error}") from error


def _text(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} cannot be read: {error}") from error


def _json(shape: Any, content: bytes) -> dict[str, Any]:
    """Return a JSON object that has the shape."""
    found: dict[str, Any] = from_json(content, allow_inf_nan=False)
    check_shape(shape, found)
    return found
