"""Causal language modelling: predict every token of packed blocks, or every byte (RoFormer, section 4.4).

Shapes: B batch, T sequence, V vocabulary.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.lm import CharLMConfig, LanguageModelConfig
from roformer.data.bytes import PreparedBytes, prepare_bytes
from roformer.data.causal import CausalBatches, CausalBlocks, batch_of, validation_sample
from roformer.data.random import IGNORED, unigram_entropy
from roformer.data.work import progress_bar
from roformer.models.causal import CausalLM
from roformer.models.cost import flops_per_token
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.tasks.mlm import BlockTask
from roformer.training import checkpoint
from roformer.training.distributed import check_share, first_process, say
from roformer.training.hardware import autocast_of, widest_float
from roformer.training.records import write_atomically
from roformer.training.task import Batch, share_of

POSITIONS = "positions.json"
"""File of a run: the loss by the number of tokens seen, for every block length."""
TOKENS_PER_PASS = 8192
"""Tokens of a scoring pass on one device."""


class CausalTask(BlockTask):
    """Predict every token of packed blocks; the loss is summed over them."""

    config: LanguageModelConfig
    text: Any
    reads: str
    """`bytes` or `tokens`; kept in the checkpoints' description."""
    final_metrics: tuple[str, ...]
    """Metrics that are printed at the end."""

    def build_model(self) -> None:
        config, text = self.config, self.text
        self.valid = text.valid
        training, length = config.training, config.training.sequence_length
        torch.manual_seed(config.seed)
        self.model = CausalLM(config.model, self.vocab_size)
        self.load_origin()
        self.batches: CausalBatches = CausalBatches(CausalBlocks(text.train, length), config.seed)
        self.check_batch(len(self.batches.blocks))
        self.validation = CausalBlocks(text.valid, length)
        self.sample = validation_sample(
            text.valid, length, training.valid_sequences, training.longest
        )
        self.entropy = unigram_entropy(np.stack([self.validation[i][1] for i in self.sample]))
        self.description = self.describe("causal", reads=self.reads, length=length)
        self.flops_per_token = flops_per_token(config.model, self.vocab_size, length)

    @abstractmethod
    def measured(self, split: str, nats: float) -> dict[str, float]:
        """Return a mean loss in nats as the metrics that are reported."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits, labels = model(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten()
        if "kept" in batch:
            kept = batch["kept"].flatten()
            logits, labels = logits[kept], labels[kept]
        return smoothed_cross_entropy(logits, labels, 0.0)

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return the metrics of the frozen sample, and its unigram entropy."""
        rank, ranks = accelerator.process_index, accelerator.num_processes
        device = accelerator.device
        micro = self.config.runtime.micro_batch_size or self.config.training.batch_size // ranks
        sums = torch.zeros(2, self.validation.length, dtype=widest_float(device), device=device)
        for places in share_of(range(len(self.sample)), rank, ranks, max(1, micro)):
            numbers = [self.sample[place] for place in places]
            sums += losses_by_position(model, self.validation, numbers, device)
        loss, count = accelerator.reduce(sums, "sum").sum(1).tolist()
        return self.measured("valid", loss / count) | self.baseline()

    def baseline(self) -> dict[str, float]:
        """Return the unigram entropy in the unit of the monitored metric."""
        name = "valid/unigram_" + self.monitor.removeprefix("valid/").replace("loss", "entropy")
        return {name: self.measured("valid", self.entropy)[self.monitor]}

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return not metrics[self.monitor] < self.measured("valid", self.entropy)[self.monitor]

    def introduction(self) -> list[str]:
        return self.introduce(self.reads, len(self.sample))

    def facts(self) -> dict[str, Any]:
        return {"attention": self.config.model.attention.kind, **super().facts()}

    def scores(self, metrics: dict[str, float]) -> str:
        names = (*self.final_metrics, *self.baseline())
        return ", ".join(f"{name} {metrics[name]:.3f}" for name in names if name in metrics)


class TokenTask(CausalTask):
    """Predict every token of packed documents, each with its end; reported in nats."""

    monitor, reads = "valid/loss", "tokens"
    final_metrics = ("valid/loss", "valid/perplexity")

    def measured(self, split: str, nats: float) -> dict[str, float]:
        return {f"{split}/loss": nats, f"{split}/perplexity": math.exp(min(nats, 700.0))}

    def conclude(self, run: Path) -> dict[str, Any]:
        """Score the validation sample at the training's length and at multiples (beyond the paper).

        The same tokens are predicted at every length, further from the start of a longer block. Writes
        positions.json and returns `valid/loss_at_<length>`.
        """
        shown = self.config.runtime.progress
        say("reading the validation sample by position, and longer (beyond the paper)", shown)
        scorer, trained = Scorer(self, run), self.config.training.sequence_length
        read, skipped = [], []
        for multiple in sorted({1, *self.config.training.longer}):
            length = multiple * trained
            if self.config.model.position.longest is not None and multiple > 1:
                reason = f"no learned position beyond {trained} was trained"
                skipped.append({"length": length, "reason": reason})
                continue
            # The sample is windows of `longest` consecutive blocks, so no longer block crosses its edge.
            numbers = sorted({block // multiple for block in self.sample})
            read.append(scorer.score(CausalBlocks(self.valid, length), numbers))
        write_positions(run, "the validation sample", read, trained, skipped)
        longer = [losses for losses in read if losses.length > trained]
        return {"metrics": {f"valid/loss_at_{losses.length}": losses.mean for losses in longer}}


class ByteTask(CausalTask):
    """Predict every byte; reported in bits."""

    monitor, reads = "valid/bits_per_byte", "bytes"
    final_metrics = ("valid/bits_per_byte_whole", "test/bits_per_byte")

    def __init__(self, config: CharLMConfig):
        self.config, self.training = config, config.training
        batch_size = config.training.batch_size
        check_share(batch_size, f"training.batch_size={batch_size} is")
        self.text = text = prepare_text_of_bytes(config)
        say(text.summary, config.runtime.progress)
        self.fingerprint, self.tokenizer, self.test = text.fingerprint, text.vocabulary, text.test

    def build_model(self) -> None:
        # A text that is too short fails here, not at the end of the training.
        CausalBlocks(self.test, self.config.training.sequence_length)
        super().build_model()

    def measured(self, split: str, nats: float) -> dict[str, float]:
        return {f"{split}/bits_per_byte": nats / math.log(2)}

    def conclude(self, run: Path) -> dict[str, Any]:
        """Score the whole validation text (`valid/bits_per_byte_whole`) and the test text.

        Every byte except the first is predicted once, in consecutive blocks: the first prediction of a
        block sees one byte, the last one `training.sequence_length`.
        """
        shown = self.config.runtime.progress
        say(f"scoring {len(self.valid):,} validation and {len(self.test):,} test bytes", shown)
        scorer, length = Scorer(self, run), self.config.training.sequence_length
        valid, test = (scorer.score(CausalBlocks(s, length)) for s in (self.valid, self.test))
        write_positions(run, "the whole validation text", [valid], length)
        whole = self.measured("valid", valid.mean)[self.monitor]
        return {"metrics": {"valid/bits_per_byte_whole": whole, **self.measured("test", test.mean)}}


# --- scoring -------------------------------------------------------------------------------------


class Losses(NamedTuple):
    """Losses of a text in blocks of one length."""

    length: int
    by_position: Tensor
    """(2, T) on the host: sums of the losses in nats, and their number."""

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
            if tokens := float(count[first:last].sum()):
                loss = float(total[first:last].sum()) / tokens
                rows.append({"seen": [first + 1, last], "tokens": int(tokens), "loss": loss})
            first = last
        return {"length": self.length, "tokens": int(count.sum()), "loss": self.mean, "rows": rows}


@torch.no_grad()
def losses_by_position(
    model: nn.Module, blocks: CausalBlocks, numbers: Sequence[int], device: torch.device
) -> Tensor:
    """Return the sums of the losses in nats at each position of some blocks, and their number: (2, T)."""
    batch = {k: v.to(device) for k, v in batch_of(blocks, numbers).items()}
    logits, labels = model(batch["input_ids"]), batch["labels"]
    losses = functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="none"
    )
    sums = losses.view_as(labels).to(widest_float(device)).sum(0)
    return torch.stack([sums, (labels != IGNORED).sum(0).to(sums)])


class Scorer:
    """The last checkpoint of a run, to be scored on one device in the precision of its training."""

    def __init__(self, task: CausalTask, run: Path):
        self.device = next(task.model.parameters()).device
        self.precision = task.config.training.precision
        self.shown = task.config.runtime.progress
        # Another copy: the trained model may be compiled or sharded.
        self.model = CausalLM(task.config.model, task.description["vocab_size"])
        checkpoint.load_model(checkpoint.resolve(run), self.model, task.description)
        self.model.to(self.device).eval()

    def score(self, blocks: CausalBlocks, numbers: Sequence[int] | None = None) -> Losses:
        """Return the losses of some blocks; None: of all."""
        numbers = range(len(blocks)) if numbers is None else numbers
        together = max(1, TOKENS_PER_PASS // blocks.length)
        half = autocast_of(self.device, self.precision)
        what = f"reading in blocks of {blocks.length}"
        sums = torch.zeros(2, blocks.length, dtype=widest_float(self.device), device=self.device)
        with progress_bar(what, "blocks", len(numbers), self.shown) as bar, half:
            for first in range(0, len(numbers), together):
                part = numbers[first : first + together]
                sums += losses_by_position(self.model, blocks, part, self.device)
                bar.update(len(part))
        return Losses(blocks.length, sums.cpu())


def write_positions(
    run: Path, text: str, losses: Sequence[Losses], trained: int, left_out: Sequence[Any] = ()
) -> None:
    """Write positions.json: the `Losses.record` of every length, and the skipped lengths with reasons.

    `text` names what was read, and `trained` is the length of the training's blocks.
    """
    rows = [{**row.record(), "beyond_the_paper": row.length > trained} for row in losses]
    content = {"text": text, "trained_length": trained, "lengths": rows, "left_out": list(left_out)}
    write_atomically(run / POSITIONS, json.dumps(content, indent=1) + "\n")


# --- data ----------------------------------------------------------------------------------------


def prepare_text_of_bytes(config: CharLMConfig) -> PreparedBytes:
    """Return the text as files of bytes, cached or made now."""
    return prepare_bytes(
        config.data,
        config.runtime.cache_dir,
        workers=config.runtime.prepare_workers,
        progress=config.runtime.progress and first_process(),
    )
