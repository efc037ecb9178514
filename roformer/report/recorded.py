"""Recorded runs of a study, kept in two files instead of a folder a run.

    runs.jsonl    one line a run: id, summary, config, environment, command, and further files for tables
    metrics.csv   one line for each line of the runs' metrics.jsonl; empty: not logged, nan: not finite

A `RecordedRun` is read like the folder that the run left (`run / "summary.json"`), so tables take either.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, NotRequired

from pydantic import JsonValue
from pydantic_core import from_json
from typing_extensions import TypedDict

from roformer.report.records import (
    FOLDER,
    Folder,
    Metrics,
    RecordedRun,
    RecordError,
    check,
    read_bytes,
    read_config,
    read_json,
    read_lines,
    read_metrics,
)

RUNS = "runs.jsonl"
METRICS = "metrics.csv"
FURTHER = {
    "wmt": ("bleu_statistics.json",),
    "charlm": ("positions.json",),
    "clm": ("positions.json",),
    "scm": ("predictions/validation.tsv", "predictions/test.tsv"),
}
"""Pipeline → files that tables read besides, where a run has them."""


class _Line(TypedDict):
    """A line of runs.jsonl."""

    id: str
    summary: dict[str, JsonValue]
    config: dict[str, JsonValue]
    environment: dict[str, JsonValue]
    command: str
    files: NotRequired[dict[str, JsonValue]]


def read_recorded(study: Path) -> list[RecordedRun]:
    """Return the recorded runs of a study in the order of their ids; none without runs.jsonl.

    Raises:
        RecordError: names the file and line that is damaged.
    """
    runs, metrics = study / RUNS, study / METRICS
    if not runs.is_file():
        return []
    return list(_read(study, _state(runs), _state(metrics)))


def write_recorded(study: Path, folders: Iterable[Path]) -> list[str]:
    """Add the records of run folders to a study's two files; one of the same id is replaced.

    Returns:
        The ids added.

    Raises:
        RecordError: a folder's record, or one of the study, is damaged.
    """
    found = {run.name: run for run in read_recorded(study)}
    added = []
    for folder in folders:
        run = _from_folder(study, folder)
        found[run.name] = run
        added.append(run.name)
    _write(study, [found[name] for name in sorted(found)])
    return added


def find_runs(paths: Iterable[Path]) -> list[Folder]:
    """Return the runs that paths on a command line name.

    Args:
        paths: folders of runs; a study's folder, which stands for all its recorded runs; or
            `STUDY/runs/PATTERN` for those whose id matches.
    """
    found: list[Folder] = []
    for path in paths:
        if (path / RUNS).is_file():
            found += read_recorded(path)
        elif path.parent.name == FOLDER and (path.parents[1] / RUNS).is_file():
            found += matching(path.parents[1], [f"{FOLDER}/{path.name}"])
        else:
            found.append(path)
    return found


def matching(folder: Path, patterns: Iterable[str]) -> list[RecordedRun]:
    """Return the recorded runs that patterns such as `runs/*-s0` or `../STUDY/runs/*` name.

    Raises:
        RecordError: a pattern matches nothing.
    """
    found: list[RecordedRun] = []
    for pattern in patterns:
        place, _, name = pattern.rpartition(f"{FOLDER}/")
        runs = [run for run in read_recorded(folder / place) if fnmatchcase(run.name, name)]
        if not runs:
            raise RecordError(f"no run is {folder / pattern}")
        found += runs
    return found


def _state(file: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written."""
    try:
        found = file.stat()
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror or error}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=64)
def _read(study: Path, runs: object, metrics: object) -> tuple[RecordedRun, ...]:
    rows = _read_rows(study / METRICS)
    found: dict[str, RecordedRun] = {}
    for number, text in enumerate(read_lines(study / RUNS), 1):
        place = f"{study / RUNS}:{number}"
        try:
            line = from_json(text, allow_inf_nan=False)
            check(_Line, line)
            if line["id"] in found:
                raise ValueError(f"id: {line['id']} is there twice")
        except ValueError as error:
            raise RecordError(f"{place} is no recorded run: {error}") from error
        files = {
            "summary.json": line["summary"],
            "config.yaml": line["config"],
            "env.json": line["environment"],
            "command.txt": line["command"],
            "metrics.jsonl": rows.pop(line["id"], []),
            **line.get("files", {}),
        }
        found[line["id"]] = RecordedRun(study / FOLDER / line["id"], files)
    if rows:
        raise RecordError(
            f"{study / METRICS} has lines of {next(iter(rows))}, which {RUNS} has not"
        )
    return tuple(found[name] for name in sorted(found))


def _read_rows(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Return run → the lines of its metrics.jsonl."""
    found: dict[str, list[dict[str, Any]]] = {}
    header, *lines = (
        csv.reader(io.StringIO("\n".join(read_lines(file)))) if file.is_file() else [[]]
    )
    for number, line in enumerate(lines, 2):
        try:
            run, *cells = line
            row = {
                name: _value(cell)
                for name, cell in zip(header[1:], cells, strict=True)
                if cell != ""
            }
            check(Metrics, row)
            if not isinstance(row.get("step"), int):
                raise ValueError("step: no whole number")
        except ValueError as error:
            raise RecordError(f"{file}:{number} is no line of a recorded run: {error}") from error
        found.setdefault(run, []).append(row)
    return found


def _value(cell: str) -> float | int | None:
    if cell == "nan":
        return None
    return int(cell) if cell.lstrip("-").isdigit() else float(cell)


def _from_folder(study: Path, folder: Path) -> RecordedRun:
    """Return the record of a run's folder."""
    name = folder.resolve().name
    files: dict[str, Any] = {
        "summary.json": read_json(folder / "summary.json", dict[str, JsonValue]),
        "config.yaml": read_config(folder),
        "env.json": read_json(folder / "env.json", dict[str, JsonValue]),
        "command.txt": read_bytes(folder / "command.txt").decode(errors="replace").strip(),
        "metrics.jsonl": read_metrics(folder / "metrics.jsonl"),
    }
    for further in FURTHER.get(files["summary.json"].get("pipeline", ""), ()):
        if (file := folder / further).is_file():
            text = further.endswith(".tsv")
            files[further] = (
                "\n".join([*read_lines(file), ""])
                if text
                else read_json(file, dict[str, JsonValue])
            )
    return RecordedRun(study / FOLDER / name, files)


def _write(study: Path, runs: Sequence[RecordedRun]) -> None:
    lines = []
    columns: dict[str, None] = {"step": None}
    for run in runs:
        rest = dict(run.files)
        line = {
            "id": run.name,
            "summary": rest.pop("summary.json"),
            "config": rest.pop("config.yaml"),
            "environment": rest.pop("env.json"),
            "command": rest.pop("command.txt"),
        }
        for row in rest.pop("metrics.jsonl"):
            columns |= dict.fromkeys(row)
        lines.append(json.dumps(line | ({"files": rest} if rest else {}), ensure_ascii=False))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["run", *columns])
    for run in runs:
        for row in run.files["metrics.jsonl"]:
            writer.writerow([run.name, *(_cell(row, name) for name in columns)])
    study.mkdir(parents=True, exist_ok=True)
    for file, text in ((METRICS, table.getvalue()), (RUNS, "".join(f"{line}\n" for line in lines))):
        partial = study / f".{file}.partial"
        partial.write_text(text, encoding="utf-8")
        partial.replace(study / file)


def _cell(row: dict[str, Any], name: str) -> str:
    if name not in row:
        return ""
    value = row[name]
    return "nan" if value is None or not math.isfinite(value) else json.dumps(value)
