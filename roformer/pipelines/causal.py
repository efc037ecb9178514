"""What byte-level and token-level language models share: their task, and how a trained one is scored.

Shapes: B batch, T sequence, V vocabulary.
"""

from __future__ import annotations

import json
import math
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.build import plain
from roformer.config.lm import LanguageModelConfig
from roformer.data.causal import CausalBatches, CausalBlocks, batch_of, validation_sample
from roformer.data.mlm import IGNORED, unigram_entropy
from roformer.data.shards import TokenStream
from roformer.errors import InputError
from roformer.models.causal import CausalLM
from roformer.models.cost import causal_flops_per_token
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.pipelines.run import Run, first_process, say
from roformer.training import checkpoint
from roformer.training.records import write_atomically
from roformer.training.task import Batch, not_learnt
from roformer.training.updates import share_of

POSITIONS = "positions.json"
"""File of a run: the loss by the number of tokens that are seen, at every length that was read."""
TOKENS_A_PASS = 8192
"""Of a scoring pass on one device."""
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Vocabulary(Protocol):
    """What the ids of a text mean, as far as a model needs to know."""

    @property
    def size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    def save(self, folder: Path) -> None: ...


class CausalTask:
    """Predict every token of packed blocks; the loss is summed over them.

    Args:
        config: of the pipeline.
        train: what is learnt from.
        valid: what is held out.
        vocabulary: of both.
        reads: `bytes` or `tokens`, which a checkpoint says of its model.
    """

    monitor: str
    higher_is_better = False

    def __init__(
        self,
        config: LanguageModelConfig,
        train: TokenStream,
        valid: TokenStream,
        vocabulary: Vocabulary,
        reads: str,
    ):
        self.config, self.valid = config, valid
        training, size = config.training, vocabulary.size
        torch.manual_seed(config.seed)
        self.model: nn.Module = CausalLM(
            config.model, size, gradient_checkpointing=config.runtime.gradient_checkpointing
        )
        self.batches: CausalBatches = CausalBatches(
            CausalBlocks(train, training.sequence_length), config.seed
        )
        self.validation = CausalBlocks(valid, training.sequence_length)
        self.sample = validation_sample(
            valid, training.sequence_length, training.valid_sequences, training.longest
        )
        labels = [self.validation[index][1] for index in self.sample]
        self.entropy = unigram_entropy(np.stack(labels))
        """In nats, of the validation sample: what knowing frequencies alone is worth."""
        self.description: dict[str, Any] = {
            "kind": "causal",
            "model": plain(config.model),
            "vocab_size": size,
            "tokenizer": vocabulary.fingerprint,
            "reads": reads,
            "length": training.sequence_length,
        }
        self.flops_per_token = causal_flops_per_token(config.model, size, training.sequence_length)

    @abstractmethod
    def measured(self, split: str, nats: float) -> dict[str, float]:
        """Return the metrics that a mean loss is reported as."""

    @abstractmethod
    def texts(self, batch: Batch) -> list[str]: ...

    def keys(self, update: int, rank: int, world_size: int) -> list[range]:
        size = self.config.training.batch_size
        numbers = range((update - 1) * size, update * size)
        return share_of(numbers, rank, world_size, self.config.runtime.micro_batch_size)

    def samples(self, key: range) -> list[int]:
        return [self.batches.block_of(number) for number in key]

    def targets(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def tokens(self, batch: Batch) -> int:
        return self.targets(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits, labels = model(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten()
        if "kept" in batch:
            kept = batch["kept"].flatten()
            logits, labels = logits[kept], labels[kept]
        return smoothed_cross_entropy(logits, labels, 0.0)

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return the metrics of the frozen sample, and what frequencies alone are worth."""
        micro = self.config.runtime.micro_batch_size or self.config.training.batch_size
        share = share_of(
            range(len(self.sample)), accelerator.process_index, accelerator.num_processes, micro
        )
        batches = [[self.sample[place] for place in places] for places in share]
        found = losses_by_position(model, self.validation, batches, accelerator.device)
        sums: Tensor = accelerator.reduce(found, "sum")
        loss, count = sums.sum(1).tolist()
        return self.measured("valid", loss / count) | self.baseline()

    def baseline(self) -> dict[str, float]:
        """Return the unigram entropy in the unit of the monitored metric."""
        name = "valid/unigram_" + self.monitor.removeprefix("valid/").replace("loss", "entropy")
        return {name: self.measured("valid", self.entropy)[self.monitor]}

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return not metrics[self.monitor] < self.measured("valid", self.entropy)[self.monitor]


class Losses(NamedTuple):
    """Of one stretch of text, read in blocks of one length."""

    length: int
    by_position: Tensor
    """(2, T) on the host: sums of the losses in nats, and how many."""

    @property
    def mean(self) -> float:
        total, count = self.by_position.sum(1).tolist()
        return float(total / count)

    def record(self) -> dict[str, Any]:
        """Return the mean loss for 1, 2, 3-4, 5-8, … tokens seen, as positions.json has it."""
        total, count = self.by_position
        rows, first = [], 0
        while first < self.length:
            last = min(self.length, max(1, 2 * first))
            tokens = float(count[first:last].sum())
            if tokens:
                loss = float(total[first:last].sum()) / tokens
                rows.append({"seen": [first + 1, last], "tokens": int(tokens), "loss": loss})
            first = last
        return {"length": self.length, "tokens": int(count.sum()), "loss": self.mean, "rows": rows}


@torch.no_grad()
def losses_by_position(
    model: nn.Module,
    blocks: CausalBlocks,
    batches: Iterable[Sequence[int]],
    device: torch.device,
) -> Tensor:
    """Return the sums of the losses in nats at each place of a block, and how many: (2, T).

    Args:
        model: in evaluation mode.
        blocks: of the text.
        batches: numbers of blocks that are read together.
        device: of the model.
    """
    wide = torch.float32 if device.type == "mps" else torch.float64
    sums = torch.zeros(2, blocks.length, dtype=wide, device=device)
    for indices in batches:
        batch = {k: v.to(device) for k, v in batch_of(blocks, indices).items()}
        logits, labels = model(batch["input_ids"]), batch["labels"]
        losses = functional.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none"
        )
        sums[0] += losses.view_as(labels).to(wide).sum(0)
        sums[1] += (labels != IGNORED).sum(0)
    return sums


class Scorer:
    """The last checkpoint of a run, read as the training's evaluation reads it, on one device.

    Args:
        config: of the run.
        task: what was trained.
        run: its folder.
    """

    def __init__(self, config: LanguageModelConfig, task: CausalTask, run: Path):
        self.device = next(task.model.parameters()).device
        self.precision = config.training.precision
        # Another copy: what was trained may be compiled, or cut over several processes.
        self.model = CausalLM(config.model, task.description["vocab_size"])
        checkpoint.load_model(checkpoint.resolve(run), self.model, task.description)
        self.model.to(self.device).eval()

    def whole(self, stream: TokenStream, length: int) -> Losses:
        """Read a whole split in blocks of `length`: every token but its first is predicted once."""
        blocks = CausalBlocks(stream, length)
        return self.read(blocks, range(len(blocks)))

    def read(self, blocks: CausalBlocks, numbers: Sequence[int]) -> Losses:
        """Read some blocks."""
        together = max(1, TOKENS_A_PASS // blocks.length)
        batches = [numbers[i : i + together] for i in range(0, len(numbers), together)]
        half = AUTOCAST.get(self.precision)
        with torch.autocast(self.device.type, half, enabled=half is not None):
            found = losses_by_position(self.model, blocks, batches, self.device)
        return Losses(blocks.length, found.cpu())


def read_longer(scorer: Scorer, task: CausalTask) -> tuple[list[Losses], list[dict[str, Any]]]:
    """Read the validation sample at the training's length and at multiples of it. Beyond the paper.

    The same tokens are predicted at every length; a longer block's lie further from its beginning.

    Returns:
        The losses at each length, ascending; and of lengths that cannot be read, which and why.
    """
    training, position = task.config.training, task.config.model.position
    found, left_out = [], []
    for multiple in sorted({1, *training.longer}):
        length = multiple * training.sequence_length
        if position.longest is not None and multiple > 1:
            reason = f"no learned position beyond {training.sequence_length} was trained"
            left_out.append({"length": length, "reason": reason})
            continue
        # A window of the sample is `longest` blocks in a row, from a multiple of that on.
        numbers = sorted({block // multiple for block in task.sample})
        found.append(scorer.read(CausalBlocks(task.valid, length), numbers))
    return found, left_out


def write_positions(
    run: Path, text: str, losses: Sequence[Losses], trained: int, left_out: Sequence[Any] = ()
) -> None:
    """Write positions.json, see `Losses.record`.

    Args:
        run: the run's folder.
        text: what was read.
        losses: at every length.
        trained: the length of the training.
        left_out: of lengths that could not be read, which and why.
    """
    rows = [{**found.record(), "beyond_the_paper": found.length > trained} for found in losses]
    content = {"text": text, "trained_length": trained, "lengths": rows, "left_out": list(left_out)}
    write_atomically(run / POSITIONS, json.dumps(content, indent=1) + "\n")


def train_language_model(
    run: Run,
    task: CausalTask,
    vocabulary: Vocabulary,
    source: dict[str, Any],
    conclude: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Train and score a model whose data is prepared; return the summary.

    Args:
        run: new, or to go on with.
        task: what is trained.
        vocabulary: is kept beside the weights.
        source: the data's account of where it is from.
        conclude: scores the trained model, see `Run.train`.
    """
    config, training = task.config, task.config.training
    say(
        f"{run.id}: {sum(p.numel() for p in task.model.parameters()):,} parameters, "
        f"{len(task.batches.blocks):,} training blocks of {training.sequence_length} "
        f"{task.description['reads']}, {len(task.sample)} validation blocks"
    )
    facts: dict[str, Any] = {"attention": config.model.attention.kind}
    if source["kind"] in ("hub", "download"):
        # The config may leave a revision of the Hub open; the record says which was read.
        facts["source"] = source
    return run.train(task, training, vocabulary, facts, conclude)


def check_processes(config: LanguageModelConfig) -> None:
    """Raise InputError where an update has fewer blocks than there are processes."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if config.training.batch_size < processes:
        raise InputError(
            f"training.batch_size={config.training.batch_size} is less than the {processes} "
            "processes: raise it or start fewer"
        )


def tell(summary: dict[str, Any], run: Run, names: Sequence[str]) -> None:
    """Print what came out, on the first process."""
    if not first_process():
        return
    metrics = summary["metrics"]
    values = ", ".join(f"{name} {metrics[name]:.3f}" for name in names if name in metrics)
    print(
        f"{values} after {summary['steps']} steps, {summary['tokens']:,} tokens, "
        f"{summary['wall_seconds']:.0f} s"
    )
    if summary["status"] == "degenerate":
        print(not_learnt(summary["steps"], "the loss is not below the unigram entropy"))
    print(f"run: {run.folder.path}")


def perplexity(nats: float) -> float:
    """Return e to the mean loss; ∞ where that is no number that a float holds."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
