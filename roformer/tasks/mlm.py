"""Masked language modelling: predict the masked tokens of packed blocks (RoFormer, section 4.2).

With `objective=mlm_nsp` or `mlm_sop` the blocks are pairs of segments, and the model also predicts whether
the second follows the first (`roformer.data.segments`).
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from roformer.config.build import plain
from roformer.config.lm import LanguageModelConfig
from roformer.config.schema import PretrainConfig
from roformer.data.mlm import MaskedBatches
from roformer.data.random import IGNORED, unigram_entropy
from roformer.data.segments import SegmentPairs
from roformer.data.text import PreparedText, prepare_text
from roformer.errors import InputError
from roformer.inference.start import load_start, weights_of
from roformer.models.cost import flops_per_token
from roformer.models.description import StoredModel
from roformer.models.encoder import MaskedLM
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.training import checkpoint
from roformer.training.distributed import check_share, first_process, say
from roformer.training.hardware import widest_float
from roformer.training.task import Batch, Task, cost, not_learnt, share_of, tokens_in


class BlockTask(Task):
    """A language model that reads blocks of one length, a fixed number in each step.

    Its block datasets map a number of the whole training to a block (`block_of`). The text is prepared
    unless given.
    """

    config: PretrainConfig | LanguageModelConfig
    origin: StoredModel | None = None
    """Weights that the training starts from; None: random ones."""
    tokenizer: Any
    batches: Any
    loaded: list[str]
    """Lines on the weights that were loaded, dropped and drawn at the start."""
    entropy: float
    """Unigram entropy of the validation sample, in nats."""

    def __init__(self, config: Any, text: PreparedText | None = None):
        self.config, self.training = config, config.training
        batch_size = config.training.batch_size
        check_share(batch_size, f"training.batch_size={batch_size} is")
        self.origin = weights_of(config)
        if text is None:
            text = prepare(config, self.origin)
            say(text.summary, config.runtime.progress)
        self.text = text
        self.fingerprint, self.tokenizer = text.fingerprint, text.tokenizer
        self.weights = None if self.origin is None else self.origin.fingerprint

    def keys(self, step: int, rank: int, world_size: int) -> list[range]:
        size = self.config.training.batch_size
        return self._share(range((step - 1) * size, step * size), rank, world_size)

    def _share(self, numbers: range, rank: int, world_size: int) -> list[range]:
        return share_of(numbers, rank, world_size, self.config.runtime.micro_batch_size)

    def samples(self, key: range) -> list[int]:
        return [self.batches.block_of(number) for number in key]

    def targets(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    @property
    def vocab_size(self) -> int:
        """Rows of the token table: as many as the weights at the start have, or the tokenizer."""
        return self.tokenizer.size if self.origin is None else self.origin.vocab_size

    def describe(self, kind: str, **more: Any) -> dict[str, Any]:
        """Return the description of the model."""
        return {
            "kind": kind,
            "model": plain(self.config.model),
            "vocab_size": self.vocab_size,
            "tokenizer": self.tokenizer.fingerprint,
            **more,
        }

    def check_batch(self, blocks: int) -> None:
        """Raise InputError if a step reads more blocks than the training text has."""
        if (size := self.config.training.batch_size) > blocks:
            raise InputError(
                f"training.batch_size={size} is more than the {blocks:,} training blocks of "
                f"{self.config.training.sequence_length}: lower it, or give more text"
            )

    def load_origin(self) -> None:
        """Load the weights that the training starts from, if there are any."""
        self.loaded = [] if self.origin is None else load_start(self.origin, self.model)

    def start(self) -> Path | None:
        folder = None if self.origin is None else self.origin.checkpoint
        if folder is None or not getattr(self.config, "keep_moments", False):
            return None
        if self.loaded[1:] != ["dropped: nothing", "drawn: nothing"]:
            raise InputError(
                f"keep_moments=true needs AdamW's moments of every weight, but {folder} does not have "
                f"every one ({'; '.join(self.loaded[1:])}): set keep_moments=false"
            )
        checkpoint.check_moments(folder)
        return folder

    def facts(self) -> dict[str, Any]:
        # The config may leave a revision of the Hub open; the record says which was read.
        source = self.text.manifest["source"]
        return {"source": source} if source["kind"] in ("hub", "download") else {}

    def introduce(self, read: str, validation_blocks: int) -> list[str]:
        """Return a line on the sizes of model and data, and the lines on the weights at the start."""
        return [
            f"{sum(p.numel() for p in self.model.parameters()):,} parameters, "
            f"{len(self.batches.blocks):,} training blocks of "
            f"{self.config.training.sequence_length} {read}, {validation_blocks} validation blocks",
            *self.loaded,
        ]

    def result(self, summary: dict[str, Any], run: Path) -> list[str]:
        too_high = not_learnt(summary, "the loss is not below the unigram entropy")
        return [
            f"{self.scores(summary['metrics'])} after {cost(summary)}",
            *too_high,
            f"run: {run}",
        ]

    @abstractmethod
    def scores(self, metrics: dict[str, float]) -> str:
        """Return the final metrics in words."""


class MaskedLMTask(BlockTask):
    """Predict the masked tokens of packed blocks; the loss is summed over the masked tokens.

    The relation of a pair of segments weighs as much as K = round(p·T) masked tokens, the number per pair.
    Divided by the masked tokens of a step, the loss is BERT's: a mean over tokens plus a mean over pairs.
    """

    config: PretrainConfig
    monitor = "valid/mlm_loss"

    def build_model(self) -> None:
        config, text = self.config, self.text
        length = config.training.sequence_length
        self.relation = config.objective.partition("_")[2]
        """`nsp`, `sop` or empty: prefix of the metrics of a pair's relation."""
        if self.relation:
            self.losses = ("mlm_loss", f"{self.relation}_loss")
        torch.manual_seed(config.seed)
        self.model = MaskedLM(config.model, self.vocab_size, related=bool(self.relation))
        self.load_origin()
        settings = text.tokenizer, config.masking, config.training
        self.batches: MaskedBatches = MaskedBatches(
            text.train, *settings, config.seed, config.objective
        )
        self.check_batch(len(self.batches.blocks))
        self.validation = MaskedBatches(text.valid, *settings, None, config.objective)
        self.valid_count = min(config.training.valid_sequences, len(self.validation.blocks))
        labels = self.validation.labels(self.valid_count)
        self.entropy = unigram_entropy(labels)
        self.context_free = self.validation.masker.context_free_loss(labels)
        objective = {"objective": config.objective} if self.relation else {}
        self.description = self.describe("mlm", **objective)
        self.flops_per_token = flops_per_token(
            config.model,
            self.vocab_size,
            length,
            self.batches.masker.count / length,
            related=bool(self.relation),
        )

    def tokens(self, batch: Batch) -> int:
        return tokens_in(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        tokens, *pairs = (_summed_loss(*answer) for answer in self._answers(model, batch))
        return torch.stack([tokens, self.batches.masker.count * pairs[0]]) if pairs else tokens

    def _answers(self, model: nn.Module, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return logits and labels of the masked tokens, and of the pairs if they are predicted."""
        inputs = {k: v for k, v in batch.items() if k not in ("labels", "relation")}
        if not self.relation:
            return [(model(**inputs), batch["labels"])]
        logits = model(**inputs, relation=True)
        return list(zip(logits, (batch["labels"], batch["relation"]), strict=True))

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return loss and accuracy on the frozen sample, and its unigram entropy."""
        device = accelerator.device
        # Loss and hits of the masked tokens and of the pairs, then the number of masked tokens.
        sums = torch.zeros(5, dtype=widest_float(device), device=device)
        batch_size = self.config.training.batch_size
        for first in range(0, self.valid_count, batch_size):
            numbers = range(first, min(first + batch_size, self.valid_count))
            for key in self._share(numbers, accelerator.process_index, accelerator.num_processes):
                batch = {k: v.to(device) for k, v in self.validation[key].items()}
                for place, (logits, labels) in enumerate(self._answers(model, batch)):
                    sums[2 * place] += _summed_loss(logits, labels)
                    sums[2 * place + 1] += (logits.argmax(-1) == labels).sum()
                sums[4] += (batch["labels"] != IGNORED).sum()
        *totals, count = accelerator.reduce(sums, "sum").tolist()
        metrics = {
            "valid/mlm_loss": totals[0] / count,
            "valid/mlm_accuracy": totals[1] / count,
            "valid/unigram_entropy": self.entropy,
            "valid/context_free_loss": self.context_free,
        }
        if self.relation:
            metrics[f"valid/{self.relation}_loss"] = totals[2] / self.valid_count
            metrics[f"valid/{self.relation}_accuracy"] = totals[3] / self.valid_count
        return metrics

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return not metrics["valid/mlm_loss"] < self.entropy

    def introduction(self) -> list[str]:
        lines = self.introduce("tokens", self.valid_count)
        pairs = self.batches.blocks
        if isinstance(pairs, SegmentPairs) and pairs.left_out:
            lines.append(
                f"{pairs.left_out:,} of {len(pairs.counts):,} training documents have fewer than "
                f"{pairs.body} tokens, too few for a pair of segments, and are skipped"
            )
        return lines

    def scores(self, metrics: dict[str, float]) -> str:
        text = (
            f"valid/mlm_loss {metrics['valid/mlm_loss']:.3f}, "
            f"valid/mlm_accuracy {metrics['valid/mlm_accuracy']:.1%} "
            f"(unigram entropy of the same tokens: {metrics['valid/unigram_entropy']:.3f}, least loss "
            f"without context: {metrics['valid/context_free_loss']:.3f})"
        )
        if self.relation:
            accuracy = f"valid/{self.relation}_accuracy"
            text += f", {accuracy} {metrics[accuracy]:.1%}"
        return text


def _summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the summed cross-entropy of logits (…, C) and the labels (…) that are not IGNORED."""
    return smoothed_cross_entropy(logits.flatten(0, -2), labels.flatten(), ignored=IGNORED)


def prepare(config: Any, start: StoredModel | None = None) -> PreparedText:
    """Return the tokenized corpus of a language model's config, cached or made now.

    `start` are the weights that it starts from, if they are already open.
    """
    start = start or weights_of(config)
    if start is None and getattr(config, "objective", None) == "match":
        raise InputError("objective=match learns to reproduce a trained model: set init_from")
    given = start is not None and config.data.tokenizer.comes_with_weights
    return prepare_text(
        config.data,
        config.runtime.cache_dir,
        tokenizer=start.tokenizer if start is not None and given else None,
        workers=config.runtime.prepare_workers,
        progress=config.runtime.progress and first_process(),
    )
