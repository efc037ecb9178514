"""The bidirectional encoder and its heads of pre-training.

One class serves RoFormer, BERT and every other position encoding: embeddings and head are BERT's
(Devlin et al. 2019), its blocks come from `roformer.models.transformer`.

Shapes: B batch, T sequence, K predicted positions per row, D hidden size, E embedding size (mostly D), V
vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.schema import EncoderConfig
from roformer.models.transformer import Stack, draw_weights, final_norm
from roformer.nn.attention import additive_mask
from roformer.nn.dropout import Dropout
from roformer.nn.layers import build_norm
from roformer.nn.linear import Linear, linear
from roformer.nn.position import Positions, build_position


class Encoder(nn.Module):
    """Token ids to hidden states."""

    def __init__(self, config: EncoderConfig, vocab_size: int):
        super().__init__()
        self.config = config
        width, size = config.embedding_width, config.hidden_size
        self.tokens = nn.Embedding(vocab_size, width)
        self.token_types = nn.Embedding(config.token_types, width)
        self.embedding_norm = build_norm(config, width)
        self.embedding_dropout = Dropout(config.hidden_dropout)
        self.embedding_projection = nn.Identity() if width == size else Linear(width, size)
        self.blocks = Stack(config)
        self.final_norm = final_norm(config)
        self.position = build_position(config.position, config)

    def forward(
        self,
        input_ids: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        every_layer: bool = False,
    ) -> Any:
        """Return the hidden states of `input_ids` (B, T): (B, T, D), or with `every_layer` one per block.

        Args:
            input_ids: token ids.
            token_type_ids: (B, T); None is all zeros.
            attention_mask: (B, T), true for real tokens, or (B, T, T) per query; None is all true.
            positions: (T,) or (B, T); None counts from 0.
        """
        if positions is None:
            where = Positions.counted(0, input_ids.shape[-1], input_ids.device)
        else:
            where = Positions(positions)
        mask = None if attention_mask is None else additive_mask(attention_mask)
        first = self.token_types.weight[0]
        types = first if token_type_ids is None else self.token_types(token_type_ids)
        x = self.position.embed(self.tokens(input_ids) + types, where)
        x = self.embedding_projection(self.embedding_dropout(self.embedding_norm(x)))
        outputs: list[Tensor] | None = [] if every_layer else None
        x = self.final_norm(self.blocks(x, where, self.position, mask, outputs=outputs))
        return x if outputs is None else [*outputs[:-1], x]


def draw_encoder(model: nn.Module, encoder: Encoder) -> None:
    """Draw the weights of an encoder and its head like BERT: N(0, init_std²); see `draw_weights`."""
    std = encoder.config.init_std
    draw_weights(model, [encoder.position], lambda _, weight: nn.init.normal_(weight, std=std))


class MaskedLM(nn.Module):
    """An encoder that predicts tokens; the output matrix is tied to the embeddings.

    If `related`, it also predicts how two segments are related: pooler (dense, tanh) on [CLS] and linear
    (Devlin et al. 2019, task 2).
    """

    def __init__(self, config: EncoderConfig, vocab_size: int, *, related: bool = False):
        super().__init__()
        self.encoder = Encoder(config, vocab_size)
        self.transform = self.norm = self.bias = None
        if config.affine:
            self.transform = Linear(config.hidden_size, config.embedding_width)
            self.norm = build_norm(config, config.embedding_width)
            self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.pooler = Linear(config.hidden_size, config.hidden_size) if related else None
        self.relation = Linear(config.hidden_size, 2) if related else None
        draw_encoder(self, self.encoder)

    def forward(
        self,
        input_ids: Tensor,
        *,
        predict: Tensor | None = None,
        relation: bool = False,
        **inputs: Any,
    ) -> Any:
        """Return logits over the vocabulary, and with `relation` logits of the segments' relation, (B, 2).

        The head, the widest matrix product of a small model, runs only on the indices `predict` (B, K), and
        its logits are (B, K, V). None predicts all: (B, T, V). For `inputs` see `Encoder.forward`; with
        `every_layer` the head does not run.
        """
        x = hidden = self.encoder(input_ids, **inputs)
        if inputs.get("every_layer"):
            return hidden
        if predict is not None:
            x = x.gather(1, predict[..., None].expand(-1, -1, x.shape[-1]))
        if self.transform is not None and self.norm is not None:
            x = self.norm(functional.gelu(self.transform(x)))
        logits = linear(x, self.encoder.tokens.weight, self.bias)
        if not relation:
            return logits
        assert self.pooler is not None and self.relation is not None
        return logits, self.relation(torch.tanh(self.pooler(hidden[:, 0])))
