"""Models of the libraries that ours is compared with, in our sizes."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor

PAD, END = 0, 1
PERFORMER = "performer_pytorch.performer_pytorch"


class Size(NamedTuple):
    """Sizes of a model."""

    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int


def rotary(table: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by transformers' RoFormer; the table holds sines, then cosines."""
    from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention

    rotated: tuple[Tensor, Tensor] = RoFormerSelfAttention.apply_rotary_position_embeddings(
        table, q, k
    )
    return rotated


def masked_lm(size: Size, vocabulary: int, length: int) -> Any:
    """Return transformers' RoFormer for masked language modelling."""
    from transformers import RoFormerConfig, RoFormerForMaskedLM

    return RoFormerForMaskedLM(
        RoFormerConfig(**_bert_sizes(size, vocabulary), max_position_embeddings=length)
    )


def bert(size: Size, vocabulary: int, length: int) -> Any:
    """Return transformers' BERT for masked language modelling, with torch's fused attention."""
    from transformers import BertConfig, BertForMaskedLM

    settings: dict[str, Any] = {
        "max_position_embeddings": length,
        "attn_implementation": "sdpa",
    }
    return BertForMaskedLM(BertConfig(**_bert_sizes(size, vocabulary), **settings))


def classifier(size: Size, vocabulary: int) -> Any:
    """Return transformers' BERT for the classification of sequences."""
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(**_bert_sizes(size, vocabulary)))


def _bert_sizes(size: Size, vocabulary: int) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": size.hidden_size,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "intermediate_size": size.intermediate_size,
    }


def marian(size: Size, vocabulary: int, dropout: float) -> Any:
    """Return transformers' Marian translation model."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=vocabulary,
            d_model=size.hidden_size,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=size.intermediate_size,
            decoder_ffn_dim=size.intermediate_size,
            activation_function="relu",
            scale_embedding=True,
            dropout=dropout,
            attention_dropout=dropout,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=END,
            forced_eos_token_id=None,
        )
    )


def performer() -> ModuleType | None:
    """Return performer-pytorch, or None, with a line on stderr, where it is not installed."""
    try:
        return import_module(PERFORMER)
    except ImportError as error:
        print(f"performer-pytorch is left out, it cannot be imported: {error}", file=sys.stderr)
        return None
