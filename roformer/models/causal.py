"""A causal language model: the next token from those before it (GPT-2; Radford et al. 2019).

The block is the encoder's, pre-norm by default; positions come in through the seam of
`roformer.nn.position` and the attention's kind from `roformer.nn.attention`.

Shapes: B batch, T sequence, D hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roformer.config.lm import CausalConfig
from roformer.models.encoder import Block
from roformer.nn.dropout import Dropout
from roformer.nn.linear import linear
from roformer.nn.position import Positions, build_position


class CausalLM(nn.Module):
    """Token ids to logits over the token after each; the output matrix is that of the embeddings.

    Args:
        config: sizes, norm placement, dropout, attention and position encoding.
        vocab_size: V.
        gradient_checkpointing: recompute each block in the backward pass instead of keeping its
            activations.
    """

    def __init__(
        self, config: CausalConfig, vocab_size: int, *, gradient_checkpointing: bool = False
    ):
        super().__init__()
        self.config = config
        self.gradient_checkpointing = gradient_checkpointing
        self.tokens = nn.Embedding(vocab_size, config.hidden_size)
        self.embedding_dropout = Dropout(config.hidden_dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            if config.norm == "pre"
            else nn.Identity()
        )
        self.position = build_position(config.position, config)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as GPT-2: N(0, init_std²), zero biases, unit norms.

        The projections that end in a residual sum, two a layer, are smaller by 1/√(2·layers). Position
        encodings come last, so that one seed gives models that differ in nothing but the encoding the
        same weights everywhere else.
        """
        std = self.config.init_std
        theirs = set(self.position.modules())
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)) and module not in theirs:
                into_sum = name.endswith((".attention.output", ".feed_forward.outer"))
                scale = 1 / math.sqrt(2 * self.config.layers) if into_sum else 1.0
                nn.init.normal_(module.weight, std=std * scale)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        self.position.reset_parameters()

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits over the token after each one.

        Args:
            input_ids: (B, T); a token sees itself and those before it in its row.

        Returns:
            (B, T, V).
        """
        positions = Positions(torch.arange(input_ids.shape[-1], device=input_ids.device))
        x = self._embed(input_ids, positions)
        for index, block in enumerate(self.blocks):
            encoding = self.position.for_layer(index)
            if self.gradient_checkpointing and self.training:
                x = checkpoint(
                    block, x, positions, encoding, None, causal=True, use_reentrant=False
                )
            else:
                x = block(x, positions, encoding, None, causal=True)
        return self._logits(x)

    def _embed(self, ids: Tensor, positions: Positions) -> Tensor:
        return self.embedding_dropout(self.position.embed(self.tokens(ids), positions))

    def _logits(self, x: Tensor) -> Tensor:
        return linear(self.final_norm(x), self.tokens.weight)


class CausalDecoding:
    """A model in the middle of B texts, which keeps what it has read.

    Args:
        model: in evaluation mode.
    """

    def __init__(self, model: CausalLM):
        self.model = model
        self.read = 0
        """Tokens of each text read so far."""
        self.caches = [block.attention.new_cache() for block in self._blocks()]

    def advance(self, tokens: Tensor) -> Tensor:
        """Read on; return the logits of the token after the last one.

        Args:
            tokens: (B, T) that follow, T at least 1: a prompt at once, or the token that was chosen.

        Returns:
            (B, V).
        """
        model, end = self.model, self.read + tokens.shape[-1]
        seen = Positions(torch.arange(end, device=tokens.device))
        here = Positions(seen.ids[self.read :])
        x = model._embed(tokens, here)
        for index, (block, cache) in enumerate(zip(self._blocks(), self.caches, strict=True)):
            encoding = model.position.for_layer(index)
            x = block(x, here, encoding, None, causal=True, cache=cache, seen=seen)
        self.read = end
        return model._logits(x[:, -1])

    def _blocks(self) -> Iterator[Block]:
        for block in self.model.blocks:
            assert isinstance(block, Block)
            yield block
