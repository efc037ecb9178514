"""The Transformer's encoder and decoder (Vaswani et al. 2017), for translation.

Each side has its own position encoding, of the same kind.

Shapes: B batch, S source tokens, T target tokens, D hidden size, V vocabulary, L sentences, K beams.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from roformer.config.wmt import Seq2SeqConfig
from roformer.models.transformer import Stack, draw_weights, final_norm
from roformer.nn.attention import additive_mask
from roformer.nn.dropout import Dropout
from roformer.nn.linear import linear
from roformer.nn.position import PositionEncoding, Positions, build_position


class Source(NamedTuple):
    """An encoded source."""

    hidden: Tensor  # (B, S, D)
    mask: Tensor | None  # additive, (B, 1, 1, S)


class Seq2Seq(nn.Module):
    """Source and target ids to logits over the next target token; both sides share the embeddings."""

    def __init__(self, config: Seq2SeqConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(vocab_size, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout)
        self.encoder = Stack(config)
        self.decoder = Stack(config.decoder, source=True)
        self.encoder_norm, self.decoder_norm = final_norm(config), final_norm(config)
        self.encoder_position = build_position(config.position, config)
        self.decoder_position = build_position(config.position, config.decoder)
        draw_weights(self, [self.encoder_position, self.decoder_position], self._draw)

    def _draw(self, name: str, weight: Tensor) -> None:
        """Draw a matrix: embeddings N(0, 1/D), others by Glorot.

        The parts of a fused projection are drawn as separate matrices, with gain 1/√2, like fairseq.
        """
        if name == "tokens":
            nn.init.normal_(weight, std=self.config.init_std)
        elif name.endswith((".projection", ".query", ".memory")):
            bound = math.sqrt(1.5 / self.config.hidden_size)
            nn.init.uniform_(weight, -bound, bound)
        else:
            nn.init.xavier_uniform_(weight)

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_ids: Tensor,
        *,
        attention_mask: Tensor | None = None,
        predict: Tensor | None = None,
    ) -> Tensor:
        """Return logits over the token after each one of the target, (B, T, V), or (P, V).

        Args:
            input_ids: (B, S) source tokens.
            decoder_input_ids: (B, T) target tokens; a token sees those before it, so padding at
                the end of a row needs no mask.
            attention_mask: (B, S), true for real source tokens; None is all true.
            predict: (P,) places in the flattened B·T to predict, so that the head, the widest
                matrix product, skips padding; None predicts all.
        """
        source = self.encode(input_ids, attention_mask)
        positions = Positions.counted(0, decoder_input_ids.shape[-1], input_ids.device)
        x = self._embed(decoder_input_ids, positions, self.decoder_position)
        x = self.decoder(x, positions, self.decoder_position, None, *source)
        if predict is not None:
            x = x.flatten(0, 1)[predict]
        return self.logits(x)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Source:
        """Encode the source; arguments as in `forward`."""
        positions = Positions.counted(0, input_ids.shape[-1], input_ids.device)
        mask = None if attention_mask is None else additive_mask(attention_mask)
        x = self._embed(input_ids, positions, self.encoder_position)
        x = self.encoder(x, positions, self.encoder_position, mask)
        return Source(self.encoder_norm(x), mask)

    def logits(self, x: Tensor) -> Tensor:
        """Return (..., V) for the last block's output (..., D)."""
        return linear(self.decoder_norm(x), self.tokens.weight)

    def _embed(self, ids: Tensor, positions: Positions, encoding: PositionEncoding) -> Tensor:
        x = self.tokens(ids) * math.sqrt(self.config.hidden_size)
        return self.dropout(encoding.embed(x, positions))


class BeamDecoding:
    """Incremental decoding of L sentences with K beams each.

    Keys and values of the source (L, S) are projected once for each sentence; its beams are queries of one
    batch entry.
    """

    def __init__(
        self, model: Seq2Seq, input_ids: Tensor, attention_mask: Tensor | None, beams: int
    ):
        self.model, self.beams = model, beams
        source = model.encode(input_ids, attention_mask)
        self.mask = source.mask
        blocks: list[Any] = list(model.decoder)
        # Views of one projection would be copied at every step.
        self.memories = [
            (k.contiguous(), v.contiguous())
            for block in blocks
            for k, v in [block.cross_attention.keys_values(source.hidden)]
        ]
        self.caches = [block.attention.new_cache() for block in blocks]

    def advance(self, tokens: Tensor) -> Tensor:
        """Read the next token of every beam, (L, K); return the logits of the one after, (L, K, V)."""
        model, done = self.model, self.caches[0].length
        seen = Positions.counted(0, done + 1, tokens.device)
        here = Positions.counted(done, done + 1, tokens.device)
        x = model._embed(tokens.view(-1, 1), here, model.decoder_position)  # (L·K, 1, D)
        each = [
            {"cache": cache, "seen": seen, "memory": memory}
            for cache, memory in zip(self.caches, self.memories, strict=True)
        ]
        x = model.decoder(x, here, model.decoder_position, None, None, self.mask, each=each)
        return model.logits(x).view(-1, self.beams, model.tokens.num_embeddings)

    def reorder(self, parents: Tensor) -> None:
        """Let beam k of sentence l continue beam parents[l, k], (L, K); copies only what changes."""
        rows = torch.arange(parents.numel(), device=parents.device)
        origin = (rows.view_as(parents)[:, :1] + parents).flatten()
        (changed,) = (origin != rows).nonzero(as_tuple=True)
        for cache in self.caches:
            cache.move(changed, origin[changed])

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these, (L',)."""
        beams = torch.arange(self.beams, device=sentences.device)
        rows = (sentences[:, None] * self.beams + beams).flatten()
        for cache in self.caches:
            cache.keep(rows)
        self.memories = [(k[sentences], v[sentences]) for k, v in self.memories]
        self.mask = None if self.mask is None else self.mask[sentences]
