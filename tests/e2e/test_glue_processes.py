"""Grids in whole processes: side by side, killed, as a Hydra multirun."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import assert_same, places
from tests.e2e.test_processes import launcher
from tests.scripts import until

pytestmark = pytest.mark.slow
SCRIPT = str(REPOSITORY / "scripts" / "glue.py")
SMALL = [
    *("recipe=smoke", "tracker=none", "task=mrpc", "jobs=1", "training.max_length=48"),
    *("data.train_examples=96", "data.max_train_examples=null", "data.validation_examples=40"),
    *("training.epochs=2", "runtime.device=cpu", "runtime.threads=1", "keep_weights=all"),
]


def start(folder: Path, *overrides: str, processes: int = 1, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [*launcher(processes), SCRIPT, *SMALL, *places(folder), *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        **options,
    )


def finish(folder: Path, *overrides: str, processes: int = 1) -> tuple[list[Path], str]:
    """Run a grid to its end; return (folders of its cells, what it printed)."""
    process = start(folder, *overrides, processes=processes)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return sorted((folder / "runs" / "glue").iterdir()), output


GRID = ["seed=[0,1,2]", "training.epochs=3"]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Return the folders of a grid that ran one after another, undisturbed."""
    folders, printed = finish(tmp_path_factory.mktemp("calm"), *GRID)
    assert "\nGLUE, validation, in percent\n" in printed and "3/3" in printed
    return folders


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_grid_of_two_jobs_goes_on_and_equals_one_after_another(tmp_path, calm, number):
    """No worker outlives it and finished runs are kept. A terminal's Ctrl-C reaches every process of
    the group, parent and workers."""
    grid = [*GRID, "jobs=2"]
    process = start(tmp_path, *grid, start_new_session=True)
    until(lambda: process.poll() is not None or list(tmp_path.glob("runs/glue/*/summary.json")))
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in printed, printed
    until(lambda: not workers_in(tmp_path))
    done = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/glue/*/summary.json")}
    assert done
    resumed, told = finish(tmp_path, *grid)
    assert "3/3" in told
    assert {path: path.stat().st_mtime_ns for path in done} == done
    for ours, theirs in zip(resumed, calm, strict=True):
        assert_same(ours, theirs)


def workers_in(folder: Path) -> list[Path]:
    """Return the processes whose working folder is this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder.resolve():
                found.append(process)
        except OSError:  # it has just ended
            continue
    return found


def test_a_multirun_runs_each_job_by_itself(tmp_path):
    folders, _ = finish(tmp_path, "seed=0,1", "training.epochs=1", "--multirun")
    seeds = [json.loads((folder / "summary.json").read_text())["seed"] for folder in folders]
    assert sorted(seeds) == [0, 1]
    commands = {(folder / "command.txt").read_text() for folder in folders}
    assert len(commands) == 2 and not any("--multirun" in command for command in commands)


def test_a_process_without_a_batch_of_the_validation_holds_up_no_other(tmp_path):
    """Of 40 rows there is one batch. A Performer has buffers, which must not be sent at that time."""
    performer = ["model/attention=performer", "model.attention_dropout=0.0"]
    (folder,), _ = finish(tmp_path, *performer, "model.attention.features=16", processes=2)
    assert json.loads((folder / "summary.json").read_text())["status"] != "failed"
