"""A loop over a small model and random tokens, without a pipeline, as any rank of several."""

import contextlib
import os
from types import SimpleNamespace
from unittest import mock

import torch
from accelerate.state import AcceleratorState, PartialState
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import Dataset

from roformer.config.build import build
from roformer.config.schema import LoopConfig, OptimizerConfig, RuntimeConfig, ScheduleConfig
from roformer.training.distributed import open_accelerator
from roformer.training.loop import Loop
from roformer.training.records import RunFolder
from roformer.training.state import State
from roformer.training.task import Task, share_of
from roformer.training.tracking import NoTracker
from tests.property import models

ROWS = 8
"""Rows of a step, over all ranks."""
EVERY = {"log_every": 2, "evaluate_every": 2, "checkpoint_every": 2}


class Tokens(Dataset):
    def __getitem__(self, rows):
        return {"input_ids": models.tokens(ROWS)[list(rows) or [0]]}


class SmallTask(Task):
    """Predict the tokens that the model reads."""

    monitor, flops_per_token, description, batches = "valid/loss", 0.0, {}, Tokens()

    def __init__(self, model, training, micro):
        self.model, self.training, self.micro = model, training, micro

    def keys(self, step, rank, world_size):
        return share_of(range(ROWS), rank, world_size, self.micro) or [range(0)]

    def targets(self, batch):
        return batch["input_ids"].numel()

    def loss(self, model, batch):
        ids = batch["input_ids"]
        return functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten(), reduction="sum")

    def evaluate(self, model, accelerator):
        return {"valid/loss": 1.0}

    def build_model(self):
        pass

    def degenerate(self, metrics):
        return False


def small_loop(folder, model, *, steps=4, precision="fp32", scaler=None, **runtime):
    """Return a loop in `folder`; `scaler` is of fp16, `runtime` are keys of the config's part."""
    runtime = build(RuntimeConfig, {"device": "cpu", "tune_process": False, **runtime})
    training = build(LoopConfig, {**EVERY, "steps": steps, "precision": precision})
    task = SmallTask(model, training, runtime.micro_batch_size)
    optimizer = build(OptimizerConfig, {"learning_rate": 1e-3})
    schedule = build(ScheduleConfig, {"kind": "constant"})
    task.config = SimpleNamespace(
        seed=0, optimizer=optimizer, schedule=schedule, runtime=runtime, training=training
    )
    run = RunFolder(folder / "runs" / "small" / "run")
    run.path.mkdir(parents=True, exist_ok=True)
    accelerator = open_accelerator(runtime, precision, model)
    accelerator.scaler = scaler
    return Loop(task, accelerator, run, NoTracker(), State(), None)


def advance(loop, steps):
    """Train the first steps, without records, evaluation or checkpoints."""
    batches = loop._batches()
    for _ in range(steps):
        loop._step(batches)


@contextlib.contextmanager
def one_rank_of(world_size, rank=0):
    """Be one rank of several without the others, who add nothing to a sum."""
    of_all = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(world_size))
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    forget()
    with mock.patch.dict(os.environ, of_all | ranks):
        group = {"rank": rank, "world_size": world_size}
        torch.distributed.init_process_group("fake", store=FakeStore(), **group)
        try:
            yield
        finally:
            torch.distributed.destroy_process_group()
            forget()


def forget():
    """Make accelerate forget what this process was before."""
    AcceleratorState._reset_state()
    PartialState._reset_state()
