"""SIGTERM and Ctrl-C: the run saves what it has, says at most a line, and the same command goes on."""

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import SMALL as PRETRAIN
from tests.e2e.conftest import assert_same, write_corpus
from tests.e2e.kill_harness import Nursery, Plan, until
from tests.e2e.test_glue_processes import SMALL as GLUE
from tests.e2e.test_glue_processes import finish as finish_grid
from tests.e2e.test_glue_processes import start as start_grid
from tests.e2e.test_glue_processes import workers_in
from tests.e2e.test_kills import DROPOUT, places, run_in
from tests.e2e.wmt_runs import SMALL as WMT
from tests.e2e.wmt_runs import write_parallel_text

pytestmark = pytest.mark.slow
SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
NEVER = "training.checkpoint_every=1000"
ARGUMENTS = {
    "pretrain": [*PRETRAIN, *DROPOUT, "training.steps=150", "training.evaluate_every=50", NEVER],
    "pretrain with workers": [
        *(*PRETRAIN, *DROPOUT, "training.steps=150", NEVER),
        *("training.evaluate_every=50", "runtime.num_workers=2"),
    ],
    "glue": [*GLUE, *DROPOUT, "training.epochs=12", "runtime.tune_process=false"],
    "wmt": [*WMT, *DROPOUT, "training.steps=80", "training.checkpoint_every=20"],
}
TERM, INT = SIGNALS
OUTSIDE = [
    ("pretrain", "preparing the text", *TERM),
    ("pretrain", "preparing the text", *INT),
    ("glue", "preparing the text", *INT),
    ("glue", "predictions", *TERM),
    ("glue", "predictions", *INT),
    ("glue", "only the best: during", *TERM),
    ("wmt", "averaging", *INT),
    ("wmt", "beam search", *TERM),
    ("wmt", "beam search", *INT),
    ("wmt", "scores", *TERM),
]
"""Phases in which no loop is there to listen."""


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


class Cases:
    """Commands of every pipeline, and what comes of them undisturbed, made once."""

    def __init__(self, nursery: Nursery, folder: Path):
        self.nursery, self.folder = nursery, folder
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
            self.nursery.finish(*command)
            self.calm[name] = run_in(command[-1], name.split()[0])
        return self.calm[name]


@pytest.fixture(scope="module")
def cases(nursery, tmp_path_factory):
    return Cases(nursery, tmp_path_factory.mktemp("calm"))


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_polite_signal_saves_and_the_same_command_goes_on(
    nursery, cases, tmp_path, name, number, code
):
    """The whole group is told, as launchers and terminals do, and its workers with it."""
    command = cases.command(name, tmp_path / "stopped")
    child = nursery.start(*command)
    until(lambda: list(command[-1].glob("runs/*/*/metrics.jsonl")))
    os.killpg(child, number)
    ended, printed = nursery.ended(command[-1])
    assert ended == code, printed
    assert "Traceback" not in printed
    run = run_in(command[-1], name.split()[0])
    assert (run / "checkpoints" / "last").exists() and not (run / "summary.json").exists()
    nursery.finish(*command)
    assert_same(run, cases.undisturbed(name))


@pytest.mark.parametrize(("name", "phase", "number", "code"), OUTSIDE)
def test_a_signal_outside_the_loop_is_told_in_a_line(
    nursery, cases, tmp_path, name, phase, number, code
):
    command = cases.command(name, tmp_path / "stopped")
    child = nursery.start(*command, Plan(phase))
    assert nursery.line() == "at"
    os.killpg(child, number)
    ended, printed = nursery.ended(command[-1])
    assert ended == code, printed
    assert "Traceback" not in printed
    last = [line for line in printed.splitlines() if "same command" in line]
    assert len(last) <= 1, printed
    nursery.finish(*command)
    assert_same(run_in(command[-1], name), cases.undisturbed(name))


def test_ctrl_c_ends_a_grid_of_two_jobs_and_it_goes_on(tmp_path):
    """A terminal tells every process of the group: parent, cells, and what watches over them."""
    grid = ["seed=[0,1,2]", "jobs=2", "training.epochs=4"]
    calm, _ = finish_grid(tmp_path / "calm", *grid)
    folder = tmp_path / "stopped"
    folder.mkdir()

    def importing() -> bool:
        commands = (Path("/proc", number, "cmdline") for number in workers_in(folder))
        return any(b"forkserver" in command.read_bytes() for command in commands)

    def training() -> bool:
        return any(folder.glob("runs/glue/*/metrics.jsonl"))

    for moment in (importing, training):
        process = start_grid(folder, *grid, start_new_session=True)
        until(lambda p=process, reached=moment: p.poll() is not None or reached())
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 130, printed
        assert "Traceback" not in printed, printed
        until(lambda: not workers_in(folder))
    resumed, _ = finish_grid(folder, *grid)
    for ours, theirs in zip(resumed, calm, strict=True):
        assert_same(ours, theirs)
