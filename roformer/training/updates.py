"""What an update is made of: the keys of its micro-batches, their order, its random numbers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from roformer.training.task import Batch, Task


class UpdateKeys(Sampler[Any]):
    """The keys of one rank's micro-batches in the given updates, made as they are needed."""

    def __init__(self, task: Task, updates: range, rank: int, world_size: int):
        self.task, self.updates, self.rank, self.world_size = task, updates, rank, world_size

    def __iter__(self) -> Iterator[Any]:
        for update in self.updates:
            yield from self.task.keys(update, self.rank, self.world_size)


def micro_batches(
    task: Task, keys: UpdateKeys, *, workers: int, pin_memory: bool
) -> Iterator[Batch]:
    """Return the micro-batches of these keys, made by `workers` processes or, of 0, by this one."""
    loader: DataLoader[Batch] = DataLoader(
        task.batches,
        sampler=keys,
        batch_size=None,
        num_workers=workers,
        pin_memory=pin_memory,
        worker_init_fn=leave_signals_to_the_parent,
    )
    return iter(loader)


def leave_signals_to_the_parent(worker: int) -> None:
    """Keep a batch-making process alive while the loop ends in order; it dies with the loop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def seed_generators(seed: int, update: int, rank: int) -> None:
    """Seed torch on all devices for one update of one rank, so that dropout needs no saved state."""
    (state,) = np.random.SeedSequence((seed, update, rank)).generate_state(1, np.uint64)
    torch.manual_seed(int(state) >> 1)
