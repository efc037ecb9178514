"""One, two and four processes train the same model, in every pipeline, and go on for each other.

Batches of 9 and of 13 or 14 examples and updates of three buckets divide by neither 2 nor 4. Losses
are logged at every update, so that equal losses mean equal batches in an equal order. The rates are
low and the runs short: elsewhere the order of floating-point sums grows into another trajectory.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from roformer.training.process import leave_process_group
from tests.conftest import REPOSITORY
from tests.e2e import test_glue, wmt_runs
from tests.e2e.conftest import SMALL, assert_close, results, small_run, weights, write_corpus
from tests.e2e.test_processes import launcher

pytestmark = pytest.mark.slow
PRETRAIN = [
    *(*SMALL, "training.batch_size=9", "training.log_every=1", "optimizer.learning_rate=1e-3"),
    "runtime.keep_optimizer=true",  # a finished run is taken back to half way
]
GLUE = [
    *("recipe=smoke", "tracker=none", "jobs=1", "task=mrpc", "keep_weights=all"),
    *("data.train_examples=96", "data.max_train_examples=null", "data.validation_examples=40"),
    *("training.max_length=48", "training.epochs=2", "training.batch_size=15"),
    *("optimizer.learning_rate=[1e-4]", "runtime.device=cpu", "runtime.progress=false"),
    "runtime.tune_process=false",
]
WMT = [
    *(*wmt_runs.SMALL, "training.tokens_per_update=384", "training.bucket_tokens=128"),
    *("training.log_every=1", "optimizer.learning_rate=1e-3", "optimizer.eps=1e-5"),
]
CUT = "runtime.micro_batch_size=2"
PROCESSES = (1, 2, 4)


def train(folder: Path, processes: int) -> None:
    """Run every pipeline, as one of several processes; go on for two where they are half way."""
    cache, name = f"runtime.cache_dir={folder / 'cache'}", f"of {processes}"
    text = [f"data.path={folder / 'text.jsonl'}", cache, f"runtime.runs_dir={folder / 'runs'}"]
    small_run([*PRETRAIN, *text], *([CUT] if processes == 4 else []), runs=name)
    if processes != 2:
        small_run([*PRETRAIN, *text], runs=f"2 on {processes}")
    test_glue.run([*GLUE, cache, f"runtime.runs_dir={folder / name}"])
    pairs = [f"data.path={folder / 'parallel'}", *text[1:]]
    wmt_runs.small_run([*WMT, *pairs], runs=name)
    leave_process_group()


def half_way(run: Path, copy: Path) -> None:
    """Copy a finished run of 24 updates as it was after 12."""
    shutil.copytree(run, copy, symlinks=True)
    (copy / "summary.json").unlink()
    for step in (18, 24):
        shutil.rmtree(copy / "checkpoints" / f"step_{step:08d}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return where every pipeline was run by every number of processes."""
    folder = tmp_path_factory.mktemp("world")
    write_corpus(folder / "text.jsonl")
    wmt_runs.write_parallel_text(folder / "parallel")
    for processes in (2, 4, 1):
        command = [*launcher(processes), "-m", __name__, str(folder), str(processes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if processes == 2:
            for other in (1, 4):
                run = the_run(folder, "pretrain", "of 2")
                half_way(run, folder / f"2 on {other}" / "pretrain" / run.name)
    return folder


def the_run(folder: Path, pipeline: str, runs: str) -> Path:
    (run,) = (folder / runs / pipeline).iterdir()
    return run


def assert_equal(run: Path, one: Path) -> None:
    """All weights and metrics, and closer than those the loss of every update."""
    pairs = zip(results(run), results(one), strict=True)
    largest = max(abs(ours["train/loss"] - theirs["train/loss"]) for ours, theirs in pairs)
    print(f"{run.parent.parent.name}: training losses differ by at most {largest:.1e}")
    assert largest < 1e-5
    assert_close(run, one, tolerance=1e-4)


@pytest.mark.parametrize("pipeline", ["pretrain", "glue", "wmt"])
@pytest.mark.parametrize("processes", PROCESSES[1:])
def test_several_processes_equal_one(folder, pipeline, processes):
    """Catches a loss divided by a rank's own targets and ranks that read the same samples."""
    run, one = (the_run(folder, pipeline, f"of {n}") for n in (processes, 1))
    assert_equal(run, one)
    assert json.loads((run / "env.json").read_text())["devices"] == processes
    if pipeline == "pretrain":
        samples = [row["data/samples"] for row in results(run)]
        assert samples == [9 * update for update in range(1, 25)]
    if pipeline == "glue":  # every example once an epoch, and every prediction
        assert results(run)[-1]["data/samples"] == 2 * 96
        lines = (run / "predictions" / "validation.tsv").read_text().splitlines()
        assert [line.split("\t")[0] for line in lines] == ["index", *map(str, range(40))]
    if pipeline == "wmt":
        averaged = weights(run, "averaged")
        for name, tensor in weights(one, "averaged").items():
            assert (tensor - averaged[name]).abs().max() < 1e-4, name


@pytest.mark.parametrize("processes", [1, 4])
def test_a_checkpoint_of_two_processes_resumes_on_any_number(folder, processes):
    """Catches a checkpoint or an order of the data that knows how many processes there were."""
    run = the_run(folder, "pretrain", f"2 on {processes}")
    environment = json.loads((run / "env.json").read_text())
    assert environment["devices"] == 2
    assert [start["devices"] for start in environment["resumed"]] == [processes]
    assert_equal(run, the_run(folder, "pretrain", "of 1"))


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
