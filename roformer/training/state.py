"""The state that a run resumes from, in addition to weights and moments."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
