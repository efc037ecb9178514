"""The GPU report: its commands exist, and a part that fails does not end the others."""

import os
import subprocess

from benchmarks.__main__ import SUITES
from roformer import registry
from roformer.config.composing import compose
from tests.conftest import REPOSITORY

PYTHON = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *pytest*) exit 1 ;; esac
"""


def test_every_command_is_of_a_script_and_suite_that_exist(tmp_path):
    """Catches a renamed suite, an override that a pipeline does not have, and a stop after a failure."""
    calls, python = tmp_path / "calls", tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    copied = tmp_path / "scripts" / "gpu_report.sh"
    copied.parent.mkdir()
    copied.write_text((REPOSITORY / "scripts" / "gpu_report.sh").read_text())
    outside = os.environ | {"CALLS": str(calls), "PYTHON": str(python)}
    done = subprocess.run(["bash", copied], env=outside, capture_output=True, text=True)
    assert done.returncode == 0 and "[exit code 1]" in done.stdout
    assert (tmp_path / "runs" / "gpu_report" / "log.txt").read_text() == done.stdout
    _check, *commands = (line.split() for line in calls.read_text().splitlines())
    pipelines = {entry.script: name for name, entry in registry.pipelines().items()}
    trained = set()
    for script, *words in commands:
        if script in pipelines:
            pipeline = registry.get(pipelines[script])
            compose(pipeline.name, words)
            trained.add(pipeline.name)
        elif words[0] == "benchmarks":
            assert words[1] in SUITES
    assert trained == {*pipelines.values()} - {"convert"}  # it needs a trained run
