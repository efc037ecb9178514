"""Matching: a model with other positions learns the hidden states of the original on plain text.

    error of a layer = Σ over tokens of ‖student - teacher‖² / variance of the teacher's output
    loss             = mean of the layers' errors

The error is the share of a layer's variance that the student does not reproduce: 0 for an equal model, 1
for a constant. Nothing is masked and no labels are needed.

Only attention and positions are trained: the other weights do not depend on positions, and would
specialise in one kind of text.

Beyond the paper, whose authors trained WoBERT with rotary positions further as a masked language model.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from roformer.config.schema import PretrainConfig
from roformer.data.match import Turns
from roformer.errors import InputError
from roformer.models.cost import flops_per_token
from roformer.models.encoder import MaskedLM
from roformer.tasks.mlm import BlockTask
from roformer.training.hardware import autocast_of, widest_float
from roformer.training.task import Batch, cost, not_learnt, share_of


class MatchTask(BlockTask):
    """Reproduce the output of every block of the original, with other positions.

    The original's head is kept; if it has no head, a random one stays untrained.
    """

    config: PretrainConfig
    batches: Turns
    monitor = "valid/error"

    def build_model(self) -> None:
        config, text, origin = self.config, self.text, self.origin
        assert origin is not None  # see `prepare`
        if config.model.position == origin.model.position:
            theirs = origin.model.position.name
            raise InputError(
                f"{origin.name} has {theirs} positions already: choose other ones, as "
                f"model/position={'alibi' if theirs == 'rotary' else 'rotary'}"
            )
        length, longest = config.training.sequence_length, origin.model.position.longest
        if longest is not None and length > longest:
            raise InputError(
                f"training.sequence_length={length}: {origin.name}, which is to be reproduced, reads "
                f"{longest} tokens: lower it"
            )
        self.teacher: Any = origin.encoder().requires_grad_(False)
        torch.manual_seed(config.seed)
        self.model = MaskedLM(config.model, origin.vocab_size)
        self.load_origin()
        encoder = self.model.eval().requires_grad_(False).encoder
        for module in (encoder.position, *(block.attention for block in encoder.blocks)):
            module.requires_grad_(True)
        rows = config.training.batch_size
        self.batches = Turns(text.train, text.tokenizer, length, rows, config.seed)
        self.check_batch(len(self.batches.readers[0]))
        turns = len(self.batches.parts)
        held_out = max(1, config.training.valid_sequences // turns)
        self.validation = Turns(text.valid, text.tokenizer, length, held_out, None)
        self.variance, self.swapped = self._measure()
        self.description = self.describe("mlm")
        if "transform.weight" not in origin.weights:
            self.description["untrained_head"] = True
        # The teacher's forward pass is a third more.
        self.flops_per_token = 4 / 3 * flops_per_token(config.model, origin.vocab_size, length, 0.0)

    @torch.no_grad()
    def _measure(self) -> tuple[Tensor, list[float]]:
        """Return the variance of each layer of the teacher, and the student's errors before training."""
        layers, width = self.teacher.config.layers, self.teacher.config.hidden_size
        count, sums = 0, torch.zeros(layers, width, dtype=torch.double)
        squares, errors = torch.zeros(2, layers, dtype=torch.double)
        for key in self._validation_keys(0, 1):
            batch: dict[str, Any] = self.validation[key]
            wanted = torch.stack(self.teacher(**batch, every_layer=True)).flatten(1, 2).double()
            reached = torch.stack(self.model(**batch, every_layer=True)).flatten(1, 2).double()
            count += wanted.shape[1]
            sums += wanted.sum(1)
            squares += wanted.square().sum((1, 2))
            errors += (reached - wanted).square().sum((1, 2))
        variance = squares / count - (sums / count).square().sum(-1)
        return variance, (errors / count / variance).tolist()

    def keys(self, step: int, rank: int, world_size: int) -> list[range]:
        return self._cut(self.batches, step - 1, rank, world_size)

    def _validation_keys(self, rank: int, world_size: int) -> list[range]:
        turns = range(len(self.validation.parts))
        return [k for turn in turns for k in self._cut(self.validation, turn, rank, world_size)]

    def _cut(self, batches: Turns, turn: int, rank: int, world_size: int) -> list[range]:
        """Return a rank's micro-batches of a turn; they have equally many tokens in all turns."""
        micro = self.config.runtime.micro_batch_size
        micro = None if micro is None else micro * batches.part(turn)
        return share_of(batches.turn(turn), rank, world_size, micro)

    def targets(self, batch: Batch) -> int:
        return batch["input_ids"].numel()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self._errors(model, batch).mean()

    def _errors(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the error of each layer, summed over the tokens, (L,)."""
        device = batch["input_ids"].device
        with torch.no_grad(), autocast_of(device, self.training.precision):
            wanted = self.teacher.to(device)(**batch, every_layer=True)
        pairs = zip(model(**batch, every_layer=True), wanted, strict=True)
        errors = [(ours.float() - theirs.float()).square().sum() for ours, theirs in pairs]
        return torch.stack(errors) / self.variance.to(errors[0])

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return the error of each layer on the frozen sample, and their mean."""
        device = accelerator.device
        # The errors of the layers, then the number of tokens.
        sums = torch.zeros(len(self.swapped) + 1, dtype=widest_float(device), device=device)
        for key in self._validation_keys(accelerator.process_index, accelerator.num_processes):
            batch = {name: tensor.to(device) for name, tensor in self.validation[key].items()}
            sums[:-1] += self._errors(model, batch)
            sums[-1] += self.targets(batch)
        *errors, count = accelerator.reduce(sums, "sum").tolist()
        layers = {f"valid/error_layer_{i}": e / count for i, e in enumerate(errors, 1)}
        return {"valid/error": fmean(layers.values()), **layers}

    def degenerate(self, metrics: dict[str, float]) -> bool:
        """Return whether the student gained less than 1 % over its error before training."""
        return not metrics["valid/error"] < 0.99 * fmean(self.swapped)

    def introduction(self) -> list[str]:
        sizes = [(p.numel(), p.requires_grad) for p in self.model.parameters()]
        trained = sum(size for size, learns in sizes if learns)
        return [
            f"{trained:,} of {sum(size for size, _ in sizes):,} parameters are trained, on "
            f"{len(self.batches.readers[0]):,} blocks of {self.config.training.sequence_length} tokens",
            *self.loaded,
            f"before training: {shown(self.swapped)}",
        ]

    def facts(self) -> dict[str, Any]:
        return {"headline": self.monitor, "swapped_error": self.swapped, **super().facts()}

    def result(self, summary: dict[str, Any], run: Path) -> list[str]:
        no_better = not_learnt(summary, "the error is not below that before training")
        return [
            f"before training: {shown(self.swapped)}",
            f"{self.scores(summary['metrics'])} after {cost(summary)}",
            *no_better,
            f"run: {run}",
        ]

    def scores(self, metrics: dict[str, float]) -> str:
        return shown([value for name, value in metrics.items() if "layer" in name])


def shown(errors: list[float]) -> str:
    """Return the errors of the layers and their mean in words."""
    layers = " ".join(f"{error:.3f}" for error in errors)
    return f"error {fmean(errors):.3f} of the teacher's variance (by layer: {layers})"
