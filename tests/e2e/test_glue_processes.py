"""Grids in whole processes: side by side, killed, as a Hydra multirun."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.data import glue_tasks
from tests.e2e.conftest import assert_same
from tests.e2e.test_processes import launcher

pytestmark = pytest.mark.slow
SCRIPT = str(REPOSITORY / "scripts" / "glue.py")
SMALL = [
    *("recipe=smoke", "tracker=none", "task=mrpc", "jobs=1", "training.max_length=48"),
    *("data.train_examples=96", "data.max_train_examples=null", "data.validation_examples=40"),
    *("training.epochs=2", "runtime.device=cpu", "runtime.threads=1", "keep_weights=all"),
]


def start(folder: Path, *overrides: str, processes: int = 1, **options) -> subprocess.Popen:
    where = [f"runtime.runs_dir={folder / 'runs'}", f"runtime.cache_dir={folder / 'cache'}"]
    return subprocess.Popen(
        [*launcher(processes), SCRIPT, *SMALL, *where, *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


def finish(folder: Path, *overrides: str, processes: int = 1) -> tuple[list[Path], str]:
    """Run a grid to its end; return (folders of its cells, what it printed)."""
    folder.mkdir(exist_ok=True)
    process = start(folder, *overrides, processes=processes)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return sorted((folder / "runs" / "glue").iterdir()), output


def test_side_by_side_equals_one_after_another(tmp_path):
    grid = ["task=[mrpc,stsb]", "seed=[0,1]"]
    alone, printed = finish(tmp_path / "alone", *grid)
    beside, told = finish(tmp_path / "beside", *grid, "jobs=2")
    assert len(alone) == len(beside) == 4
    for ours, theirs in zip(beside, alone, strict=True):
        assert_same(ours, theirs)
    for output in (printed, told):
        assert "| roformer (rotary) |" in output and "4/4" in output


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_grid_goes_on_where_it_stopped(tmp_path, number):
    """No worker outlives it, finished cells are kept, and the result is that of a calm grid."""
    grid = ["seed=[0,1,2]", "jobs=2", "training.epochs=4"]
    calm, _ = finish(tmp_path / "calm", *grid)
    folder = tmp_path / "killed"
    folder.mkdir()
    process = start(folder, *grid)
    deadline = time.monotonic() + 200
    while not list(folder.glob("runs/glue/*/summary.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    process.wait(60)
    done = {path: path.stat().st_mtime_ns for path in folder.glob("runs/glue/*/summary.json")}
    assert done
    while workers_in(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not workers_in(folder)
    resumed, _ = finish(folder, *grid)
    for path, written in done.items():
        assert path.stat().st_mtime_ns == written
    for ours, theirs in zip(resumed, calm, strict=True):
        assert_same(ours, theirs)


def workers_in(folder: Path) -> list[str]:
    """Return the processes whose working folder is this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve() == folder.resolve():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_a_multirun_runs_each_job_by_itself(tmp_path):
    folders, _ = finish(tmp_path, "task=mrpc,stsb", "seed=0,1", "--multirun")
    cells = {
        (s["task"], s["seed"])
        for s in (json.loads((f / "summary.json").read_text()) for f in folders)
    }
    assert cells == {("mrpc", 0), ("mrpc", 1), ("stsb", 0), ("stsb", 1)}
    commands = {(folder / "command.txt").read_text() for folder in folders}
    assert len(commands) == 4 and not any("--multirun" in command for command in commands)


def test_lines_are_classified_and_mistakes_told(tmp_path):
    """The scripts around a grid, as a user calls them."""
    (folder,), _ = finish(tmp_path, "training.epochs=1")

    def call(script, *arguments, lines=""):
        return subprocess.run(
            [sys.executable, str(REPOSITORY / "scripts" / script), *map(str, arguments)],
            input=lines,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )

    done = call("predict.py", folder, lines="a b\tc d\nlong " + "x " * 60 + "\ty\n")
    labels = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(labels) == 2
    assert set(labels) <= set(glue_tasks.TASKS["mrpc"].labels)
    assert "line 2 is longer than 48 tokens and was cut" in done.stderr
    done = call("predict.py", folder, lines="only one\n")
    assert done.returncode == 2
    assert done.stderr == "error: line 1 has 1 tab-separated texts, but the task takes 2\n"
    done = call("glue_table.py", folder)
    assert "| roformer (rotary) | mrpc/f1 |" in done.stdout
    done = call("glue_submission.py", folder)
    assert done.returncode == 2 and done.stderr.startswith("error: the built-in mrpc has no test")
    for override, message in {
        "task=nope": "choose one of cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb",
        "task=[mrpc,nope]": "choose one of cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb",
        "data=enwik8": "choose one of builtin, files, hub",
        "task=rte": "rte",
    }.items():
        process = start(tmp_path, override)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 2, output
        (line,) = [line for line in output.splitlines() if line.startswith("error:")]
        assert message in line
