"""What a pipeline gives the loop: a model, its batches, its loss and its evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import Dataset

from roformer.config.schema import LoopConfig, OptimizerConfig, RuntimeConfig, ScheduleConfig

Batch = dict[str, Tensor]
TRIAL = 100
"""Steps below which a training says nothing of its settings: it is a trial of the machinery."""


class Task(Protocol):
    """What a pipeline trains. The loop knows batches as dicts and keys as opaque."""

    model: nn.Module
    description: dict[str, Any]
    """Plain data that tells this model from another; kept in every checkpoint."""
    monitor: str
    """The metric that decides which checkpoint is the best."""
    higher_is_better: bool
    """Whether the best is the highest value of it, or the lowest."""
    flops_per_token: float
    """Floating-point operations of a training step over the tokens it reads."""

    @property
    def batches(self) -> Dataset[Batch]:
        """`batches[key]` is a micro-batch; keys come from `keys`."""
        ...

    def degenerate(self, metrics: dict[str, float]) -> bool:
        """Return whether these final metrics are what a model that learnt nothing would get."""
        ...

    def keys(self, update: int, rank: int, world_size: int) -> list[Any]:
        """Return the micro-batches of this rank in update 1, 2, …: at least one."""
        ...

    def samples(self, key: Any) -> list[int]:
        """Return which rows of the prepared training data a micro-batch holds."""
        ...

    def texts(self, batch: Batch) -> list[str]:
        """Return a readable line for each sample of a batch."""
        ...

    def targets(self, batch: Batch) -> int:
        """Return how many terms the sum of `loss` has."""
        ...

    def tokens(self, batch: Batch) -> int:
        """Return how many tokens a batch counts for in the record and in tokens per second."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss summed over the targets, a scalar."""
        ...

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return metrics, equal on all ranks; called with gradients off, in eval mode."""
        ...


@dataclass(frozen=True)
class Settings:
    """The part of a pipeline's config that the loop reads."""

    seed: int
    training: LoopConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    runtime: RuntimeConfig
    keep_checkpoints: int = 1
    """How many of the newest checkpoints the pipeline needs, whatever the runtime keeps."""


def is_trial(steps: int) -> bool:
    """Return whether a model trained for so few steps is not expected to have learnt anything."""
    return steps < TRIAL


def not_learnt(steps: int, what: str) -> str:
    """Return the line on a run whose status is `degenerate`.

    Args:
        steps: of the run.
        what: was not reached: `the loss is not below the unigram entropy`.
    """
    if is_trial(steps):
        return f"{what}, as expected after so few steps ({steps}); status: degenerate"
    return f"{what}: the run counts as degenerate"


def tokens_in(batch: Batch) -> int:
    """Return the tokens of a batch's `input_ids` without padding."""
    mask = batch.get("attention_mask")
    if mask is not None and mask.ndim == 2:
        return int(mask.sum())
    return batch["input_ids"].numel()
