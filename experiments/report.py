"""The blocks of the pages above the studies: the paper's claims and tables, our results, lists of studies.

The paper's numbers and ours have different data, models and budgets: they are in separate rows, each row
names its split, and no difference between them is taken.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from roformer.report.pages import script_of
from roformer.report.runs import LOSSES, RecordError, read_runs, read_yaml_file
from roformer.report.scores import baseline_texts, pipeline_of, scored, scores
from roformer.report.statistics import mean_interval
from roformer.report.studies import Result, Study, read_study
from roformer.report.tables import Table, find_baseline, interval_text, markdown, mean_text

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
        # The command of another study may have made some seeds of a configuration.
        wanted = runs.configuration[runs.planned.isin(only)]
        runs = runs[runs.configuration.isin(wanted)]
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


def result_texts(result: Result, frame: pd.DataFrame) -> list[str]:
    """Return the cells of a result: means with 95 % t-intervals and seeds, and model-free scores."""
    digits = scored(pipeline_of(frame)).digits
    found = frame[frame.chosen & (frame.metric == result.metric)]
    cells = []
    for wanted in (result.ours, result.baseline):
        part = found[found.name == find_baseline(found.name, wanted)]
        text = f"{fmean(part.value):.{digits}f}"
        if interval := mean_interval([*part.value]):
            text += f" ({interval_text(interval, digits, sign=False)})"
        cells.append(f"{text}, n={len(part)}")
    cells[1] = f"{part.label.iloc[0]} {cells[1]}"
    run = found.iloc[0]
    simple = dict(run.baselines)
    if run.pipeline in LOSSES and not simple:
        simple["unigram entropy"] = run.summary["metrics"][LOSSES[run.pipeline].entropy]
    texts = [f"{k} {v:.{digits}f}" for k, v in simple.items() if not math.isnan(v)]
    return [*cells, ", ".join(texts) or "–"]


def link_to(study: Study, text: str) -> str:
    """Return a link from the page above a study to its report, or to its plan before it has one."""
    page = "REPORT.md" if (study.folder / "REPORT.md").is_file() else "PLAN.md"
    return f"[{text}]({study.name}/{page})"


def claims(folder: Path, words: list[str]) -> list[Table]:
    """`claims`: one row per claim of the paper."""
    return [claims_table(folder, lambda study: link_to(study, study.name))]


def paper(folder: Path, words: list[str]) -> list[Table]:
    """`paper`: the paper's tables with our rows."""
    return paper_tables(folder)


def index(folder: Path, words: list[str]) -> str:
    """`index [toy]`: the titles of the studies in the page's folder, of real or of synthetic data."""
    studies = [read_study(file.parent) for file in sorted(folder.glob("*/study.yaml"))]
    return "\n".join(f"- {link_to(s, s.title)}" for s in studies if s.toy == (words == ["toy"]))


def results(folder: Path, words: list[str]) -> str:
    """`results STUDY …`: one row per result that these studies name."""
    columns = ["our test", "RoFormer", "baseline", "without a model", "verdict"]
    lines = [["claim", *columns]]
    for word in words:
        study = read_study(folder / word)
        frame = scores(read_runs([study.folder]).runs)
        for result in study.results:
            link = f"[{result.claim}]({word}/REPORT.md){' (toy)' if study.toy else ''}"
            cells = result_texts(result, frame)
            lines.append([link, result.test, *cells, result.verdict])
    return markdown(lines, text_columns=6)
