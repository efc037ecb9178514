"""The blocks of all models, and the one loop that runs them.

Positions come in through the seam of `roformer.nn.position`, in self-attention alone, never between
the two sides of an encoder-decoder.

Shapes: B batch, T tokens, S source tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roformer.config.schema import TransformerConfig
from roformer.nn.attention import CrossAttention, KeysValues, build_attention
from roformer.nn.layers import FeedForward, Residual
from roformer.nn.position import PositionEncoding, Positions


class Block(nn.Module):
    """Self-attention and feed-forward, each with its residual sum and norm."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.attention = build_attention(config)
        self.attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)
        self.causal = config.causal

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        mask: Tensor | None,
        **reading: Any,
    ) -> Tensor:
        """Return (B, T, D).

        Args:
            x: (B, T, D).
            positions: of the T tokens.
            encoding: of this layer.
            mask: additive, or None.
            reading: `cache` and `seen` of the attention, for incremental decoding.
        """
        x = self._attend(x, positions, encoding, mask, **reading)
        return self._feed(x)

    def _attend(
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        mask: Tensor | None,
        **reading: Any,
    ) -> Tensor:
        residual = self.attention_residual
        attended = self.attention(
            residual.before(x), positions, encoding, mask, causal=self.causal, **reading
        )
        return residual.after(x, attended)

    def _feed(self, x: Tensor) -> Tensor:
        residual = self.feed_forward_residual
        return residual.after(x, self.feed_forward(residual.before(x)))


class DecoderBlock(Block):
    """A `Block` that also attends to a source, between self-attention and feed-forward."""

    def __init__(self, config: TransformerConfig):
        nn.Module.__init__(self)  # weights are drawn in the order of the data flow
        self.attention = build_attention(config)
        self.attention_residual = Residual(config)
        self.cross_attention = CrossAttention(
            config.hidden_size, config.heads, config.attention_dropout
        )
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)
        self.causal = config.causal

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        hidden: Tensor | None,
        mask: Tensor | None,
        *,
        memory: KeysValues | None = None,
        **reading: Any,
    ) -> Tensor:
        """Return (B, T, D).

        Args:
            x: (B, T, D); B may be a multiple of the rows of the source, whose targets lie side by
                side: the beams of a sentence.
            positions: of the T target tokens.
            encoding: of this layer.
            hidden: of the source, (B, S, D); not needed with `memory`.
            mask: of the source, additive, (B, 1, 1, S) or None.
            memory: keys and values of the source, if computed before.
            reading: see `Block.forward`.
        """
        x = self._attend(x, positions, encoding, None, **reading)
        if memory is None:
            assert hidden is not None
            memory = self.cross_attention.keys_values(hidden)
        rows = memory[0].shape[0]
        by_source = x.view(rows, -1, x.shape[-1])
        residual = self.cross_attention_residual
        attended = self.cross_attention(residual.before(by_source), memory, mask)
        return self._feed(residual.after(by_source, attended)).view_as(x)


class Stack(nn.ModuleList):
    """A stack of blocks, each with the position encoding of its layer.

    Args:
        block: `Block` or `DecoderBlock`.
        config: of the blocks.
        gradient_checkpointing: recompute each block in the backward pass instead of keeping its
            activations: less memory, about a third more time.
    """

    def __init__(
        self, block: type[Block], config: TransformerConfig, *, gradient_checkpointing: bool = False
    ):
        super().__init__(block(config) for _ in range(config.layers))
        self.gradient_checkpointing = gradient_checkpointing

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        *inputs: Tensor | None,
        each: Sequence[dict[str, Any]] | None = None,
    ) -> Tensor:
        """Return (B, T, D).

        Args:
            x: (B, T, D).
            positions: of the T tokens.
            encoding: of the model.
            inputs: further arguments of every block.
            each: keyword arguments of each block, such as its cache.
        """
        for index, block in enumerate(self):
            layer = encoding.for_layer(index)
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, positions, layer, *inputs, use_reentrant=False)
            else:
                x = block(x, positions, layer, *inputs, **(each[index] if each else {}))
        return x


def final_norm(config: TransformerConfig) -> nn.Module:
    """Return the norm after the last block, the identity in post-norm models."""
    if config.norm == "pre":
        return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
    return nn.Identity()


def draw_weights(
    model: nn.Module,
    positions: Sequence[PositionEncoding],
    draw: Callable[[str, Tensor], object],
) -> None:
    """Draw all weights of a model: matrices by `draw`, zero biases, unit norms.

    Position encodings come last, so that with one seed models that differ in the encoding alone have
    the same weights everywhere else.

    Args:
        model: with its head.
        positions: its encodings, which draw their own parameters.
        draw: fills a matrix or table in place, given the name of its module.
    """
    theirs = {module for position in positions for module in position.modules()}
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and module not in theirs:
            draw(name, module.weight)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
    for position in positions:
        position.reset_parameters()
