"""The encoder with a head on whole texts: classification, regression, and scores of pairs.

Shapes: B batch, T sequence, D hidden size, C outputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.schema import EncoderConfig
from roformer.config.scm import PairConfig
from roformer.models.encoder import Encoder, draw_encoder
from roformer.nn.dropout import Dropout
from roformer.nn.linear import Linear


class Classifier(nn.Module):
    """BERT's sentence classifier: pooler (dense, tanh) on [CLS], dropout, linear (Devlin et al. 2019).

    `outputs` is C, 1 for a regression. The pooler of transformers' RoFormerForSequenceClassification has
    the activation `gelu`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        vocab_size: int,
        outputs: int,
        *,
        dropout: float,
        activation: Literal["tanh", "gelu"] = "tanh",
    ):
        super().__init__()
        self.encoder = Encoder(config, vocab_size)
        self.pooler = Linear(config.hidden_size, config.hidden_size)
        self.activation = torch.tanh if activation == "tanh" else functional.gelu
        self.dropout = Dropout(dropout)
        self.classifier = Linear(config.hidden_size, outputs)
        draw_encoder(self, self.encoder)

    def forward(self, input_ids: Tensor, **inputs: Tensor | None) -> Tensor:
        """Return logits, or one score, for each text, (B, C); arguments as in `Encoder.forward`."""
        x = self.encoder(input_ids, **inputs)
        return self.classifier(self.dropout(self.activation(self.pooler(x[:, 0]))))


class PairScorer(nn.Module):
    """Score how close two documents are: [CLS] A [SEP] B [SEP], pooling, dense layer, dropout, linear."""

    def __init__(self, config: EncoderConfig, vocab_size: int, pair: PairConfig, *, dropout: float):
        super().__init__()
        self.pooling = pair.pooling
        self.encoder = Encoder(config, vocab_size)
        width = config.hidden_size
        self.pooler = Linear(width, width) if pair.head == "dense" else None
        self.dropout = Dropout(dropout)
        self.classifier = Linear(width, 1)
        draw_encoder(self, self.encoder)

    def forward(self, input_ids: Tensor, **inputs: Tensor | None) -> Tensor:
        """Return the score of each pair, (B,) fp32; arguments as in `Encoder.forward`."""
        x = self.encoder(input_ids, **inputs)
        mask = inputs.get("attention_mask")
        pooled = x[:, 0] if self.pooling == "cls" else mean_of_tokens(x, mask)
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(pooled))
        score: Tensor = self.classifier(self.dropout(pooled))
        return score.squeeze(-1).float()


def mean_of_tokens(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the mean of x (B, T, D) over the real tokens, (B, D) fp32; without a mask, over all."""
    if attention_mask is None:
        return x.float().mean(1)
    mask = attention_mask.bool()[..., None]
    return x.float().masked_fill(~mask, 0.0).sum(1) / mask.sum(1)
