"""The paper's numbers as data, and ours beside them: never in one column, never subtracted.

The numbers of the paper and ours are of other data, models and budgets, and the paper's own stand
for different splits. So every column with a number of the paper says so in its header, with the
split and whether the paper copied it; ours have columns of their own, which name theirs; and the
caveats that concern a table are printed with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from roformer.report.ours import Ours
from roformer.report.records import Number, RecordError, check, read_yaml
from roformer.report.studies import Study
from roformer.report.tables import Table

Split = Literal["validation", "test", "training", "not said", "no data"]
SPLITS: tuple[Split, ...] = ("validation", "test", "training", "not said", "no data")
"""In the order of their columns; `no data` is what a formula gives."""
_exact = with_config(ConfigDict(extra="forbid"))


@_exact
class Source(TypedDict):
    """A paper that numbers are from."""

    name: str
    where: str


@_exact
class Caveat(TypedDict):
    """What must be known of some tables, and what this repository does about it."""

    tables: list[str]
    text: str
    here: str


@_exact
class Model(TypedDict):
    """A row of a table; model and position together are its name."""

    model: str
    position: str
    tokens: NotRequired[str]
    length: NotRequired[str]
    batch: NotRequired[str]
    steps: NotRequired[str]


@_exact
class Value(TypedDict):
    """A number that a paper prints, or that follows from its formula."""

    model: str
    position: str
    metric: str
    value: Number
    split: Split
    source: str
    table: str
    origin: Literal["reported", "copied", "computed"]
    caveats: NotRequired[list[str]]


@_exact
class Gap(TypedDict):
    """A difference of two rows of one table and split, which a caveat is about; in percent."""

    model: str
    above: str
    metric: str
    split: Split
    examples: int


@_exact
class Experiment(TypedDict):
    """A table or figure: what it claims, how it was made, and its numbers."""

    title: str
    by: str
    claim: str
    shows: str
    settings: dict[str, str]
    not_said: list[str]
    metrics: dict[str, int]  # with its decimals, in the order of the table
    models: list[Model]
    numbers: list[Value]
    curves: NotRequired[Split]  # where a figure has curves and no numbers: of which split
    gaps: NotRequired[list[Gap]]
    remarks: NotRequired[list[str]]


@_exact
class Other(TypedDict):
    """A number that neither the paper nor this repository measured."""

    who: str
    model: str
    metric: str
    value: Number
    split: Split
    about: str


@_exact
class Paper(TypedDict):
    """What paper.yaml holds."""

    paper: str
    """The source whose numbers are called the paper's."""
    sources: dict[str, Source]
    caveats: dict[str, Caveat]
    claims: list[str]
    tables: dict[str, Experiment]
    figures: dict[str, Experiment]
    beyond: dict[str, Experiment]
    others: list[Other]


def read_paper(path: Path) -> Paper:
    """Return the content of paper.yaml.

    Raises:
        RecordError: it cannot be read, a key is missing, unknown or of another type, or a number
            names a metric, model, source or caveat that is not there; names file and key.
    """
    content = read_yaml(path, what="the paper's numbers")
    try:
        check(Paper, content)
        paper: Paper = content  # type: ignore[assignment]  # what check has seen to
        _check_names(paper)
    except ValueError as error:
        raise RecordError(f"{path} is not the paper's numbers: {error}") from error
    return paper


def paper_tables(paper: Paper) -> dict[str, Table]:
    """Return the paper's tables alone, by key: `table_1` to `table_5` and `shaw`."""
    return {key: paper_table(paper, key) for key in paper["tables"]}


def paper_table(paper: Paper, key: str) -> Table:
    """Return one table or figure of the paper's, without ours.

    Raises:
        RecordError: there is none of that key; says which there are.
    """
    about = find_experiment(paper, key)
    lines = [[*_words(about), *_columns(paper, about)]]
    lines += [line for metric in _metrics(about) for line in _paper_lines(paper, about, metric)]
    return Table(about["title"], lines, len(_words(about)), _notes(paper, key))


def against_paper(paper: Paper, key: str, ours: Sequence[Ours]) -> Table:
    """Return a table of the paper's with ours in columns of their own; `not run` where there is none.

    Args:
        paper: see `read_paper`.
        key: of a table or figure.
        ours: rows, from any number of studies.

    Raises:
        RecordError: no such table; a metric that it does not have; two values for one cell; scores
            of different signatures in one column.
    """
    about = find_experiment(paper, key)
    _check_ours(about, ours)
    theirs = _columns(paper, about)
    columns = list(dict.fromkeys(row.column for row in ours))
    headers = [f"ours, {column} (n)" for column in columns] or ["ours"]
    lines = [[*_words(about), *theirs, *headers]]
    for metric in _metrics(about):
        rows = [row for row in ours if metric in row.values]
        empty = ["" if rows else "not run"] * len(headers)
        lines += [[*line, *empty] for line in _paper_lines(paper, about, metric)]
        for name, setting in dict.fromkeys((row.row, row.setting) for row in rows):
            cells = {
                r.column: r.values[metric] for r in rows if (r.row, r.setting) == (name, setting)
            }
            words = [metric, name, *[""] * len(_extra(about)), setting]
            blank = [""] * len(theirs)
            lines.append([*words, *blank, *(cells.get(column, "") for column in columns)])
    notes = _notes(paper, key)
    if ours:
        notes.append(
            "The paper's numbers and ours are of other data, models and budgets: each has columns of "
            "its own, and no difference between them is taken."
        )
    notes += dict.fromkeys(f"Ours, {row.column}: {row.signature}" for row in ours if row.signature)
    notes += dict.fromkeys(note for row in ours for note in row.notes)
    return Table(about["title"], lines, len(_words(about)), notes)


def others_table(paper: Paper) -> Table:
    """Return the numbers of third parties, which stand in no other table."""
    lines = [["about", "who", "model", "metric", "split", "third party's number"]]
    for other in paper["others"]:
        title = find_experiment(paper, other["about"])["title"].partition(":")[0]
        words = (other["who"], other["model"], other["metric"], other["split"])
        lines.append([title, *words, f"{other['value']:g}"])
    note = "Measured neither by the paper nor here; as their authors state them, not checked."
    return Table("Numbers of third parties", lines, 5, [note])


def claims(paper: Paper, studies: Iterable[Study]) -> Table:
    """Return one row a claim and study of it: what the paper shows, what came out here, and on what.

    A claim without a study, or whose study has no outcome, is `not run yet`.

    Raises:
        RecordError: a study is about a claim that the paper's data does not have.
    """
    found: dict[str, list[Study]] = {key: [] for key in paper["claims"]}
    for study in studies:
        if study.claim == "none":
            continue
        if study.claim not in found:
            known = ", ".join([*found, "none"])
            raise RecordError(f"{study.folder} is about {study.claim}: choose one of {known}")
        found[study.claim].append(study)
    lines = [["claim", "where", "the paper shows", "our study", "our outcome", "our scale"]]
    for key, about in found.items():
        experiment = find_experiment(paper, key)
        where = experiment["title"].partition(":")[0]
        words = [experiment["claim"], where, experiment["shows"]]
        for study in about:
            outcome = study.outcome or "not run yet"
            lines.append([*words, f"experiments/{study.folder.name}", outcome, study.scale])
        if not about:
            lines.append([*words, "not run yet", "", ""])
    note = "None of our studies has the paper's scale; each says what it measured, and on what."
    return Table("Claims of the paper", lines, 6, [note])


def find_experiment(paper: Paper, key: str) -> Experiment:
    """Return a table, figure or claim beyond the paper.

    Raises:
        RecordError: there is none of that key; says which there are.
    """
    known = paper["tables"] | paper["figures"] | paper["beyond"]
    if key not in known:
        raise RecordError(f"the paper's numbers have no {key}: choose one of {', '.join(known)}")
    return known[key]


def _metrics(about: Experiment) -> list[str]:
    """Return the metrics, or one without a name where a table measures nothing."""
    return list(about["metrics"]) or [""]


def _extra(about: Experiment) -> list[str]:
    """Return the keys by which the rows of a table are described beyond their names."""
    keys = ("tokens", "length", "batch", "steps")
    return [key for key in keys if any(key in model for model in about["models"])]


def _words(about: Experiment) -> list[str]:
    return ["metric", "model", *_extra(about), "source, or our data and scale"]


def _header(paper: Paper, about: Experiment, value: Value) -> str:
    """Return the header of a column of the paper's: whose, which split, and whether copied."""
    own = about["by"] == paper["paper"]
    who = "paper" if own else paper["sources"][about["by"]]["name"]
    if value["origin"] == "computed":
        return f"{who}, {value['table']} computed here"
    split = "split not said" if value["split"] == "not said" else value["split"]
    return f"{who}, {split}{' (copied)' if value['origin'] == 'copied' else ''}"


def _columns(paper: Paper, about: Experiment) -> list[str]:
    """Return the headers of the paper's columns, one a split and origin."""
    if "curves" in about:
        return [f"paper, {about['curves']} (a curve)"]
    ordered = sorted(about["numbers"], key=lambda value: SPLITS.index(value["split"]))
    return list(dict.fromkeys(_header(paper, about, value) for value in ordered))


def _paper_lines(paper: Paper, about: Experiment, metric: str) -> list[list[str]]:
    """Return the paper's lines of one metric, one a model."""
    lines = []
    for model in about["models"]:
        name = (model["model"], model["position"])
        cells, sources = {}, {}
        for value in about["numbers"]:
            if (value["model"], value["position"], value["metric"]) == (*name, metric):
                cells[_header(paper, about, value)] = (
                    f"{value['value']:.{about['metrics'][metric]}f}"
                )
                sources[f"{paper['sources'][value['source']]['name']}, {value['table']}"] = True
        if "curves" in about:
            cells = dict.fromkeys(_columns(paper, about), "no number")
        where = " / ".join(sources) or paper["sources"][about["by"]]["name"]
        words = [metric, f"{name[0]} ({name[1]})", *(str(model.get(k, "")) for k in _extra(about))]
        lines.append([*words, where, *(cells.get(c, "") for c in _columns(paper, about))])
    return lines


def _notes(paper: Paper, key: str) -> list[str]:
    """Return what stands below a table: claim, settings, what is not said, caveats, gaps."""
    about = find_experiment(paper, key)
    notes = [f"Claim: {about['claim']} Shown: {about['shows']}."]
    notes.append(f"Settings: {'; '.join(f'{k}: {v}' for k, v in about['settings'].items())}.")
    if about["not_said"]:
        notes.append(f"Not said: {', '.join(about['not_said'])}.")
    for name, caveat in paper["caveats"].items():
        if key in caveat["tables"]:
            notes.append(f"{name}. {caveat['text']} Here: {caveat['here']}")
    for gap in about.get("gaps", ()):
        higher, lower = (
            _single(about, model, gap["metric"], gap["split"])
            for model in (gap["model"], gap["above"])
        )
        error = 100 * math.sqrt(higher / 100 * (1 - higher / 100) / gap["examples"])
        notes.append(
            f"Within the paper's {gap['split']} column {gap['model']} is {higher - lower:.2f} points above "
            f"{gap['above']} (about {gap['examples']:,} examples; one accuracy has a standard error "
            f"of {error:.1f} points)."
        )
    return [*notes, *about.get("remarks", ())]


def _single(about: Experiment, model: str, metric: str, split: str) -> float:
    found = [
        value["value"]
        for value in about["numbers"]
        if (value["model"], value["metric"], value["split"]) == (model, metric, split)
    ]
    if len(found) != 1:
        raise ValueError(f"gaps: {len(found)} numbers of {model}, {metric}, {split}")
    return found[0]


def _check_ours(about: Experiment, ours: Sequence[Ours]) -> None:
    seen: set[tuple[str, ...]] = set()
    signatures: dict[str, str] = {}
    for row in ours:
        for metric in row.values:
            if metric not in about["metrics"]:
                known = ", ".join(about["metrics"]) or "none"
                raise RecordError(f"{about['title']} has no {metric}: its metrics are {known}")
            cell = (row.row, row.setting, row.column, metric)
            if cell in seen:
                raise RecordError(f"two values of {', '.join(cell)}: a cell has one source")
            seen.add(cell)
        if signatures.setdefault(row.column, row.signature) != row.signature:
            raise RecordError(
                f"{row.column} has two signatures, {signatures[row.column]} and {row.signature}: "
                "scores with different signatures cannot stand in one column"
            )


def _check_names(paper: Paper) -> None:
    """Raise ValueError where a name in the data is not there, or a cell has two numbers."""
    experiments = paper["tables"] | paper["figures"] | paper["beyond"]
    if len(experiments) < sum(len(paper[part]) for part in ("tables", "figures", "beyond")):
        raise ValueError("tables, figures, beyond: a key stands in two of them")
    _known("paper", [paper["paper"]], paper["sources"])
    _known("claims", paper["claims"], experiments)
    for name, caveat in paper["caveats"].items():
        _known(f"caveats.{name}.tables", caveat["tables"], experiments)
    for index, other in enumerate(paper["others"]):
        _known(f"others.{index}.about", [other["about"]], experiments)
    for key, about in experiments.items():
        _known(f"{key}.by", [about["by"]], paper["sources"])
        seen: set[tuple[str, ...]] = set()
        rows = [f"{model['model']} ({model['position']})" for model in about["models"]]
        for index, value in enumerate(about["numbers"]):
            place = f"{key}.numbers.{index}"
            _known(f"{place}.model", [f"{value['model']} ({value['position']})"], rows)
            _known(f"{place}.metric", [value["metric"]], about["metrics"])
            _known(f"{place}.source", [value["source"]], paper["sources"])
            here = [name for name, caveat in paper["caveats"].items() if key in caveat["tables"]]
            _known(f"{place}.caveats", value.get("caveats", ()), here)
            if (value["origin"] == "copied") != (value["source"] != about["by"]):
                raise ValueError(
                    f"{place}.origin: copied is what is of another source, and only that"
                )
            if (value["origin"] == "computed") != (value["split"] == "no data"):
                raise ValueError(f"{place}.split: no data is what is computed, and only that")
            cell = (value["model"], value["position"], value["metric"], value["split"])
            if cell in seen:
                raise ValueError(f"{place}: a second number of {', '.join(cell)}")
            seen.add(cell)
        for gap in about.get("gaps", ()):
            for model in (gap["model"], gap["above"]):
                _single(about, model, gap["metric"], gap["split"])


def _known(place: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{place}: {name} is none of {', '.join(known)}")
