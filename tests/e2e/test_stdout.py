"""Output of commands in a pipe: plain lines, little when quiet, and readers that leave early."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import SMALL, places, write_corpus
from tests.scripts import run_script


def start(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
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
    """The reader leaves after the second line; the run ends as if it had stayed."""
    write_corpus(tmp_path / "text.jsonl", documents=100)
    path = f"data.path={tmp_path / 'text.jsonl'}"
    child = start("scripts/pretrain.py", *SMALL, path, *places(tmp_path))
    text, first = child.stdout.readline(), child.stdout.readline()
    child.stdout.close()
    error = child.stderr.read()
    assert child.wait() == 0, error
    assert error.count("nothing reads the output any more: going on without it\n") == 1
    assert "Traceback" not in error
    (run,) = (tmp_path / "runs" / "pretrain").iterdir()
    assert text.startswith("text: 100 documents") and first.startswith(run.name)
    assert json.loads((run / "summary.json").read_text())["steps"] == 24


@pytest.mark.slow
def test_a_pipe_gets_plain_lines_and_quiet_two(corpus, tmp_path):
    """Catches a tqdm bar outside of terminals, and a line that does not ask for progress."""
    words = ["pretrain", *SMALL, *corpus, f"runtime.runs_dir={tmp_path}"]
    told = run_script(*words)
    lines = told.stdout.splitlines()
    assert told.returncode == 0 and len(lines) > 6
    assert all(line.isprintable() for line in lines + told.stderr.splitlines()), told
    assert re.fullmatch(r"step 12/24  loss .*  valid [\d.]+  .*left \d+:\d\d", lines[4]), lines

    quiet = run_script(*words, "--quiet", "seed=1")
    metric, run = quiet.stdout.splitlines()
    assert re.fullmatch(
        r"valid/mlm_loss \d\.\d{3}( \[degenerate: no better than chance\])?", metric
    )
    assert (Path(run.removeprefix("run: ")) / "summary.json").is_file() and quiet.stderr == ""
    again = run_script(*words, "--quiet", "seed=1").stdout
    assert again == f"already done: {quiet.stdout}"

    mistaken = run_script(*words, "--quiet", "sed=1")
    assert (mistaken.returncode, mistaken.stdout) == (2, "")
    assert mistaken.stderr.startswith("error: ") and mistaken.stderr.count("\n") == 1


@pytest.mark.slow
def test_what_only_prints_ends_with_its_reader():
    study = REPOSITORY / "experiments" / "appendix" / "glue_real"
    child = start("scripts/tables.py", str(study))
    child.stdout.close()
    error = child.stderr.read()
    assert child.wait() == -13 and error == ""
