"""Run records and tables as one HTML page that contains its styles, scripts, libraries and data.

Text of records is escaped here, or inserted into the document as plain text. The content security policy
in the page's head allows only its own scripts, by their hashes, and no network.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
import pandas as pd
from plotly.offline import get_plotlyjs

from roformer.errors import one_line
from roformer.report.pages import HERE, Sections
from roformer.report.runs import STATUSES, YOURS, Runs
from roformer.report.tables import Table, differing_keys

LONGEST_CURVE = 500
"""Most points of a drawn curve."""
POLL_SECONDS = 10
"""Seconds between two requests for the records by a live page."""
SHOWN = (
    *("run", "folder", "study", "status", "reason", "pipeline", "model", "position", "recipe"),
    *("task", "label", "seed", "headline", "score", "steps", "tokens", "wall_seconds"),
    *("tokens_per_second", "parameters"),
)
"""Columns of the frame that the page copies."""
AXES = {"steps": "step", "sequences": "samples", "tokens": "tokens"}
FREE = re.compile(r"seed|resume|(task|runtime|tracker)\..*")
"""Config keys that are not part of a run's name."""
VERDICT = re.compile(r"(yes|no|unclear)$|(within|off) ")
VERDICTS = {"yes": "good", "no": "bad", "unclear": "odd", "within": "good", "off": "odd"}
"""First word of a cell → its class in the style sheet; words in brackets have no class."""


def build_page(data: str, *, live: bool = False) -> str:
    """Return the page with the data of `data_json`; a live page polls `records.json`."""
    libraries, script = [_datatables("js"), get_plotlyjs()], _asset("page.js")
    digests = [hashlib.sha256(one.encode()).digest() for one in (*libraries, script)]
    packed = '<script type="text/gzip" class="library">{}</script>'
    return Template(_asset("page.html")).substitute(
        hashes=" ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests),
        connect="'self'" if live else "'none'",
        poll=POLL_SECONDS if live else 0,
        style=_datatables("css") + _asset("page.css"),
        libraries="\n".join(packed.format(_packed(one)) for one in libraries),
        data=_packed(data),
        script=script,
    )


def data_json(runs: Runs, sections: Sections, results: Table | None = None) -> str:
    """Return the page's data: facts and curves of each run, and the markup of the other parts.

    `results` is the first table: your runs, the record and the paper.
    """
    frame = runs.runs.reset_index(drop=True).sort_values(["study", "run"])
    yours = frame["study"] == YOURS
    frame = pd.concat([frame[yours], frame[~yours]])
    curves, names = _curves(runs.metrics), _names(frame)
    logged = set(runs.metrics["study"])
    link, headings = '<li><a href="#section-{}">{}</a></li>', map(_text, sections)
    content = {
        "made": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC",
        "first": next((study for study in frame["study"] if study in logged), ""),
        "runs": [
            _run(run)
            | {"curves": curves.get((run["study"], run["run"]), {})}
            | {"name": names[run["study"], run["configuration"]]}
            for run in frame.to_dict("records")
        ],
        "parts": {
            "counts": _counts(frame),
            "results": _table(results) if results else "",
            "links": "".join(link.format(n, h.partition(":")[0]) for n, h in enumerate(headings)),
            "sections": "".join(_section(n, *one) for n, one in enumerate(sections.items())),
        },
    }
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def thinned(values: np.ndarray, longest: int = LONGEST_CURVE) -> np.ndarray:
    """Return the indices of at most `longest` points of a curve that are drawn.

    The curve is cut into equal parts. Each part keeps its first, last, lowest and highest point and one that
    is not finite, so the curve keeps its ends, extremes and spikes.
    """
    if len(values) <= longest:
        return np.arange(len(values))
    kept: set[int] = set()
    for part in np.array_split(np.arange(len(values)), longest // 5):
        finite = part[np.isfinite(values[part])]
        kept |= {part[0], part[-1], *np.setdiff1d(part, finite)[:1]}
        if len(finite):
            kept |= {finite[values[finite].argmin()], finite[values[finite].argmax()]}
    return np.array(sorted(kept))


def _run(run: dict[str, Any]) -> dict[str, Any]:
    whose = "yours" if run["study"] == YOURS else "recorded"  # they are not seeds of each other
    command = {"command": run["command"]} if run["command"] else {}
    scores = run["summary"].get("metrics", {})
    return {name: _plain(run[name]) for name in SHOWN} | {
        "key": hashlib.sha256(run["folder"].encode()).hexdigest()[:12],
        "configuration": f"{run['configuration']}-{whose}",
        "scores": {name: _plain(value) for name, value in scores.items()},
        "config": _texts(run["config"]),
        "environment": _texts(run["environment"] | command),
    }


def _names(frame: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Name configurations by label, task and the keys that differ in a study, or by run id without seed."""
    found = {}
    ones = frame.drop_duplicates(["study", "configuration"])
    for (study, label, task), alike in ones.groupby(["study", "label", "task"]):
        keys = [key for key in differing_keys(alike["config"]) if not FREE.fullmatch(key)]
        for run in alike.itertuples():
            words = [f"{key.rpartition('.')[2]}={run.config.get(key)}" for key in keys]
            short = ", ".join(filter(None, (label, task, *words)))
            same = re.sub(r"-s-?\d+$", "", run.run)  # of all its seeds
            found[study, run.configuration] = short if len(keys) < 4 else same
    return found


def _curves(metrics: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the values of the metrics per run, with the amount of data read until each value."""
    values = metrics["value"].to_numpy(dtype=float)
    columns = {axis: metrics[name].to_numpy() for axis, name in AXES.items()}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    groups = metrics.groupby(["study", "run", "metric"], sort=False).indices
    for (study, run, metric), points in groups.items():
        kept = points[thinned(values[points])]
        curve = {
            axis: [_plain(value) for value in column[kept]] for axis, column in columns.items()
        }
        curve["values"] = [_plain(float(f"{value:.7g}")) for value in values[kept]]
        found.setdefault((study, run), {})[metric] = curve
    return found


def _counts(frame: pd.DataFrame) -> str:
    """Return the number of runs by status: yours, or all if none is yours."""
    yours = frame[frame["study"] == YOURS]
    shown = frame if yours.empty else yours
    found = shown["status"].value_counts()
    parts = [(len(shown), "runs" if yours.empty else "runs of yours")]
    parts += [(found[s], f'<span class="status {s}">{s}</span>') for s in STATUSES if s in found]
    parts += [] if yours.empty else [(len(frame) - len(yours), "recorded")]
    return "".join(f"<li><b>{number:,}</b> {words}</li>" for number, words in parts)


def _section(number: int, heading: str, tables: Sequence[Table]) -> str:
    return (
        f'<details data-heading="{_text(heading)}"{" open" if heading.startswith(HERE) else ""}>'
        f"<summary><h2>{_text(heading)}</h2></summary>"
        f'<div id="section-{number}">{"".join(map(_table, tables))}</div></details>'
    )


def _table(table: Table) -> str:
    title, (header, *lines) = _text(table.title), table.lines
    heads = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{_text(first)}</th>{"".join(map(_cell, cells))}</tr>'
        for first, *cells in lines
    )
    below = [f'<p class="note">{_text(note)}</p>' for note in table.notes]
    if table.command:
        code = f'<code tabindex="0">{_text(table.command)}</code>'
        below.append(f'<div class="command">{code}<button type="button">Copy</button></div>')
    return (
        f'<div class="report"><div class="region" tabindex="0" role="region" aria-label="{title}">'
        f'<table class="dataTable compact text-{table.text_columns}"><caption>{title}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{''.join(below)}</div>"
    )


def _cell(text: str) -> str:
    verdict = VERDICT.match(text)
    style = f' class="{VERDICTS[verdict[1] or verdict[2]]}"' if verdict else ""
    return f"<td{style}>{_text(text)}</td>"


def _text(text: str) -> str:
    return escape(one_line(text))


def _texts(content: Mapping[str, Any]) -> dict[str, str]:
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in content.items()}


def _plain(value: Any) -> Any:
    """Return a cell as JSON: null without a number, an integer if it is whole."""
    if isinstance(value, str):
        return value
    if pd.isna(value) or math.isinf(value):
        return None
    return int(value) if value == int(value) else float(value)


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@cache
def _datatables(kind: str) -> str:
    """Return DataTables from itables: the script that defines DataTable and Select, or its style."""
    text = files("itables").joinpath(f"html/dt_bundle.{kind}").read_text(encoding="utf-8")
    if kind == "css":
        return text
    text = re.sub(r"export\s*\{[^}]*?(\w+) as default[^}]*\};?", r";window.DataTable=\1;", text)
    return f"(() => {{{text}\n}})();"


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
