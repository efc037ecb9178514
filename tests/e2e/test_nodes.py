"""Two machines, simulated on this one; the SLURM scripts, with fakes of SLURM's commands."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import assert_close, small_run
from tests.scripts import free_port, until

pytestmark = pytest.mark.slow
LONGER = ["training.steps=150", "training.checkpoint_every=1000", "optimizer.learning_rate=1e-5"]
"""At a low rate, so that the order of sums has no time to grow into another trajectory."""

SRUN = r"""#!/usr/bin/env bash
# One task a node, each in a process group of its own, as slurmstepd starts them; the highest code.
set -um
while [[ $1 == --* ]]; do echo "$1" >> "$FAKE_SLURM/options"; shift; done
tasks=()
for node in $(seq "$SLURM_NNODES"); do
  SLURM_NODEID=$((node - 1)) "$@" &
  tasks+=($!)
done
echo "${tasks[@]}" > "$FAKE_SLURM/tasks"
worst=0
for task in "${tasks[@]}"; do
  code=0; wait "$task" || code=$?
  ((code > worst)) && worst=$code
done
exit "$worst"
"""
SCONTROL = r"""#!/usr/bin/env bash
case "$1 $2" in
  "show hostnames") for _ in $(seq "$SLURM_NNODES"); do echo localhost; done ;;
  "show job") echo "JobId=$3 JobName=roformer"; echo "   JobState=$(cat "$FAKE_SLURM/state") Reason=None" ;;
  *) echo "$*" >> "$FAKE_SLURM/requests" ;;
esac
"""
LAUNCHER = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
STAND_IN = r"""#!/usr/bin/env bash
# Plays torchrun and a rank: its code does not tell a rank that was asked to stop from one that failed.
[[ $* == *nowhere* ]] && { touch "$FAKE_SLURM/started.$SLURM_NODEID"; exit 2; }
(
  trap 'echo told >> "$FAKE_SLURM/signals"; kill $!; sleep 0.3; exit 143' TERM
  touch "$FAKE_SLURM/started.$SLURM_NODEID"
  sleep 30 & wait
) &
wait $! || exit 1
"""


class Slurm:
    """A job's environment: SLURM's variables, a working directory, and fakes of its commands."""

    def __init__(self, folder: Path, launcher: str):
        self.folder, self.submitted = folder, folder / "repository"
        (self.submitted / ".venv" / "bin").mkdir(parents=True)
        (self.submitted / "scripts").symlink_to(REPOSITORY / "scripts")
        (folder / "commands").mkdir()
        for path, content in (
            (self.submitted / ".venv" / "bin" / "python", launcher),
            (folder / "commands" / "srun", SRUN),
            (folder / "commands" / "scontrol", SCONTROL),
        ):
            path.write_text(content)
            path.chmod(0o755)
        (folder / "state").write_text("RUNNING")
        self.job = free_port()  # of which the script makes its port

    def told(self, what: str) -> str:
        """Return the lines of `requests` to SLURM, of `options` of a step, or of `signals` to launchers."""
        file = self.folder / what
        return file.read_text() if file.exists() else ""

    def submit(self, *arguments: str, nodes: int = 2, restarts: int = 0) -> subprocess.Popen:
        """Start the batch script as slurmd does: bash, in a separate session."""
        batch = REPOSITORY / "scripts" / "slurm" / "job.sbatch"
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'commands'}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "FAKE_SLURM": str(self.folder),
            "SLURM_JOB_ID": str(self.job),
            "SLURM_NNODES": str(nodes),
            "SLURM_JOB_NODELIST": f"node[1-{nodes}]",
            "SLURM_RESTART_COUNT": str(restarts),
            "SLURM_CPUS_PER_TASK": "2",
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.Popen(
            ["bash", shutil.copy(batch, self.folder / "slurm_script"), "pretrain", *arguments],
            cwd=self.submitted,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def terminate(self, job: subprocess.Popen, pattern: str, *, batch: bool = False) -> str:
        """Once files exist, send SIGTERM to tasks, and to the shell if `batch`; return output."""
        until(lambda: job.poll() is not None or list(self.folder.glob(pattern)))
        for task in (self.folder / "tasks").read_text().split():
            os.kill(int(task), signal.SIGTERM)
        if batch:
            job.send_signal(signal.SIGTERM)
        output, _ = job.communicate(timeout=120)
        assert job.returncode == 143, output
        return output


def test_a_job_that_slurm_stops_is_queued_again_and_goes_on(arguments, tmp_path):
    """Told as before the time limit. Catches ranks that are killed before they have saved."""
    slurm = Slurm(tmp_path / "slurm", LAUNCHER)
    overrides = [*arguments, f"runtime.runs_dir={tmp_path / 'slurm' / 'runs'}", *LONGER]
    slurm.terminate(slurm.submit(*overrides), "runs/pretrain/*/metrics.jsonl")
    assert slurm.told("requests") == f"requeue {slurm.job}\n"
    (run,) = (tmp_path / "slurm" / "runs" / "pretrain").iterdir()
    assert (run / "checkpoints" / "last").exists() and not (run / "summary.json").exists()

    job = slurm.submit(*overrides, restarts=1)
    _, calm = small_run(arguments, *LONGER, runs="calm")
    output, _ = job.communicate(timeout=200)
    assert job.returncode == 0, output
    assert "resuming at step" in output
    assert_close(run, calm, tolerance=2e-3)


@pytest.mark.parametrize(("batch", "state"), [(False, "RUNNING"), (True, "PENDING")])
def test_a_job_that_is_told_to_stop_asks_to_be_queued_unless_it_is(tmp_path, batch, state):
    """Catches a shell that dies of the signal, and a launcher that gets the signal twice."""
    slurm = Slurm(tmp_path, STAND_IN)
    job = slurm.submit()
    until(lambda: (tmp_path / "started.0").exists() and (tmp_path / "started.1").exists())
    (tmp_path / "state").write_text(state)
    slurm.terminate(job, "started.1", batch=batch)
    assert slurm.told("requests") == (f"requeue {slurm.job}\n" if state == "RUNNING" else "")
    assert "--cpus-per-task=2" in slurm.told("options").split()  # a step does not have its job's
    assert slurm.told("signals") == "told\n" * 2


def test_a_job_that_fails_is_not_queued_again(tmp_path):
    slurm = Slurm(tmp_path, STAND_IN)
    (job := slurm.submit("data.path=nowhere", nodes=1)).communicate(timeout=120)
    assert job.returncode == 2 and slurm.told("requests") == ""
