"""The blocks of README.md: the paper's claims and tables with the results of one study each, from paper.yaml.

The paper's numbers and ours have different data, models and budgets: they are in separate rows, each row
names its split, and no difference between them is taken.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from roformer.report.pages import link_to, script_of
from roformer.report.runs import RecordError, read_runs, read_yaml_file
from roformer.report.scores import baseline_texts, scores
from roformer.report.statistics import mean_text
from roformer.report.studies import Study, read_study
from roformer.report.tables import Table

VERDICTS = ("supported", "same direction", "inconclusive", "contradicted", "not tested")
Paper = dict[str, Any]
"""Content of paper.yaml, which describes its keys."""


def read_paper(experiments: Path = Path(__file__).parent) -> Paper:
    """Return the content of paper.yaml."""
    return read_yaml_file(experiments / "paper.yaml", what="the paper's numbers")


def claims_table(
    experiments: Path, link: Callable[[Study], str] = lambda study: study.name
) -> Table:
    """Return one row per claim: the paper's evidence, and the result of the study that tests it.

    Args:
        experiments: the folder of paper.yaml and the studies.
        link: returns the text of a study's cell.
    """
    paper = read_paper(experiments)
    lines = [["claim", "paper", "ours", "verdict", "rerun it"]]
    for key in paper["claims"]:
        about = paper["experiments"][key]
        ours = about["ours"]
        if ours["verdict"] not in VERDICTS:
            raise RecordError(f"paper.yaml: {key}: choose a verdict of {', '.join(VERDICTS)}")
        study = read_study(experiments / ours["study"])
        where = f"{about['title'].partition(':')[0]}: {about['shows']}"
        result = f"{link(study)}: {ours['result']}"
        lines.append([about["claim"], where, result, ours["verdict"], study.rerun or "its report"])
    return Table("Claims of the paper", lines, 5)


def paper_tables(experiments: Path) -> list[Table]:
    """Return each table of the paper that has numbers, with the rows of our study of it."""
    paper, tables = read_paper(experiments), []
    for key, about in paper["experiments"].items():
        if key.startswith("table_"):
            ours = about["ours"]
            study = read_study(experiments / ours["study"])
            rows = _our_rows(key, ours, read_runs([study.folder]).runs) if study.has_runs else {}
            scale = f"Ours ({study.folder.name}): {study.data}, {study.scale}."
            tables.append(paper_table(paper, key, rows, scale, ours.get("note", "")))
    return tables


def paper_table(
    paper: Paper, key: str, ours: Mapping[str, Mapping[str, str]], *notes: str
) -> Table:
    """Return a table of the paper, one row per model and split, and below it our rows and notes on them."""
    about = paper["experiments"][key]
    lengths = {model["model"]: model.get("length") for model in about["models"]}
    rows: dict[str, dict[str, str]] = {}
    for number in about["numbers"]:
        label = f"paper: {number['model']}, {number['split']}"
        label += " (copied)" if number["origin"] == "copied" else ""
        length = lengths[number["model"]]
        row = rows.setdefault(label, {"length": length} if length else {})
        row[number["metric"]] = f"{number['value']:.{about['metrics'][number['metric']]}f}"
    rows |= {label: dict(row) for label, row in ours.items()}
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [[label, *(row.get(name, "–") for name in columns)] for label, row in rows.items()]
    scale = " ".join(filter(None, [f"Paper: {about['settings']['data']}.", *notes]))
    return Table(about["title"], [["model", *columns], *lines], notes=[scale])


def _our_rows(key: str, ours: Mapping[str, Any], runs: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return the rows of a study's configurations, and of model-free baselines."""
    if key == "table_4":
        return script_of("stages")["stage_rows"](runs, last=True)
    if only := ours.get("only"):
        runs = runs[runs.planned.isin(only)]
    frame = scores(runs)
    frame = frame[frame.chosen & frame.metric.isin([*ours["metrics"]])]
    frame = frame.assign(column=frame.metric.map(ours["metrics"]))
    rows: dict[str, dict[str, str]] = {}
    for (name, column), part in frame.groupby(["name", "column"], sort=False):
        label = f"ours: {name}, {ours['split']}"
        rows.setdefault(label, {})[column] = mean_text([*part.value], ours["digits"])
    simple = baseline_texts(frame, "column", ours["digits"])
    return rows | {
        f"ours: {name}": {k: text for k, text in texts.items() if text != "NaN"}
        for name, texts in simple.items()
    }


def claims(folder: Path, words: list[str]) -> list[Table]:
    """`claims`: one row per claim of the paper."""
    return [claims_table(folder, lambda study: link_to(study, study.name))]


def paper(folder: Path, words: list[str]) -> list[Table]:
    """`paper`: the paper's tables with our rows."""
    return paper_tables(folder)
