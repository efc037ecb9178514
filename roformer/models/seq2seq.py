"""The Transformer's encoder and decoder (Vaswani et al. 2017), for translation.

Position encodings come in through the seam of `roformer.nn.position`, once for each side; in the
self-attention alone, never between the two sides.

Shapes: B batch, S source tokens, T target tokens, D hidden size, V vocabulary, L sentences, K beams.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from roformer.config.wmt import Seq2SeqConfig, Side
from roformer.models.encoder import Block
from roformer.nn.attention import (
    CrossAttention,
    KeysValues,
    additive_mask,
    build_attention,
)
from roformer.nn.dropout import Dropout
from roformer.nn.layers import FeedForward, Residual
from roformer.nn.linear import linear
from roformer.nn.position import PositionEncoding, Positions, build_position


class DecoderBlock(nn.Module):
    """Causal self-attention, attention to the source and feed-forward."""

    def __init__(self, config: Side):
        super().__init__()
        self.attention = build_attention(config)
        self.attention_residual = Residual(config)
        self.cross_attention = CrossAttention(
            config.hidden_size, config.heads, config.attention_dropout
        )
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x: Tensor, positions: Positions, encoding: PositionEncoding, source: Source
    ) -> Tensor:
        residual = self.attention_residual
        update = self.attention(residual.before(x), positions, encoding, None, causal=True)
        x = residual.after(x, update)
        memory = self.cross_attention.keys_values(source.hidden)
        return self.after_self_attention(x, memory, source.mask)

    def after_self_attention(self, x: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        residual = self.cross_attention_residual
        x = residual.after(x, self.cross_attention(residual.before(x), memory, mask))
        residual = self.feed_forward_residual
        return residual.after(x, self.feed_forward(residual.before(x)))


class Source:
    """An encoded source: its hidden states (B, S, D) and its additive mask (B, 1, 1, S) or None."""

    def __init__(self, hidden: Tensor, mask: Tensor | None):
        self.hidden, self.mask = hidden, mask


class Seq2Seq(nn.Module):
    """Source and target ids to logits over the next target token.

    Args:
        config: sizes, norm placement, dropout and position encoding.
        vocab_size: V, of the joint tokenizer.
        gradient_checkpointing: recompute each block in the backward pass instead of keeping its
            activations.
    """

    def __init__(
        self, config: Seq2SeqConfig, vocab_size: int, *, gradient_checkpointing: bool = False
    ):
        super().__init__()
        self.config = config
        self.gradient_checkpointing = gradient_checkpointing
        self.tokens = nn.Embedding(vocab_size, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout)
        self.encoder = nn.ModuleList(Block(config.encoder) for _ in range(config.encoder.layers))
        self.decoder = nn.ModuleList(
            DecoderBlock(config.decoder) for _ in range(config.decoder.layers)
        )
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            if config.norm == "pre"
            else nn.Identity()
            for _ in range(2)
        )
        self.encoder_position = build_position(config.position, config.encoder)
        self.decoder_position = build_position(config.position, config.decoder)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights: embeddings N(0, 1/D), matrices by Glorot, zero biases, unit norms.

        The fused projections are drawn as matrices of their own, those of the attention with gain
        1/√2, as fairseq does. Position encodings come last, so that one seed gives models that
        differ in nothing but the encoding the same weights everywhere else.
        """
        positions = (self.encoder_position, self.decoder_position)
        theirs = {module for position in positions for module in position.modules()}
        nn.init.normal_(self.tokens.weight, std=self.config.encoder.init_std)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear) and module not in theirs:
                if name.endswith((".projection", ".query", ".memory")):
                    bound = math.sqrt(1.5 / self.config.hidden_size)
                    nn.init.uniform_(module.weight, -bound, bound)
                else:
                    nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        for position in positions:
            position.reset_parameters()

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_ids: Tensor,
        *,
        attention_mask: Tensor | None = None,
        predict: Tensor | None = None,
    ) -> Tensor:
        """Return logits over the token after each one of the target.

        Args:
            input_ids: (B, S) source tokens.
            decoder_input_ids: (B, T) target tokens; a token sees those before it, so padding at
                the end of a row needs no mask.
            attention_mask: (B, S), true for real source tokens; None is all true.
            predict: (P,) places in the flattened B·T to predict, so that the head, the widest
                matrix product, leaves padding out; None predicts all.

        Returns:
            (P, V), or (B, T, V).
        """
        source = self.encode(input_ids, attention_mask)
        positions = Positions(torch.arange(decoder_input_ids.shape[-1], device=input_ids.device))
        x = self._embed(decoder_input_ids, positions, self.decoder_position)
        for index, block in enumerate(self.decoder):
            encoding = self.decoder_position.for_layer(index)
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, positions, encoding, source, use_reentrant=False)
            else:
                x = block(x, positions, encoding, source)
        if predict is not None:
            x = x.flatten(0, 1)[predict]
        return self.logits(x)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Source:
        """Read the source; arguments as in `forward`."""
        positions = Positions(torch.arange(input_ids.shape[-1], device=input_ids.device))
        mask = None if attention_mask is None else additive_mask(attention_mask)
        x = self._embed(input_ids, positions, self.encoder_position)
        for index, block in enumerate(self.encoder):
            encoding = self.encoder_position.for_layer(index)
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, positions, encoding, mask, use_reentrant=False)
            else:
                x = block(x, positions, encoding, mask)
        return Source(self.encoder_norm(x), mask)

    def logits(self, x: Tensor) -> Tensor:
        """Return (..., V) for the last block's output (..., D)."""
        return linear(self.decoder_norm(x), self.tokens.weight)

    def _embed(self, ids: Tensor, positions: Positions, encoding: PositionEncoding) -> Tensor:
        x = self.tokens(ids) * math.sqrt(self.config.hidden_size)
        return self.dropout(encoding.embed(x, positions))


class BeamDecoding:
    """A decoder in the middle of L sentences with K beams each: feeds one token, moves the caches.

    Keys and values of the source are projected once a sentence and shared by its beams, which are
    queries of one batch entry.

    Args:
        model: in evaluation mode.
        input_ids: (L, S) source tokens.
        attention_mask: (L, S), or None.
        beams: K.
    """

    def __init__(
        self, model: Seq2Seq, input_ids: Tensor, attention_mask: Tensor | None, beams: int
    ):
        self.model, self.beams = model, beams
        source = model.encode(input_ids, attention_mask)
        self.mask = source.mask
        # Read at every step: as views of one projection they would be copied each time.
        self.memories = [
            (k.contiguous(), v.contiguous())
            for block in self._blocks()
            for k, v in [block.cross_attention.keys_values(source.hidden)]
        ]
        self.caches = [block.attention.new_cache() for block in self._blocks()]

    def advance(self, tokens: Tensor) -> Tensor:
        """Feed the next token of every beam, (L, K); return the logits of the one after, (L, K, V)."""
        model, done = self.model, self.caches[0].length
        seen = Positions(torch.arange(done + 1, device=tokens.device))
        here = Positions(seen.ids[done:])
        x = model._embed(tokens.view(-1, 1), here, model.decoder_position)  # (L·K, 1, D)
        for index, block in enumerate(self._blocks()):
            residual = block.attention_residual
            update = block.attention(
                residual.before(x),
                here,
                model.decoder_position.for_layer(index),
                None,
                cache=self.caches[index],
                seen=seen,
            )
            x = residual.after(x, update)
            by_sentence = x.view(-1, self.beams, x.shape[-1])
            x = block.after_self_attention(by_sentence, self.memories[index], self.mask)
            x = x.view(-1, 1, x.shape[-1])
        return model.logits(x).view(-1, self.beams, model.tokens.num_embeddings)

    def reorder(self, parents: Tensor) -> None:
        """Let beam k of sentence l go on from beam parents[l, k], (L, K); copies what changes."""
        first = torch.arange(len(parents), device=parents.device)[:, None] * self.beams
        origin = (first + parents).flatten()
        (changed,) = (origin != torch.arange(len(origin), device=origin.device)).nonzero(
            as_tuple=True
        )
        for cache in self.caches:
            cache.move(changed, origin[changed])

    def _blocks(self) -> Iterator[DecoderBlock]:
        for block in self.model.decoder:
            assert isinstance(block, DecoderBlock)
            yield block

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these, (L',)."""
        beams = torch.arange(self.beams, device=sentences.device)
        rows = (sentences[:, None] * self.beams + beams).flatten()
        for cache in self.caches:
            cache.keep(rows)
        self.memories = [(k[sentences], v[sentences]) for k, v in self.memories]
        self.mask = None if self.mask is None else self.mask[sentences]
