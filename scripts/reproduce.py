"""Reproduce the paper at the scale of this machine: `python scripts/reproduce.py recipe=mini`.

Pre-trains RoFormer and BERT, fine-tunes both on GLUE, trains RoFormer and the Transformer to
translate, and reports. `--all` adds the rest of the paper: Performer and causal language models, with
and without rotary positions, pre-training in stages and long Chinese documents. Each stage is a command
of its own, whose lines go to a file; what is finished is kept, so the same command goes on where it was
stopped. Overrides other than `recipe=` go to every stage: `tracker=none seed=1`.
"""

import argparse
import json
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch

from roformer.cli import CONF, compose, leave_on_signal, one_line_errors
from roformer.commands import Command, Running, run_commands
from roformer.config.build import build, run_id
from roformer.pipelines import registry
from roformer.pipelines.run import resolve
from roformer.stdout import outlive_reader
from roformer.training.process import usable_cores

LAST_LINES = 12
"""Of a failed stage's output, shown on the terminal."""


class Stage(NamedTuple):
    """One command."""

    pipeline: str
    minutes: float
    """Its share of the time on two slow CPU cores (experiments/reproduce) at recipe mini."""
    arm: tuple[str, ...]
    """Overrides that tell it from the others of its pipeline."""


STAGES = (
    Stage("pretrain", 7.5, ("model=roformer",)),
    Stage("pretrain", 7.5, ("model=bert",)),
    Stage("glue", 5, ("model=roformer",)),
    Stage("glue", 5, ("model=bert",)),
    Stage("wmt", 5.5, ("model=roformer",)),
    Stage("wmt", 5.5, ("model=transformer",)),
)
REST = (
    Stage("charlm", 7, ()),
    Stage("charlm", 7, ("model/position=none",)),
    Stage("charlm", 3, ("model/attention=softmax",)),
    *(
        Stage("clm", 7, (f"model/position={position}",))
        for position in ("rotary", "learned", "sinusoidal", "t5", "alibi", "none")
    ),
    Stage("stages", 9, ()),
    Stage("scm", 5, ("preset=roformer_1024",)),
    *(Stage("scm", 4.5, (f"preset={name}_512",)) for name in ("roformer", "wobert", "bert")),
)
"""What `--all` adds; its minutes are guessed from runs alone on faster cores."""
REPORT_MINUTES = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", default=sys.executable, help="what starts a script")
    parser.add_argument("--jobs", type=int, help="stages side by side; default: 2 on a CPU, else 1")
    parser.add_argument(
        "--all", action="store_true", help="the whole paper, not its first half alone"
    )
    parser.add_argument("overrides", nargs="*", help="recipe=…, and Hydra overrides for all stages")
    arguments = parser.parse_intermixed_args()
    signal.signal(signal.SIGTERM, leave_on_signal)
    recipes = [word for word in arguments.overrides if word.startswith("recipe=")]
    recipe = recipes[-1].removeprefix("recipe=") if recipes else "mini"
    shared = [word for word in arguments.overrides if word not in recipes]
    launcher = shlex.split(arguments.launcher)
    jobs = max(1, arguments.jobs or default_jobs(launcher))
    stages = STAGES + REST if arguments.all else STAGES
    words = {stage: [*overrides_of(stage, recipe), *shared] for stage in stages}
    with one_line_errors():  # a mistake is told before anything runs
        folders = {stage: folders_of(stage, words[stage]) for stage in stages}
    runs = folders[stages[0]][0].parents[1]
    logs = runs / "reproduce"
    print(_plan(recipe, folders, jobs, logs), flush=True)
    began, total = time.monotonic(), len(stages) + 1
    for pipeline, numbered in groupby(enumerate(stages, 1), lambda pair: pair[1].pipeline):
        group = list(numbered)
        beside, share = side_by_side(pipeline, len(group), jobs)
        outcomes = {}
        for number, stage in group:
            title = f"[{number}/{total}] {pipeline} {' '.join(overrides_of(stage, recipe))}"
            command = (*launcher, registry.get(pipeline).command, *share, *words[stage])
            log = logs / f"{number}-{name_of(stage)}.log"
            outcomes[Command(title, command, log)] = partial(outcome, stage, folders[stage])
        run_stages(outcomes, beside)
    report = (sys.executable, "scripts/report.py", "--runs", str(runs))
    title = f"[{total}/{total}] report --runs {runs}"
    run_stages({Command(title, report, logs / f"{total}-report.log"): lambda: "tables, figures"}, 1)
    print(f"all stages done in {_clock(time.monotonic() - began)}\n", flush=True)
    print((CONF.parent / runs / "report" / "results.txt").read_text(), end="")


def default_jobs(launcher: list[str]) -> int:
    """Return how many stages run side by side: two on a CPU, where small models gain little from a core
    more; one on accelerators or over several processes, which a stage fills alone."""
    alone = len(launcher) > 1 or torch.accelerator.is_available() or len(usable_cores()) == 1
    return 1 if alone else 2


def side_by_side(pipeline: str, stages: int, jobs: int) -> tuple[int, list[str]]:
    """Return how many of a pipeline's stages run at once, and the override that shares the cores."""
    beside = 1 if registry.get(pipeline).grid else min(jobs, stages)
    threads = max(1, len(usable_cores()) // beside)
    return beside, [f"runtime.threads={threads}"] if beside > 1 else []


def folders_of(stage: Stage, overrides: list[str]) -> list[Path]:
    """Return the run folders that a stage will fill.

    Raises:
        InputError: the overrides do not fit.
    """
    pipeline = registry.get(stage.pipeline)
    config = build(registry.load(pipeline.config), compose(stage.pipeline, overrides))
    if pipeline.folders:
        return list(registry.load(pipeline.folders)(config))
    return [Path(config.runtime.runs_dir) / stage.pipeline / run_id(resolve(config))]


class Screen:
    """The last lines of a terminal, a line each of what runs."""

    def __init__(self) -> None:
        self.lines = list[str]()

    def show(self, lines: list[str]) -> None:
        """Write the lines over those shown before."""
        if lines != self.lines:
            up = "\x1b[F" * (len(self.lines) - 1)
            width = shutil.get_terminal_size().columns - 1
            cut = "\n".join(line[:width] for line in lines)
            print(f"{up}\r\x1b[J{cut}", end="", flush=True)
            self.lines = lines

    def clear(self) -> None:
        """Take the lines away."""
        self.show([])


class StageFailed(SystemExit):
    """A stage ended with a code other than 0, and that has been told."""


def run_stages(outcomes: Mapping[Command, Callable[[], str]], jobs: int) -> None:
    """Run stages, their output into files; one line on the terminal tells what came of each.

    Args:
        outcomes: stage's command → what tells its headline metrics, once it has ended.
        jobs: how many run side by side.

    Raises:
        SystemExit: one failed, with its code; its last lines are shown. Those beside it save and stop.
    """
    screen, live = Screen(), sys.stdout.isatty()

    def ended(one: Running) -> None:
        screen.clear()
        if code := one.process.returncode:
            _tell_failure(one)
            raise StageFailed(code if code > 0 else 1)
        took, result = _clock(one.seconds), outcomes[one.command]()
        print(f"{one.command.title} … {took}: {result}", flush=True)

    def look(running: list[Running]) -> None:
        if live:
            screen.show([_state(one) for one in running])

    try:
        run_commands(list(outcomes), jobs, CONF.parent, look=look, ended=ended)
    except StageFailed:
        raise
    except BaseException:
        screen.clear()
        logs = ", ".join(str(command.log) for command in outcomes)
        print(f"stopped: the same command goes on; output so far: {logs}", file=sys.stderr)
        raise


def outcome(stage: Stage, folders: list[Path]) -> str:
    """Return the headline metrics of a stage's runs, and what is wrong with them."""
    headline = registry.get(stage.pipeline).headline
    words = []
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        name = headline.name if headline else summary.get("headline")
        value = summary["metrics"].get(name)
        status = "" if summary["status"] == "done" else f" [{summary['status']}]"
        words.append(f"{name} {'NaN' if value is None else f'{value:.3f}'}{status}")
    return ", ".join(words)


def overrides_of(stage: Stage, recipe: str) -> list[str]:
    """Return the overrides of a stage."""
    return [*stage.arm, f"recipe={recipe}"]


def name_of(stage: Stage) -> str:
    """Return a stage's name as its log's: `glue-bert`."""
    return "-".join([stage.pipeline, *(word.partition("=")[2] for word in stage.arm)])


def _plan(recipe: str, folders: dict[Stage, list[Path]], jobs: int, logs: Path) -> str:
    """Return what will be done and how long it should take."""
    left = [
        stage
        for stage, runs in folders.items()
        if not all((run / "summary.json").is_file() for run in runs)
    ]
    minutes = sum(stage.minutes for stage in left) + REPORT_MINUTES
    expected = f"about {minutes:.0f} minutes on two slow CPU cores, fewer on faster ones"
    if recipe != "mini":
        expected = "how long was not measured for this recipe: see make plan"
    done = len(folders) - len(left)
    kept = f", {done} of them done" if done else ""
    beside = f", up to {jobs} side by side" if jobs > 1 else ""
    stages = f"{len(folders) + 1} stages at recipe {recipe}{kept}{beside}"
    return f"{stages}; {expected}; their output: {logs}"


def _tell_failure(one: Running) -> None:
    command = one.command
    print("", *command.last_lines(LAST_LINES), sep="\n", file=sys.stderr)
    code = f"ended with code {one.process.returncode} after {_clock(one.seconds)}"
    where = f"its output is in {command.log}; the same command goes on"
    print(f"error: {shlex.join(command.words)} {code}: {where}", file=sys.stderr)


def _state(one: Running) -> str:
    last = next(iter(one.command.last_lines(1)), "")
    return f"{one.command.title} … {_clock(one.seconds)}  {last.strip()}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


if __name__ == "__main__":
    outlive_reader()
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
