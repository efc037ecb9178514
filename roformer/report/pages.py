"""Tables of runs, and the pages that contain them.

A page is written by hand, except for the blocks between two marks:

    <!-- report: tables runs/* -->
    … the tables of these runs of the page's folder …
    <!-- /report -->

`make report` writes the blocks of README.md, docs/ and every page under experiments/ again; a test checks
that this changes nothing. A mark is at the beginning of a line; the indented one here is an example. Blocks
are the functions in `BLOCKS`, and functions of a script: `report.py tables decay.json`.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from roformer import registry
from roformer.report.curves import curve_tables, loss_of, position_tables, texts_of
from roformer.report.runs import (
    ENDED,
    LOSSES,
    METRICS,
    RUNS,
    RecordError,
    Runs,
    read_runs,
    settings_of,
    study_files,
)
from roformer.report.scores import score_tables
from roformer.report.studies import Study, read_study
from roformer.report.tables import (
    Table,
    code,
    escaped,
    figure_markdown,
    first_of_each_seed,
    markdown_of,
    tables_by_group,
)

T = TypeVar("T")
Sections = dict[str, list[Table]]
EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
"""Part of a clone of the repository; an installed package does not have it."""
HERE = "Your statistics: finished runs of this machine"
Block = Callable[[Path, list[str]], str | list[Table]]
"""Function from the page's folder and the words after the block's name to tables or Markdown."""
_BLOCK = re.compile(
    r"^(<!-- report: ([^\n]+?) -->\n)(.*?)^(<!-- /report -->)$", re.DOTALL | re.MULTILINE
)
_MARK = re.compile(r"^<!-- (report: |/report -->)", re.MULTILINE)


# --- tables --------------------------------------------------------------------------------------


def run_tables(runs: Runs, baseline: str | None = None) -> list[Table]:
    """Return the tables of finished runs of any pipelines, and a table of the excluded ones.

    Differences are taken from the baseline; see `find_baseline`.
    """
    rows, lost = first_of_each_seed(runs.runs[runs.runs.status != "running"])
    staged = (rows.pipeline == "pretrain") & rows.recipe.str.startswith("stages")
    tables = _or_problem(_stages, rows[staged]) if staged.any() else []
    rows = rows[~staged]

    def curves(group: pd.DataFrame) -> list[Table]:
        part, metric = runs._replace(runs=group), loss_of(group).metric
        return [*curve_tables(part, metric, baseline), *position_tables(part, baseline)]

    for pipeline in registry.pipelines():
        own = rows[rows.pipeline == pipeline]
        groups = comparable(own) if pipeline in LOSSES else [own]
        ended = [group for group in groups if group.status.isin(ENDED).any()]
        without = [group for group in groups if not group.status.isin(ENDED).any()]
        lost += [row for group in without for row in group[["run", "reason"]].values.tolist()]
        if pipeline in LOSSES:
            tables += tables_by_group(ended, lambda group: shared_settings(group.iloc[0]), curves)
        else:
            tables += [table for group in ended for table in score_tables(group, baseline)]
    if lost:
        tables.append(Table("Excluded runs", [["run", "reason"], *lost], text_columns=2))
    return tables


def comparable(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """Return groups of runs on the same text that differ only in model and seed."""
    texts, every = texts_of(runs), runs.to_dict("records")
    keys = [str((text, shared_settings(run))) for text, run in zip(texts, every, strict=True)]
    return [group for _, group in runs.groupby(keys, sort=False)]


def shared_settings(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a run, except the model's; first the recipe and kinds, which imply others."""
    kept = {k: str(v) for k, v in settings_of(run).items() if not k.startswith("model.")}
    return {k: kept[k] for k in sorted(kept, key=lambda k: (k != "recipe", ".kind" not in k, k))}


def sections_of(experiments: Path, runs: Path) -> Sections:
    """Return all tables of the dashboard by heading; the part of a heading before the colon is its link.

    A table whose record is damaged is replaced by a table with the error. A folder `experiments` without
    paper.yaml is ignored, and so are unfinished runs below `runs`.
    """
    yours = your_tables(runs)
    found: Sections = {HERE: yours} if yours else {}
    if (experiments / "paper.yaml").is_file():
        paper = script_of("")
        found["Claims: what the paper says, and the results here"] = _or_problem(
            lambda folder: [paper["claims_table"](folder)], experiments
        )
        found["Paper: its numbers and ours"] = _or_problem(paper["paper_tables"], experiments)
        for file in study_files(experiments, "study.yaml"):
            try:
                study = read_study(file.parent)
            except RecordError as error:
                found[file.parent.name] = [_problem(error)]
                continue
            if tables := _or_problem(study_tables, study):
                found[f"{file.parent.name}: {study.title}"] = tables
    return found


def your_tables(runs: Path) -> list[Table]:
    """Return the tables of the finished runs of this machine, pipeline by pipeline; see `sections_of`."""
    read = read_runs([runs], strict=False)
    whole = read.runs[~read.runs.status.isin(("running", "damaged"))]
    return [
        table
        for _, group in whole.groupby("pipeline", sort=False)
        for table in _or_problem(run_tables, read._replace(runs=group))
    ]


def study_tables(study: Study) -> list[Table]:
    """Return the tables of a study's recorded runs."""
    if not study.has_runs:
        return []
    tables = run_tables(read_runs([study.folder]), study.baseline)
    return [table._replace(command=study.rerun) for table in tables]


def tables_of(places: Iterable[Path]) -> list[Table]:
    """Return the tables of the runs of some places; name those that did not end on stderr."""
    runs = read_runs(places)
    for folder in runs.runs.folder[runs.runs.status == "running"]:
        print(f"excluded: {folder} has no summary.json", file=sys.stderr)
    if not (tables := run_tables(runs)):
        raise RecordError("none of these runs is finished: give folders like runs/glue/*")
    return tables


def _stages(runs: pd.DataFrame) -> list[Table]:
    """Return the paper's Table 4 with the stages of trainings below it."""
    paper, stages = script_of(""), script_of("stages")
    return [paper["paper_table"](paper["read_paper"](), "table_4", stages["stage_rows"](runs))]


def _or_problem(make: Callable[[T], list[Table]], of: T) -> list[Table]:
    try:
        return make(of)
    except RecordError as error:
        return [_problem(error)]


def _problem(error: RecordError) -> Table:
    return Table("Not made", [["what is wrong"], [str(error)]])


# --- pages ---------------------------------------------------------------------------------------


def refreshed(text: str, page: Path) -> str:
    """Return a page's text with every block made again."""
    if len(_MARK.findall(text)) != 2 * len(_BLOCK.findall(text)):
        raise RecordError(f"{page} has a <!-- report: … --> without its <!-- /report -->")

    def made(found: re.Match[str]) -> str:
        name, *words = shlex.split(found[2])
        if name.endswith(".py"):
            block = runpy.run_path(str(page.parent / name))[words.pop(0)]
        elif name in BLOCKS:
            block = BLOCKS[name]
        else:
            known = ", ".join(sorted(BLOCKS))
            raise RecordError(f"{page}: no block {name!r}: choose one of {known}")
        try:
            content = block(page.parent, words)
        except (ValueError, LookupError) as error:
            raise RecordError(f"{page}: {found[2]}: {error}") from error
        shown = content if isinstance(content, str) else markdown_of(content)
        return f"{found[1]}\n{shown}\n\n{found[4]}"

    return _BLOCK.sub(made, text)


def refresh(pages: Iterable[Path]) -> list[Path]:
    """Write the blocks of pages, and their figures; return the pages that changed.

    If a page has an error, no page is written.
    """
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    after = {page: refreshed(text, page) for page, text in texts.items()}
    changed = [page for page in after if after[page] != texts[page]]
    for page in changed:
        page.write_text(after[page], encoding="utf-8")
    return changed


def script_of(study: str) -> dict[str, Any]:
    """Return the functions of report.py in a study's folder, or of experiments/report.py."""
    file = EXPERIMENTS / study / "report.py"
    if not file.is_file():
        raise RecordError(
            "experiments/, with the paper's numbers, is not part of an installed package: install a clone "
            "of the repository with pip install -e ."
        )
    return runpy.run_path(str(file))


def matching(folder: Path, patterns: Iterable[str]) -> Runs:
    """Return the recorded runs that patterns such as `runs/*-s0` or `../STUDY/runs/*` name, each once."""
    runs = read_runs(folder / pattern for pattern in patterns)
    for missing in runs.runs.folder[runs.runs.status == "running"]:
        raise RecordError(f"no run is {missing}")
    return runs._replace(runs=first_of_each_seed(runs.runs)[0])


def compare_block(folder: Path, words: list[str]) -> list[Table]:
    """`compare RUN …`: the losses of single runs side by side."""
    runs = matching(folder, words)
    return curve_tables(runs, loss_of(runs.runs).metric, each_run=True)


def curves_block(folder: Path, words: list[str]) -> list[Table]:
    """`curves RUN …`: the losses of configurations over seeds, also if more than the model differs."""
    runs = matching(folder, words)
    return curve_tables(runs, loss_of(runs.runs).metric, read_study(folder).baseline)


def facts_block(folder: Path, words: list[str]) -> str:
    """`facts`: scale and differing keys of the study, its runs by status, their commits and processors."""
    study, runs = read_study(folder), read_runs([folder]).runs
    starts = [start for each in runs.environment for start in (each, *each.get("resumed", []))]
    commits = dict.fromkeys(code(str(start["commit"])[:8]) for start in starts)
    dirty = sum(bool(environment["dirty"]) for environment in runs.environment)
    processors = dict.fromkeys(escaped(e.get("processor", "not said")) for e in runs.environment)
    statuses = ", ".join(f"{n} {status}" for status, n in sorted(Counter(runs.status).items()))
    planned = ", ".join(
        f"{name} ({'seeds' if len(one.seeds) > 1 else 'seed'} {', '.join(map(str, one.seeds))})"
        for name, one in study.configurations.items()
    )
    differ = ", ".join(map(code, study.differ))
    lines = [
        f"- Scale: {escaped(study.scale)}.",
        f"- Configurations, and the seeds planned: {planned}; they differ only in {differ}.",
        f"- Runs recorded: {len(runs)} ({statuses}), {sum(runs.tokens):,} tokens in all; "
        f"{len(runs) - dirty} from a clean tree.",
        f"- Commits: {', '.join(commits)}; processor: {', '.join(processors)}.",
        f"- Rerun: `{study.rerun}`; [plan](PLAN.md), records: [runs]({RUNS}), [metrics]({METRICS}).",
    ]
    bad = runs[runs.status != "done"]
    if named := [f"{code(run)} ({s})" for run, s in zip(bad.run, bad.status, strict=True)]:
        lines.append(f"- Degenerate or failed, and counted as the tables say: {', '.join(named)}.")
    return "\n".join(lines)


def tables_block(folder: Path, words: list[str]) -> list[Table]:
    """`tables [RUN …]`: the tables of the study's runs, or of these, with the study's baseline."""
    runs = matching(folder, words) if words else read_runs([folder])
    return run_tables(runs, read_study(folder).baseline)


def figure_block(folder: Path, words: list[str]) -> str:
    """`figure KIND PNG RUN …`: the figure and its caption."""
    from roformer.report.figures import FIGURES  # loads matplotlib, which only pages need

    kind, name, *sources = words
    if kind not in FIGURES:
        raise RecordError(f"no figure {kind!r}: choose one of {', '.join(sorted(FIGURES))}")
    draw, caption = FIGURES[kind]
    draw(matching(folder, sources), folder / name)
    return figure_markdown(caption, name)


BLOCKS: dict[str, Block] = {
    "compare": compare_block,
    "curves": curves_block,
    "facts": facts_block,
    "figure": figure_block,
    "tables": tables_block,
}
