"""The encoder with a head on [CLS]: classification and regression of one text or a pair.

Shapes: B batch, T sequence, D hidden size, C outputs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.schema import EncoderConfig
from roformer.models.encoder import Encoder, draw_encoder
from roformer.nn.dropout import Dropout
from roformer.nn.linear import Linear


class Classifier(nn.Module):
    """BERT's sentence classifier: pooler (dense, tanh) on [CLS], dropout, linear (Devlin et al. 2019).

    Args:
        config: of the encoder.
        vocab_size: V, of the tokenizer.
        outputs: C, classes, or 1 for a regression.
        dropout: between pooler and classifier.
        gradient_checkpointing: see `Encoder`.
        activation: of the pooler; transformers' RoFormerForSequenceClassification has `gelu`.
    """

    def __init__(
        self,
        config: EncoderConfig,
        vocab_size: int,
        outputs: int,
        *,
        dropout: float,
        gradient_checkpointing: bool = False,
        activation: Literal["tanh", "gelu"] = "tanh",
    ):
        super().__init__()
        self.encoder = Encoder(config, vocab_size, gradient_checkpointing=gradient_checkpointing)
        self.pooler = Linear(config.hidden_size, config.hidden_size)
        self.activation = torch.tanh if activation == "tanh" else functional.gelu
        self.dropout = Dropout(dropout)
        self.classifier = Linear(config.hidden_size, outputs)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights; see `draw_encoder`."""
        draw_encoder(self, self.encoder)

    def forward(self, input_ids: Tensor, **inputs: Tensor | None) -> Tensor:
        """Return logits, or one score, for each text, (B, C); arguments as in `Encoder.forward`."""
        x = self.encoder(input_ids, **inputs)
        return self.classifier(self.dropout(self.activation(self.pooler(x[:, 0]))))
