"""The blocks of pages: each name with what it makes of its records."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import TypedDict

from roformer.report.curves import compare, read_curve
from roformer.report.extension import Record, extension_tables
from roformer.report.glue import glue_tables
from roformer.report.pages import Block, matching
from roformer.report.records import Pipeline, read_json, read_summary
from roformer.report.speed import speed_table
from roformer.report.studies import read_studies, read_study, statuses
from roformer.report.tables import code, escaped, markdown
from roformer.report.wmt import wmt_tables


class Facts(Pipeline):
    """What is told of every run."""

    status: str
    commit: str
    tokens: int


class Environment(TypedDict):
    """What is told of where a run was made."""

    dirty: bool
    processor: str


def compare_block(folder: Path, words: list[str]) -> str:
    """`compare RUN …`: curves at equal updates, and updates to equal losses."""
    metric = "valid/mlm_loss"
    return compare([read_curve(run, metric) for run in matching(folder, words)], metric)


def facts_block(folder: Path, words: list[str]) -> str:
    """`facts`: scale and test keys of the study, its runs by status, and where they were made."""
    study = read_study(folder)
    found = {run: read_summary(run, Facts) for run in study.runs}
    places = [read_json(run / "env.json", Environment) for run in study.runs]
    counted = ", ".join(f"{count} {status}" for status, count in sorted(statuses(study).items()))
    commits = dict.fromkeys(code(summary["commit"][:8]) for summary in found.values())
    dirty = sum(place["dirty"] for place in places)
    processors = dict.fromkeys(escaped(place["processor"]) for place in places)
    arms = ", ".join(
        f"{arm.name} ({'seeds' if len(arm.seeds) > 1 else 'seed'} {', '.join(map(str, arm.seeds))})"
        for arm in study.arms
    )
    lines = [
        f"- Scale: {escaped(study.scale)}.",
        f"- Arms, and the seeds planned: {arms}; they differ in {', '.join(map(code, study.differ))} alone.",
        f"- Runs recorded: {len(found)} ({counted}), {sum(s['tokens'] for s in found.values()):,} "
        f"tokens in all; {len(found) - dirty} from a clean tree.",
        f"- Commits: {', '.join(commits)}; processor: {', '.join(processors)}.",
        f"- Again: `python scripts/sweep.py experiments/{study.folder.name}`",
    ]
    bad = [f"{code(run.name)} ({s['status']})" for run, s in found.items() if s["status"] != "done"]
    if bad:
        lines.append(f"- Degenerate or failed, and counted as the tables say: {', '.join(bad)}.")
    return "\n".join(lines)


def index_block(folder: Path, words: list[str]) -> str:
    """`index`: every study below the page's folder in a line."""
    lines = [["study", "of the paper", "scale", "runs", "what came out"]]
    for study in read_studies(folder):
        runs = ", ".join(f"{count} {status}" for status, count in sorted(statuses(study).items()))
        name = study.folder.name
        page = "REPORT.md" if (study.folder / "REPORT.md").is_file() else "PLAN.md"
        about = "" if study.claim == "none" else study.claim.replace("_", " ")
        outcome = study.outcome or "Not finished."
        lines.append([f"[{study.title}]({name}/{page})", about, study.scale, runs, outcome])
    return markdown(lines, text_columns=5)


def extension_block(folder: Path, words: list[str]) -> str:
    """`extension FILE`: a run read at several lengths."""
    record: Record = read_json(folder / words[0], Record)
    return extension_tables(record)


BLOCKS: dict[str, Block] = {
    "compare": compare_block,
    "extension": extension_block,
    "facts": facts_block,
    "glue": lambda folder, words: glue_tables(matching(folder, words)),
    "index": index_block,
    "speed": lambda folder, words: speed_table(folder / words[0]),
    "wmt": lambda folder, words: wmt_tables(matching(folder, words)),
}
