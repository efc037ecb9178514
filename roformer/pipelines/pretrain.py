"""Masked-language-model pre-training (RoFormer, section 4.2)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.build import build, plain
from roformer.config.composing import compose
from roformer.config.schema import PretrainConfig
from roformer.data.mlm import MaskedBatches, training_batches, validation_batches
from roformer.data.random import IGNORED, unigram_entropy
from roformer.data.text import PreparedText, prepare_text
from roformer.errors import InputError
from roformer.inference.names import find
from roformer.models.cost import flops_per_token
from roformer.models.encoder import MaskedLM
from roformer.pipelines.run import Opened, Run, first_process, resolve, say
from roformer.training import checkpoint
from roformer.training.task import Batch, not_learnt, tokens_in
from roformer.training.updates import share_of


class MaskedLMTask:
    """Predict the masked tokens of packed blocks; the loss is summed over the masked tokens."""

    monitor = "valid/mlm_loss"
    higher_is_better = False

    def __init__(self, config: PretrainConfig, shards: PreparedText):
        self.config = config
        size = shards.tokenizer.size
        torch.manual_seed(config.seed)
        self.model: nn.Module = MaskedLM(
            config.model, size, gradient_checkpointing=config.runtime.gradient_checkpointing
        )
        self.batches: MaskedBatches = training_batches(
            shards.train, shards.tokenizer, config.masking, config.training, config.seed
        )
        self.validation = validation_batches(
            shards.valid, shards.tokenizer, config.masking, config.training
        )
        self.valid_count = min(config.training.valid_sequences, len(self.validation.blocks))
        self.entropy = unigram_entropy(self.validation.labels(self.valid_count))
        self.description = {
            "kind": "mlm",
            "model": plain(config.model),
            "vocab_size": size,
            "tokenizer": shards.tokenizer.fingerprint,
        }
        predicted = self.batches.masker.count / config.training.sequence_length
        self.flops_per_token = flops_per_token(
            config.model, size, config.training.sequence_length, predicted
        )

    def keys(self, update: int, rank: int, world_size: int) -> list[range]:
        size = self.config.training.batch_size
        return self._micro_batches(range((update - 1) * size, update * size), rank, world_size)

    def _micro_batches(self, numbers: range, rank: int, world_size: int) -> list[range]:
        return share_of(numbers, rank, world_size, self.config.runtime.micro_batch_size)

    def samples(self, key: range) -> list[int]:
        return [self.batches.block_of(number) for number in key]

    def texts(self, batch: Batch) -> list[str]:
        """Return the blocks with the masked tokens in brackets."""
        vocabulary, lines = self.batches.blocks.tokenizer.vocabulary, []
        for ids, predict, labels in zip(
            batch["input_ids"], batch["predict"], batch["labels"], strict=True
        ):
            pieces = [vocabulary[i] for i in ids.tolist()]
            for place, label in zip(predict.tolist(), labels.tolist(), strict=True):
                if label != IGNORED:
                    pieces[place] = f"[{vocabulary[label]}]"
            lines.append(" ".join(pieces[1:-1]).replace(" ##", ""))
        return lines

    def targets(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def tokens(self, batch: Batch) -> int:
        return tokens_in(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = self._logits(model, batch)
        return functional.cross_entropy(
            logits.flatten(0, 1).float(),
            batch["labels"].flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )

    def _logits(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
        logits: Tensor = model(**inputs)
        return logits

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return loss and accuracy on the frozen sample, and what frequencies alone are worth."""
        device = accelerator.device
        wide = torch.float32 if device.type == "mps" else torch.float64
        sums = torch.zeros(3, dtype=wide, device=device)
        batch_size = self.config.training.batch_size
        for first in range(0, self.valid_count, batch_size):
            numbers = range(first, min(first + batch_size, self.valid_count))
            for key in self._micro_batches(
                numbers, accelerator.process_index, accelerator.num_processes
            ):
                batch = {k: v.to(device) for k, v in self.validation[key].items()}
                logits, labels = self._logits(model, batch), batch["labels"]
                sums[0] += functional.cross_entropy(
                    logits.flatten(0, 1).float(),
                    labels.flatten(),
                    ignore_index=IGNORED,
                    reduction="sum",
                )
                sums[1] += (logits.argmax(-1) == labels).sum()
                sums[2] += (labels != IGNORED).sum()
        loss, correct, count = accelerator.reduce(sums, "sum").tolist()
        return {
            "valid/mlm_loss": loss / count,
            "valid/mlm_accuracy": correct / count,
            "valid/unigram_entropy": self.entropy,
        }

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return not metrics["valid/mlm_loss"] < self.entropy


def prepare(config: PretrainConfig) -> PreparedText:
    """Tokenise the corpus into shards, unless that is done; return them."""
    return prepare_text(
        config.data,
        config.runtime.cache_dir,
        workers=config.runtime.prepare_workers,
        progress=config.runtime.progress and first_process(),
    )


def start_from(config: PretrainConfig, task: MaskedLMTask) -> Path | None:
    """Load the weights that a new run begins with, if it names any.

    Returns:
        The checkpoint whose moments it begins with as well; None: they are new.

    Raises:
        InputError: nothing complete is there, it is of another model, or without the moments.
    """
    if config.init_from is None:
        return None
    source = checkpoint.resolve(find(config.init_from, config.runtime.runs_dir))
    checkpoint.load_model(source, task.model, task.description, warm_start=True)
    if config.keep_moments:
        checkpoint.check_moments(source)
    return source if config.keep_moments else None


def open_task(config: PretrainConfig) -> Opened:
    """Return the parts of a run, see `Opened`."""
    shards = prepare(config)
    task = MaskedLMTask(config, shards)
    return Opened(
        config, task, config.training, shards.fingerprint, lambda: start_from(config, task)
    )


def pretraining_of(config: Any) -> PretrainConfig:
    """Return what `init_from=auto` of a fine-tuning stands for.

    That is `pretraining`, the overrides of its config, with the model of the fine-tuning but its own
    dropout, and where and as the fine-tuning runs.

    Raises:
        InputError: a mistake in the overrides.
    """
    ours = plain(config)
    theirs = plain(build(PretrainConfig, compose("pretrain", list(config.pretraining))))
    dropout = {key: theirs["model"][key] for key in ("hidden_dropout", "attention_dropout")}
    theirs["model"] = ours["model"] | dropout
    return build(PretrainConfig, theirs | {"runtime": ours["runtime"], "tracker": ours["tracker"]})


def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Prepare the text if it is not, train, and return the summary.

    Raises:
        InputError: see `Run`; fewer sequences than processes; an `init_from` that does not fit.
    """
    config = resolve(config)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if config.training.batch_size < processes:
        raise InputError(
            f"training.batch_size={config.training.batch_size} is less than the {processes} "
            "processes: raise it or start fewer"
        )
    shards = prepare(config)
    run = Run("pretrain", config, shards.fingerprint)
    if run.summary is not None:
        return run.summary
    task = MaskedLMTask(config, shards)
    moments = start_from(config, task) if run.checkpoint is None else None
    say(
        f"{run.id}: {sum(p.numel() for p in task.model.parameters()):,} parameters, "
        f"{len(task.batches.blocks):,} training blocks of {config.training.sequence_length} "
        f"tokens, {task.valid_count} validation blocks"
    )
    source = shards.manifest["source"]
    # The config may leave a revision of the Hub open; the record says which was read.
    facts = {"source": source} if source["kind"] == "hub" else None
    summary = run.train(task, config.training, shards.tokenizer, facts, moments=moments)
    if first_process():
        report(summary, run)
    return summary


def report(summary: dict[str, Any], run: Run) -> None:
    """Print what came out."""
    metrics = summary["metrics"]
    print(
        f"valid/mlm_loss {metrics['valid/mlm_loss']:.3f}, "
        f"valid/mlm_accuracy {metrics['valid/mlm_accuracy']:.1%} "
        f"(unigram entropy of the same tokens: {metrics['valid/unigram_entropy']:.3f}) "
        f"after {summary['steps']} steps, {summary['tokens']:,} tokens, "
        f"{summary['wall_seconds']:.0f} s"
    )
    if summary["status"] == "degenerate":
        print(not_learnt(summary["steps"], "the loss is not below the unigram entropy"))
    print(f"run: {run.folder.path}")
