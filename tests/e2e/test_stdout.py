"""Commands whose output is read in part: `| head`, or a reader that was killed."""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import SMALL, write_corpus


def start(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_training_goes_on_without_its_reader(tmp_path):
    """The reader leaves after the first line; the run ends as if it had stayed."""
    write_corpus(tmp_path / "text.jsonl", documents=100)
    where = [f"runtime.{name}_dir={tmp_path / name}" for name in ("cache", "runs")]
    text = f"data.path={tmp_path / 'text.jsonl'}"
    child = start("scripts/pretrain.py", *SMALL, text, "runtime.progress=true", *where)
    first = child.stdout.readline()
    child.stdout.close()
    error = child.stderr.read()
    assert child.wait() == 0, error
    assert error.count("nothing reads the output any more: going on without it\n") == 1
    assert "Traceback" not in error
    (run,) = (tmp_path / "runs" / "pretrain").iterdir()
    assert first.startswith(run.name)
    assert json.loads((run / "summary.json").read_text())["steps"] == 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "study"),
    [
        ("glue_table", "experiments/glue_real"),
        ("plan", None),
    ],
)
def test_what_only_prints_ends_with_its_reader(script, study):
    child = start(f"scripts/{script}.py", *([str(REPOSITORY / study)] if study else []))
    child.stdout.close()
    error = child.stderr.read()
    assert child.wait() == -13 and error == ""
