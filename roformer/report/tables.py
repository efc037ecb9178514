"""What tables of runs share: their command line, names of arms, and Markdown."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roformer.errors import one_line
from roformer.report.recorded import find_runs
from roformer.report.records import Folder


class Table(NamedTuple):
    """A table of a report: Markdown here, HTML in the dashboard."""

    title: str
    lines: Sequence[Sequence[str]]
    """The header, then the rows; plain text, escaped where it is written out."""
    text_columns: int = 1
    """How many columns, from the left, are words and not numbers."""
    notes: Sequence[str] = ()
    """Sentences below it: scale, caveats, what is left out."""
    command: str = ""
    """What prints it again."""

    def markdown(self) -> str:
        """Return title, table, notes and command."""
        parts = [f"**{escaped(self.title)}**", markdown(self.lines, text_columns=self.text_columns)]
        parts += [escaped(note) for note in self.notes]
        if self.command:
            parts.append(code(self.command))
        return "\n\n".join(parts)


def print_tables(description: str | None, tables: Callable[[list[Folder]], str]) -> None:
    """Print what `tables` makes of the run folders on the command line; the unfinished are named.

    Leaves with code 2 and one line where `tables` raises ValueError.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs, or studies")
    arguments = parser.parse_args()
    try:
        runs = find_runs(arguments.runs)
        finished = [run for run in runs if (run / "summary.json").is_file()]
        for run in runs:
            if run not in finished:
                print(f"left out: {one_line(str(run))} has no summary.json", file=sys.stderr)
        print(tables(finished))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def run_label(summary: Mapping[str, Any]) -> str:
    """Return what a run is called: `roformer (rotary)`, or `performer (rotary)` by its attention.

    Args:
        summary: with model and position, and of language models the kind of attention.
    """
    attention = summary.get("attention", "softmax")
    name = summary["model"] if attention == "softmax" else attention
    return f"{name} ({summary['position']})"


def arm_names(runs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a name for each arm's settings: what tells it from the others, and no more.

    Args:
        runs: of each run the label, such as `roformer (rotary)`, and all settings that the runs of
            its arm share, as JSON.

    Returns:
        Settings → the label; where arms have the same, also the settings in which they differ.
    """
    alike: dict[str, dict[str, dict[str, str]]] = {}
    for label, settings in runs:
        alike.setdefault(label, {})[settings] = _flat(json.loads(settings))
    names = {}
    for label, arms in alike.items():
        keys = {key for arm in arms.values() for key in arm}
        differing = sorted(key for key in keys if len({arm.get(key) for arm in arms.values()}) > 1)
        for settings, arm in arms.items():
            names[settings] = ", ".join([label, *(f"{key}={arm.get(key)}" for key in differing)])
    return names


def markdown(lines: Sequence[Sequence[str]], *, text_columns: int) -> str:
    """Return a table whose first line is the header; columns after the text are right-aligned."""
    aligned = ["---"] * text_columns + ["---:"] * (len(lines[0]) - text_columns)
    return "\n".join(row(line) for line in [lines[0], aligned, *lines[1:]])


def row(cells: Iterable[str]) -> str:
    """Return a line of a table; no cell ends it, or is more than text."""
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(text: str) -> str:
    """Return a name out of a record as Markdown text: no table, code, tag or line begins or ends."""
    return re.sub(r"([\\|`<])", r"\\\1", one_line(text))


def code(text: str) -> str:
    """Return a name out of a record as Markdown code."""
    text = one_line(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{text}{fence}" if fence == "`" else f"{fence} {text} {fence}"


def _flat(settings: Any, key: str = "") -> dict[str, str]:
    """Return a nested config as dotted keys."""
    if not isinstance(settings, dict):
        return {key: str(settings)}
    below = [_flat(value, f"{key}.{name}" if key else name) for name, value in settings.items()]
    return {name: value for part in below for name, value in part.items()}
