"""The causal language model: the next token from the tokens before it (GPT-2; Radford et al. 2019).

Its blocks come from `roformer.models.transformer`, pre-norm by default.

Shapes: B batch, T sequence, D hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from roformer.config.lm import CausalConfig
from roformer.models.transformer import Stack, draw_weights, final_norm
from roformer.nn.dropout import Dropout
from roformer.nn.linear import linear
from roformer.nn.position import Positions, build_position


class CausalLM(nn.Module):
    """Token ids to logits over the token after each; the output matrix is tied to the embeddings."""

    def __init__(self, config: CausalConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(vocab_size, config.hidden_size)
        self.embedding_dropout = Dropout(config.hidden_dropout)
        self.blocks = Stack(config)
        self.final_norm = final_norm(config)
        self.position = build_position(config.position, config)
        draw_weights(self, [self.position], self._draw)

    def _draw(self, name: str, weight: Tensor) -> None:
        """Draw a matrix like GPT-2: N(0, init_std²).

        The projections that end in a residual sum, two per layer, are smaller by 1/√(2·layers).
        """
        into_sum = name.endswith((".attention.output", ".feed_forward.outer"))
        scale = 1 / math.sqrt(2 * self.config.layers) if into_sum else 1.0
        nn.init.normal_(weight, std=self.config.init_std * scale)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits over the token after each one of `input_ids` (B, T), (B, T, V)."""
        positions = Positions.counted(0, input_ids.shape[-1], input_ids.device)
        x = self._embed(input_ids, positions)
        return self._logits(self.blocks(x, positions, self.position, None))

    def _embed(self, ids: Tensor, positions: Positions) -> Tensor:
        return self.embedding_dropout(self.position.embed(self.tokens(ids), positions))

    def _logits(self, x: Tensor) -> Tensor:
        return linear(self.final_norm(x), self.tokens.weight)


class CausalDecoding:
    """Incremental decoding of B texts by a model in evaluation mode: each token is read once."""

    def __init__(self, model: CausalLM):
        self.model = model
        self.read = 0
        """Tokens of each text read so far."""
        blocks: list[Any] = list(model.blocks)
        self.caches = [block.attention.new_cache() for block in blocks]

    def advance(self, tokens: Tensor) -> Tensor:
        """Read the next tokens (B, T), T ≥ 1; return the logits of the token after them, (B, V)."""
        model, end = self.model, self.read + tokens.shape[-1]
        seen = Positions.counted(0, end, tokens.device)
        here = Positions.counted(self.read, end, tokens.device)
        each = [{"cache": cache, "seen": seen} for cache in self.caches]
        x = model.blocks(model._embed(tokens, here), here, model.position, None, each=each)
        self.read = end
        return model._logits(x[:, -1])
