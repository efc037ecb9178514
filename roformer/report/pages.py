"""Pages whose numbers are made from records: prose by hand, what stands between two marks generated.

    <!-- report: glue runs/* -->
    … what the block `glue` makes of these runs of the page's folder …
    <!-- /report -->

`make report` writes the blocks of README.md and of every page under experiments/ anew; a test does the same
and finds nothing changed. A mark stands at the beginning of a line; this one, indented, is an example.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from roformer.report import figures
from roformer.report.curves import compare_runs
from roformer.report.glue import glue_tables
from roformer.report.paper import claims, paper_sections, read_paper
from roformer.report.results import (
    decay_tables,
    extension_tables,
    linear_table,
    read_decay,
    read_result,
    speed_table,
)
from roformer.report.runs import RecordError, Runs, read_runs
from roformer.report.sections import run_tables
from roformer.report.studies import Study, read_studies, read_study
from roformer.report.tables import code, escaped, markdown, markdown_of
from roformer.report.wmt import wmt_tables

Block = Callable[[Path, list[str]], str]
"""From the page's folder and the words after the block's name to Markdown."""
_BLOCK = re.compile(
    r"^(<!-- report: ([^\n]+?) -->\n)(.*?)^(<!-- /report -->)$", re.DOTALL | re.MULTILINE
)
_MARK = re.compile(r"^<!-- (report: |/report -->)", re.MULTILINE)


def refreshed(text: str, page: Path) -> str:
    """Return a page's text with every block made anew.

    Raises:
        RecordError: a block is unknown, not closed, or its records cannot be read.
    """
    if len(_MARK.findall(text)) != 2 * len(_BLOCK.findall(text)):
        raise RecordError(f"{page} has a <!-- report: … --> without its <!-- /report -->")

    def made(found: re.Match[str]) -> str:
        name, *words = shlex.split(found[2])
        if name not in BLOCKS:
            raise RecordError(f"{page}: no block {name!r}: choose of {', '.join(sorted(BLOCKS))}")
        try:
            return f"{found[1]}\n{BLOCKS[name](page.parent, words)}\n\n{found[4]}"
        except (ValueError, IndexError) as error:
            raise RecordError(f"{page}: {found[2]}: {error}") from error

    return _BLOCK.sub(made, text)


def refresh(page: Path) -> bool:
    """Write a page's blocks anew; return whether that changed it.

    Raises:
        RecordError: see `refreshed`; the page stays as it was.
    """
    before = page.read_text()
    after = refreshed(before, page)
    if after != before:
        page.write_text(after)
    return after != before


# --- blocks --------------------------------------------------------------------------------------


def matching(folder: Path, patterns: Iterable[str]) -> Runs:
    """Return the recorded runs that patterns such as `runs/*-s0` or `../STUDY/runs/*` name.

    Raises:
        RecordError: a pattern matches nothing.
    """
    runs = read_runs(folder / pattern for pattern in patterns)
    for missing in runs.runs.folder[runs.runs.status == "running"]:
        raise RecordError(f"no run is {missing}")
    return runs


def facts_block(folder: Path, words: list[str]) -> str:
    """`facts`: scale and test keys of the study, its runs by status, and where they were made."""
    study = read_study(folder)
    runs = read_runs([folder]).runs
    commits = dict.fromkeys(code(str(commit)[:8]) for commit in runs.commit)
    dirty = sum(bool(environment["dirty"]) for environment in runs.environment)
    processors = dict.fromkeys(escaped(e.get("processor", "not said")) for e in runs.environment)
    planned = ", ".join(
        f"{arm.name} ({'seeds' if len(arm.seeds) > 1 else 'seed'} {', '.join(map(str, arm.seeds))})"
        for arm in study.arms
    )
    differ = ", ".join(map(code, study.differ))
    lines = [
        f"- Scale: {escaped(study.scale)}.",
        f"- Configurations, and the seeds planned: {planned}; they differ in {differ} alone.",
        f"- Runs recorded: {len(runs)} ({_statuses(study)}), {sum(runs.tokens):,} tokens in all; "
        f"{len(runs) - dirty} from a clean tree.",
        f"- Commits: {', '.join(commits)}; processor: {', '.join(processors)}.",
        f"- Again: `python scripts/sweep.py experiments/{study.folder.name}`",
    ]
    bad = runs[runs.status != "done"]
    if named := [f"{code(run)} ({s})" for run, s in zip(bad.run, bad.status, strict=True)]:
        lines.append(f"- Degenerate or failed, and counted as the tables say: {', '.join(named)}.")
    return "\n".join(lines)


def index_block(folder: Path, words: list[str]) -> str:
    """`index`: every study below the page's folder in a line."""
    lines = [["study", "of the paper", "scale", "runs", "what came out"]]
    for study in read_studies(folder):
        name = study.folder.name
        page = "REPORT.md" if (study.folder / "REPORT.md").is_file() else "PLAN.md"
        about = "" if study.claim == "none" else study.claim.replace("_", " ")
        outcome = study.outcome or "Not finished."
        title = f"[{study.title}]({name}/{page})"
        lines.append([title, about, study.scale, _statuses(study), outcome])
    return markdown(lines, text_columns=5)


def outcomes_block(folder: Path, words: list[str]) -> str:
    """`outcomes STUDY …`: what came out of these studies, a line each."""
    lines = []
    for word in words:
        study = read_study(folder / word)
        title = f"[{escaped(study.title)}]({word}/REPORT.md)"
        lines.append(f"- {title}: {escaped(study.outcome)} Scale: {escaped(study.scale)}.")
    return "\n".join(lines)


def tables_block(folder: Path, words: list[str]) -> str:
    """`tables [RUN …]`: what the study's runs, or these, came to, with its baseline."""
    runs = matching(folder, words) if words else read_runs([folder])
    return markdown_of(run_tables(runs, read_study(folder).baseline))


def figure_block(folder: Path, words: list[str]) -> str:
    """`figure KIND PNG FROM …`: draws the file if its data changed; the picture and its caption."""
    kind, name, *sources = words
    output = folder / name
    if kind in OF_RUNS:
        caption = OF_RUNS[kind](matching(folder, sources), output)
    elif kind in OF_FILES:
        caption = OF_FILES[kind](folder / sources[0], output)
    else:
        raise RecordError(f"no figure {kind!r}: choose of {', '.join(sorted(OF_RUNS | OF_FILES))}")
    caption = escaped(caption)
    return f"![{caption.partition('.')[0]}]({name})\n\n{caption}"


def _statuses(study: Study) -> str:
    """Return how many of a study's recorded runs have which status."""
    runs = read_runs([study.folder]).runs if study.has_runs else None
    found = Counter(runs.status if runs is not None else [])
    return ", ".join(f"{count} {status}" for status, count in sorted(found.items()))


OF_RUNS: dict[str, Callable[[Runs, Path], str]] = {
    "bleu": figures.draw_bleu,
    "convergence": figures.draw_convergence,
    "glue": figures.draw_glue,
    "positions": figures.draw_positions,
    "triplets": figures.draw_triplets,
}
OF_FILES: dict[str, Callable[[Path, Path], str]] = {
    "bound": figures.draw_bound,
    "decay": figures.draw_measured_decay,
    "decay_by_layer": figures.draw_decay_by_layer,
    "linear": figures.draw_linear,
    "speed": figures.draw_speed,
}
BLOCKS: dict[str, Block] = {
    "claims": lambda folder, words: claims(
        read_paper(folder / "paper.yaml"), read_studies(folder)
    ).markdown(),
    "compare": lambda folder, words: compare_runs(matching(folder, words), "valid/mlm_loss"),
    "decay": lambda folder, words: markdown_of(decay_tables(read_decay(folder / words[0]))),
    "extension": lambda folder, words: extension_tables(read_result(folder / words[0], "rows")),
    "facts": facts_block,
    "figure": figure_block,
    "glue": lambda folder, words: glue_tables(matching(folder, words)),
    "index": index_block,
    "linear": lambda folder, words: linear_table(folder / words[0]),
    "outcomes": outcomes_block,
    "paper": lambda folder, words: markdown_of(
        paper_sections(read_paper(folder / "paper.yaml"), read_studies(folder))
    ),
    "speed": lambda folder, words: speed_table(folder / words[0]),
    "tables": tables_block,
    "wmt": lambda folder, words: wmt_tables(matching(folder, words)),
}
