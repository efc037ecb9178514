"""Description of a trained model (`model.json`, next to its weights), by kind of model.

    every kind    kind  model (its configuration)  vocab_size  tokenizer (its fingerprint)
    mlm           objective (if more than mlm; it then has a pooler and predicts the relation of segments)
    classifier    task  labels (null of a regression)  texts (one or two names)  max_length  head_dropout
                  activation (of the pooler; tanh unless stated)
    scorer        pair  max_length  head_dropout
    causal        reads (bytes or tokens)  length
    translation   languages (two)  search  max_length
    encoder       nothing more: a model of Hugging Face without a head

A checkpoint's checksum covers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import nn

from roformer.config.build import build, plain
from roformer.config.lm import CausalConfig
from roformer.config.schema import EncoderConfig, TransformerConfig
from roformer.config.scm import PairConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.errors import InputError
from roformer.models.causal import CausalLM
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder, MaskedLM
from roformer.models.scorer import PairScorer
from roformer.models.seq2seq import Seq2Seq
from roformer.registry import Kind as Kind

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
    if kind == "causal":
        return CausalLM(config, vocab_size)
    if kind == "translation":
        return Seq2Seq(config, vocab_size)
    if kind == "encoder":
        return Encoder(config, vocab_size)
    return MaskedLM(config, vocab_size, related="objective" in description)


def check_size(config: TransformerConfig, vocab_size: int, files: Iterable[Path]) -> None:
    """Check, before a model is built that may not fit in memory, that its weights may be in `files`."""
    wide, layers = config.hidden_size, config.layers + (getattr(config, "decoder_layers", 0) or 0)
    embeddings = vocab_size * config.embedding_width
    tables = sum(v for v in plain(config.position).values() if type(v) is int) * config.head_dim
    fewest = embeddings + wide * layers * (4 * wide + 2 * config.intermediate_size) + tables
    known = [file for file in files if file.is_file()]
    if fewest > sum(file.stat().st_size for file in known):
        where = known[0].parent if known else "the folder"
        raise InputError(
            f"{where} describes a model of {fewest:,} parameters, which is more than its weights have "
            "bytes: they are damaged, or not of one model"
        )
