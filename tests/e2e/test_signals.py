"""SIGTERM and Ctrl-C: the run saves what it has, says at most a line, and the same command goes on."""

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import DROPOUT, assert_same, write_corpus
from tests.e2e.conftest import SMALL as PRETRAIN
from tests.e2e.kill_harness import ForkServer, Plan, until
from tests.e2e.test_glue_processes import SMALL as GLUE
from tests.e2e.test_kills import places, run_in
from tests.e2e.wmt_runs import SMALL as WMT
from tests.e2e.wmt_runs import write_parallel_text

pytestmark = pytest.mark.slow
TERM, INT = (signal.SIGTERM, 143), (signal.SIGINT, 130)
NEVER = "training.checkpoint_every=1000"
ARGUMENTS = {
    "pretrain": [*PRETRAIN, *DROPOUT, "training.steps=100", "training.evaluate_every=50", NEVER],
    "pretrain with workers": [
        *(*PRETRAIN, *DROPOUT, "training.steps=100", NEVER),
        *("training.evaluate_every=50", "runtime.num_workers=2"),
    ],
    "glue": [*GLUE, *DROPOUT, "training.epochs=8", "runtime.tune_process=false"],
    "wmt": [*WMT, *DROPOUT, "training.steps=60", "training.checkpoint_every=20"],
}
OUTSIDE = [
    ("pretrain", "preparing the text", *TERM),
    ("glue", "preparing the text", *INT),
    ("glue", "predictions", *TERM),
    ("glue", "only the best: during", *TERM),
    ("wmt", "averaging", *INT),
    ("wmt", "beam search", *TERM),
]
"""Phases in which no loop is there to listen."""


@pytest.fixture(scope="module")
def server():
    with ForkServer() as server:
        yield server


class Cases:
    """Commands of every pipeline, and what comes of them undisturbed, made once."""

    def __init__(self, server: ForkServer, folder: Path):
        self.server, self.folder = server, folder
        write_corpus(folder / "text.jsonl")
        write_parallel_text(folder / "pairs")
        self.text = {"pretrain": ["text.jsonl"], "wmt": ["pairs"]}
        self.calm: dict[str, Path] = {}

    def command(self, name: str, folder: Path) -> tuple[str, list[str], Path]:
        folder.mkdir(exist_ok=True)
        pipeline = name.split()[0]
        script = str(REPOSITORY / "scripts" / f"{pipeline}.py")
        text = [f"data.path={self.folder / path}" for path in self.text.get(pipeline, [])]
        return script, [*ARGUMENTS[name], *text, *places(folder)], folder

    def undisturbed(self, name: str) -> Path:
        if name not in self.calm:
            command = self.command(name, self.folder / name)
            self.server.finish(*command)
            self.calm[name] = run_in(command[-1], name.split()[0])
        return self.calm[name]


@pytest.fixture(scope="module")
def cases(server, tmp_path_factory):
    return Cases(server, tmp_path_factory.mktemp("calm"))


@pytest.mark.parametrize(
    ("name", "number", "code"),
    [
        *(("pretrain", *TERM), ("pretrain", *INT), ("pretrain with workers", *TERM)),
        *(("pretrain with workers", *INT), ("glue", *TERM), ("wmt", *INT)),
    ],
)
def test_a_polite_signal_saves_and_the_same_command_goes_on(
    server, cases, tmp_path, name, number, code
):
    """The whole group is told, as launchers and terminals do, and its workers with it."""
    command = cases.command(name, tmp_path / "stopped")
    child = server.start(*command)
    until(lambda: list(command[-1].glob("runs/*/*/metrics.jsonl")))
    os.killpg(child, number)
    ended, printed = server.ended(command[-1])
    assert ended == code, printed
    assert "Traceback" not in printed
    run = run_in(command[-1], name.split()[0])
    assert (run / "checkpoints" / "last").exists() and not (run / "summary.json").exists()
    server.finish(*command)
    assert_same(run, cases.undisturbed(name))


@pytest.mark.parametrize(("name", "phase", "number", "code"), OUTSIDE)
def test_a_signal_outside_the_loop_is_told_in_a_line(
    server, cases, tmp_path, name, phase, number, code
):
    command = cases.command(name, tmp_path / "stopped")
    child = server.start(*command, Plan(phase))
    assert server.line() == "at"
    os.killpg(child, number)
    ended, printed = server.ended(command[-1])
    assert ended == code, printed
    assert "Traceback" not in printed
    last = [line for line in printed.splitlines() if "same command" in line]
    assert len(last) <= 1, printed
    server.finish(*command)
    assert_same(run_in(command[-1], name), cases.undisturbed(name))
