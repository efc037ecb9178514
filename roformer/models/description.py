"""Trained models as they are stored: a description by kind (`model.json`), and weights.

every kind    kind  model (its configuration)  vocab_size  tokenizer (its fingerprint)
mlm           objective (if more than mlm; it then has a pooler and predicts the relation of segments)
              untrained_head (true of a conversion whose original had no head)
classifier    task  labels (null of a regression)  texts (one or two names)  max_length  head_dropout
              activation (of the pooler; tanh unless stated)
scorer        pair  max_length  head_dropout
causal        reads (bytes or tokens)  length
translation   languages (two)  search  max_length
encoder       nothing more: a model of Hugging Face without a head
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from roformer.config.build import build
from roformer.config.lm import CausalConfig
from roformer.config.schema import EncoderConfig, TransformerConfig
from roformer.config.scm import PairConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.errors import InputError
from roformer.models.causal import CausalLM
from roformer.models.classifier import Classifier, PairScorer
from roformer.models.encoder import Encoder, MaskedLM
from roformer.models.seq2seq import Seq2Seq
from roformer.registry import Kind

KINDS: dict[Kind, type[TransformerConfig]] = {
    "mlm": EncoderConfig,
    "classifier": EncoderConfig,
    "scorer": EncoderConfig,
    "causal": CausalConfig,
    "translation": Seq2SeqConfig,
    "encoder": EncoderConfig,
}
"""Kind → class of the description's `model`."""


def build_model(description: dict[str, Any], config: Any) -> nn.Module:
    """Return the described model with fresh weights; `config` is its `model`, built."""
    kind, vocab_size = description["kind"], description["vocab_size"]
    if kind == "classifier":
        outputs, dropout = len(description["labels"] or "1"), description["head_dropout"]
        activation = description.get("activation", "tanh")
        return Classifier(config, vocab_size, outputs, dropout=dropout, activation=activation)
    if kind == "scorer":
        pair = build(PairConfig, description["pair"])
        return PairScorer(config, vocab_size, pair, dropout=description["head_dropout"])
    if kind == "mlm":
        return MaskedLM(config, vocab_size, related="objective" in description)
    model: Any = {"causal": CausalLM, "translation": Seq2Seq, "encoder": Encoder}[kind]
    built: nn.Module = model(config, vocab_size)
    return built


@dataclass(frozen=True)
class StoredModel:
    """The weights of a trained model and what is needed to use them."""

    name: str  # for the record: a run id, a folder, a Hub id, or `scratch`
    kind: Kind
    model: Any  # its configuration
    description: dict[str, Any]
    weights: dict[str, Tensor]
    """By the names of `models`; an encoder without a head has the prefix `encoder.` too."""
    tokenizer: Any
    """`WordPiece`, `Bpe` or `ByteVocabulary`, or a sentence why the tokenizer is missing."""
    digest: str | None = None  # SHA-256 of the weights where a checkpoint knows it
    revision: str | None = None  # commit of a Hub id
    architecture: str | None = None  # of a Hugging Face model: see `roformer.interop.mapping.NAMES`
    unused: tuple[str, ...] = ()  # names in `transformers` of weights that no model here has
    checkpoint: Path | None = None  # folder of a checkpoint of this package
    flaw: str | None = None  # sentence why its head cannot be computed here

    @property
    def vocab_size(self) -> int:
        """Rows of the embeddings."""
        return int(self.description["vocab_size"])

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the weights."""
        if self.digest is not None:
            return self.digest
        digest = hashlib.sha256()
        for name in sorted(self.weights):
            digest.update(name.encode())
            digest.update(self.weights[name].numpy().tobytes())
        return digest.hexdigest()

    def build(self) -> nn.Module:
        """Return the model with its weights, on the CPU, in fp32, in evaluation mode."""
        if self.flaw is not None:
            raise InputError(f"{self.name}: {self.flaw}")
        with torch.device("meta"):  # no weights are drawn only to be replaced
            model = build_model(self.description, self.model)
        return self._fill(model, "encoder." if self.kind == "encoder" else "")

    def encoder(self) -> nn.Module:
        """Return only the `Encoder`, as `build`; its head may be incomplete."""
        with torch.device("meta"):
            return self._fill(Encoder(self.model, self.vocab_size), "encoder.")

    def _fill(self, model: nn.Module, prefix: str) -> nn.Module:
        own = {name: self.weights[prefix + name] for name in model.state_dict()}
        with torch.device("cpu"):
            model.to_empty(device="cpu").load_state_dict(own)
        return model.eval()
