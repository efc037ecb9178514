"""Precision of the forward pass, and what a launcher asks for."""

import weakref

import pytest
import torch
from torch import nn

from roformer.config.build import build
from roformer.config.schema import RuntimeConfig
from roformer.errors import InputError
from roformer.training.distributed import (
    PATIENCE,
    cast_like_autocast,
    open_accelerator,
    waiting_for_first,
)
from tests.training.small_loop import one_rank_of


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_prepared_model_returns_what_it_computed(precision):
    """Catches accelerate's conversion of the outputs, which copies all logits twice."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    accelerator = open_accelerator(build(RuntimeConfig, {"device": "cpu"}), precision, model)
    cast_like_autocast(model, accelerator.device, precision)
    y = accelerator.prepare(model)(torch.randn(5, 3))
    assert y.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
    accelerator.backward(y.sum())
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())


def test_a_process_may_train_in_another_precision_than_before():
    """As a fine-tuning in fp16 does after the pre-training that it has made."""
    for tf32, precision, half in (
        (True, "fp32", "no"),
        (False, "fp16", "fp16"),
        (False, "fp32", "no"),
    ):
        runtime = build(RuntimeConfig, {"device": "cpu", "tf32": tf32})
        assert open_accelerator(runtime, precision, nn.Linear(2, 2)).mixed_precision == half
        assert torch.backends.cuda.matmul.allow_tf32 is tf32


def test_a_launcher_shards_too_and_fp16_is_refused(monkeypatch):
    model, here = nn.Linear(2, 2), {"device": "cpu"}
    with pytest.raises(InputError, match="cannot train in fp16"):
        open_accelerator(build(RuntimeConfig, here | {"fsdp": True}), "fp16", model)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(InputError, match="start 2 or more"):
        open_accelerator(build(RuntimeConfig, here), "fp32", model)
    monkeypatch.setenv("WORLD_SIZE", "2")
    model.scale = nn.Parameter(torch.ones(()))  # as FIRE's c and multiplier
    with pytest.raises(InputError, match="cannot shard single numbers, as scale: leave"):
        open_accelerator(build(RuntimeConfig, here), "fp32", model)


def test_the_model_of_a_training_before_is_freed():
    """Of a GLUE grid in one process all would stay on the GPU: autocast makes each refer to itself."""
    runtime, before = build(RuntimeConfig, {"device": "cpu"}), nn.Linear(2, 2)
    cast_like_autocast(before, torch.device("cpu"), "bf16")
    alive = weakref.ref(before)
    del before
    open_accelerator(runtime, "bf16", nn.Linear(2, 2))
    assert alive() is None


@pytest.mark.parametrize("sharded", [False, True])
def test_only_the_wait_for_the_first_process_is_patient(monkeypatch, sharded):
    """A process that hangs in training is noticed after the backend's own timeout."""
    groups, waits = {}, []
    new_group = torch.distributed.new_group

    def made(timeout):
        group = new_group(timeout=timeout)
        groups[group] = timeout
        return group

    runtime = build(RuntimeConfig, {"device": "cpu", "fsdp": sharded})
    with one_rank_of(2):
        accelerator = open_accelerator(runtime, "fp32", nn.Linear(2, 2))
        assert accelerator.init_handler is None
        monkeypatch.setattr(torch.distributed, "new_group", made)
        monkeypatch.setattr(torch.distributed, "barrier", lambda group, **_: waits.append(group))
        with waiting_for_first(accelerator):
            assert not waits
    assert [groups[group] for group in waits] == [PATIENCE]
