"""Tables: means and differences of configurations, their names, numbers as text, and Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from roformer.errors import naming, one_line
from roformer.report.runs import RecordError, settings_of
from roformer.report.statistics import Paired, holm, paired, smallest_p, spread

Group = TypeVar("Group")
SCREEN = (100, 16)
"""Columns and rows of tables that fit on a terminal together with the last lines of a command."""

RATIO = {
    "what": ("what", "{}"),
    "times faster": ("ratio", "{:.2f}"),
    "goal": ("goal", "{:g}"),
    "met": ("met", "{}"),
    "of matmul peak": ("share_of_limit", "{:.0%}"),
}
"""Columns of a benchmark's table: header → column of its rows, and the format of its values."""


class Table(NamedTuple):
    """A table of a report: Markdown or plain text here, HTML in the dashboard."""

    title: str
    lines: Sequence[Sequence[str]]
    """The header, then the rows: plain text, escaped on output."""
    text_columns: int = 1
    """Number of columns, from the left, that hold words."""
    notes: Sequence[str] = ()
    """Sentences below it: scale, caveats, exclusions."""
    command: str = ""
    """The command that prints it."""

    def markdown(self) -> str:
        """Return title, table, notes and command."""
        parts = [f"**{escaped(self.title)}**", markdown(self.lines, text_columns=self.text_columns)]
        parts += [*map(escaped, self.notes), *([code(self.command)] if self.command else [])]
        return "\n\n".join(parts)

    def screen(self) -> str | None:
        """Return title and table for a terminal, transposed if too wide; None if too large."""
        for lines in (self.lines, list(zip(*self.lines, strict=True))):
            cells = [[one_line(cell) for cell in line] for line in lines]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            rows = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
            if len(rows) <= SCREEN[1] and max(map(len, rows)) <= SCREEN[0]:
                return "\n".join([one_line(self.title), *rows])
        return None


def mean_lines(
    frame: pd.DataFrame, rows: str, columns: str, digits: int, missing: str = ""
) -> list[list[str]]:
    """Return the lines of a table with mean ± standard deviation (n) of the column `value`.

    The columns `rows` and `columns` of the frame name a value's line and its column, in their order.
    """
    texts = frame.groupby([rows, columns]).value.agg(lambda values: mean_text([*values], digits))
    wide = texts.unstack(fill_value=missing).reindex(frame[rows].unique())
    return lines_of(wide[frame[columns].unique()])


def paired_table(
    frame: pd.DataFrame,
    base: str,
    by: str,
    title: str,
    *,
    digits: int,
    by_name: bool = False,
    note: str = "",
) -> Table:
    """Return one line per configuration and value of `by`: the differences from the baseline.

    The frame has the columns name, seed, value and `by`, such as metric or step. `by_name` corrects
    p-values for all tests of a configuration, not of a value of `by`.
    """
    seeds = {
        key: dict(zip(part.seed, part.value, strict=True))
        for key, part in frame.groupby([by, "name"], sort=False)
    }
    tests: dict[tuple[Any, str], Paired] = {}
    families: dict[Any, list[tuple[Any, str]]] = {}
    unpaired: dict[str, set[int]] = {name: set() for name in frame.name.unique() if name != base}
    for value, name in product(frame[by].unique(), unpaired):
        ours, theirs = seeds.get((value, name), {}), seeds.get((value, base), {})
        common = [seed for seed in ours if seed in theirs]
        if ours or theirs:
            tests[value, name] = paired([ours[s] for s in common], [theirs[s] for s in common])
            families.setdefault(name if by_name else value, []).append((value, name))
        unpaired[name] |= ours.keys() ^ theirs.keys()
    adjusted: dict[tuple[Any, str], float | None] = {}
    for family in families.values():
        adjusted |= zip(family, holm([tests[key].p for key in family]), strict=True)
    lines = [["configuration", by, "difference", "95 % (t)", "p", "p, Holm", "n"]]
    for (value, name), test in tests.items():
        shown = f"{value:,}" if by == "step" else str(value)
        difference = signed(test.difference, digits) + _deviation(test.std, digits)
        cells = [name, shown, difference if test.n else "–", interval_text(test.interval, digits)]
        lines.append([*cells, p_text(test.p), p_text(adjusted[value, name]), str(test.n)])
    corrected = f"{by}s of a configuration" if by_name else f"configurations of a {by}"
    notes = [
        f"Mean ± standard deviation of the configuration minus {base}, seed by seed. {note}p: sign-flip "
        f"test, two-sided; Holm: corrected for all {corrected}."
    ]
    for n in sorted({max(test.n, 1) for test in tests.values()}, reverse=True):
        notes.append(
            f"With {n} seeds the sign-flip test gives no p below {p_text(smallest_p(n))}."
            if n > 1
            else "With one seed there is no interval and no test over seeds."
        )
    for name, alone in unpaired.items():
        if alone:
            notes.append(f"{name}: without a pair: seed {', '.join(map(str, sorted(alone)))}.")
    return Table(title, lines, text_columns=1 if by == "step" else 2, notes=notes)


def formatted(frame: pd.DataFrame, columns: Mapping[str, tuple[str, str]]) -> list[list[str]]:
    """Return the lines of a frame's columns, given by header with their formats; missing is empty."""
    texts = {
        header: frame[key].map(form.format, na_action="ignore")
        for header, (key, form) in columns.items()
    }
    return lines_of(pd.DataFrame(texts).fillna(""))


def lines_of(texts: pd.DataFrame) -> list[list[str]]:
    """Return the lines of a table from a frame of texts; its named index comes first."""
    if any(texts.index.names):
        texts = texts.reset_index()
    return [[*map(str, texts.columns)], *texts.to_numpy().tolist()]


def speed_table(rows: pd.DataFrame, columns: Mapping[str, tuple[str, str]] = RATIO) -> Table:
    """Return the table of rows of a benchmark.

    The peak is the rate of matrix products, measured in the same run.
    """
    goal = rows.goal.astype(float)
    met = (rows.ratio >= goal).map({True: "yes", False: "no"}).where(goal > 0)
    optional = {"share_of_limit": math.nan, "ours_tokens_per_second": math.nan}
    shown = rows.assign(goal=goal, met=met, **{k: v for k, v in optional.items() if k not in rows})
    return Table("Speed against other software", formatted(shown, columns))


# --- configurations ------------------------------------------------------------------------------


def named(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with a column `name`, which distinguishes their configurations.

    It is the label, such as `roformer (rotary)`; configurations with equal labels also have the settings in
    which they differ. Weights to start from (`init_from`) are an id or a folder: they are replaced by the
    plan's names of the configurations if the study's plan has all of them.
    """
    settings = {run["configuration"]: settings_of(run) for run in runs.to_dict("records")}
    planned = runs[runs.planned != ""].groupby("configuration").planned.unique()
    continued = [key for key, own in settings.items() if own.get("init_from")]
    if all(key in planned for key in continued):
        for key in continued:
            settings[key] |= {"init_from": None, "configuration": "+".join(sorted(planned[key]))}
    labels = zip(runs.label, runs.configuration, strict=True)
    names = different_names((label, key, settings[key]) for label, key in labels)
    return runs.assign(name=runs.configuration.map(names))


def unique_ids(runs: pd.DataFrame) -> pd.Series[str]:
    """Return a unique name per run: its id, or its folder if two runs have the same id."""
    return runs.run.where(~runs.run.duplicated(keep=False), runs.folder)


def different_names(labelled: Iterable[tuple[str, str, Mapping[str, Any]]]) -> dict[str, str]:
    """Return key → name of (label, key, settings by dotted key); see `named`."""
    alike: dict[str, dict[str, Mapping[str, Any]]] = {}
    for label, key, settings in labelled:
        alike.setdefault(label, {})[key] = settings
    names = {}
    for label, group in alike.items():
        differing = differing_keys(group.values())
        for key, settings in group.items():
            names[key] = ", ".join([label, *(f"{name}={settings.get(name)}" for name in differing)])
    return names


def differing_keys(several: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which settings differ, sorted."""
    settings = [{key: str(value) for key, value in one.items()} for one in several]
    every = sorted({key for one in settings for key in one})
    return [key for key in every if len({one.get(key) for one in settings}) > 1]


def tables_by_group(
    groups: Sequence[Group],
    settings: Callable[[Group], Mapping[str, Any]],
    tables: Callable[[Group], Iterable[Table]],
) -> list[Table]:
    """Return the tables of each group; titles end with the settings that distinguish the groups.

    The first settings that distinguish a group are shown, and a number if none does.
    """
    every = [settings(group) for group in groups]
    keys, kinds = list[str](), 1
    for key in dict.fromkeys(key for one in every for key in one):
        found = {tuple(str(one.get(name)) for name in (*keys, key)) for one in every}
        if len(found) > kinds:
            kinds = len(found)
            keys.append(key)
    made = []
    for number, (group, one) in enumerate(zip(groups, every, strict=True), 1):
        words = [f"{key}={one[key]}" for key in keys if key in one]
        if kinds < len(groups):
            words.insert(0, f"{number} of {len(groups)}")
        end = f" ({', '.join(words)})" if words else ""
        made += [table._replace(title=f"{table.title}{end}") for table in tables(group)]
    return made


def first_of_each_seed(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[list[str]]]:
    """Return the runs without copies, and for each copy its folder and the run that it is a copy of.

    A copy has the settings and the seed of another run: counting both would count one seed twice. Of a run
    and its copies that `resume=false` set aside (`ID.before-N`) the run is kept, else the first.
    """
    aside = runs.folder.str.contains(".before-", regex=False).astype(bool)
    seeds = pd.concat([runs[~aside], runs[aside]]).groupby(
        ["configuration", "seed"], sort=False, dropna=False
    )
    originals = seeds.folder.transform("first").reindex(runs.index)
    is_copy = runs.folder != originals
    pairs = zip(runs.folder[is_copy], originals[is_copy], strict=True)
    return runs[~is_copy], [[one, f"same settings and seed as {of}"] for one, of in pairs]


def excluded_runs(excluded: pd.DataFrame, counted: pd.DataFrame) -> list[str]:
    """Return sentences on runs that are not counted, and on degenerate ones that are."""
    notes = [
        f"Left out: {run.run}: {run.reason or 'it has no scores'}." for run in excluded.itertuples()
    ]
    if flat := [*counted[counted.status == "degenerate"].run.unique()]:
        notes.append(f"Counted, though degenerate: {', '.join(flat)}.")
    return notes


def find_baseline(names: Iterable[str], wanted: str | None) -> str:
    """Return the configuration whose name contains `wanted`, or the first one without `wanted`."""
    known = list(dict.fromkeys(names))
    if wanted is None or wanted in known:
        return wanted or known[0]
    found = [name for name in known if wanted in name]
    if len(found) != 1:
        some = f"{len(found)} configurations have" if found else "no configuration has"
        raise RecordError(f"{some} {wanted!r} in the name: choose one of {'; '.join(known)}")
    return found[0]


# --- numbers as text -----------------------------------------------------------------------------


def number_text(value: float, digits: int) -> str:
    """Return a number with these decimals; a zero has no sign."""
    return "NaN" if math.isnan(value) else f"{value:z.{digits}f}"


def _deviation(std: float | None, digits: int) -> str:
    return "" if std is None or math.isnan(std) else f" ± {std:.{digits}f}"


def signed(value: float, digits: int) -> str:
    """Return a difference with its sign; zero has no sign."""
    text = number_text(value, digits)
    return f"+{text}" if value > 0 and float(text) else text


def mean_text(values: Sequence[float], digits: int) -> str:
    """Return mean ± standard deviation (n), or `NaN (n)`."""
    mean, std = spread(values)
    return f"{number_text(mean, digits)}{_deviation(std, digits)} ({len(values)})"


def interval_text(interval: Sequence[float] | None, digits: int, *, sign: bool = True) -> str:
    """Return `low to high`, with signs for differences; – without an interval."""
    text = signed if sign else number_text
    return "–" if interval is None else " to ".join(text(end, digits) for end in interval)


def p_text(p: float | None) -> str:
    """Return a p-value with three decimals, or with an exponent if it is smaller; – without a test."""
    if p is None:
        return "–"
    return f"{p:.3f}" if p >= 0.0005 else f"{p:.0e}"


# --- Markdown ------------------------------------------------------------------------------------


def markdown_of(tables: Iterable[Table]) -> str:
    """Return tables as one Markdown text."""
    return "\n\n".join(table.markdown() for table in tables)


def screen_of(tables: Iterable[Table]) -> str:
    """Return as many of the first tables as fit on a screen, as plain text."""
    shown: list[str] = []
    for table in tables:
        text = table.screen()
        if text is None or "\n\n".join([*shown, text]).count("\n") > SCREEN[1]:
            break
        shown.append(text)
    return "\n\n".join(shown)


def end_with(tables: Sequence[Table], file: Path, *, shown: bool = True) -> None:
    """Write tables to a Markdown file and print its path, after the first tables if `shown`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with naming(file):
        file.write_text(f"{markdown_of(tables)}\n", encoding="utf-8")
    if shown and (text := screen_of(tables)):
        print(f"\n{text}\n")
    print(f"tables: {file}")


def markdown(lines: Sequence[Sequence[str]], *, text_columns: int) -> str:
    """Return a table whose first line is the header; columns after the text are right-aligned."""
    aligned = ["---"] * text_columns + ["---:"] * (len(lines[0]) - text_columns)
    cells = [lines[0], aligned, *lines[1:]]
    return "\n".join(f"| {' | '.join(map(escaped, line))} |" for line in cells)


def escaped(text: str) -> str:
    """Return text as one line of Markdown without markup."""
    return re.sub(r"([\\|`<])", r"\\\1", one_line(text))


def code(text: str) -> str:
    """Return text as Markdown code."""
    return f"`{one_line(text)}`"


def figure_markdown(caption: str, name: str) -> str:
    """Return a figure and its caption."""
    return f"![{caption.partition('.')[0]}]({name})\n\n{escaped(caption)}"
