"""Run records and tables as one HTML page: styles, scripts, plotly.js and data are all inside it.

What comes out of records reaches the page as JSON in an element that is not executed, and from there the
document as text alone. The policy in the page's head lets its own scripts run, by their hashes, and
nothing else; it asks no network.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from plotly.offline import get_plotlyjs

from roformer.errors import one_line
from roformer.report.dashboard.records import Point, records_of
from roformer.report.reproduction import LEGEND, Row
from roformer.report.runs import STATUSES, YOURS, Runs
from roformer.report.sections import HERE
from roformer.report.tables import Table

LONGEST_CURVE = 500
"""Points of a curve that are drawn."""
POLL_SECONDS = 10
"""How often a live page asks for the records."""
SCRIPTS = ("page.js", "results.js", "runs.js", "curves.js", "compare.js", "start.js")
"""In the order in which they are run, as one script."""


def build_page(
    records: Runs,
    sections: Mapping[str, Sequence[Table]],
    *,
    rows: Sequence[Row] = (),
    live: bool = False,
) -> str:
    """Return the page.

    Args:
        records: of all runs; see `roformer.report.dashboard.records.read_runs`.
        sections: heading → its tables, in the order of the page.
        rows: the first table; see `roformer.report.reproduction.reproduction`.
        live: whether the page is served, and asks for `records.json` again and again.
    """
    script = "\n".join(_asset(name) for name in SCRIPTS)
    theme, plotly = _asset("theme.js"), _plotly()
    parts = {
        "policy": html.escape(policy([theme, plotly, script], live=live)),
        "style": _asset("page.css"),
        "theme": theme,
        "plotly": plotly,
        "data": data_json(records, sections, rows=rows, live=live),
        "script": script,
    }
    text = _asset("page.html")
    before = ""
    for name, part in parts.items():  # in the order of the page; a part may hold any braces
        head, found, text = text.partition(f"{{{{ {name} }}}}")
        assert found, f"page.html has no {name}"
        before += head + part
    return before + text


def policy(scripts: Iterable[str], *, live: bool) -> str:
    """Return the content security policy under which these scripts, and no others, are executed."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    connect = "'self'" if live else "'none'"
    # plotly.js sets styles by itself, and makes pictures of plots in blobs.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def data_json(
    records: Runs,
    sections: Mapping[str, Sequence[Table]],
    *,
    rows: Sequence[Row] = (),
    live: bool = False,
) -> str:
    """Return what the page shows, as JSON that no HTML parser sees an end of a script in."""
    runs = sorted(records_of(records), key=lambda run: (run.study != YOURS, run.study, run.name))
    content = {
        "made": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC",
        "poll": POLL_SECONDS if live else None,
        "statuses": STATUSES,
        "yours": YOURS,
        "legend": LEGEND,
        "rows": [
            {key: one_line(v) if isinstance(v, str) else v for key, v in row._asdict().items()}
            for row in rows
        ],
        "runs": [_run(run) for run in runs],
        "sections": [
            {
                "heading": heading,
                "yours": heading.startswith(HERE),
                "tables": [_table(table) for table in tables],
            }
            for heading, tables in sections.items()
        ],
    }
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))  # all but ASCII is escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def thinned(points: Sequence[Point], longest: int = LONGEST_CURVE) -> list[Point]:
    """Return at most this many points of a curve, in order.

    Of each of equally long stretches the first, the last, the lowest, the highest and one that is not
    finite are kept: so the curve keeps its ends and extremes, and every spike. All are the record's
    points, none is a mean.
    """
    if len(points) <= longest:
        return list(points)
    kept: set[int] = set()
    stretches = longest // 5
    bounds = [len(points) * number // stretches for number in range(stretches + 1)]
    for start, end in pairwise(bounds):
        finite = [i for i in range(start, end) if math.isfinite(points[i].value)]
        kept |= {start, end - 1, *[i for i in range(start, end) if i not in finite][:1]}
        if finite:
            kept.add(min(finite, key=lambda i: points[i].value))
            kept.add(max(finite, key=lambda i: points[i].value))
    return [points[i] for i in sorted(kept)]


def _run(run: Any) -> dict[str, Any]:
    return {
        "id": run.folder,
        "key": hashlib.sha256(run.folder.encode()).hexdigest()[:12],
        "name": run.name,
        "study": run.study,
        "pipeline": run.pipeline,
        "model": run.model,
        "position": run.position,
        "label": run.label,
        "task": run.task,
        # A recorded run and one of this machine are no seeds of each other.
        "arm": f"{run.arm}-here" if run.study == YOURS else run.arm,
        "recipe": run.recipe,
        "seed": run.seed,
        "status": run.status,
        "reason": run.reason,
        "headline": [[metric, _null(value)] for metric, value in run.headline_metrics.items()],
        "steps": run.steps,
        "tokens": run.tokens,
        "seconds": run.wall_seconds,
        "speed": run.tokens_per_second,
        "parameters": run.parameters,
        "config": run.config,
        "environment": run.environment | ({"command": run.command} if run.command else {}),
        **_curves(run.curves),
    }


def _curves(curves: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Return of each metric its values and which of the axes they stand on; metrics share axes."""
    axes: dict[tuple[tuple[int, int | None, int | None], ...], int] = {}
    columns = {}
    for metric, points in curves.items():
        kept = thinned(points)
        axis = tuple((point.step, point.sequences, point.tokens) for point in kept)
        columns[metric] = [axes.setdefault(axis, len(axes)), [_null(p.value) for p in kept]]
    names = ("updates", "sequences", "tokens")
    return {
        "axes": [dict(zip(names, zip(*axis, strict=True), strict=True)) for axis in axes],
        "curves": columns,
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": one_line(table.title),
        "lines": [[one_line(cell) for cell in line] for line in table.lines],
        "textColumns": table.text_columns,
        "notes": [one_line(note) for note in table.notes],
        "command": one_line(table.command),
    }


def _null(value: float) -> float | None:
    """Return what JSON can hold of a number."""
    return value if math.isfinite(value) else None


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _plotly() -> str:
    return str(get_plotlyjs())


@cache
def _asset(name: str) -> str:
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    assert "</script" not in text or name == "page.html", name
    return text
