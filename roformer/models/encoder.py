"""The bidirectional encoder and its masked-language-model head.

One class serves RoFormer, BERT and every other position encoding: the block is BERT's (Devlin et
al. 2019) and positions come in through the seam of `roformer.nn.position`.

Shapes: B batch, T sequence, K predicted positions a row, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from roformer.config.schema import EncoderConfig
from roformer.nn.attention import additive_mask, build_attention
from roformer.nn.dropout import Dropout
from roformer.nn.layers import BlockConfig, FeedForward, Residual
from roformer.nn.linear import Linear, linear
from roformer.nn.position import PositionEncoding, Positions, build_position


class Block(nn.Module):
    """Self-attention and feed-forward, each with its residual sum and norm."""

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.attention = build_attention(config)
        self.attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        mask: Tensor | None,
        **reading: Any,
    ) -> Tensor:
        """Return (B, T, D); `reading` is how the attention reads: `causal`, `cache` and `seen`."""
        residual = self.attention_residual
        update = self.attention(residual.before(x), positions, encoding, mask, **reading)
        x = residual.after(x, update)
        residual = self.feed_forward_residual
        return residual.after(x, self.feed_forward(residual.before(x)))


class Encoder(nn.Module):
    """Token ids to hidden states.

    Args:
        config: sizes, norm placement, dropout and position encoding.
        vocab_size: V, of the tokenizer.
        gradient_checkpointing: recompute each block in the backward pass instead of keeping its
            activations: less memory, about a third more time.
    """

    def __init__(
        self, config: EncoderConfig, vocab_size: int, *, gradient_checkpointing: bool = False
    ):
        super().__init__()
        self.config = config
        self.gradient_checkpointing = gradient_checkpointing
        self.tokens = nn.Embedding(vocab_size, config.hidden_size)
        self.token_types = nn.Embedding(config.token_types, config.hidden_size)
        self.embedding_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.embedding_dropout = Dropout(config.hidden_dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            if config.norm == "pre"
            else nn.Identity()
        )
        self.position = build_position(config.position, config)

    def forward(
        self,
        input_ids: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Encode a batch.

        Args:
            input_ids: (B, T) token ids.
            token_type_ids: (B, T); None is all zeros.
            attention_mask: (B, T), true for real tokens, or (B, T, T) per query; None is all true.
            positions: (T,) or (B, T); None counts from 0.

        Returns:
            (B, T, D).
        """
        if positions is None:
            positions = torch.arange(input_ids.shape[-1], device=input_ids.device)
        where = Positions(positions)
        mask = None if attention_mask is None else additive_mask(attention_mask)
        types = (
            self.token_types.weight[0]
            if token_type_ids is None
            else self.token_types(token_type_ids)
        )
        x = self.position.embed(self.tokens(input_ids) + types, where)
        x = self.embedding_dropout(self.embedding_norm(x))
        for index, block in enumerate(self.blocks):
            encoding = self.position.for_layer(index)
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, where, encoding, mask, use_reentrant=False)
            else:
                x = block(x, where, encoding, mask)
        return self.final_norm(x)


def draw_weights(model: nn.Module, encoder: Encoder) -> None:
    """Draw the weights of an encoder and its head as BERT: N(0, init_std²), zero biases, unit norms.

    Position encodings come last, so that one seed gives models that differ in nothing but the
    encoding the same weights everywhere else.

    Args:
        model: the encoder with its head.
        encoder: the part of it that has the position encoding.
    """
    std = encoder.config.init_std
    position = set(encoder.position.modules())
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and module not in position:
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
    encoder.position.reset_parameters()


class MaskedLM(nn.Module):
    """An encoder that predicts tokens, with its output matrix tied to the embeddings."""

    def __init__(
        self, config: EncoderConfig, vocab_size: int, *, gradient_checkpointing: bool = False
    ):
        super().__init__()
        self.encoder = Encoder(config, vocab_size, gradient_checkpointing=gradient_checkpointing)
        self.transform = Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.empty(vocab_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights, see `draw_weights`."""
        draw_weights(self, self.encoder)
        nn.init.zeros_(self.bias)

    def forward(
        self,
        input_ids: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        predict: Tensor | None = None,
    ) -> Tensor:
        """Return logits over the vocabulary.

        Args:
            predict: (B, K) indices of the tokens to predict; the head, the widest matrix product of
                a small model, runs on these alone. None predicts all T.
            input_ids, token_type_ids, attention_mask, positions: see `Encoder.forward`.

        Returns:
            (B, K, V), or (B, T, V).
        """
        x = self.encoder(
            input_ids,
            token_type_ids=token_type_ids,
            attention_mask=attention_mask,
            positions=positions,
        )
        if predict is not None:
            x = x.gather(1, predict[..., None].expand(-1, -1, x.shape[-1]))
        x = self.norm(functional.gelu(self.transform(x)))
        return linear(x, self.encoder.tokens.weight, self.bias)
