"""Two machines, played by this one; the SLURM scripts, with SLURM's commands played by stand-ins."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import assert_close, small_run

pytestmark = pytest.mark.slow
NODES = 2
LONGER = ["training.steps=200", "training.checkpoint_every=1000", "optimizer.learning_rate=1e-5"]
"""At a low rate, so that the order of sums has no time to grow into another trajectory."""

SRUN = r"""#!/usr/bin/env bash
# One task a node, each in a process group of its own, as slurmstepd starts them; the highest code.
set -um
while [[ $1 == --* ]]; do shift; done
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
  *) echo "$*" >> "$FAKE_SLURM/told" ;;
esac
"""


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def runs_into(arguments: list[str], folder: Path) -> list[str]:
    return [
        *[a for a in arguments if not a.startswith("runtime.runs_dir")],
        f"runtime.runs_dir={folder}",
    ]


def test_two_machines_equal_one(arguments, tmp_path):
    """Through accelerate and conf/accelerate/multi_node.yaml: all that a machine is told."""
    _, one = small_run(arguments, runs="one")
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", str(REPOSITORY / "conf" / "accelerate" / "multi_node.yaml")),
        *("--num_machines", str(NODES), "--num_processes", str(NODES)),
        *("--main_process_ip", "127.0.0.1", "--main_process_port", str(free_port())),
    ]
    script = [str(REPOSITORY / "scripts" / "pretrain.py"), *runs_into(arguments, tmp_path / "two")]
    machines = [
        subprocess.Popen(
            [*command, "--machine_rank", str(rank), *script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(NODES)
    ]
    for machine in machines:
        output, _ = machine.communicate(timeout=200)
        assert machine.returncode == 0, output
    (two,) = (tmp_path / "two" / "pretrain").iterdir()
    assert_close(two, one, tolerance=1e-4)


class Slurm:
    """A job's environment: SLURM's variables, a working directory, and its commands' stand-ins."""

    def __init__(self, folder: Path, arguments: list[str]):
        self.folder, self.arguments = folder, arguments
        self.submitted = folder / "repository"
        (self.submitted / ".venv" / "bin").mkdir(parents=True)
        (self.submitted / "scripts").symlink_to(REPOSITORY / "scripts")
        (folder / "commands").mkdir()
        for path, content in (
            (
                self.submitted / ".venv" / "bin" / "python",
                f'#!/bin/sh\nexec {sys.executable} "$@"\n',
            ),
            (folder / "commands" / "srun", SRUN),
            (folder / "commands" / "scontrol", SCONTROL),
        ):
            path.write_text(content)
            path.chmod(0o755)
        self.state("RUNNING")
        self.job = free_port()  # of which the script makes its port

    def state(self, state: str) -> None:
        """Say what `scontrol show job` tells."""
        (self.folder / "state").write_text(state)

    def requests(self) -> str:
        """Return what the job has asked SLURM for."""
        told = self.folder / "told"
        return told.read_text() if told.exists() else ""

    def submit(self, script: str, restarts: int = 0) -> subprocess.Popen:
        """Start the batch script as slurmd does: bash, in a session of its own."""
        spooled = shutil.copy(
            REPOSITORY / "scripts" / "slurm" / script, self.folder / "slurm_script"
        )
        nodes = NODES if script == "several_nodes.sbatch" else 1
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'commands'}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "FAKE_SLURM": str(self.folder),
            "SLURM_JOB_ID": str(self.job),
            "SLURM_NNODES": str(nodes),
            "SLURM_JOB_NODELIST": f"node[1-{nodes}]",
            "SLURM_RESTART_COUNT": str(restarts),
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.Popen(
            ["bash", spooled, "pretrain", *self.arguments],
            cwd=self.submitted,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, pattern: str, job: subprocess.Popen) -> None:
        deadline = time.monotonic() + 120
        while not list(self.folder.glob(pattern)):
            assert job.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)

    def terminate(self, job: subprocess.Popen, *, batch: bool) -> tuple[int, str]:
        """Send SIGTERM to the tasks, with `batch` to the shell too; return its code and output."""
        for task in (self.folder / "tasks").read_text().split():
            os.kill(int(task), signal.SIGTERM)
        if batch:
            job.send_signal(signal.SIGTERM)
        output, _ = job.communicate(timeout=120)
        return job.returncode, output


def test_a_job_that_slurm_stops_is_queued_again_and_goes_on(arguments, tmp_path):
    """Told as before the time limit (tasks alone), then as preempted (the shell too) and requeued by
    SLURM itself; the third start finishes. Catches a shell that dies of the signal, ranks that are
    killed before they have saved, and a job that asks to be queued when it is already."""
    _, calm = small_run(arguments, *LONGER, runs="calm")
    slurm = Slurm(tmp_path / "slurm", [*runs_into(arguments, tmp_path / "slurm" / "runs"), *LONGER])
    job = slurm.submit("several_nodes.sbatch")
    slurm.wait_for("runs/pretrain/*/metrics.jsonl", job)
    code, output = slurm.terminate(job, batch=False)
    assert code == 143, output
    assert slurm.requests() == f"requeue {slurm.job}\n"
    (run,) = (tmp_path / "slurm" / "runs" / "pretrain").iterdir()
    first = (run / "checkpoints" / "last").resolve()
    assert first.exists() and not (run / "summary.json").exists()

    slurm.state("PENDING")
    rows = len((run / "metrics.jsonl").read_text().splitlines())
    job = slurm.submit("several_nodes.sbatch", restarts=1)
    while len((run / "metrics.jsonl").read_text().splitlines()) <= rows:
        assert job.poll() is None
        time.sleep(0.02)
    code, output = slurm.terminate(job, batch=True)
    assert code == 143, output
    assert slurm.requests().count("requeue") == 1
    assert (run / "checkpoints" / "last").resolve().name > first.name

    output, _ = (job := slurm.submit("several_nodes.sbatch", restarts=2)).communicate(timeout=200)
    assert job.returncode == 0, output
    assert "resuming at step" in output
    assert_close(run, calm, tolerance=2e-3)


def test_a_job_that_fails_is_not_queued_again(arguments, tmp_path):
    slurm = Slurm(tmp_path / "slurm", [*arguments, "data.path=nowhere"])
    output, _ = (job := slurm.submit("one_node.sbatch")).communicate(timeout=120)
    assert "error: data.path=nowhere does not exist" in output
    assert job.returncode not in (0, 143)
    assert slurm.requests() == ""
