"""A run that is killed or stopped anywhere and started again is bitwise the run never stopped."""

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from roformer.training.checkpoint import damage
from tests.e2e.conftest import DROPOUT, assert_same, results, write_corpus
from tests.e2e.conftest import SMALL as PRETRAIN
from tests.e2e.kill_harness import Plan, PlannedScript, kill, until
from tests.e2e.test_glue_processes import SMALL as GLUE
from tests.e2e.wmt_runs import SMALL as WMT
from tests.e2e.wmt_runs import write_parallel_text
from tests.scripts import Script, run_script

pytestmark = pytest.mark.slow
TERM, INT = (signal.SIGTERM, 143), (signal.SIGINT, 130)
TRACKED = ["tracker=wandb", "tracker.mode=offline"]
SPANS = {
    "preparing the text": 0.3,
    "starting the tracker": 0.3,
    "step": 0.03,
    "evaluation": 0.05,
    "checkpoint": 0.03,
    "averaging": 0.03,
    "beam search": 0.3,
    "predictions": 0.05,
}
"""Seconds that phases last which are not a point: the kill comes at any time within."""
LATE = (
    *("last", "tracker: the end", "half of summary", "half of the", "half of bleu", "only the"),
    *("predictions", "unlink", "averaging", "removing the old", "beam", "scores"),
)
"""Beginnings of the names of phases that come after all training."""


class Pipeline(NamedTuple):
    arguments: list[str]
    phases: tuple[str, ...]


# The phases that all pipelines have in common are tried in the first one.
PIPELINES = {
    "pretrain": Pipeline(
        [
            *(*PRETRAIN, *DROPOUT, "training.steps=60", "training.checkpoint_every=5"),
            *("runtime.keep_checkpoints=2", "runtime.prepare_workers=1"),
        ],
        (
            *("preparing the text", "starting the tracker", "half a row", "half of metrics.jsonl"),
            *("tracker: a row", "tracker: the end", *("step",) * 3, "evaluation", "checkpoint"),
            *("checkpoint: half of model.safetensors", "checkpoint: half of complete.json"),
            *("checkpoint: before it is renamed", "checkpoint: renamed"),
            *("removing a checkpoint", "last removing a checkpoint", "last link best: made aside"),
            *("last link last: before", "half of summary.json"),
        ),
    ),
    "glue": Pipeline(
        [
            *(*GLUE, *DROPOUT, "training.epochs=5"),
            *("runtime.tune_process=false", "runtime.progress=false"),
        ],
        (
            *("step", "evaluation", "link best: made aside", "predictions"),
            *("half of the predictions", "only the best: before", "unlink optimizer.safetensors"),
        ),
    ),
    "wmt": Pipeline(
        [
            *(*WMT, *DROPOUT, "training.steps=40", "training.checkpoint_every=5"),
            "runtime.prepare_workers=1",
        ],
        (
            *("preparing the text", "step", "evaluation", "averaging"),
            *("removing the old average", "beam search", "scores"),
            *("half of the translations", "half of bleu_statistics.json"),
        ),
    ),
}


class Commands:
    """The command of every pipeline, and the run that nothing disturbs, made once."""

    def __init__(self, folder: Path):
        self.folder = folder
        write_corpus(folder / "text.jsonl")
        write_parallel_text(folder / "pairs")
        self.text = {"pretrain": ["text.jsonl"], "wmt": ["pairs"]}

    def of(self, name: str, folder: Path, *overrides: str) -> list[str]:
        """Return script and arguments; a separate cache, so that it prepares the text."""
        folder.mkdir(exist_ok=True)
        text = [f"data.path={self.folder / path}" for path in self.text.get(name, [])]
        where = [f"runtime.{key}_dir={folder / key}" for key in ("runs", "cache")]
        return [name, *PIPELINES[name].arguments, *text, *where, *overrides]

    def calm(self, name: str) -> Path:
        if not (self.folder / name).exists():
            finish(*self.of(name, self.folder / name))
        return run_in(self.folder / name, name)


def finish(*command: str) -> None:
    done = run_script(*command)
    assert done.returncode == 0, done


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    return Commands(tmp_path_factory.mktemp("calm"))


@pytest.mark.parametrize("name", PIPELINES)
def test_kills_leave_no_trace(commands, tmp_path, name):
    moments, phases = random.Random(name), PIPELINES[name].phases
    waiting, killed, rounds = list(phases), Counter[str](), 0
    while waiting:
        rounds += 1
        assert rounds <= 8, f"never came to {waiting}"
        folder = tmp_path / f"killed{rounds}"
        moments.shuffle(waiting)
        share = 2 if rounds == 1 else 1  # so that a kill is followed by many others and by few
        early = [phase for phase in waiting if not phase.startswith(LATE)]
        late = [phase for phase in waiting if phase.startswith(LATE)]
        for phase in [*early[::share], *late[::share]]:
            often = 6 if phase == "step" else 1
            delay = moments.uniform(0, SPANS.get(phase, 0.0))
            plan = Plan(phase, moments.randint(1, often), delay)
            tracked = TRACKED if "tracker" in phase else []  # wandb takes longer than a small run
            if not kill(plan, *commands.of(name, folder, *tracked)):
                break  # it got through: the phase's turn is in another run
            killed[phase] += 1
            waiting.remove(phase)
            assert_whole(folder, phase)
        finish(*commands.of(name, folder))
        assert_as_if_never_stopped(run_in(folder, name), commands.calm(name))
    assert killed == Counter(phases)


WORKERS, NEVER = "runtime.num_workers=2", "training.checkpoint_every=1000"


@pytest.mark.parametrize(
    ("name", "number", "code", "overrides"),
    [
        ("pretrain", *TERM, [NEVER]),
        ("pretrain", *INT, [NEVER, WORKERS]),
        ("wmt", *INT, []),
    ],
)
def test_a_signal_saves_and_the_same_command_goes_on(
    commands, tmp_path, name, number, code, overrides
):
    """The whole group gets the signal, as from launchers and terminals, and so do its workers."""
    command = commands.of(name, tmp_path, *overrides)
    script = Script(*command)
    until(lambda: list(tmp_path.glob("runs/*/*/metrics.jsonl")))
    os.killpg(script.process.pid, number)
    done = script.end()
    assert done.returncode == code and "Traceback" not in done.stderr, done
    run = run_in(tmp_path, name)
    assert (run / "checkpoints" / "last").exists() and not (run / "summary.json").exists()
    finish(*command)
    assert_same(run, commands.calm(name))


@pytest.mark.parametrize(
    ("name", "phase", "number", "code"),
    [
        ("pretrain", "preparing the text", *TERM),
        ("glue", "predictions", *TERM),
        ("wmt", "averaging", *INT),
    ],
)
def test_a_signal_where_no_loop_listens_is_told_in_a_line(
    commands, tmp_path, name, phase, number, code
):
    command = commands.of(name, tmp_path)
    script = PlannedScript(Plan(phase), *command)
    assert script.reached()
    os.killpg(script.process.pid, number)
    done = script.end()
    assert done.returncode == code and "Traceback" not in done.stderr, done
    assert (done.stdout + done.stderr).count("same command") <= 1, done
    finish(*command)
    assert_same(run_in(tmp_path, name), commands.calm(name))


def run_in(folder: Path, name: str) -> Path:
    (run,) = (folder / "runs" / name).iterdir()
    return run


def assert_whole(folder: Path, phase: str) -> None:
    """Assert that a kill leaves nothing that looks finished and is not."""
    for step in folder.glob("runs/*/*/checkpoints/step_*"):
        assert damage(step) is None, (phase, step.name, damage(step))
    for metrics in folder.glob("runs/*/*/metrics.jsonl"):
        for line in metrics.read_text().splitlines()[:-1]:
            assert "step" in json.loads(line), phase
    for summary in folder.glob("runs/*/*/summary.json"):
        assert json.loads(summary.read_text())["status"] in ("done", "degenerate"), phase


def assert_as_if_never_stopped(ours: Path, theirs: Path) -> None:
    assert files(ours) == files(theirs)
    assert_same(ours, theirs)
    steps = [row["step"] for row in results(ours)]
    assert steps == sorted(set(steps))
    clock = ("wall_seconds", "tokens_per_second", "command", "commit", "peak_memory_bytes")
    summary, expected = (json.loads((run / "summary.json").read_text()) for run in (ours, theirs))
    assert summary | dict.fromkeys(clock) == expected | dict.fromkeys(clock)
    texts = [*ours.glob("*/*.t[sx][vt]"), *ours.glob("bleu_statistics.json")]
    for path in texts:  # predictions, translations and their counts
        assert path.read_text() == (theirs / path.relative_to(ours)).read_text(), path.name
    for path in ours.rglob("*.json"):
        json.loads(path.read_text())
    for name in ("last", "best", "averaged"):
        ends = [(run / "checkpoints" / name).resolve().name for run in (ours, theirs)]
        assert ends[0] == ends[1], name
    for folder in (ours / "checkpoints").glob("[sa]*"):
        assert damage(folder) is None, folder.name


def files(run: Path) -> list[str]:
    """All files of a run but wandb's, of which every start has its own."""
    paths = (path.relative_to(run) for path in run.rglob("*"))
    return sorted(str(path) for path in paths if path.parts[0] != "wandb")
