"""The records of runs as two frames: the only place where a record is read and checked.

A run leaves a folder. A study keeps its runs in two files:

    runs.jsonl    one line per run: id, summary, config, environment, command, and further files for tables
    metrics.csv   one line per line of the runs' metrics.jsonl; empty: not logged, nan: not finite
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from roformer import registry
from roformer.config.build import changes_result, read_yaml
from roformer.errors import InputError, one_line
from roformer.json_files import parse_rows

RUNS = "runs.jsonl"
METRICS = "metrics.csv"
APPENDIX = "appendix"
"""Folder below experiments/ with the studies that are not on its front page."""
FILES = ("summary.json", "metrics.jsonl", "config.yaml", "env.json", "command.txt")
"""A folder with one of these files is a run's folder."""
SPIKES = "spikes.jsonl"
FURTHER = (
    *(SPIKES, "bleu_statistics.json", "positions.json"),
    *("predictions/validation.tsv", "predictions/test.tsv"),
)
"""Optional files of a run for further tables; the oldest records have no spikes."""
EXPORTS = "export"
"""Folder of exports below runs/: some are copies of a run."""
YOURS = "your runs"
"""The study of a run that is not recorded but was made on this machine."""
STATUSES = ("done", "degenerate", "failed", "running", "damaged")
ENDED = ("done", "degenerate")
LOSSES = {name: one.loss for name, one in registry.pipelines().items() if one.loss is not None}
"""Pipeline → the loss of its curves."""
HEADLINES = {
    name: one.loss.metric if one.loss else one.headline.name if one.headline else ""
    for name, one in registry.pipelines().items()
}
"""Pipeline → headline metric of a run, if its summary has none."""
DEGENERATE = {
    "glue": "it always gives the same answer",
    "scm": "its validation accuracy is not above chance by two standard errors",
    **dict.fromkeys((*LOSSES, "wmt"), "its loss is not below the unigram entropy"),
    "convert": "its error is not below that before training",
}
COLUMNS: dict[str, Any] = {
    "study": "",  # folder under experiments/, or `YOURS`
    "run": "",  # the run id
    "folder": "",  # its name in messages; `experiments/STUDY/runs/ID` for a recorded run
    "status": "",  # one of `STATUSES`; a run without a summary is running
    "reason": "",  # why it is failed, degenerate or damaged, or the time of its last write
    "pipeline": "",
    "model": "",
    "position": "",
    "attention": "",
    "recipe": "",
    "task": "",
    "data": "",
    "seed": None,
    "headline": "",  # name of its headline metric
    "score": math.nan,  # value of this metric, the last logged one if the run has not ended
    "steps": None,
    "tokens": None,
    "wall_seconds": None,  # for a running run, from its start to its last line
    "tokens_per_second": None,
    "parameters": None,
    "commit": None,
    "command": "",
    "label": "",  # name of its configuration in tables: `roformer (rotary)`
    "configuration": "",  # hash of the config that changes the result, without the seed
    "planned": "",  # its configuration in the plan of its study
    "written": 0.0,  # time of the last write to the record, in seconds since the epoch
    "summary": {},
    "config": {},  # dotted key → value
    "environment": {},
    "files": {},  # name of a `FURTHER` file → its content: JSON, or text
}
"""Column of the frame of runs → its default."""

Parser = Callable[[str], Any]
Record = dict[str, Any]
Rows = list[dict[str, Any]]
"""The lines of a metrics.jsonl."""
State = tuple[tuple[str, int], ...]
"""The files of a record with the times of their last writes."""
_changes_result = cache(changes_result)


class RecordError(InputError):
    """A record that cannot be read: one line with the file and the problem."""


class Runs(NamedTuple):
    """Records as frames."""

    runs: pd.DataFrame
    """One row per run, indexed by (study, run), with `COLUMNS`."""
    metrics: pd.DataFrame
    """One row per logged value: study, run, step, samples, tokens, metric, value (NaN: not finite)."""


# --- the frames ----------------------------------------------------------------------------------


def read_runs(places: Iterable[Path], *, strict: bool = True) -> Runs:
    """Return the runs of some places, in their order.

    Args:
        places: folders of runs; folders of studies; `STUDY/runs/PATTERN` for the recorded runs whose id
            matches; or roots such as experiments/ and runs/, without the runs that were set aside
            (`ID.before-N`).
        strict: whether a damaged record or an absent place is an error. Otherwise a damaged record is a row
            of status "damaged" with its reason, and an absent place is ignored.
    """
    found: dict[tuple[str, str], tuple[dict[str, Any], pd.DataFrame]] = {}
    for place, study, pattern in _sources(places, strict):
        every = _read(place, study, _state(place))
        matching = [one for one in every if fnmatchcase(one[0]["run"], pattern)]
        if pattern != "*" and not matching:
            raise RecordError(f"no run is {place / 'runs' / pattern}")
        for row, metrics in matching:
            if strict and row["status"] == "damaged":
                raise RecordError(row["reason"])
            known, _ = found.setdefault((study, row["run"]), (row, metrics))
            if known["folder"] != row["folder"]:  # the same id in another folder
                row = {**row, "run": row["folder"]}
                found[study, row["run"]] = (row, metrics.assign(run=row["run"]))
    runs = pd.DataFrame([row for row, _ in found.values()], columns=[*COLUMNS], dtype=object)
    logged = pd.concat([_long("", "", []), *(metrics for _, metrics in found.values())])
    return Runs(runs.set_index(["study", "run"], drop=False), logged.reset_index(drop=True))


def study_files(experiments: Path, name: str) -> list[Path]:
    """Return the files of this name in the folders of studies, with the appendix last."""
    return [
        *sorted(experiments.glob(f"*/{name}")),
        *sorted(experiments.glob(f"{APPENDIX}/*/{name}")),
    ]


def settings_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a run's config that changes its result, without the seed: dotted key → value."""
    return {key: v for key, v in run["config"].items() if _changes_result(run["pipeline"], key)}


def begun_from(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the run id and the step in `init_from` of a flattened config; empty without a run, or if it is
    the last step."""
    place, _, step = str(config.get("init_from") or "").partition("@")
    place, _, checkpoint = place.partition("/checkpoints/")
    if checkpoint.startswith("step_"):
        step = checkpoint.removeprefix("step_")
    name = Path(place.removesuffix("/checkpoints")).name
    return ("" if name == "scratch" else name), step.lstrip("0")


def tokens_before(config: Mapping[str, Any], runs: pd.DataFrame) -> float | None:
    """Return the tokens read for the weights that a run starts from; None if `runs` lacks that run."""
    name, step = begun_from(config)
    for run in runs[runs.run == name].to_dict("records"):
        tokens, steps = run["tokens"], run["steps"]
        if not (tokens and steps):
            return None
        earlier = tokens_before(run["config"], runs) if begun_from(run["config"])[0] else 0
        own = tokens * int(step) / steps if step else tokens
        return None if earlier is None else earlier + own
    return None


def run_label(run: Mapping[str, Any]) -> str:
    """Return a run's name by model, position and attention: `roformer (rotary)`."""
    attention = run.get("attention") or "softmax"
    return f"{run['model'] if attention == 'softmax' else attention} ({run['position']})"


def position_name(config: Mapping[str, Any]) -> str:
    """Return a flattened config's encoding in the form of `PositionConfig.name`: `rotary+learned`."""
    kind, absolute = (config.get(f"model.position.{key}") for key in ("kind", "absolute"))
    return f"{kind or ''}{'' if absolute in (None, 'none') else f'+{absolute}'}"


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
            yield place, place.name, "*"
        elif place.parent.name == "runs" and (place.parents[1] / RUNS).is_file():
            yield place.parents[1], place.parents[1].name, place.name
        elif _is_run(place):
            yield place, YOURS, "*"
        elif strict and (place / "study.yaml").is_file():
            raise RecordError(
                f"{place} has no recorded runs: run scripts/sweep.py {place}, then "
                f"scripts/record.py {place} RUN …"
            )
        elif strict and not place.exists():
            raise RecordError(f"no run is {place}: give folders of runs or of studies")
        else:
            studies = [file.parent for file in study_files(place, RUNS)]
            own = [one for one in sorted(place.glob("[!.]*/[!.]*")) if _is_run(one)]
            own = [one for one in own if ".before-" not in one.name and one.parent.name != EXPORTS]
            yield from ((study, study.name, "*") for study in studies)
            yield from ((run, YOURS, "*") for run in own)
            if strict and not studies and not own:  # a run that has not started
                yield place, YOURS, "*"


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in FILES)


def _state(place: Path) -> State:
    files = ((name, place / name) for name in (RUNS, METRICS, *FILES, *FURTHER))
    return tuple((name, file.stat().st_mtime_ns) for name, file in files if file.is_file())


@lru_cache(2048)  # a dashboard reads repeatedly
def _read(place: Path, study: str, state: State) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Return rows and metrics of a study or a run; `state`, the key of the cache, is of its files."""
    written = max((modified for _, modified in state), default=0) / 1e9
    try:
        if study == YOURS:
            records = {place: read_folder(place)}
        else:
            records = {place / "runs" / run: one for run, one in read_recorded(place).items()}
        return [
            (_row(study, folder, record, rows, written), _long(study, record["id"], rows))
            for folder, (record, rows) in records.items()
        ]
    except RecordError as error:
        name = place.resolve().name
        row = {"study": study, "run": name, "folder": str(place), "label": name}
        row |= {"status": "damaged", "reason": str(error), "configuration": str(place)}
        row |= {"pipeline": place.parent.name if study == YOURS else ""}
        return [(COLUMNS | row | {"written": written}, _long("", "", []))]


def _row(study: str, folder: Path, record: Record, rows: Rows, written: float) -> dict[str, Any]:
    summary, environment = record["summary"], record["environment"]
    config = flattened(record["config"])
    last = rows[-1] if rows and not summary else {}
    started, tokens = environment.get("started"), last.get("data/tokens")
    # A run that has not ended is described by its config and its last line.
    facts = {
        "pipeline": folder.parent.name,
        "status": "running",
        "model": config.get("model.name", ""),
        "position": position_name(config),
        "attention": config.get("model.attention.kind", "softmax"),
        "recipe": config.get("recipe", ""),
        "task": next(iter(record["config"].get("task", {})), ""),
        "data": config.get("data.kind", ""),
        "seed": config.get("seed"),
        "metrics": {metric: value for row in rows for metric, value in row.items()},
        "steps": last.get("step"),
        "tokens": None if tokens is None else int(tokens),
        "wall_seconds": written - datetime.datetime.fromisoformat(started).timestamp()
        if started
        else None,
        "tokens_per_second": last.get("perf/tokens_per_second"),
    } | summary
    facts["commit"] = environment.get("commit")  # older summaries have the one at the end
    values = facts["metrics"]
    likely = [HEADLINES.get(facts["pipeline"])]
    likely += [metric for metric in values if metric.startswith(f"{facts['task'] or None}/")]
    headline = summary.get("headline") or next((one for one in likely if one in values), "")
    row = COLUMNS | {key: facts[key] for key in COLUMNS if key in facts}
    row |= {
        "study": study,
        "run": record["id"],
        "folder": str(folder),
        "reason": _reason(facts, written),
        "headline": headline,
        "score": math.nan if (score := values.get(headline)) is None else float(score),
        "command": record["command"],
        "planned": record.get("planned", ""),
        "written": written,
        "summary": summary,
        "config": config,
        "environment": environment,
        "files": record.get("files", {}),
    }
    row["label"] = run_label(row) if row["model"] else row["run"]
    settings = json.dumps([row["pipeline"], settings_of(row)], sort_keys=True)
    row["configuration"] = hashlib.sha256(settings.encode()).hexdigest()[:12]
    return row


def _reason(facts: Mapping[str, Any], written: float) -> str:
    latest = f"{datetime.datetime.fromtimestamp(written, datetime.UTC):%Y-%m-%d %H:%M} UTC"
    reasons = {
        "failed": one_line(facts.get("error", "its summary does not say why")),
        "degenerate": DEGENERATE.get(facts["pipeline"], "the run counts itself as degenerate"),
        "running": f"no summary yet; {f'last written {latest}' if written else 'nothing is written'}",
    }
    return reasons.get(facts["status"], "")


def _long(study: str, run: str, rows: Rows) -> pd.DataFrame:
    """Return a run's metrics, one row per value."""
    values = [
        (study, run, row["step"], row.get("data/samples"), row.get("data/tokens"), metric, value)
        for row in rows
        for metric, value in row.items()
        if metric != "step"
    ]
    columns = {"study": str, "run": str, "step": "int64", "samples": float, "tokens": float}
    columns |= {"metric": str, "value": float}
    return pd.DataFrame(values, columns=[*columns]).astype(columns)


# --- the files -----------------------------------------------------------------------------------


def read_folder(folder: Path) -> tuple[Record, Rows]:
    """Return the record of a run's folder; of a run that has not ended, the parts that exist."""
    ended = (folder / "summary.json").is_file()

    def part(name: str, parse: Parser, empty: Any, *, optional: bool = not ended) -> Any:
        file = folder / name
        if optional and not file.is_file():
            return empty
        with _naming(file):
            return parse(file.read_bytes().decode())

    summary = part("summary.json", json.loads, {})
    record = {
        "id": folder.resolve().name,
        "summary": summary,
        "config": part("config.yaml", read_yaml, {}),
        "environment": part("env.json", json.loads, {}),
        "command": part("command.txt", str.strip, "", optional=True),
    }
    parsers: dict[str, Parser] = {".json": json.loads, ".jsonl": _spikes, ".tsv": str}
    files = {n: part(n, parsers[Path(n).suffix], None, optional=True) for n in FURTHER}
    if ended and files[SPIKES] is None:  # a run without a spike has no file
        files[SPIKES] = ""
    if found := {name: content for name, content in files.items() if content is not None}:
        record["files"] = found

    def lines(content: str) -> Rows:
        """Return the lines; while a run trains, its last line may not be complete."""
        whole = content.split("\n")[: None if summary.get("status") in ENDED else -1]
        return parse_rows(whole)

    return record, part("metrics.jsonl", lines, [])


def read_recorded(study: Path) -> dict[str, tuple[Record, Rows]]:
    """Return the records of a study by run id, in its order; none without runs.jsonl."""
    if not (study / RUNS).is_file():
        return {}
    what = "a study's record"
    with _naming(study / RUNS, what):
        records = parse_rows((study / RUNS).read_bytes().splitlines())
    rows: dict[str, Rows] = {}
    with _naming(study / METRICS, what), (study / METRICS).open(newline="") as file:
        for line in csv.DictReader(file):
            cells = {key: text for key, text in line.items() if key != "run" and text}
            row = {key: None if text == "nan" else json.loads(text) for key, text in cells.items()}
            rows.setdefault(line["run"], []).append(row)
    return {record["id"]: (record, rows.get(record["id"], [])) for record in records}


def write_recorded(
    study: Path, folders: Iterable[Path], complete: Callable[[Record], Record] = lambda one: one
) -> list[str]:
    """Add the records of finished runs to a study's two files, and return their ids.

    A run with a recorded id replaces that record. `complete` adds the missing parts of every record.
    """
    added = {}
    for folder in folders:
        record, rows = read_folder(folder)
        if not record["summary"]:
            raise RecordError(f"{folder} has no summary.json: it did not end")
        added[record["id"]] = (record, rows)
    found = dict(sorted({**read_recorded(study), **added}.items()))
    names = dict.fromkeys(key for _, rows in found.values() for row in rows for key in row)
    columns = ["step", *(name for name in names if name != "step")]
    table = io.StringIO()
    writer = csv.DictWriter(table, ["run", *columns], restval="", lineterminator="\n")
    writer.writeheader()
    for run, (_, rows) in found.items():
        cells = ({k: "nan" if v is None else json.dumps(v) for k, v in row.items()} for row in rows)
        writer.writerows({"run": run} | line for line in cells)
    records = [complete(record) for record, _ in found.values()]
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    study.mkdir(parents=True, exist_ok=True)
    for file, text in ((METRICS, table.getvalue()), (RUNS, "".join(lines))):
        unfinished = study / f".{file}.partial"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(study / file)
    return list(added)


def read_yaml_file(file: Path, *, what: str) -> dict[str, Any]:
    """Return a YAML file as plain data, without resolving anything in it."""
    with _naming(file, what):
        return read_yaml(file.read_text(encoding="utf-8"))


@contextmanager
def _naming(file: Path, what: str = "what a run wrote") -> Iterator[None]:
    """Turn an error of a file into a RecordError that names the file."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError) as error:
        problem = f"{file} is not {what}: {one_line(str(error))}"
        raise RecordError(f"{problem}; restore it, or leave it out") from error


def _spikes(content: str) -> str:
    """Return the lines of a spikes.jsonl in the form that a study records."""
    keys = ("step", "rank", "loss", "usual")
    rows = (json.loads(line) for line in content.splitlines())
    return "".join(json.dumps({key: row.get(key) for key in keys}) + "\n" for row in rows)
