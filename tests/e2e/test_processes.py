"""Whole processes: several ranks, the command line itself."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import assert_close, results

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
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        **options,
    )
    return process, folder


def finish(arguments, *overrides, runs, processes=1, script=SCRIPT) -> Path:
    """Run the script to its end; return the run's folder."""
    process, folder = start(arguments, *overrides, runs=runs, processes=processes, script=script)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    (run,) = folder.glob("*/*-s0")
    return run


def test_two_processes_equal_one_and_equal_accumulation(arguments):
    """Batches of 8 = 2 processes x 4 = 4 steps of 2; 9 does not divide evenly, on purpose."""
    for batch in (8, 9):
        size = f"training.batch_size={batch}"
        one = finish(arguments, size, runs=f"one{batch}")
        two = finish(arguments, size, runs=f"two{batch}", processes=2)
        four = finish(arguments, size, "runtime.micro_batch_size=2", runs=f"four{batch}")
        assert_close(two, one, tolerance=1e-4)
        assert_close(four, one, tolerance=1e-4)


def test_more_processes_than_sequences_is_refused(arguments):
    process, _ = start(arguments, "training.batch_size=1", runs="thin", processes=2)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "error: training.batch_size=1 is less than the 2 processes" in output


def test_a_run_of_two_processes_resumes_on_one(arguments):
    """At a low rate, so that the order of sums has no time to grow into another trajectory."""
    longer = [
        "training.steps=200",
        "training.checkpoint_every=1000",
        "optimizer.learning_rate=1e-5",
    ]
    calm = finish(arguments, *longer, runs="calm")
    process, folder = start(arguments, *longer, runs="moved", processes=2, start_new_session=True)
    while not list(folder.glob("pretrain/*/metrics.jsonl")):
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    (run,) = (folder / "pretrain").iterdir()
    assert (run / "checkpoints" / "last").exists(), output
    assert_close(finish(arguments, *longer, runs="moved"), calm, tolerance=2e-3)


def test_wandb_offline_mirrors_the_metrics(arguments, tmp_path):
    run = finish(arguments, "tracker=wandb", "tracker.mode=offline", runs="tracked")
    (offline,) = run.glob("wandb/offline-run-*")
    assert next(offline.glob("run-*.wandb")).stat().st_size > 0
    assert len(results(run)) == 6


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.path=nowhere"], "error: data.path=nowhere does not exist"),
        (["model.position.bse=1"], "error: model.position.bse: unknown key; valid keys here: base"),
        (["model/position=rop"], "Available options in 'model/position': alibi"),
        (["resume=true"], "error: .*nothing to resume"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(arguments, overrides, message):
    process, _ = start(arguments, *overrides, runs="mistake")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2, output
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and re.search(message, lines[0]), output
    assert "Traceback" not in output
