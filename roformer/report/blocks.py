"""The blocks of pages: each name with what it makes of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from roformer.report.curves import compare, read_curve
from roformer.report.decay import decay_tables, read_decay
from roformer.report.decay_figures import draw_bound, draw_decay_by_layer, draw_measured_decay
from roformer.report.extension import Record, extension_tables
from roformer.report.figures import draw_bleu, draw_convergence, draw_glue, draw_speed
from roformer.report.glue import glue_tables
from roformer.report.linear import draw_linear, linear_table
from roformer.report.pages import Block
from roformer.report.paper import claims, read_paper
from roformer.report.positions import draw_positions
from roformer.report.recorded import matching
from roformer.report.records import Folder, RecordError, read_environment, read_json, read_summary
from roformer.report.scm_figure import draw_triplets
from roformer.report.sections import paper_sections, run_tables
from roformer.report.speed import speed_table
from roformer.report.studies import read_studies, read_study, statuses
from roformer.report.tables import Table, code, escaped, markdown
from roformer.report.wmt import wmt_tables
from roformer.report.wmt_bootstrap import bleu_intervals

Figure = Callable[[Path, Path, list[str]], str]
"""From the page's folder, the file to draw and what to draw it from to the caption."""


def compare_block(folder: Path, words: list[str]) -> str:
    """`compare RUN …`: curves at equal updates, and updates to equal losses."""
    metric = "valid/mlm_loss"
    return compare([read_curve(run, metric) for run in matching(folder, words)], metric)


def facts_block(folder: Path, words: list[str]) -> str:
    """`facts`: scale and test keys of the study, its runs by status, and where they were made."""
    study = read_study(folder)
    found = {run: read_summary(run, "status", "commit", "tokens") for run in study.runs}
    places = [read_environment(run, "dirty", "processor") for run in study.runs]
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


def outcomes_block(folder: Path, words: list[str]) -> str:
    """`outcomes STUDY …`: what came out of these studies, a line each."""
    lines = []
    for word in words:
        study = read_study(folder / word)
        title = f"[{escaped(study.title)}]({word}/REPORT.md)"
        lines.append(f"- {title}: {escaped(study.outcome)} Scale: {escaped(study.scale)}.")
    return "\n".join(lines)


def extension_block(folder: Path, words: list[str]) -> str:
    """`extension FILE`: a run read at several lengths."""
    record: Record = read_json(folder / words[0], Record)
    return extension_tables(record)


def tables_block(folder: Path, words: list[str]) -> str:
    """`tables [RUN …]`: what the study's runs, or these, came to, with its baseline."""
    study = read_study(folder)
    runs = matching(folder, words) if words else study.runs
    return markdown_of(run_tables(runs, study.baseline))


def paper_block(folder: Path, words: list[str]) -> str:
    """`paper`: the tables of paper.yaml below the page's folder, with ours in columns of their own."""
    paper = read_paper(folder / "paper.yaml")
    return markdown_of(paper_sections(paper, read_studies(folder)))


def claims_block(folder: Path, words: list[str]) -> str:
    """`claims`: every claim of the paper, and the studies of it."""
    return claims(read_paper(folder / "paper.yaml"), read_studies(folder)).markdown()


def decay_block(folder: Path, words: list[str]) -> str:
    """`decay FILE`: the bound and the measured scores by distance."""
    return markdown_of(decay_tables(read_decay(folder / words[0])))


def figure_block(folder: Path, words: list[str]) -> str:
    """`figure KIND PNG FROM …`: draws the file if its data changed; the picture and its caption."""
    kind, name, *sources = words
    if kind not in FIGURES:
        raise RecordError(f"no figure {kind!r}: choose of {', '.join(FIGURES)}")
    caption = escaped(FIGURES[kind](folder, folder / name, sources))
    return f"![{caption.partition('.')[0]}]({name})\n\n{caption}"


def markdown_of(tables: Iterable[Table]) -> str:
    """Return tables one below the other."""
    return "\n\n".join(table.markdown() for table in tables)


def _of_file(draw: Callable[[Path, Path], str]) -> Figure:
    return lambda folder, output, sources: draw(folder / sources[0], output)


def _of_runs(draw: Callable[[Sequence[Folder], Path], str]) -> Figure:
    return lambda folder, output, sources: draw(matching(folder, sources), output)


def _bleu(runs: Sequence[Folder], output: Path) -> str:
    known = {name: found for name, found in bleu_intervals(runs).arms.items() if found}
    return draw_bleu(runs, output, known or None)


FIGURES: dict[str, Figure] = {
    "bleu": _of_runs(_bleu),
    "bound": _of_file(draw_bound),
    "convergence": _of_runs(draw_convergence),
    "decay": _of_file(draw_measured_decay),
    "decay_by_layer": _of_file(draw_decay_by_layer),
    "glue": _of_runs(draw_glue),
    "linear": _of_file(draw_linear),
    "positions": _of_runs(draw_positions),
    "speed": _of_file(draw_speed),
    "triplets": _of_runs(draw_triplets),
}
BLOCKS: dict[str, Block] = {
    "claims": claims_block,
    "compare": compare_block,
    "decay": decay_block,
    "extension": extension_block,
    "facts": facts_block,
    "figure": figure_block,
    "glue": lambda folder, words: glue_tables(matching(folder, words)),
    "index": index_block,
    "linear": lambda folder, words: linear_table(folder / words[0]),
    "outcomes": outcomes_block,
    "paper": paper_block,
    "speed": lambda folder, words: speed_table(folder / words[0]),
    "tables": tables_block,
    "wmt": lambda folder, words: wmt_tables(matching(folder, words)),
}
