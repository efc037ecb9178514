"""FSDP: a model cut over processes trains as a whole one, and so do its checkpoints."""

import os
import signal
import time

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import assert_close, results
from tests.e2e.test_processes import finish, start
from tests.e2e.wmt_runs import SMALL, write_parallel_text

pytestmark = pytest.mark.slow
SHARDED = "runtime.fsdp=true"


UNEVEN = ["training.batch_size=9", "runtime.micro_batch_size=2", "training.valid_sequences=15"]
"""Shares of 4 and 5 in micro-batches of 2: the first rank lends a pass without weight."""


def test_sharded_equals_whole(arguments):
    """Catches that pass counted, and moments that are cut wrongly."""
    one = finish(arguments, *UNEVEN, runs="one")
    sharded = finish(arguments, *UNEVEN, SHARDED, runs="sharded", processes=2)
    assert_close(sharded, one, tolerance=1e-4)


def test_sharded_equals_whole_in_bf16(arguments):
    """Catches weights cast before autocast sees them: of the losses, for Adam makes steps of noise."""
    bf16 = [*UNEVEN, "training.precision=bf16"]
    one = finish(arguments, *bf16, runs="one")
    sharded = finish(arguments, *bf16, SHARDED, runs="sharded", processes=2)
    for row, expected in zip(results(sharded), results(one), strict=True):
        losses = {name: value for name, value in expected.items() if name.endswith("loss")}
        assert {name: row[name] for name in losses} == pytest.approx(losses, rel=1e-3)


def test_a_sharded_run_goes_on_whole_and_a_whole_one_sharded(arguments):
    longer = [
        "training.steps=240",
        "training.checkpoint_every=1000",
        "optimizer.learning_rate=1e-5",
    ]
    calm = finish(arguments, *longer, runs="calm")
    for processes, sharded in ((2, [SHARDED]), (1, [])):
        process, folder = start(
            arguments, *longer, *sharded, runs="moved", processes=processes, start_new_session=True
        )
        lines = len(rows(folder))
        while len(rows(folder)) < lines + 4:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=90)
        assert "stopped at step" in output, output
    moved = finish(arguments, *longer, SHARDED, runs="moved", processes=2)
    assert_close(moved, calm, tolerance=2e-3)


def rows(folder) -> list[str]:
    return [line for path in folder.glob("*/*/metrics.jsonl") for line in path.open()]


def test_sharded_translation_evaluates_and_scores(tmp_path):
    """Ranks decode and score different numbers of batches, which no exchange may wait for."""
    write_parallel_text(tmp_path / "text")
    arguments = [
        *SMALL,
        f"data.path={tmp_path / 'text'}",
        f"runtime.cache_dir={tmp_path / 'cache'}",
    ]
    arguments += [
        f"runtime.runs_dir={tmp_path / 'runs'}",
        "optimizer.learning_rate=1e-3",
        "optimizer.eps=1e-5",
    ]
    arguments += ["training.valid_bleu_sentences=5"]
    script = REPOSITORY / "scripts" / "wmt.py"
    one = finish(arguments, runs="one", script=script)
    sharded = finish(arguments, SHARDED, runs="sharded", processes=2, script=script)
    assert_close(sharded, one, tolerance=1e-4)


def test_one_process_has_nothing_to_share_with(arguments):
    process, _ = start(arguments, SHARDED, runs="refused")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2 and "Traceback" not in output
    assert "error: runtime.fsdp shares one model among processes: start 2 or more" in output
