"""What a run goes on from, and where that is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roformer.errors import InputError
from roformer.training import checkpoint as checkpoints
from roformer.training.task import Task


@dataclass
class State:
    """Everything a resumed run continues from, besides weights and moments."""

    step: int = 0
    tokens: int = 0
    samples: int = 0
    seconds: float = 0.0
    """Spent in updates: without evaluation and checkpoints."""
    wall_seconds: float = 0.0
    """Spent in all, over every start of the run."""
    window_loss: float = 0.0
    """Loss summed since the last log step, over all ranks; the targets and updates it covers."""
    window_targets: int = 0
    window_updates: int = 0
    best: float | None = None
    best_step: int = 0
    best_metrics: dict[str, float] = field(default_factory=dict)
    """All metrics of the evaluation whose monitored one is the best; none while that is NaN."""
    scaler: dict[str, Any] | None = None
    """Of fp16's loss scaler."""
    skipped: int = 0
    """Updates that fp16's loss scaler left out because its gradients overflowed."""
    usual_loss: list[float] | None = None
    """What `SpikeWatch` knows of the losses so far."""
    tracker_id: str | None = None


def restore(task: Task, checkpoint: Path | None) -> State:
    """Load a checkpoint's weights into the task's model and return the state to go on from.

    Raises:
        InputError: the checkpoint is of another model, or of another version of this code.
    """
    if checkpoint is None:
        return State()
    checkpoints.load_model(checkpoint, task.model, task.description)
    try:
        return State(**checkpoints.load_state(checkpoint))
    except TypeError as error:
        raise InputError(
            f"{checkpoint / checkpoints.STATE} does not have the counters of this version ({error}): "
            "resume=false starts over"
        ) from error
