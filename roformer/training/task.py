"""The interface of the loop to a pipeline: a model, its batches, its loss and its evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TypeVar

from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from roformer.config.schema import TRIAL, LoopConfig

Batch = dict[str, Tensor]
S = TypeVar("S", range, NDArray[Any])


class Task(ABC):
    """Data, model, batches, loss and score of a run.

    A task is made from a resolved config, and prepares its data. `build_model` then adds the model and
    everything below it.
    """

    config: Any
    """A `RunConfig`, resolved; it names the weights that the run starts from, if there are any."""
    fingerprint: str
    """Hash of what the result depends on in addition to the config: data, and weights to start from."""
    weights: str | None = None
    """SHA-256 of the weights to start from, unless `fingerprint` covers them."""
    tokenizer: Any
    """Saved in the run's folder as `tokenizer/`."""
    keep_only_best = False
    """True if a finished run keeps only its best checkpoint."""

    model: nn.Module
    description: dict[str, Any]
    """Plain data that identifies the model; kept in every checkpoint."""
    training: LoopConfig
    """Length of the loop, and its precision."""
    batches: Dataset[Batch]
    """`batches[key]` is a micro-batch; keys come from `keys`."""
    monitor: str
    """The metric that decides which checkpoint is the best."""
    higher_is_better = False
    """True if the best is its highest value, False if its lowest."""
    flops_per_token: float
    """Floating-point operations of a training step over the tokens it reads."""
    losses: tuple[str, ...] = ()
    """Names of the parts of `loss`, where it has several: logged as `train/<name>`."""
    keep_checkpoints = 1
    """Number of the newest checkpoints that the conclusion needs, whatever the runtime keeps."""

    @abstractmethod
    def build_model(self) -> None:
        """Build the model with its first weights, the batches and the description."""

    @abstractmethod
    def keys(self, step: int, rank: int, world_size: int) -> list[Any]:
        """Return the micro-batches of this rank in step 1, 2, …: at least one.

        Its key is empty where the rank has no sample.
        """

    def samples(self, key: Any) -> list[int]:
        """Return which rows of the prepared training data a micro-batch holds."""
        return [int(number) for number in key]

    @abstractmethod
    def targets(self, batch: Batch) -> int:
        """Return how many terms the sum of `loss` has."""

    def tokens(self, batch: Batch) -> int:
        """Return how many tokens are counted for a batch in the record and in tokens per second."""
        return self.targets(batch)

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss summed over the targets: a scalar, or one for each of `losses`."""

    @abstractmethod
    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return metrics, equal on all ranks; called with gradients off, in eval mode."""

    @abstractmethod
    def degenerate(self, metrics: dict[str, float]) -> bool:
        """Return whether these final metrics are what a model that learnt nothing would get."""

    def start(self) -> Path | None:
        """Return the checkpoint whose moments of AdamW a new run begins with; None: they are new."""
        return None

    def introduction(self) -> list[str]:
        """Return lines to print before the training; the run's id goes before the first one."""
        return []

    def facts(self) -> dict[str, Any]:
        """Return what the summary has in addition to the metrics."""
        return {}

    def conclude(self, run: Path) -> dict[str, Any]:
        """Score the trained model on the first process; return more for the summary.

        Its `metrics` are added to the metrics of the last evaluation.
        """
        return {}

    def result(self, summary: dict[str, Any], run: Path) -> list[str]:
        """Return lines to print at the end."""
        return [f"run: {run}"]


def is_trial(steps: int) -> bool:
    """Return whether a model trained for so few steps is not expected to have learnt anything."""
    return steps < TRIAL


def share_of(samples: S, rank: int, world_size: int, micro: int | None) -> list[S]:
    """Return a rank's share of the samples of all ranks, cut into micro-batches; None: into one."""
    count = len(samples)
    share = samples[rank * count // world_size : (rank + 1) * count // world_size]
    micro = micro or max(1, len(share))
    return [share[i : i + micro] for i in range(0, len(share), micro)]


def cost(summary: dict[str, Any]) -> str:
    """Return the steps, tokens and seconds of a finished run in words."""
    return (
        f"{summary['steps']} steps, {summary['tokens']:,} tokens, {summary['wall_seconds']:.0f} s"
    )


def not_learnt(summary: dict[str, Any], what: str) -> list[str]:
    """Return the line on a run whose status is `degenerate` and `what` it did not reach, or no line."""
    if summary["status"] != "degenerate":
        return []
    if is_trial(steps := summary["steps"]):
        return [f"{what}, as expected after so few steps ({steps}); status: degenerate"]
    return [f"{what}: the run counts as degenerate"]


def tokens_in(batch: Batch) -> int:
    """Return the tokens of a batch's `input_ids` without padding."""
    ids, mask = batch["input_ids"], batch.get("attention_mask")
    return ids.numel() if mask is None or mask.shape != ids.shape else int(mask.sum())
