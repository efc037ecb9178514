"""The tables of a report under their headings: claims, the paper and ours, studies, this machine's runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from roformer.report.curves import convergence_tables, position_tables
from roformer.report.glue import headline_table, paired_glue_table, rows_of
from roformer.report.paper import CLAIMS, claims, paper_sections, read_paper, stage_runs_table
from roformer.report.runs import LOSSES, RecordError, Runs, read_runs
from roformer.report.scm import scm_tables
from roformer.report.studies import Study, read_studies, read_study
from roformer.report.tables import Table, without
from roformer.report.wmt import bleu_table, paired_wmt_table, read_scores

Sections = dict[str, list[Table]]
HERE = "Your statistics: finished runs of this machine"


def sections_of(experiments: Path, runs: Path) -> Sections:
    """Return all tables of the dashboard by heading; its links are what stands before a colon.

    What cannot be made, because a record is damaged, is a table that says so.

    Args:
        experiments: the folder of recorded studies with paper.yaml; without it only `runs` is told of.
        runs: the folder of this machine's runs; those that are not finished are left out.
    """
    yours = your_tables(runs)
    found: Sections = {HERE: yours} if yours else {}
    paper = experiments / "paper.yaml"
    if paper.is_file():
        found["Claims: what the paper says, and what came out"] = _or_problem(
            lambda: [claims(read_paper(paper), read_studies(experiments))]
        )
        found["Paper: its numbers and ours"] = _or_problem(
            lambda: paper_sections(read_paper(paper), read_studies(experiments))
        )
        for file in sorted(experiments.glob("*/study.yaml")):
            heading, tables = _study_section(file.parent)
            found |= {heading: tables} if tables else {}
    return found


def your_tables(runs: Path) -> list[Table]:
    """Return the tables of the finished runs of this machine, pipeline by pipeline.

    What cannot be made, because a record is damaged, is a table that says so.
    """
    read = read_runs([runs], strict=False)
    whole = read.runs[~read.runs.status.isin(("running", "damaged"))]
    whole = whole[whole.pipeline.isin(list(CLAIMS))]
    return [
        table
        for _, group in whole.groupby("pipeline", sort=False)
        for table in _or_problem(partial(run_tables, read._replace(runs=group)))
    ]


def study_tables(study: Study) -> list[Table]:
    """Return what a study's recorded runs came to; none if it has none."""
    if not study.has_runs:
        return []
    tables = run_tables(read_runs([study.folder]), study.baseline)
    again = f"python scripts/sweep.py experiments/{study.folder.name}"
    return [table._replace(command=table.command or again) for table in tables]


def run_tables(runs: Runs, baseline: str | None = None) -> list[Table]:
    """Return the tables of finished runs of any pipeline.

    Runs with a loss are compared where they share data and budget, model and encoding aside.

    Args:
        runs: finished.
        baseline: the configuration from which differences are taken; None: the first.
    """
    rows = runs.runs
    tables: list[Table] = []
    staged = (rows.pipeline == "pretrain") & rows.recipe.str.startswith("stages")
    if staged.any():
        tables.append(stage_runs_table(rows[staged]))
        rows = rows[~staged]

    def of(pipeline: str) -> Runs:
        return runs._replace(runs=rows[rows.pipeline == pipeline])

    for pipeline, loss in LOSSES.items():
        for group in comparable(of(pipeline)):
            if (group.runs.status != "failed").any():  # the table of runs tells why
                tables += convergence_tables(group, loss.metric, baseline)
                tables += position_tables(group, baseline)
    if not (grid := of("glue")).runs.empty:
        found = rows_of(grid.runs)
        tables.append(headline_table(found))
        if len({row.name for row in found}) > 1:
            tables.append(paired_glue_table(grid, baseline))
    for translations in equally_scored(of("wmt")):
        tables.append(bleu_table(translations, baseline))
        if by_seed := paired_wmt_table(translations, baseline):
            tables.append(by_seed)
    if not (triplets := of("scm")).runs.empty:
        tables += scm_tables(triplets, baseline)
    return tables


def comparable(runs: Runs) -> list[Runs]:
    """Return runs of a pipeline in groups that differ in model and seed alone, on the same text."""
    shared = without(runs.runs, "model").configuration
    texts = [environment.get("data") for environment in runs.runs.environment]
    keys = pd.Series([*zip(texts, shared, strict=True)], runs.runs.index, dtype=object)
    return [runs._replace(runs=runs.runs[keys == key]) for key in dict.fromkeys(keys)]


def equally_scored(runs: Runs) -> list[Runs]:
    """Return translation runs in groups with one test set and signature; unscored ones are in each."""
    scored, unscored = read_scores(runs.runs)
    without_scores = [run["folder"] for run in unscored]
    return [
        runs._replace(runs=runs.runs[runs.runs.folder.isin([*group.folder, *without_scores])])
        for _, group in scored.groupby("scored_by", sort=False)
    ]


def _study_section(folder: Path) -> tuple[str, list[Table]]:
    try:
        study = read_study(folder)
    except RecordError as error:
        return folder.name, [_problem(error)]
    return f"{folder.name}: {study.title}", _or_problem(partial(study_tables, study))


def _or_problem(make: Callable[[], list[Table]]) -> list[Table]:
    try:
        return make()
    except RecordError as error:
        return [_problem(error)]


def _problem(error: RecordError) -> Table:
    return Table("Not made", [["what is wrong"], [str(error)]])
