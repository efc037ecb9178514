"""The loop on a small model: memory, devices and communication."""

import torch
from torch.distributed.tensor import DTensor

from tests.property.models import build
from tests.training.small_loop import SmallTask, one_rank_of, small_loop


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
        small_loop(tmp_path, model, fsdp=True, micro_batch_size=2).advance(1)
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
