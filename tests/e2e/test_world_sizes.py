"""One, two and four processes train the same model, in every pipeline, and go on for each other.

Batches of 9 and of 13 or 14 examples and steps of three buckets divide by neither 2 nor 4. Losses
are logged at every step, so that equal losses mean equal batches in an equal order. The rates are
low and the runs short: elsewhere the order of floating-point sums grows into another trajectory.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from roformer.training.distributed import leave_process_group
from tests.e2e import lm_runs, test_convert, test_glue, test_scm, wmt_runs
from tests.e2e.conftest import (
    SMALL,
    assert_close,
    places,
    results,
    run_in_process,
    small_run,
    weights,
    write_corpus,
)
from tests.scripts import forkserver, free_port

pytestmark = pytest.mark.slow
STEPS = ["steps=12", "log_every=1", "evaluate_every=6", "checkpoint_every=3"]
SHORT = [f"training.{key}" for key in STEPS]
ODD = ["training.batch_size=9", "training.valid_sequences=15"]
PRETRAIN = [
    *(*SMALL, *ODD, *SHORT, "optimizer.learning_rate=1e-3"),
    "runtime.keep_optimizer=true",  # a finished run is taken back to half way
]
BF16 = [*PRETRAIN, "training.precision=bf16"]
GLUE = [
    *(*test_glue.SMALL, "keep_weights=all", "training.batch_size=15", "seed=[0]"),
    "optimizer.learning_rate=[1e-4]",
]
WMT = [
    *(*wmt_runs.SMALL, *SHORT, "training.tokens_per_update=384", "training.bucket_tokens=128"),
    *("optimizer.learning_rate=1e-3", "optimizer.eps=1e-5", "training.valid_bleu_sentences=5"),
]
SCM = [*test_scm.SMALL, "training.batch_size=6", "training.epochs=1", "training.loss=bce"]
CONVERT = [*test_convert.SMALL, *ODD, *SHORT, "optimizer.learning_rate=1e-4"]
LM = [*ODD, *SHORT, "optimizer.learning_rate=1e-4"]
CUT, SHARDED = "runtime.micro_batch_size=2", "runtime.fsdp=true"
BEGUN = {"of 2": ("whole on 1", "whole on 4", "whole on 4 sharded"), "sharded": ("sharded on 1",)}
"""Runs of two processes, and those that go on from half way with others."""


def train(folder: Path, processes: int) -> None:
    """Run every pipeline as one of several processes; two of them also sharded."""
    where, name = places(folder), f"of {processes}"
    cache = where[1]
    text = [f"data.path={folder / 'text.jsonl'}", *where]
    pairs = [f"data.path={folder / 'parallel'}", *where]
    small_run([*PRETRAIN, *text], *([CUT] if processes == 4 else []), runs=name)
    if processes != 2:
        small_run([*PRETRAIN, *text], runs=f"whole on {processes}")
    test_glue.run([*GLUE, cache, f"runtime.runs_dir={folder / name}"])
    wmt_runs.small_run([*WMT, *pairs], runs=name)
    if processes < 4:
        small_run([*PRETRAIN, *text, "objective=mlm_nsp"], runs=f"pairs {name}")
        run_in_process("scm", [*SCM, *where], runs=name)
        original = f"init_from={folder / 'original'}"
        run_in_process("convert", [*CONVERT, *text, original], runs=name)
        for pipeline in lm_runs.SMALL:
            lm_runs.small_run(pipeline, [*LM, *text], runs=name)
    if processes == 1:
        small_run([*PRETRAIN, *text], runs="sharded on 1")
        small_run([*BF16, *text], runs="bf16 whole")
    # Sharded runs are the last ones: accelerate keeps its settings in the process.
    if processes == 4:
        small_run([*PRETRAIN, *text, SHARDED], runs="whole on 4 sharded")
    if processes == 2:  # shares of 4 and 5 in micro-batches of 2: the first rank lends a pass
        small_run([*PRETRAIN, *text, CUT, SHARDED], runs="sharded")
        small_run([*BF16, *text, CUT, SHARDED], runs="bf16 sharded")
        wmt_runs.small_run([*WMT, *pairs, SHARDED], runs="sharded")
        test_glue.run([*GLUE, cache, SHARDED, f"runtime.runs_dir={folder / 'sharded'}"])
    leave_process_group()


def half_way(run: Path, copy: Path) -> None:
    """Copy a finished run of 12 steps as it was after 9, with damage that only a checksum finds."""
    shutil.copytree(run, copy, symlinks=True)
    (copy / "summary.json").unlink()
    shutil.rmtree(copy / "checkpoints" / "step_00000012")
    with (copy / "checkpoints" / "step_00000009" / "model.safetensors").open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(bytes(100))


def train_as(rank: int, processes: int, port: int, folder: Path) -> None:
    """Train as the process that torchrun starts for a rank."""
    if processes > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ |= {name: str(rank) for name in ("RANK", "LOCAL_RANK")}
        os.environ |= {name: str(processes) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    train(folder, processes)


def start(folder: Path, processes: int) -> None:
    given = (processes, free_port(), folder)
    ranks = [forkserver().Process(target=train_as, args=(n, *given)) for n in range(processes)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0] * processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return where every pipeline was run by every number of processes."""
    folder = tmp_path_factory.mktemp("world")
    write_corpus(folder / "text.jsonl")
    wmt_runs.write_parallel_text(folder / "parallel")
    test_convert.original(folder / "original")
    start(folder, 2)
    for begun, others in BEGUN.items():
        run = the_run(folder, "pretrain", begun)
        for other in others:
            half_way(run, folder / other / "pretrain" / run.name)
    start(folder, 4)
    start(folder, 1)
    return folder


def the_run(folder: Path, pipeline: str, runs: str) -> Path:
    (run,) = (folder / runs / pipeline).iterdir()
    return run


def assert_equal(run: Path, one: Path) -> None:
    """All weights and metrics, and closer than those the loss of every step."""
    pairs = zip(results(run), results(one), strict=True)
    largest = max(abs(ours["train/loss"] - theirs["train/loss"]) for ours, theirs in pairs)
    print(f"{run.parent.parent.name}: training losses differ by at most {largest:.1e}")
    assert largest < 1e-5
    assert_close(run, one, tolerance=1e-4)


EVERY = [(2, name) for name in ("pretrain", "glue", "wmt", "scm", "clm", "charlm", "convert")]


@pytest.mark.parametrize(("processes", "pipeline"), [*EVERY, *((4, name) for _, name in EVERY[:3])])
def test_several_processes_equal_one(folder, pipeline, processes):
    """Catches a loss divided by a rank's own targets and ranks that read the same samples."""
    run, one = (the_run(folder, pipeline, f"of {n}") for n in (processes, 1))
    assert_equal(run, one)
    assert json.loads((run / "env.json").read_text())["devices"] == processes
    if pipeline == "pretrain":
        samples = [row["data/samples"] for row in results(run)]
        assert samples == [9 * step for step in range(1, 13)]
    if pipeline == "glue":  # every example once an epoch, and every prediction
        assert results(run)[-1]["data/samples"] == 2 * 96
        lines = (run / "predictions" / "validation.tsv").read_text().splitlines()
        assert [line.split("\t")[0] for line in lines] == ["index", *map(str, range(40))]
    if pipeline == "wmt":
        torch.testing.assert_close(
            weights(run, "averaged"), weights(one, "averaged"), atol=1e-4, rtol=0.0
        )


def test_pairs_of_segments_on_two_processes_equal_one(folder):
    """Catches parts of the loss that are not summed over the ranks."""
    run, one = (the_run(folder, "pretrain", f"pairs of {n}") for n in (2, 1))
    assert_equal(run, one)
    assert all("train/nsp_loss" in row for row in results(run))


@pytest.mark.parametrize("pipeline", ["pretrain", "glue", "wmt"])
def test_a_sharded_model_trains_as_a_whole_one(folder, pipeline):
    """Catches the lent pass counted, and moments that are cut wrongly; translation decodes different
    numbers of batches on its ranks, which no exchange may wait for."""
    assert_close(
        the_run(folder, pipeline, "sharded"), the_run(folder, pipeline, "of 1"), tolerance=1e-4
    )


def test_a_sharded_model_trains_in_bf16_as_a_whole_one(folder):
    """Catches weights cast before autocast sees them: of the losses, for Adam makes steps of noise."""
    sharded, whole = (
        results(the_run(folder, "pretrain", f"bf16 {how}")) for how in ("sharded", "whole")
    )
    for row, expected in zip(sharded, whole, strict=True):
        losses = {name: value for name, value in expected.items() if name.endswith("loss")}
        assert {name: row[name] for name in losses} == pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize("runs", [run for others in BEGUN.values() for run in others])
def test_a_checkpoint_of_two_processes_resumes_on_any_number(folder, runs):
    """Catches a checkpoint or an order of the data that depends on the number of processes, and ranks
    that resume from a checkpoint which the first one found damaged."""
    run = the_run(folder, "pretrain", runs)
    environment = json.loads((run / "env.json").read_text())
    assert environment["devices"] == 2
    assert [start["devices"] for start in environment["resumed"]] == [int(runs.split()[2])]
    assert_equal(run, the_run(folder, "pretrain", "of 1"))
