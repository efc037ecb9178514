"""The driver of `make reproduce`: every stage of the registry is a command, and the last one reports.

Stages of one pipeline run side by side, pipelines one after another; finished runs are kept. The output
of a stage goes to its log, and the terminal shows one line per stage with the headline metrics.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from roformer import registry
from roformer.config.composing import CONF, compose
from roformer.pipelines.grid import Job, clock, command, run_jobs
from roformer.pipelines.run import outcome
from roformer.training.process import usable_cores

LAST_LINES = 12
"""Lines of a failed stage's output shown on the terminal."""
REPORT_MINUTES = 0.5
SLOWEST = 1.7
"""Time on the slowest processor tried, which has only AVX2, over the time on others without fast bf16."""


class Stage(NamedTuple):
    """A command that fills run folders."""

    pipeline: registry.Pipeline
    minutes: float
    overrides: tuple[str, ...]
    """Overrides that distinguish it from other stages of its pipeline, and the recipe."""
    folders: list[Path]

    @property
    def name(self) -> str:
        """As its log is called: `glue-bert`."""
        return "-".join([self.pipeline.name, *(w.partition("=")[2] for w in self.overrides[:-1])])


def stages_of(recipe: str, shared: Sequence[str] = (), *, everything: bool = False) -> list[Stage]:
    """Return the stages of the registry, with `everything` also the stages of the whole paper, last."""
    found = [
        (stage.only_all, one, stage)
        for one in registry.pipelines().values()
        for stage in one.stages
    ]
    stages = []
    for only_all, pipeline, stage in sorted(found, key=lambda triple: triple[0]):
        if everything or not only_all:
            overrides = (*stage.overrides, f"recipe={recipe}")
            folders = pipeline.folders(compose(pipeline.name, [*overrides, *shared]))
            stages.append(Stage(pipeline, stage.minutes, overrides, folders))
    return stages


def reproduce(
    overrides: Sequence[str],
    launcher: Sequence[str],
    jobs: int | None,
    *,
    everything: bool,
    quiet: bool,
) -> None:
    """Run all stages and the report, and print its results.

    Failed stages end it with the code of the first, after the others are done. `overrides` are `recipe=…`
    and overrides of all stages; `launcher` is the words that start a script; `jobs` stages run side by
    side.
    """
    recipes = [word for word in overrides if word.startswith("recipe=")]
    recipe = recipes[-1].removeprefix("recipe=") if recipes else "mini"
    shared = [word for word in overrides if word not in recipes]
    stages = stages_of(recipe, shared, everything=everything)
    jobs = jobs or default_jobs(launcher)
    runs = stages[0].folders[0].parents[1]
    logs = runs / "reproduce"
    if not quiet:
        print(f"{plan(recipe, stages, jobs)}\ntheir output: {logs}", flush=True)
    began, total = time.monotonic(), len(stages) + 1
    failed: list[Job] = []
    for pipeline, group in groupby(enumerate(stages, 1), lambda pair: pair[1].pipeline):
        numbered = list(group)
        beside, share = side_by_side(pipeline, len(numbered), jobs)
        outcomes = {}
        for number, stage in numbered:
            words = [*launcher, pipeline.script, *share, *stage.overrides, *shared]
            title = f"[{number}/{total}] {stage.name}"
            log = logs / f"{number}-{stage.name}.log"
            job = command(title, words, CONF.parent, log, parallel=beside)
            outcomes[job] = partial(outcome, pipeline, stage.folders)
        failed += run_stages(outcomes, beside, quiet=quiet)
    words = [sys.executable, "scripts/report.py", "--runs", str(runs)]
    title = f"[{total}/{total}] report"
    report = command(title, words, CONF.parent, logs / f"{total}-report.log")
    failed += run_stages({report: lambda: "tables, figures"}, 1, quiet=quiet)
    if failed:
        titles = "; ".join(job.title for job in failed)
        print(f"error: {len(failed)} of {total} stages failed: {titles}", file=sys.stderr)
        raise SystemExit(max(failed[0].code or 0, 1))
    results = runs / "report" / "results.txt"
    print(f"all stages done in {clock(time.monotonic() - began)}; their output: {logs}", flush=True)
    whole = "" if quiet else (CONF.parent / results).read_text(encoding="utf-8").rstrip()
    print(f"\n{whole}" if whole else f"results: {results}")


def plan(recipe: str, stages: Sequence[Stage], jobs: int) -> str:
    """Return what will be done and how long it should take."""
    left = [s for s in stages if not all((run / "summary.json").is_file() for run in s.folders)]
    minutes = sum(stage.minutes for stage in left) + REPORT_MINUTES
    slowest = minutes * SLOWEST
    expected = f"{minutes:.0f} to {slowest:.0f} minutes on two CPU cores without fast bf16"
    if recipe != "mini":
        expected = "how long was not measured for this recipe: see make plan"
    done = len(stages) - len(left)
    kept = f", {done} of them done" if done else ""
    beside = f", up to {jobs} side by side" if jobs > 1 else ""
    return f"{len(stages) + 1} stages at recipe {recipe}{kept}{beside}; {expected}"


def default_jobs(launcher: Sequence[str]) -> int:
    """Return how many stages run side by side.

    Two on a CPU, because one small model gains little from all cores. One on an accelerator or over several
    processes, because one stage uses all of them.
    """
    alone = len(launcher) > 1 or torch.accelerator.is_available() or len(usable_cores()) == 1
    return 1 if alone else 2


def side_by_side(pipeline: registry.Pipeline, stages: int, jobs: int) -> tuple[int, list[str]]:
    """Return how many of a pipeline's stages run at once, and the overrides that share the cores."""
    beside = min(jobs, stages)
    if beside == 1:
        return 1, []
    cores = max(1, len(usable_cores()) // beside)
    if pipeline.grid:  # its runs have a core each
        return beside, [f"jobs={cores}", "runtime.threads=1"]
    return beside, [f"runtime.threads={cores}"]


def run_stages(
    outcomes: Mapping[Job, Callable[[], str]],
    places: int,
    *,
    quiet: bool = False,
    passed: Collection[int] = (0,),
) -> list[Job]:
    """Run jobs and print a line about each; return those whose exit code is not 0.

    A job that ends with an exit code in `passed` has not failed: its line has the headline metrics, which
    its function in `outcomes` returns. If `quiet`, only failed jobs are shown.
    """
    failed = []

    def ended(job: Job) -> None:
        if job.code:
            failed.append(job)
        if job.code in passed:
            if quiet:
                return
            file = sys.stdout
            lines = [f"{job.title} … {clock(job.seconds)}: {outcomes[job]()}"]
        else:
            code = f"ended with code {job.code} after {clock(job.seconds)}"
            where = f"its output is in {job.log}; the same command resumes"
            lines = ["", *job.last_lines(LAST_LINES), f"error: {job.title} {code}: {where}"]
            file = sys.stderr
        tqdm.write("\n".join(lines), file)
        file.flush()

    try:
        run_jobs(list(outcomes), places, ended, progress=not quiet)
    except BaseException:
        logs = dict.fromkeys(str(job.log.parent) for job in outcomes if job.log)
        print(f"stopped; output so far: {', '.join(logs)}", file=sys.stderr)
        raise
    return failed
