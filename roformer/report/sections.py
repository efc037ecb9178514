"""The tables of a report under their headings: claims, the paper and ours, studies, this machine's runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from roformer.report.convergence import convergence_tables
from roformer.report.glue import headline_table, read_cells, rows_of
from roformer.report.losses import LOSSES
from roformer.report.ours import Ours, glue_ours, loss_ours, scm_ours, wmt_ours
from roformer.report.paired import paired_glue_table, paired_wmt_table
from roformer.report.paper import Paper, against_paper, claims, others_table, read_paper
from roformer.report.positions import position_tables
from roformer.report.records import (
    Folder,
    RecordError,
    configuration,
    read_config,
    read_environment,
    read_summary,
)
from roformer.report.scm import scm_tables
from roformer.report.stages import stage_runs_table
from roformer.report.studies import Study, read_studies, read_study
from roformer.report.tables import Table
from roformer.report.wmt import read_runs as read_translation_runs
from roformer.report.wmt_bootstrap import bleu_table

Sections = dict[str, list[Table]]
HERE = "Your statistics: finished runs of this machine"
PAPER = {
    "pretrain": "figure_3_left",
    "glue": "table_2",
    "wmt": "table_1",
    "charlm": "figure_3_right",
    "clm": "clm",
    "scm": "table_5",
}
"""Pipeline → what of paper.yaml its runs stand beside."""


def sections_of(experiments: Path, runs: Path) -> Sections:
    """Return all tables of the dashboard by heading; its links are what stands before a colon.

    What cannot be made, because a record is damaged, is a table that says so.

    Args:
        experiments: the folder of recorded studies with paper.yaml; without it only `runs` is told of.
        runs: the folder of this machine's runs; those that are not finished are left out.
    """
    yours = your_tables(runs)
    found: Sections = {HERE: yours} if yours else {}
    if (experiments / "paper.yaml").is_file():
        found["Claims: what the paper says, and what came out"] = _or_problem(
            lambda: [claims(*_read(experiments))]
        )
        found["Paper: its numbers and ours"] = _or_problem(
            lambda: paper_sections(*_read(experiments))
        )
        for file in sorted(experiments.glob("*/study.yaml")):
            found.update(_study_section(file.parent))
    return found


def your_tables(runs: Path) -> list[Table]:
    """Return the tables of the finished runs of this machine, pipeline by pipeline.

    What cannot be made, because a record is damaged, is a table that says so.
    """
    by_pipeline: dict[str, list[Folder]] = {}
    for run in finished(runs):
        by_pipeline.setdefault(_pipeline(run), []).append(run)
    return [
        table for group in by_pipeline.values() for table in _or_problem(partial(run_tables, group))
    ]


def paper_sections(paper: Paper, studies: Sequence[Study]) -> list[Table]:
    """Return each table of the paper's beside what our studies of it recorded."""
    pretraining = [run for study in studies for run in _of(study, "pretrain")]
    ours: dict[str, list[Ours]] = {}
    for study in studies:
        if study.claim in PAPER.values():
            ours.setdefault(study.claim, []).extend(_ours(study, pretraining))
    keys = [*paper["tables"], *(key for key in PAPER.values() if key not in paper["tables"])]
    return [*(against_paper(paper, key, ours.get(key, [])) for key in keys), others_table(paper)]


def study_tables(study: Study) -> list[Table]:
    """Return what a study's recorded runs came to; none if it has none."""
    tables = run_tables(study.runs, study.baseline)
    again = f"python scripts/sweep.py experiments/{study.folder.name}"
    return [table._replace(command=table.command or again) for table in tables]


def run_tables(runs: Iterable[Folder], baseline: str | None = None) -> list[Table]:
    """Return the tables of finished runs of any pipeline.

    Runs with a loss are compared where they share data and budget, model and encoding aside.

    Args:
        runs: their folders.
        baseline: the arm from which differences are taken; None: the first.
    """
    by_pipeline: dict[str, list[Folder]] = {}
    for run in runs:
        by_pipeline.setdefault(read_summary(run, "pipeline")["pipeline"], []).append(run)
    tables: list[Table] = []
    staged = [run for run in by_pipeline.get("pretrain", []) if _recipe(run).startswith("stages")]
    if staged:
        by_pipeline["pretrain"] = [run for run in by_pipeline["pretrain"] if run not in staged]
        tables.append(stage_runs_table(staged))
    for pipeline, loss in LOSSES.items():
        for group in comparable(by_pipeline.get(pipeline, [])):
            if all(read_summary(run, "status")["status"] == "failed" for run in group):
                continue  # the table of runs tells why
            tables += convergence_tables(group, loss.metric, baseline)
            tables += position_tables(group, baseline)
    if cells := by_pipeline.get("glue"):
        rows = rows_of(read_cells(cells))
        tables.append(headline_table(rows))
        if len({row.arm for row in rows}) > 1:
            tables.append(paired_glue_table(cells, baseline))
    for translations in equally_scored(by_pipeline.get("wmt", [])):
        tables.append(bleu_table(translations, baseline))
        if by_seed := paired_wmt_table(translations, baseline):
            tables.append(by_seed)
    if triplets := by_pipeline.get("scm"):
        tables += scm_tables(triplets, baseline)
    return tables


def comparable(runs: Sequence[Folder]) -> list[list[Folder]]:
    """Return runs of a pipeline in groups that differ in model and seed alone, on the same text."""
    groups: dict[str, list[Folder]] = {}
    for run in runs:
        shared = configuration(read_summary(run), {**read_config(run), "model": None})
        text = read_environment(run, "data")["data"]
        groups.setdefault(f"{text} {shared}", []).append(run)
    return list(groups.values())


def equally_scored(runs: Sequence[Folder]) -> list[list[Folder]]:
    """Return translation runs in groups with one test set and signature; unscored ones are in each."""
    read = read_translation_runs(runs)
    scored: dict[str, list[Folder]] = {run.scored_by: [] for run in read if run.has_scores}
    for run in read:
        for key in [run.scored_by] if run.has_scores else scored:
            scored[key].append(run.folder)
    return list(scored.values())


def finished(runs: Path) -> list[Folder]:
    """Return the folders below `runs` that have a summary of a pipeline that has tables.

    Attempts that were set aside, `<run>.before-1`, are left out.
    """
    found = (path.parent for path in sorted(runs.glob("*/*/summary.json")))
    return [run for run in found if "." not in run.name and _pipeline(run) in PAPER]


def _read(experiments: Path) -> tuple[Paper, list[Study]]:
    return read_paper(experiments / "paper.yaml"), read_studies(experiments)


def _study_section(folder: Path) -> Sections:
    try:
        study = read_study(folder)
    except RecordError as error:
        return {folder.name: [_problem(error)]}
    tables = _or_problem(partial(study_tables, study))
    return {f"{folder.name}: {study.title}": tables} if tables else {}


def _or_problem(make: Callable[[], list[Table]]) -> list[Table]:
    try:
        return make()
    except RecordError as error:
        return [_problem(error)]


def _problem(error: RecordError) -> Table:
    return Table("Not made", [["what is wrong"], [str(error)]])


def _pipeline(run: Folder) -> str:
    try:
        return str(read_summary(run, "pipeline")["pipeline"])
    except RecordError:  # the dashboard's list of runs says what is wrong with it
        return ""


def _recipe(run: Folder) -> str:
    return str(read_summary(run).get("recipe", ""))


def _ours(study: Study, pretraining: Sequence[Folder]) -> list[Ours]:
    """Return a study's rows beside what of the paper it is about."""
    (pipeline,) = (pipeline for pipeline, claim in PAPER.items() if claim == study.claim)
    runs = _of(study, pipeline)
    if pipeline == "glue":
        return glue_ours(runs, pretraining=pretraining, data=study.data)
    if pipeline == "wmt":
        return wmt_ours(runs, data=study.data)
    if pipeline == "scm":
        return scm_ours(runs, data=study.data)
    return loss_ours(runs, data=study.data)


def _of(study: Study, pipeline: str) -> list[Folder]:
    return [run for run in study.runs if read_summary(run, "pipeline")["pipeline"] == pipeline]
