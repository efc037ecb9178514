"""Random numbers of a step, and signals in the workers of the data loader."""

from __future__ import annotations

import signal
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn


def ignore_signals(worker: int) -> None:
    """Keep a data loader's worker alive until the loop ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@runtime_checkable
class Redrawn(Protocol):
    """A part of a model that draws random numbers at some steps, as a function of the arguments only."""

    def begin_step(self, seed: int, layer: int, step: int) -> None: ...


def begin_step(model: nn.Module, seed: int, step: int, rank: int) -> None:
    """Seed torch for one step of one rank, so that dropout needs no saved state.

    The `Redrawn` parts of the model draw their numbers, the same on all ranks.
    """
    redrawn = [module for module in model.modules() if isinstance(module, Redrawn)]
    # Their streams are (seed, layer, interval): a spawn key makes the stream of dropout different.
    stream = np.random.SeedSequence((seed, step, rank), spawn_key=(1,) if redrawn else ())
    (state,) = stream.generate_state(1, np.uint64)
    torch.manual_seed(int(state) >> 1)
    for layer, module in enumerate(redrawn):
        module.begin_step(seed, layer, step)
