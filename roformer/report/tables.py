"""Shared parts of tables of runs: their command line, the configurations of runs, and Markdown."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from roformer.errors import InputError, one_line
from roformer.report.runs import RecordError, Runs, read_runs, settings_of

T = TypeVar("T")


class Table(NamedTuple):
    """A table of a report: Markdown here, HTML in the dashboard."""

    title: str
    lines: Sequence[Sequence[str]]
    """The header, then the rows; plain text, escaped where it is written out."""
    text_columns: int = 1
    """Number of columns, from the left, with words instead of numbers."""
    notes: Sequence[str] = ()
    """Sentences below it: scale, caveats, what is left out."""
    command: str = ""
    """The command that prints it."""

    def markdown(self) -> str:
        """Return title, table, notes and command."""
        parts = [f"**{escaped(self.title)}**", markdown(self.lines, text_columns=self.text_columns)]
        parts += [escaped(note) for note in self.notes]
        if self.command:
            parts.append(code(self.command))
        return "\n\n".join(parts)


def print_tables(description: str | None, tables: Callable[[Runs], str]) -> None:
    """Print what `tables` makes of the runs on the command line; the unfinished are named.

    Leaves with code 2 and one line where a record is damaged or nothing can be made of it.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs, or studies")
    arguments = parser.parse_args()
    try:
        print(tables(finished(read_runs(arguments.runs))))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def finished(runs: Runs) -> Runs:
    """Return the runs that have a summary; name the others on stderr."""
    ended = runs.runs.status != "running"
    for folder in runs.runs.folder[~ended]:
        print(f"left out: {folder} has no summary.json", file=sys.stderr)
    return runs._replace(runs=runs.runs[ended])


# --- configurations ------------------------------------------------------------------------------


def configuration_names(runs: pd.DataFrame) -> dict[str, str]:
    """Return a name for each configuration: what tells it from the others, and no more.

    Returns:
        Column `configuration` → the label, such as `roformer (rotary)`; where configurations have the
        same one, also the settings in which they differ.
    """
    return different_names(
        (run["label"], run["configuration"], settings_of(run)) for run in runs.to_dict("records")
    )


def different_names(labelled: Iterable[tuple[str, str, Mapping[str, Any]]]) -> dict[str, str]:
    """Return key → name of (label, key, settings by dotted key); see `configuration_names`."""
    alike: dict[str, dict[str, dict[str, str]]] = {}
    for label, key, settings in labelled:
        alike.setdefault(label, {})[key] = {name: str(value) for name, value in settings.items()}
    names = {}
    for label, group in alike.items():
        every = {name for settings in group.values() for name in settings}
        differing = sorted(n for n in every if len({s.get(n) for s in group.values()}) > 1)
        for key, settings in group.items():
            names[key] = ", ".join([label, *(f"{name}={settings.get(name)}" for name in differing)])
    return names


def configurations(runs: pd.DataFrame, names: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """Return name → its runs, one a seed in ascending order, of each configuration.

    Args:
        runs: rows of the frame of runs.
        names: see `configuration_names`.

    Raises:
        RecordError: two runs have the same configuration and seed.
    """
    found = {}
    for key, group in runs.groupby("configuration", sort=False):
        for seed, several in group.groupby("seed"):
            if len(several) > 1:
                raise RecordError(
                    f"{several.folder.iloc[0]} and {several.folder.iloc[1]} have the same settings and "
                    f"seed {seed}: leave one of them out, or it counts as another seed"
                )
        found[names[key]] = group.sort_values("seed")
    return found


def without(runs: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Return the runs without these keys of their config, or what is below them: they are no setting."""
    configs = [
        {k: v for k, v in config.items() if not any(f"{k}.".startswith(f"{key}.") for key in keys)}
        for config in runs.config
    ]
    runs = runs.assign(config=configs)
    hashes = [json.dumps(settings_of(run), sort_keys=True) for run in runs.to_dict("records")]
    return runs.assign(configuration=hashes)


def find_baseline(names: Iterable[str], wanted: str | None) -> str:
    """Return the name of the configuration to compare with: the one that has `wanted` in it, else the
    first.

    Raises:
        RecordError: none or several have it; says which there are.
    """
    known = list(dict.fromkeys(names))
    if wanted is None or wanted in known:
        return wanted or known[0]
    found = [name for name in known if wanted in name]
    if len(found) != 1:
        some = f"{len(found)} configurations have" if found else "no configuration has"
        raise RecordError(f"{some} {wanted!r} in the name: choose of {'; '.join(known)}")
    return found[0]


def baseline_first(found: Mapping[str, T], wanted: str | None) -> dict[str, T]:
    """Return the configurations with the baseline before the others; see `find_baseline`."""
    first = find_baseline(found, wanted)
    return {first: found[first], **found}


# --- Markdown ------------------------------------------------------------------------------------


def markdown_of(tables: Iterable[Table]) -> str:
    """Return tables one below the other."""
    return "\n\n".join(table.markdown() for table in tables)


def markdown(lines: Sequence[Sequence[str]], *, text_columns: int) -> str:
    """Return a table whose first line is the header; columns after the text are right-aligned."""
    aligned = ["---"] * text_columns + ["---:"] * (len(lines[0]) - text_columns)
    return "\n".join(table_row(line) for line in [lines[0], aligned, *lines[1:]])


def table_row(cells: Iterable[str]) -> str:
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
