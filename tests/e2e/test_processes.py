"""Whole processes, of which one dies."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roformer.training.checkpoint import Checkpoints
from tests.conftest import REPOSITORY
from tests.scripts import until

pytestmark = pytest.mark.slow
SCRIPT = str(REPOSITORY / "scripts" / "pretrain.py")


def launcher(processes: int) -> list[str]:
    if processes == 1:
        return [sys.executable]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*torchrun, f"--nproc-per-node={processes}"]


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
def test_a_rank_that_dies_does_not_leave_the_others_waiting(arguments, tmp_path, rank):
    """The launcher is stopped meanwhile, so that nobody but the ranks themselves can notice."""
    process = subprocess.Popen(
        [
            *(*launcher(2), SCRIPT, *arguments, "training.steps=5000"),
            "training.checkpoint_every=20",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    saved = tmp_path / "runs" / "pretrain"
    until(lambda: process.poll() is not None or list(saved.glob("*/checkpoints/step_*")))
    ranks = ranks_of(process.pid)
    process.send_signal(signal.SIGSTOP)
    os.kill(ranks[rank], signal.SIGKILL)
    other = Path(f"/proc/{ranks[1 - rank]}/status")
    until(lambda: not other.exists() or "\tZ" in other.read_text(), seconds=60)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=60)
    (line,) = (line for line in output.splitlines() if line.startswith("error: "))
    assert re.fullmatch(
        r"error: another process of this run ended or cannot be reached \(what it printed says why; "
        r"here: .+\): start the same command again, it resumes from the last checkpoint",
        line,
    )
    assert process.returncode != 0
    (run,) = saved.glob("*-s0")
    assert not (run / "summary.json").exists()  # it did not fail: it was stopped
    found, problems = Checkpoints(run / "checkpoints", keep=1).last()
    assert found is not None and not problems
