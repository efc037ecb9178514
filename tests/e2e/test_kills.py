"""A run that is killed or stopped anywhere and started again is bitwise the run never stopped."""

import json
import os
import random
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from roformer.training.checkpoint import damage
from tests.e2e.conftest import DROPOUT, assert_same, results, write_corpus
from tests.e2e.conftest import SMALL as PRETRAIN
from tests.e2e.test_glue_processes import SMALL as GLUE
from tests.e2e.wmt_runs import SMALL as WMT
from tests.e2e.wmt_runs import write_parallel_text
from tests.scripts import Script, run_script, until

pytestmark = pytest.mark.slow
TERM, INT = (signal.SIGTERM, 143), (signal.SIGINT, 130)
SMALL = {
    "pretrain": [
        *(*PRETRAIN, *DROPOUT, "training.steps=60", "training.checkpoint_every=5"),
        *("runtime.keep_checkpoints=2", "runtime.prepare_workers=1"),
    ],
    "glue": [
        *(*GLUE, *DROPOUT, "training.epochs=5"),
        *("runtime.tune_process=false", "runtime.progress=false"),
    ],
    "wmt": [
        *(*WMT, *DROPOUT, "training.steps=40", "training.checkpoint_every=5"),
        "runtime.prepare_workers=1",
    ],
}
CHANGES = ("os.rename", "os.remove", "os.symlink", "os.mkdir", "os.rmdir", "os.truncate")
"""Audit events of Python, in addition to `open`."""


def signal_at(change: int, place: str, number: int) -> None:
    """Have this process group get a signal before a change of a file whose path has `place` in it.

    Changes count from 1: a file is opened for writing, renamed or removed. A killed process leaves half
    of the row of metrics that it began.
    """
    process, left = os.getpid(), change

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not (writes or event in CHANGES) or os.getpid() != process:
            return
        path = str(arguments[0])
        inside = number == signal.SIGKILL and not path.startswith("/")  # of a folder being removed
        left -= place in path or inside
        if left == 0:
            left = -1
            if number == signal.SIGKILL and path.endswith("metrics.jsonl"):
                with open(path, "a") as file:
                    file.write('{"step": 1')
            os.killpg(0, number)

    sys.addaudithook(heard)


class Commands:
    """The command of every pipeline, and the run that nothing disturbs, made once."""

    def __init__(self, folder: Path):
        self.folder = folder
        write_corpus(folder / "text.jsonl")
        write_parallel_text(folder / "pairs")
        self.text = {"pretrain": ["text.jsonl"], "wmt": ["pairs"]}

    def of(self, name: str, folder: Path, *overrides: str) -> list[str]:
        """Return script and arguments; a separate cache, so that it prepares the text."""
        text = [f"data.path={self.folder / path}" for path in self.text.get(name, [])]
        where = [f"runtime.{key}_dir={folder / key}" for key in ("runs", "cache")]
        return [name, *SMALL[name], *text, *where, *overrides]

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


@pytest.mark.parametrize(("name", "least"), [("pretrain", 15), ("glue", 6), ("wmt", 6)])
def test_kills_leave_no_trace(commands, tmp_path, name, least):
    """At changes of files drawn by chance: only what is on the disk survives."""
    moments, killed, folders = random.Random(name), 0, 0
    while killed < least:
        folder, folders = tmp_path / f"{folders}", folders + 1
        while True:
            kill = partial(signal_at, moments.randint(1, 60), str(folder), signal.SIGKILL)
            done = run_script(*commands.of(name, folder), before=kill)
            if done.returncode != -signal.SIGKILL:
                break
            killed += 1
            assert_whole(folder)
        assert done.returncode == 0, done
        assert_as_if_never_stopped(run_in(folder, name), commands.calm(name))


def test_an_interrupt_saves_and_the_same_command_goes_on(commands, tmp_path):
    """The whole group gets Ctrl-C, as from a terminal, and so do the data loader's workers."""
    seldom = ["training.checkpoint_every=1000", "runtime.num_workers=2"]
    command = commands.of("pretrain", tmp_path, *seldom)
    script = Script(*command)
    until(lambda: list(tmp_path.glob("runs/*/*/metrics.jsonl")))
    os.killpg(script.process.pid, signal.SIGINT)
    done = script.end()
    assert done.returncode == 130 and "Traceback" not in done.stderr, done
    run = run_in(tmp_path, "pretrain")
    assert (run / "checkpoints" / "last").exists() and not (run / "summary.json").exists()
    finish(*command)
    assert_same(run, commands.calm("pretrain"))


@pytest.mark.parametrize(
    ("name", "place", "number", "code"),
    [
        ("pretrain", "/cache/text/", *TERM),
        ("glue", "predictions/", *TERM),
        ("wmt", "averaged", *INT),
    ],
)
def test_a_signal_where_no_loop_listens_is_told_in_a_line(
    commands, tmp_path, name, place, number, code
):
    """While the text is prepared, predictions are written, and checkpoints averaged."""
    command = commands.of(name, tmp_path)
    done = run_script(*command, before=partial(signal_at, 1, place, number))
    assert done.returncode == code and "Traceback" not in done.stderr, done
    assert (done.stdout + done.stderr).count("same command") <= 1, done
    finish(*command)
    assert_same(run_in(tmp_path, name), commands.calm(name))


def run_in(folder: Path, name: str) -> Path:
    (run,) = (folder / "runs" / name).iterdir()
    return run


def assert_whole(folder: Path) -> None:
    """Assert that a kill leaves nothing that looks finished and is not."""
    for step in folder.glob("runs/*/*/checkpoints/step_*"):
        assert damage(step) is None, (step.name, damage(step))
    for metrics in folder.glob("runs/*/*/metrics.jsonl"):
        for line in metrics.read_text().splitlines()[:-1]:
            assert "step" in json.loads(line)
    for summary in folder.glob("runs/*/*/summary.json"):
        assert json.loads(summary.read_text())["status"] in ("done", "degenerate")


def assert_as_if_never_stopped(ours: Path, theirs: Path) -> None:
    files, expected = (sorted(p.relative_to(run) for p in run.rglob("*")) for run in (ours, theirs))
    assert files == expected
    assert_same(ours, theirs)
    steps = [row["step"] for row in results(ours)]
    assert steps == sorted(set(steps))
    clock = ("wall_seconds", "tokens_per_second", "command", "peak_memory_bytes")
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
