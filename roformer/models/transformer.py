"""The block of all models, and the one loop over blocks.

Positions come in through the hooks of `roformer.nn.position`, only in self-attention, never between
the two sides of an encoder-decoder.

Shapes: B batch, T tokens, S source tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roformer.config.schema import TransformerConfig
from roformer.nn.attention import CrossAttention, KeysValues, build_attention
from roformer.nn.layers import FeedForward, Residual, build_norm
from roformer.nn.position import PositionEncoding, Positions


class Block(nn.Module):
    """Self-attention, attention to a source in a decoder, and feed-forward, each with residual and norm."""

    def __init__(self, config: TransformerConfig, *, source: bool = False):
        super().__init__()
        self.causal = config.causal
        self.attention = build_attention(config)
        self.attention_residual = Residual(config)
        if source:
            self.cross_attention = CrossAttention(
                config.hidden_size, config.heads, config.attention_dropout
            )
            self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        mask: Tensor | None,
        hidden: Tensor | None = None,
        source_mask: Tensor | None = None,
        *,
        memory: KeysValues | None = None,
        **reading: Any,
    ) -> Tensor:
        """Return (B, T, D).

        Args:
            x: (B, T, D); B may be a multiple of the rows of the source, whose targets are
                neighbours: the beams of a sentence.
            positions: of the T tokens.
            encoding: of this layer.
            mask: of the self-attention, additive, or None.
            hidden: of the source, (B, S, D).
            source_mask: additive, (B, 1, 1, S), or None.
            memory: keys and values of the source in place of `hidden`, if computed before.
            reading: `cache` and `seen` of the attention, for incremental decoding.
        """
        residual = self.attention_residual
        attended = self.attention(
            residual.before(x), positions, encoding, mask, causal=self.causal, **reading
        )
        x = residual.after(x, attended)
        if hidden is not None:
            memory = self.cross_attention.keys_values(hidden)
        if memory is not None:
            by_source = x.view(memory[0].shape[0], -1, x.shape[-1])
            residual = self.cross_attention_residual
            attended = self.cross_attention(residual.before(by_source), memory, source_mask)
            x = residual.after(by_source, attended).view_as(x)
        residual = self.feed_forward_residual
        return residual.after(x, self.feed_forward(residual.before(x)))


class Stack(nn.ModuleList):
    """A stack of blocks, each with the position encoding of its layer."""

    recompute = False
    """See `recompute_blocks`."""

    def __init__(self, config: TransformerConfig, *, source: bool = False):
        super().__init__(Block(config, source=source) for _ in range(config.layers))

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        *inputs: Tensor | None,
        each: Sequence[dict[str, Any]] | None = None,
        outputs: list[Tensor] | None = None,
    ) -> Tensor:
        """Return (B, T, D) for x (B, T, D); `inputs` are further arguments of every block.

        `each` has keyword arguments for each block, such as its cache; `outputs` gets the output of each.
        """
        for index, block in enumerate(self):
            layer = encoding.for_layer(index)
            if self.recompute and self.training:
                x = checkpoint(block, x, positions, layer, *inputs, use_reentrant=False)
            else:
                x = block(x, positions, layer, *inputs, **(each[index] if each else {}))
            if outputs is not None:
                outputs.append(x)
        return x


def recompute_blocks(model: nn.Module) -> None:
    """Recompute each block in the backward pass (gradient checkpointing): less memory, a third more time."""
    for module in model.modules():
        if isinstance(module, Stack):
            module.recompute = True


def compile_blocks(model: nn.Module) -> None:
    """Compile the blocks one by one: one graph serves all layers, and FSDP's hooks stay outside."""
    # The cells of a GLUE grid are one process, whose graphs of one function count together.
    torch._dynamo.config.recompile_limit = 64
    # DDP would split the graph of a large block; between blocks it reduces gradients anyway.
    torch._dynamo.config.optimize_ddp = False
    for module in model.modules():
        if isinstance(module, Block):
            module.compile()


def final_norm(config: TransformerConfig) -> nn.Module:
    """Return the norm after the last block, the identity in post-norm models."""
    return build_norm(config, config.hidden_size) if config.norm == "pre" else nn.Identity()


def draw_weights(
    model: nn.Module, positions: Sequence[PositionEncoding], draw: Callable[[str, Tensor], object]
) -> None:
    """Draw all weights of a model: matrices by `draw`, zero biases, unit norms.

    Its encodings `positions` draw their own parameters, and come last, so that with one seed models that
    differ only in the encoding have the same weights everywhere else. `draw` fills a matrix or table in
    place, given the name of its module.
    """
    own = {module for position in positions for module in position.modules()}
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and module not in own:
            draw(name, module.weight)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
    for position in positions:
        position.reset_parameters()
