"""Reproduce the paper at the scale of this machine: `python scripts/reproduce.py recipe=mini`.

Pre-trains RoFormer and BERT, fine-tunes both on GLUE, trains RoFormer and the Transformer to
translate, and reports. `--all` adds the rest of the paper: Performer and causal language models, with
and without rotary positions, pre-training in stages and long Chinese documents. Each stage is a command
of its own, whose lines go to a file; what is finished is kept, so the same command goes on where it was
stopped. Overrides other than `recipe=` go to every stage: `tracker=none seed=1`.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from roformer.cli import CONF, compose, leave_on_signal, one_line_errors
from roformer.config.build import build, run_id
from roformer.config.glue import GlueConfig
from roformer.config.lm import CausalLMConfig, CharLMConfig
from roformer.config.schema import PretrainConfig
from roformer.config.scm import ScmConfig
from roformer.config.stages import StagesConfig
from roformer.config.wmt import WmtConfig
from roformer.pipelines.glue import AUTO, cells_of, changed, pretraining_of
from roformer.pipelines.run import resolve
from roformer.pipelines.stages import stages_of
from roformer.stdout import outlive_reader

CONFIGS: dict[str, type[Any]] = {
    "pretrain": PretrainConfig,
    "glue": GlueConfig,
    "wmt": WmtConfig,
    "charlm": CharLMConfig,
    "clm": CausalLMConfig,
    "stages": StagesConfig,
    "scm": ScmConfig,
}
HEADLINES = {
    "pretrain": ("valid/mlm_loss",),
    "wmt": ("test/sacrebleu",),
    "charlm": ("valid/bits_per_byte_whole",),
    "clm": ("valid/loss",),
    "stages": ("valid/mlm_loss",),
    "scm": ("test/accuracy",),
}
"""Pipeline → the metrics that its line ends with; fine-tuning has one a task."""
LAST_LINES = 12
"""Of a failed stage's output, shown on the terminal."""


class Stage(NamedTuple):
    """One command."""

    pipeline: str
    minutes: float
    """On two CPU cores at recipe mini."""
    arm: tuple[str, ...]
    """Overrides that tell it from the others of its pipeline."""


STAGES = (
    Stage("pretrain", 4, ("model=roformer",)),
    Stage("pretrain", 4, ("model=bert",)),
    Stage("glue", 4.5, ("model=roformer",)),
    Stage("glue", 4.5, ("model=bert",)),
    Stage("wmt", 5, ("model=roformer",)),
    Stage("wmt", 5, ("model=transformer",)),
)
REST = (
    Stage("charlm", 4.5, ()),
    Stage("charlm", 4.5, ("model/position=none",)),
    Stage("charlm", 2, ("model/attention=softmax",)),
    *(
        Stage("clm", 5, (f"model/position={position}",))
        for position in ("rotary", "learned", "sinusoidal", "t5", "alibi", "none")
    ),
    Stage("stages", 6, ()),
    Stage("scm", 3.5, ("preset=roformer_1024",)),
    *(Stage("scm", 3, (f"preset={name}_512",)) for name in ("roformer", "wobert", "bert")),
)
"""What `--all` adds."""
REPORT_MINUTES = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launcher", default=sys.executable, help="what starts a script")
    parser.add_argument(
        "--all", action="store_true", help="the whole paper, not its first half alone"
    )
    parser.add_argument("overrides", nargs="*", help="recipe=…, and Hydra overrides for all stages")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, leave_on_signal)
    recipes = [word for word in arguments.overrides if word.startswith("recipe=")]
    recipe = recipes[-1].removeprefix("recipe=") if recipes else "mini"
    shared = [word for word in arguments.overrides if word not in recipes]
    stages = STAGES + REST if arguments.all else STAGES
    words = {stage: [*overrides_of(stage, recipe), *shared] for stage in stages}
    with one_line_errors():  # a mistake is told before anything runs
        folders = {stage: folders_of(stage, words[stage]) for stage in stages}
    runs = folders[stages[0]][0].parents[1]
    print(_plan(recipe, folders), flush=True)
    launcher = shlex.split(arguments.launcher)
    began, total = time.monotonic(), len(stages) + 1
    for number, stage in enumerate(stages, 1):
        command = [*launcher, f"scripts/{stage.pipeline}.py", *words[stage]]
        log = runs / "reproduce" / f"{number}-{name_of(stage)}.log"
        title = f"[{number}/{total}] {stage.pipeline} {' '.join(overrides_of(stage, recipe))}"
        run_stage(title, command, log, partial(outcome, stage, folders[stage]))
    found = [str(folder) for stage in stages for folder in folders[stage]]
    report = [sys.executable, "scripts/report.py", "--runs", str(runs)]
    title = f"[{total}/{total}] report --runs {runs}"
    run_stage(title, report, runs / "reproduce" / f"{total}-report.log", lambda: "tables, figures")
    print(f"all stages done in {_clock(time.monotonic() - began)}\n", flush=True)
    shown = [sys.executable, "scripts/report.py", "--runs", str(runs), "--tables", *found]
    raise SystemExit(subprocess.run(shown, cwd=CONF.parent).returncode)


def folders_of(stage: Stage, overrides: list[str]) -> list[Path]:
    """Return the run folders that a stage will fill.

    Raises:
        InputError: the overrides do not fit.
    """
    config = resolve(build(CONFIGS[stage.pipeline], compose(stage.pipeline, overrides)))
    root = Path(config.runtime.runs_dir)
    if stage.pipeline == "stages":
        return [root / "pretrain" / run_id(one) for one in stages_of(config)]
    if stage.pipeline != "glue":
        return [root / stage.pipeline / run_id(config)]
    if config.init_from == AUTO:
        pretraining = build(PretrainConfig, compose("pretrain", list(config.pretraining)))
        start = run_id(resolve(pretraining_of(config, pretraining)))
        config = changed(config, init_from=start)
    return sorted(root / "glue" / run_id(cell) for cell in cells_of(config))


def run_stage(title: str, command: list[str], log: Path, outcome: Callable[[], str]) -> None:
    """Run one command, its output into a file; one line on the terminal tells how it goes.

    Raises:
        SystemExit: it failed, with its code; its last lines are shown.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    live = sys.stdout.isatty()
    print(f"{title} …", end="", flush=True)
    began = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=CONF.parent, stdout=file, stderr=file)
        try:
            while process.poll() is None:
                time.sleep(0.5)
                if live:
                    _rewrite(f"{title} … {_clock(time.monotonic() - began)}  {_last(log)}")
        except BaseException:  # it saves a checkpoint; Ctrl-C reaches it by itself
            process.terminate()
            process.wait()
            print(f"\nstopped: the same command goes on; output so far: {log}", file=sys.stderr)
            raise
    took = _clock(time.monotonic() - began)
    if process.returncode:
        last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        print("", *last, sep="\n", file=sys.stderr)
        what = f"{shlex.join(command)} ended with code {process.returncode} after {took}"
        print(f"error: {what}: its output is in {log}; the same command goes on", file=sys.stderr)
        raise SystemExit(process.returncode if process.returncode > 0 else 1)
    if live:
        _rewrite(title)
    print(f" {took}: {outcome()}", flush=True)


def outcome(stage: Stage, folders: list[Path]) -> str:
    """Return the headline metrics of a stage's runs, and what is wrong with them."""
    words = []
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        for name in HEADLINES.get(stage.pipeline, (summary.get("headline"),)):
            value = summary["metrics"].get(name)
            status = "" if summary["status"] == "done" else f" [{summary['status']}]"
            words.append(f"{name} {'NaN' if value is None else f'{value:.3f}'}{status}")
    return ", ".join(words)


def overrides_of(stage: Stage, recipe: str) -> list[str]:
    """Return the overrides of a stage: recipe `mini` is `glue_mini` to fine-tuning."""
    prefix = "" if stage.pipeline == "pretrain" else f"{stage.pipeline}_"
    return [*stage.arm, f"recipe={prefix}{recipe}"]


def name_of(stage: Stage) -> str:
    """Return a stage's name as its log's: `glue-bert`."""
    return "-".join([stage.pipeline, *(word.partition("=")[2] for word in stage.arm)])


def _plan(recipe: str, folders: dict[Stage, list[Path]]) -> str:
    """Return what will be done and how long it should take."""
    left = [
        stage
        for stage, runs in folders.items()
        if not all((run / "summary.json").is_file() for run in runs)
    ]
    minutes = sum(stage.minutes for stage in left) + REPORT_MINUTES
    expected = f"about {minutes:.0f} minutes on two CPU cores"
    if recipe != "mini":
        expected = "how long was not measured for this recipe: see make plan"
    done = len(folders) - len(left)
    kept = f", {done} of them done" if done else ""
    return f"{len(folders) + 1} stages at recipe {recipe}{kept}; {expected}"


def _rewrite(line: str) -> None:
    width = os.get_terminal_size().columns if sys.stdout.isatty() else 200
    print(f"\r\x1b[K{line[: width - 1]}", end="", flush=True)


def _last(log: Path) -> str:
    """Return the last line of a file that is being written."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


if __name__ == "__main__":
    outlive_reader()
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
