"""Whole processes: several ranks, the command line itself."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roformer.training.checkpoint import Checkpoints
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow
SCRIPT = str(REPOSITORY / "scripts" / "pretrain.py")


def launcher(processes: int) -> list[str]:
    if processes == 1:
        return [sys.executable]
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={processes}",
    ]


def start(arguments, *overrides, runs, processes=1, script=SCRIPT, **options):
    """Start the script; return (process, folder of runs)."""
    folder = Path(next(a for a in arguments if a.startswith("runtime.runs_dir=")).partition("=")[2])
    folder = folder.with_name(runs)
    command = [
        *launcher(processes),
        str(script),
        *arguments,
        *overrides,
        f"runtime.runs_dir={folder}",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, **told, **options), folder


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.path=nowhere"], "error: data.path=nowhere does not exist"),
        (["resume=true"], "error: .*nothing to resume"),
        (["runtime.fsdp=true"], "error: runtime.fsdp shares one model .*: start 2 or more"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(arguments, overrides, message):
    process, _ = start(arguments, *overrides, runs="mistake")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and re.search(message, lines[0]), output
    assert "Traceback" not in output


def ranks_of(launcher: int) -> dict[int, int]:
    """Return the processes that a launcher started, by rank."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        for rank in (0, 1):
            if parent == launcher and b"LOCAL_RANK=%d" % rank in variables:
                found[rank] = int(entry.name)
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_does_not_leave_the_others_waiting(arguments, rank):
    """The launcher is stopped meanwhile, so that nobody but the ranks themselves can notice."""
    longer = ["training.steps=5000", "training.checkpoint_every=20"]
    process, folder = start(arguments, *longer, runs="left", processes=2, start_new_session=True)
    while not list(folder.glob("pretrain/*/checkpoints/step_*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    ranks = ranks_of(process.pid)
    process.send_signal(signal.SIGSTOP)
    os.kill(ranks[rank], signal.SIGKILL)
    other = Path(f"/proc/{ranks[1 - rank]}/status")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and other.exists() and "\tZ" not in other.read_text():
        time.sleep(0.1)
    assert time.monotonic() < deadline
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=60)
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
    assert lines == [
        "error: another process of this run ended (what it printed says why): start the same "
        "command again, it goes on from the last checkpoint"
    ]
    assert process.returncode != 0
    (run,) = folder.glob("pretrain/*-s0")
    assert not (run / "summary.json").exists()  # it did not fail: it was stopped
    found, problems = Checkpoints(run / "checkpoints", keep=1).last()
    assert found is not None and not problems
