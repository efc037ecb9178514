"""Triplets over two processes are those of one; the command line prints what came out."""

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.test_processes import finish
from tests.e2e.test_scm import SMALL, assert_close_but_the_shift

pytestmark = pytest.mark.slow
SCRIPT = REPOSITORY / "scripts" / "scm.py"
QUIET = [word for word in SMALL if word != "runtime.tune_process=false"]


@pytest.fixture
def arguments(tmp_path):
    where = [f"runtime.cache_dir={tmp_path / 'cache'}", f"runtime.runs_dir={tmp_path / 'runs'}"]
    return [*QUIET, "runtime.threads=1", *where]


@pytest.mark.parametrize("loss", ["ranking", "bce"])
def test_two_processes_equal_one(arguments, loss):
    given = [f"training.loss={loss}", "training.batch_size=6"]
    one = finish(arguments, *given, runs="one", script=SCRIPT)
    two = finish(arguments, *given, runs="two", processes=2, script=SCRIPT)
    assert_close_but_the_shift(two, one)
    ours, theirs = (json.loads((r / "summary.json").read_text())["metrics"] for r in (two, one))
    for name in ("valid/accuracy", "valid/loss", "test/accuracy", "test/loss"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-4), name


def test_the_command_line_says_what_came_out(arguments):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "valid/accuracy_late" in done.stdout and "run: " in done.stdout
    refused = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments, "preset=bert_512", "training.max_length=513"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert refused.returncode == 2 and refused.stderr.startswith("error: training.max_length=513")
    assert refused.stderr.count("\n") == 1
