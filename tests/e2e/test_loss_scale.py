"""fp16's loss scaler, tried without a GPU: a scale so high that gradients overflow."""

from itertools import pairwise

import pytest
import torch

from roformer.errors import Diverged
from roformer.pipelines import run as runs
from roformer.tasks.mlm import MaskedLMTask
from tests.e2e.conftest import assert_same, results, small_run

pytestmark = pytest.mark.slow  # half precision is slow on CPUs


@pytest.fixture
def scaled(monkeypatch):
    """Have runs train in fp16, which configs forbid on a CPU, with a scale that begins at 2^24."""
    opened = runs.open_accelerator

    def with_scaler(*arguments):
        accelerator = opened(*arguments)
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=8)
        accelerator.native_amp = True
        accelerator.state._mixed_precision = "fp16"
        return accelerator

    monkeypatch.setattr(runs, "open_accelerator", with_scaler)


def test_the_scale_recovers_and_the_run_learns(arguments, scaled):
    """Catches a step that is made with overflowed gradients, and one counted as skipped twice."""
    _, folder = small_run(arguments, "training.steps=30", "training.log_every=1")
    rows = results(folder)
    skipped = rows[-1]["train/skipped_updates"]
    scales = [row["train/loss_scale"] for row in rows]
    halvings = sum(after < before for before, after in pairwise([2.0**24, *scales]))
    assert skipped == halvings > 1
    assert any(after > before for before, after in pairwise(scales))
    assert rows[-1]["train/loss"] < rows[0]["train/loss"]


def test_a_resumed_run_keeps_its_scale(arguments, scaled, resumed):
    _, calm = small_run(arguments)
    _, folder = resumed(15, small_run, arguments, runs="killed")
    assert_same(folder, calm)


def test_gradients_that_no_scale_mends_end_the_run(arguments, scaled, monkeypatch):
    """The loss is finite, so only the scale's fall shows it."""

    def broken(task, model, batch):
        loss = whole(task, model, batch)
        loss.register_hook(lambda gradient: gradient * float("nan"))
        return loss

    whole = MaskedLMTask.loss
    monkeypatch.setattr(MaskedLMTask, "loss", broken)
    with pytest.raises(Diverged, match="not finite at step 40"):
        small_run(arguments, "training.steps=60")
