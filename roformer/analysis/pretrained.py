"""A pre-training run with its text, and its attention scores, for measurements."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from roformer.config.build import from_yaml
from roformer.config.schema import PretrainConfig
from roformer.data.mlm import PackedBlocks
from roformer.data.random import EpochOrder, Purpose
from roformer.data.text import PreparedText, prepare_text
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError
from roformer.inference.load import load_model
from roformer.inference.resolve import choose
from roformer.models.encoder import MaskedLM
from roformer.nn.attention import SelfAttention
from roformer.training import checkpoint
from roformer.training.records import RunFolder


class Pretrained(NamedTuple):
    """A pre-training run and the text that it was trained on."""

    folder: Path
    config: PretrainConfig
    text: PreparedText

    @property
    def weights(self) -> tuple[Path, str]:
        """The last checkpoint and the checksum of its weights."""
        folder = checkpoint.resolve(self.folder)
        return folder, checkpoint.weights_digest(folder)

    def model(self, device: str) -> MaskedLM:
        """Return the model with its last weights, for evaluation."""
        model = load_model(self.folder, device=device).model
        assert isinstance(model, MaskedLM)
        return model

    def validation_sequences(self, count: int, length: int) -> Tensor:
        """Return validation sequences without masks, (S, T): the first of the frozen sample."""
        longest = self.config.model.position.longest
        if longest is not None and length > longest:
            raise InputError(
                f"{self.folder} has a learned table of {longest} positions, and {length} "
                "are asked for: give a shorter --length"
            )
        blocks = PackedBlocks(self.text.valid, self.text.tokenizer, length)
        if not 2 <= count <= len(blocks):
            raise InputError(
                f"{count} sequences of {length} tokens are asked for and the validation text of "
                f"{self.folder} has {len(blocks)}: give from 2 to as many --sequences"
            )
        order = EpochOrder(len(blocks), 0, Purpose.VALID_SAMPLE)
        return torch.from_numpy(np.stack([blocks[order[n][1]] for n in range(count)]))


def open_pretrained(run: Path, cache_dir: str | None = None) -> Pretrained:
    """Return a run with its text, whose validation part is what the training held out.

    Args:
        run: a folder under runs/pretrain/.
        cache_dir: folder of the prepared text; None: the folder that the run used.
    """
    if not (run / "config.yaml").is_file() or checkpoint.describe(choose(run))["kind"] != "mlm":
        raise InputError(f"{run} is no pre-training run: give a folder under runs/pretrain/")
    config = from_yaml(PretrainConfig, (run / "config.yaml").read_text(encoding="utf-8"))
    attention, runtime = config.model.attention.kind, config.runtime
    if attention != "softmax":
        raise InputError(
            f"{run} has {attention} attention, which has no scores to measure or to scale: give a "
            "run with softmax"
        )
    if config.training.documents == "isolate":
        raise InputError(
            f"{run} was trained with training.documents=isolate, where a token sees and counts only its "
            "own document: give a run with cross"
        )
    folder, workers = cache_dir or runtime.cache_dir, runtime.prepare_workers
    tokenizer = WordPiece.load(run / "tokenizer") if config.init_from else None
    text = prepare_text(config.data, folder, tokenizer=tokenizer, workers=workers, progress=False)
    if text.fingerprint != (begun_on := RunFolder(run).environment().get("data")):
        raise InputError(
            f"{run} was trained on other text (fingerprint {str(begun_on)[:8]}, now "
            f"{text.fingerprint[:8]}): restore it, so that what was held out still is"
        )
    return Pretrained(run, config, text)


class ObservedAttention(SelfAttention):
    """A layer's self-attention that also passes its scores and weights to a function.

    The layer's `forward` applies the positions and calls `probabilities`, which has the scores; the fused
    kernel, which hides them, is not used.

    Args:
        layer: whose weights are copied.
        observe: called with scores and weights, each (B, N, T, T), at every forward pass.
    """

    def __init__(self, layer: SelfAttention, observe: Callable[[Tensor, Tensor], None]):
        super().__init__(layer.heads * layer.head_dim, layer.heads, dropout=0.0)
        self.load_state_dict(layer.state_dict())
        self.observe = observe

    def fused(self, q: Tensor, k: Tensor) -> bool:
        return False

    def probabilities(
        self, q: Tensor, k: Tensor, mask: Tensor | None, *, causal: bool = False
    ) -> Tensor:
        weights = super().probabilities(q, k, mask, causal=causal)
        scores = (q / math.sqrt(self.head_dim)) @ k.transpose(-1, -2)
        self.observe(scores if mask is None else scores + mask, weights)
        return weights
