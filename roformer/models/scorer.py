"""The encoder with a head that scores how close two documents are.

Shapes: B batch, T sequence, D hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from roformer.config.schema import EncoderConfig
from roformer.config.scm import PairConfig
from roformer.models.encoder import Encoder, draw_encoder
from roformer.nn.dropout import Dropout
from roformer.nn.linear import Linear


class PairScorer(nn.Module):
    """The score of [CLS] A [SEP] B [SEP]: pooling, an optional dense layer, dropout, linear.

    Args:
        config: of the encoder.
        vocab_size: V, of the tokenizer.
        pair: pooling and head.
        dropout: before the linear layer.
        gradient_checkpointing: see `Encoder`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        vocab_size: int,
        pair: PairConfig,
        *,
        dropout: float,
        gradient_checkpointing: bool = False,
    ):
        super().__init__()
        self.pooling = pair.pooling
        self.encoder = Encoder(config, vocab_size, gradient_checkpointing=gradient_checkpointing)
        width = config.hidden_size
        self.pooler = Linear(width, width) if pair.head == "dense" else None
        self.dropout = Dropout(dropout)
        self.classifier = Linear(width, 1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights; see `draw_encoder`."""
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
