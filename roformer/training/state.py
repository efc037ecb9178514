"""The state that a run resumes from, in addition to weights and moments; random numbers need none."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from roformer.errors import InputError
from roformer.training import checkpoint as checkpoints
from roformer.training.task import Task


@dataclass
class State:
    """The loop's counters, as state.json holds them."""

    step: int = 0
    tokens: int = 0
    samples: int = 0
    seconds: float = 0.0
    """Seconds spent in steps, without evaluation and checkpoints."""
    wall_seconds: float = 0.0
    """Seconds over all starts of the run."""
    window_loss: float | list[float] = 0.0
    """Loss summed over all ranks since the last log step, or each of its parts."""
    window_targets: int = 0
    window_steps: int = 0
    best: float | None = None
    best_step: int = 0
    best_metrics: dict[str, float] = field(default_factory=dict)
    """All metrics of the best evaluation; empty while the monitored metric is NaN."""
    scaler: dict[str, Any] | None = None
    """State of fp16's loss scaler."""
    skipped: int = 0
    """Steps that fp16's loss scaler skipped because gradients overflowed."""
    usual_loss: list[float] | None = None
    """`SpikeWatch.known`."""
    tracker_id: str | None = None


def restore(task: Task, checkpoint: Path | None) -> State:
    """Load a checkpoint's weights into the task's model; return the state to resume from."""
    if checkpoint is None:
        return State()
    checkpoints.load_model(checkpoint, task.model, task.description)
    try:
        return State(**checkpoints.load_state(checkpoint))
    except TypeError as error:
        raise InputError(
            f"{checkpoint} does not have the counters of this version ({error}): "
            "resume=false starts over"
        ) from error


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
