"""The loop on a small model: memory, devices and communication."""

import contextlib
import functools
import math
import warnings

import pytest
import torch
from accelerate import Accelerator
from torch._dynamo.utils import counters
from torch.distributed.tensor import DTensor

from roformer.training import loop as loops
from tests.other_device import OTHER, another_device
from tests.property.models import build
from tests.training.small_loop import SmallTask, advance, one_rank_of, small_loop

ENCODINGS = ["rotary", "shaw", "t5", "alibi", "transformer_xl", "tupe", "deberta", "nezha", "fire"]


def test_gradients_of_a_sharded_model_are_sharded_after_every_micro_batch(tmp_path, monkeypatch):
    """Catches `no_sync`, under which every rank keeps the gradients of the whole model."""
    held = []
    loss = SmallTask.loss

    def watched(task, model, batch):
        held.append([parameter.grad for parameter in model.parameters()])
        return loss(task, model, batch)

    monkeypatch.setattr(SmallTask, "loss", watched)
    model = build("encoder", "rotary")
    whole = sum(parameter.numel() for parameter in model.parameters())
    with one_rank_of(2):
        advance(small_loop(tmp_path, model, fsdp=True, micro_batch_size=2), 1)
    first, second = held
    assert first == [None] * len(first)
    assert all(isinstance(gradient, DTensor) for gradient in second)
    assert sum(gradient.to_local().numel() for gradient in second) == whole // 2


def test_a_sharded_model_is_never_moved_whole(tmp_path, monkeypatch):
    """So that a model trains which fits on a device only in shards."""
    moved = []
    to = torch.nn.Module.to
    monkeypatch.setattr(torch.nn.Module, "to", lambda m, *a: [moved.append(m), to(m, *a)][1])
    model = build("encoder", "rotary")
    with one_rank_of(2):
        loop = small_loop(tmp_path, model, fsdp=True)
        assert not moved and all(isinstance(p, DTensor) for p in model.parameters())
        assert loop.optimizer.param_groups[0]["params"][0] in set(model.parameters())


def test_a_rank_without_a_sample_adds_nothing(tmp_path):
    """It takes part in the step, so that the others do not wait for it."""
    with one_rank_of(16):  # has no sample; the others, which have some, add nothing here
        loop = small_loop(tmp_path, build("encoder", "rotary"), fsdp=True)
        advance(loop, 1)
        assert loop.counts.tolist() == [0] * 4 and float(loop.window_loss) == 0
        loop._look()
    assert loop.norm == 0 and loop.spikes[0].known == [0.0] * 4


@pytest.mark.parametrize(("first", "best_step"), [(0.9, 4), (1.1, 2)])
def test_all_ranks_save_when_the_first_rank_improved(tmp_path, monkeypatch, first, best_step):
    """Catches ranks that decide by their own metric: one saves, and the others do not take part."""
    of_first, of_this = iter([1.0, first]), iter([1.0, 1.0])
    monkeypatch.setattr(SmallTask, "evaluate", lambda *_: {"valid/loss": next(of_this)})
    monkeypatch.setattr(loops, "broadcast_object_list", lambda _: [{"valid/loss": next(of_first)}])
    with one_rank_of(2, rank=1):
        state, metrics = small_loop(tmp_path, build("encoder", "rotary"), fsdp=True).run()
    assert state.best_step == best_step and metrics == {"valid/loss": first}


@pytest.mark.parametrize(
    ("name", "sharded"),
    [("rotary", True), *((name, False) for name in (*ENCODINGS, "kerple", "performer"))],
)
def test_one_graph_serves_all_layers_and_steps(tmp_path, monkeypatch, name, sharded):
    """With blocks that are recomputed. Catches what only the first layer derives, a key that differs in
    every pass, and hooks of FSDP in a graph."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    model = build("encoder", name, recompute=True, layers=2)
    with one_rank_of(2) if sharded else contextlib.nullcontext():
        advance(small_loop(tmp_path, model, compile=True, fsdp=sharded), 2)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


def test_several_processes_send_no_buffers_and_warn_of_nothing(tmp_path):
    with one_rank_of(2), warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        assert not small_loop(tmp_path, build("encoder", "rotary")).model.broadcast_buffers


@pytest.mark.parametrize("name", ["rotary", "performer"])
def test_a_step_never_waits_for_the_device(tmp_path, monkeypatch, name):
    """For every encoding see `tests.property.test_another_device`."""
    monkeypatch.setattr(Accelerator, "device", OTHER)
    with another_device() as read:
        loop = small_loop(tmp_path, build("encoder", name), micro_batch_size=4)
        read.clear()
        advance(loop, 1)
        assert read == []
        loop._look()
        assert read


def test_a_loss_scaler_is_read_only_where_it_is_logged(tmp_path, monkeypatch):
    loop = small_loop(tmp_path, build("encoder", "rotary"), scaler=torch.amp.GradScaler("cpu"))
    read, get_scale = [], torch.amp.GradScaler.get_scale
    monkeypatch.setattr(
        torch.amp.GradScaler, "get_scale", lambda s: [read.append(s), get_scale(s)][1]
    )
    advance(loop, 3)
    assert not read
    loop._look()
    assert loop._training_row()["train/loss_scale"] == 2**16 and len(read) == 1


SPIKE_OF_SECOND, CALM, DIVERGED = [[2.0, 1.0], [9.0, 1.0]], [[2.0, 1.0]] * 2, [[math.nan] * 2] * 2
ONE_DIVERGED = [[2.0, math.nan], [math.inf, math.nan]]


@pytest.mark.parametrize(
    ("steps", "spikes"),
    [
        ([CALM, CALM], []),
        ([SPIKE_OF_SECOND, CALM], [(1, 1, 9.0)]),
        ([SPIKE_OF_SECOND, SPIKE_OF_SECOND], [(1, 1, 9.0), (2, 1, 9.0)]),
        ([SPIKE_OF_SECOND, ONE_DIVERGED, SPIKE_OF_SECOND], [(1, 1, 9.0), (2, 1, math.nan)]),
        ([DIVERGED, CALM], [(1, 0, math.nan)]),
    ],
)
def test_spikes_of_all_ranks_are_reported_up_to_the_first_step_that_diverged(
    tmp_path, monkeypatch, steps, spikes
):
    """Spikes after it are of weights that are lost."""
    with one_rank_of(2):
        loop = small_loop(tmp_path, build("encoder", "rotary"), fsdp=True)
        advance(loop, len(steps))
    for watch in loop.spikes:
        watch.known = [100, 2.0, 0.0, 2.0]
    gathered = torch.tensor(steps, dtype=torch.float64).transpose(0, 1)
    monkeypatch.setattr(loop.accelerator, "gather", lambda _: gathered)
    reported = []
    for spike in loop._read_steps():
        assert spike.usual == pytest.approx(2.0, abs=0.1)
        reported.append((spike.step, spike.rank, spike.loss))
        if math.isnan(spike.loss):  # the loop ends here
            break
    assert str(reported) == str(spikes)
