"""All records of runs below some folders, as data for the dashboard: what ran, how it ended, its curves.

A record that is damaged is listed with what is wrong with it; it never stops the others. Like the tables
this imports nothing of the package but the config, so that records can be read wherever they are copied
to.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue
from pydantic_core import from_json
from typing_extensions import TypedDict

from roformer.errors import one_line
from roformer.report.losses import LOSSES
from roformer.report.recorded import METRICS, RUNS, read_recorded
from roformer.report.records import (
    Count,
    Folder,
    Metrics,
    RecordError,
    check,
    configuration,
    read_config,
    read_environment,
    read_lines,
    read_metrics,
    read_summary,
)
from roformer.report.tables import run_label

YOURS = "your runs"
"""The study of a run that is not recorded: it was made on this machine."""
STATUSES = ("done", "degenerate", "failed", "running", "damaged")
FILES = ("summary.json", "metrics.jsonl", "config.yaml", "env.json", "command.txt")
"""A folder with one of these is a run's."""
HEADLINES = ("test/sacrebleu", *(loss.metric for loss in LOSSES.values()))
"""What is told first of a run whose summary names no headline."""


KEYS = (
    *("pipeline", "model", "position", "recipe", "seed", "status", "metrics", "steps", "tokens"),
    *("wall_seconds", "tokens_per_second", "parameters"),
)
"""Of a summary."""


class Row(TypedDict):
    """What every line of a metrics.jsonl has; all else is metrics."""

    step: Count


class Point(NamedTuple):
    """One value of a metric."""

    step: int
    sequences: int | None
    """Read until then; None where the run did not say."""
    tokens: int | None
    value: float
    """NaN where it was not finite."""


@dataclass(frozen=True)
class RunRecord:
    """One run as its folder tells of it; what could not be read is empty."""

    name: str
    """The run id, which is the folder's name."""
    folder: str
    study: str
    """Folder under experiments/, or `YOURS`."""
    status: str
    """One of `STATUSES`; running is what has no summary yet."""
    reason: str = ""
    """Why it is failed, degenerate or damaged, or since when a running one wrote nothing; one line."""
    pipeline: str = ""
    model: str = ""
    position: str = ""
    recipe: str = ""
    task: str = ""
    seed: int | None = None
    headline: dict[str, float] = field(default_factory=dict)
    """Metric → value, the most telling first; NaN where it is not defined."""
    steps: int | None = None
    tokens: int | None = None
    wall_seconds: float | None = None
    """Of a running one: from its start to its last line."""
    tokens_per_second: float | None = None
    parameters: int | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    """Dotted key → value as text."""
    environment: dict[str, str] = field(default_factory=dict)
    """Dotted key → value as text: commit, dirty, processor, versions."""
    curves: dict[str, list[Point]] = field(default_factory=dict)
    """Metric → its values in the order of the updates."""
    command: str = ""
    arm: str = ""
    """Runs of one arm have the same, and differ in the seed alone."""
    written: float = 0.0
    """When a file of the record was last written, in seconds since the epoch."""

    @property
    def label(self) -> str:
        """The arm as tables name it: `roformer (rotary)`."""
        if not self.model:
            return self.name
        attention = self.config.get("model.attention.kind", "softmax")
        named = {"model": self.model, "position": self.position, "attention": attention}
        return run_label(named)


class RunReader:
    """Reads runs again and again; a folder in which nothing was written since is read once."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = tuple(roots)
        self._read: dict[str, tuple[object, list[RunRecord]]] = {}

    def read(self) -> list[RunRecord]:
        """Return the runs below the roots; see `read_runs`."""
        found: dict[str, tuple[object, list[RunRecord]]] = {}
        for place, study in run_places(self.roots):
            state = _state(place)
            known = self._read.get(str(place))
            same = known is not None and known[0] == state
            found[str(place)] = known if known and same else (state, _runs(place, study))
        self._read = found
        return [record for _, records in found.values() for record in records]


def read_runs(roots: Iterable[Path]) -> list[RunRecord]:
    """Return every run below the roots, recorded ones first.

    Args:
        roots: folders such as `experiments`, with `<study>/runs.jsonl`, and `runs`, with
            `<pipeline>/<run>`; one that is absent has no runs.

    Returns:
        A recorded run belongs to its study, a folder on this machine to `YOURS`, also where their ids
        are equal. Attempts that were set aside (`<run>.before-N`) are
        left out.
    """
    return RunReader(roots).read()


def run_places(roots: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the folder and name of every study with records, then the folder of every local run."""
    roots = tuple(roots)
    for root in roots:
        for file in sorted(root.glob(f"*/{RUNS}")):
            yield file.parent, one_line(file.parent.name)
    for root in roots:
        for folder in sorted(root.glob("*/*")):
            below = folder.relative_to(root).parts
            hidden = any(part.startswith(".") for part in below) or ".before-" in folder.name
            if not hidden and any((folder / name).is_file() for name in FILES):
                yield folder, YOURS


def flattened(content: Any, key: str = "") -> dict[str, str]:
    """Return nested plain data as dotted keys and texts; a list is one value."""
    if not isinstance(content, dict):
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        return {key: text}
    below = [flattened(value, f"{key}.{name}" if key else name) for name, value in content.items()]
    return {name: value for part in below for name, value in part.items()}


def _state(folder: Path) -> list[tuple[str, int, int, int]]:
    """Return name, time (ns), size and inode of a run's or a study's files: others when one was written."""
    states = []
    for name in (*FILES, RUNS, METRICS):
        try:
            found = (folder / name).stat()
            states.append((name, found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            continue
    return states


def _runs(place: Path, study: str) -> list[RunRecord]:
    """Return the run of a folder, or all that a study recorded."""
    if study == YOURS:
        return [_run(place, study)]
    try:
        return [_run(run, study) for run in read_recorded(place)]
    except RecordError as error:
        name = one_line(place.as_posix())
        return [RunRecord(study, name, study, "damaged", str(error), written=_last_written(place))]


def _run(folder: Folder, study: str) -> RunRecord:
    """Return a run's record; a part that cannot be read makes it a damaged one, without this part."""
    damage: list[str] = []

    def part(read: Any, empty: Any) -> Any:
        try:
            return read()
        except RecordError as error:
            damage.append(str(error))
            return empty

    ended = study != YOURS or (folder / "summary.json").is_file()
    summary = part(lambda: _summary(folder), {}) if ended else {}
    status = summary.get("status", "damaged" if ended else "running")
    whole = status in ("done", "degenerate")
    config = (
        part(lambda: read_config(folder), {}) if _expected(folder, "config.yaml", ended) else {}
    )
    flat = flattened(config) if config else {}
    environment = (
        part(lambda: flattened(read_environment(folder, "commit", "dirty")), {})
        if _expected(folder, "env.json", ended)
        else {}
    )
    metrics = folder / "metrics.jsonl"
    grown = _rows_so_far if isinstance(metrics, Path) and not whole else read_metrics
    rows = part(partial(grown, metrics), [])
    curves = _curves(rows)
    # A run that has not ended is told by its config and its last line.
    last = rows[-1] if rows and not ended else {}
    pipeline = summary.get("pipeline", folder.parent.name if isinstance(folder, Path) else "")
    tasks = config.get("task")
    task = summary.get("task", next(iter(tasks), "") if isinstance(tasks, dict) else "")
    seed = config.get("seed")
    facts: dict[str, Any] = {
        "model": flat.get("model.name", ""),
        "position": flat.get("model.position.kind", ""),
        "recipe": flat.get("recipe", ""),
        "seed": seed if type(seed) is int and abs(seed) <= 10**15 else None,
        "steps": last.get("step"),
        "tokens": _count(last.get("data/tokens")),
        "tokens_per_second": last.get("perf/tokens_per_second"),
        "wall_seconds": None if ended else _elapsed(folder, environment),
        "parameters": None,
    }
    facts |= {key: summary[key] for key in facts if key in summary}
    if damage:
        status = "damaged"
    return RunRecord(
        name=one_line(folder.name),
        folder=one_line(str(folder)),
        study=study,
        status=status,
        reason=damage[0] if damage else _reason(folder, status, summary),
        pipeline=pipeline,
        task=str(task),
        headline=_headline(summary, {} if ended else curves),
        summary=summary,
        config=flat,
        environment=environment,
        curves=curves,
        command=_command(folder),
        arm=_arm(folder, pipeline, config),
        written=_last_written(folder),
        **facts,
    )


def _summary(folder: Folder) -> dict[str, Any]:
    summary = read_summary(folder, *KEYS)
    if summary["status"] not in ("done", "degenerate", "failed"):
        raise RecordError(
            f"{folder / 'summary.json'} is not what a run wrote: status: {summary['status']!r} is none "
            "of done, degenerate, failed"
        )
    return summary


def _expected(folder: Folder, name: str, ended: bool) -> bool:
    """Tell whether a file is to be read: one that a finished run lacks is damage."""
    return ended or (folder / name).is_file()


def _rows_so_far(file: Any) -> list[dict[str, Any]]:
    """Return the lines of a run that has not ended, or failed: a cut last one is left out."""
    try:
        *lines, last = file.read_bytes().split(b"\n")
    except FileNotFoundError:  # nothing was logged yet
        return []
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror or error}") from error
    rows = []
    for number, line in enumerate([*lines, last] if last else lines, start=1):
        try:
            row = from_json(line, allow_inf_nan=False)
            check(Row, row)
            check(Metrics, row)
        except ValueError as error:
            if number > len(lines):
                break
            raise RecordError(f"{file}:{number} is not what a run wrote: {error}") from error
        rows.append(row)
    return rows


def _curves(rows: list[dict[str, Any]]) -> dict[str, list[Point]]:
    curves: dict[str, list[Point]] = {}
    for row in rows:
        sequences, tokens = _count(row.get("data/samples")), _count(row.get("data/tokens"))
        for metric, value in row.items():
            if metric != "step":
                point = Point(row["step"], sequences, tokens, _number(value))
                curves.setdefault(metric, []).append(point)
    return curves


def _headline(summary: dict[str, Any], curves: dict[str, list[Point]]) -> dict[str, float]:
    """Return what is told first of a run: its headline metric, and the same of other parts (MNLI's)."""
    if summary:
        values = {name: _number(value) for name, value in summary["metrics"].items()}
    else:
        values = {metric: points[-1].value for metric, points in curves.items()}
    named = summary.get("headline")
    if named is None:
        scores = [
            m for m in values if m.partition("/")[0] not in ("train", "perf", "data", "valid")
        ]
        named = next((metric for metric in (*HEADLINES, *scores) if metric in values), "")
    stem = named.partition("_")[0] if "/accuracy_" in named else named
    alike = [m for m in values if m == named or ("/accuracy_" in named and m.startswith(stem))]
    return {metric: values[metric] for metric in sorted(alike, key=lambda metric: metric != named)}


def _reason(folder: Folder, status: str, summary: dict[str, Any]) -> str:
    if status == "failed":
        return one_line(str(summary.get("error", "its summary does not say why")))
    if status == "degenerate":
        return {
            "glue": "it answers always the same",
            "scm": "its validation accuracy is not above a coin's by two standard errors",
            **dict.fromkeys((*LOSSES, "wmt"), "its loss is not below the unigram entropy"),
        }.get(summary["pipeline"], "the run counts itself as degenerate")
    if status == "running":
        latest = datetime.datetime.fromtimestamp(_last_written(folder), datetime.UTC)
        return f"no summary yet; last written {latest:%Y-%m-%d %H:%M} UTC"
    return ""


def _last_written(folder: Folder) -> float:
    """Return when a file of a run was last written, in seconds since the epoch."""
    place = folder if isinstance(folder, Path) else folder.study
    return max((modified for _, modified, *_ in _state(place)), default=0) / 1e9


def _elapsed(folder: Folder, environment: dict[str, str]) -> float | None:
    """Return the seconds from the start of a run to what it wrote last; None where no start is noted."""
    try:
        started = datetime.datetime.fromisoformat(environment["started"]).timestamp()
    except (KeyError, ValueError, OverflowError, OSError):
        return None
    return max(0.0, _last_written(folder) - started)


def _command(folder: Folder) -> str:
    if not isinstance(folder, Path):
        return "\n".join(read_lines(folder / "command.txt"))
    try:
        return (folder / "command.txt").read_text(errors="replace").strip()
    except OSError:  # a note, which no number depends on
        return ""


def _arm(folder: Folder, pipeline: str, config: dict[str, JsonValue]) -> str:
    settings = configuration({"pipeline": pipeline}, config) if config else str(folder)
    return hashlib.sha256(settings.encode(errors="surrogatepass")).hexdigest()[:12]


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
