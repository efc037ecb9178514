"""Random numbers of a step, and signals in the workers of the data loader."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import torch
from torch import nn


def ignore_signals(worker: int) -> None:
    """Keep a data loader's worker alive until the loop ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def begin_step(model: nn.Module, seed: int, step: int, rank: int) -> None:
    """Seed torch for one step of one rank, so that dropout needs no saved state.

    Parts with their own `begin_step`, such as `FavorFeatures`, draw their numbers, the same on all ranks.
    """
    redrawn: list[Any] = [module for module in model.modules() if hasattr(module, "begin_step")]
    # Their streams are (seed, layer, interval): a spawn key makes the stream of dropout different.
    stream = np.random.SeedSequence((seed, step, rank), spawn_key=(1,) if redrawn else ())
    (state,) = stream.generate_state(1, np.uint64)
    torch.manual_seed(int(state) >> 1)
    for layer, module in enumerate(redrawn):
        module.begin_step(seed, layer, step)
