"""What a pipeline gives the loop: a model, its batches, its loss and its evaluation."""

from __future__ import annotations

from typing import Any, Protocol

from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import Dataset

from roformer.config.schema import LoopConfig, OptimizerConfig, RuntimeConfig, ScheduleConfig

Batch = dict[str, Tensor]


class Task(Protocol):
    """What a pipeline trains. The loop knows batches as dicts and keys as opaque."""

    model: nn.Module
    description: dict[str, Any]
    """Plain data that tells this model from another; kept in every checkpoint."""
    monitor: str
    """The metric that the best checkpoint minimises."""
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

    def targets(self, batch: Batch) -> int:
        """Return how many terms the sum of `loss` has."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss summed over the targets, a scalar."""
        ...

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return `valid/…` metrics, equal on all ranks; called with gradients off, in eval mode."""
        ...


class Settings(Protocol):
    """The part of a pipeline's config that the loop reads."""

    @property
    def seed(self) -> int: ...
    @property
    def training(self) -> LoopConfig: ...
    @property
    def optimizer(self) -> OptimizerConfig: ...
    @property
    def schedule(self) -> ScheduleConfig: ...
    @property
    def runtime(self) -> RuntimeConfig: ...
