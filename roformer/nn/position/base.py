"""The interface between models and position encodings: its hooks.

An encoding overrides the hooks it needs; each does nothing by default:

    prepare     derives what all layers share
    embed       adds to the token embeddings
    rotate      rotates or scales queries and keys
    bias        adds to the attention logits
    value_term  adds to the attention output

Models call `embed` once, which calls `prepare`; attention calls the other hooks. Neither knows which
encoding is in use; its config says what an encoding can do. A new encoding is a file here with one class
(decorated with `encodes`), one dataclass in `config/position.py` and one file in `conf/model/position/`.

Shapes: B batch, N heads, T queries, S keys, H head dimension, D hidden size, L distances. Position ids
are (T,) when all rows share them, else (B, T).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig

T = TypeVar("T")
BLOCK = 128
"""Queries whose products with vectors of the distance are computed at once."""


class Positions:
    """Position ids of one forward pass, with the tensors that encodings derive from them.

    Tables and distances are shared by all layers through `derive` and die with the pass: no cache
    outlives its positions, device or type. In one pass queries meet either their own positions or those
    of one cache, so the key of a derived tensor has to name no more than `k is q`.

    `first` is the first of the `ids`, (T,) or (B, T), if they count up from it by one; None: any ids.
    """

    def __init__(self, ids: Tensor, first: int | None = None):
        self.ids = ids
        self.first = first
        self._derived: dict[Hashable, Any] = {}

    @classmethod
    def counted(cls, first: int, end: int, device: torch.device) -> Positions:
        """Return the positions first, first + 1, …, end - 1."""
        return cls(torch.arange(first, end, device=device), first)

    def derive(self, key: Hashable, build: Callable[[], T]) -> T:
        """Return what `build` returned for this key, building it at the first call."""
        if key not in self._derived:
            self._derived[key] = build()
        return self._derived[key]


def distances(q: Positions, k: Positions) -> Tensor:
    """Return key position minus query position: (T, S), or (B, T, S) for per-row positions."""
    return q.derive(("distances", k is q), lambda: k.ids[..., None, :] - q.ids[..., :, None])


class Pairs(NamedTuple):
    """The pairs of queries and keys by their distance.

    What depends on the distance is computed for each of the L = T + S - 1 distances once and then
    shifted into its place, so that no (T, S, H) tensor is made.
    """

    distances: Tensor  # (L,), ascending: key position minus query position
    queries: int  # T
    places: Tensor | None
    """Each pair's place among the distances, (T, S) or (B, T, S); None where positions count up."""

    def products(self, x: Tensor, vectors: Tensor) -> Tensor:
        """Return x_m·a_(n-m), (B, N, T, S), for x (B, N, T, H) and vectors by distance (N or 1, L, H)."""
        vectors = vectors.to(x.dtype)
        rows, length = self.queries, len(self.distances)
        if self.places is None and length == rows:  # one key
            return (x * vectors.flip(-2)).sum(-1, keepdim=True)
        # A block of queries has few more distances than keys.
        if self.places is None and rows > BLOCK:
            starts = range(0, rows, BLOCK)
            parts = [self._block(x, vectors, first, min(first + BLOCK, rows)) for first in starts]
            return torch.cat(parts, dim=-2)
        found = x @ vectors.mT
        if self.places is not None:
            index = self.places[:, None] if self.places.ndim == 3 else self.places
            return found.gather(-1, index.expand(*x.shape[:2], -1, -1))
        # Row m begins at distance -m: T-1-m places to the right. In rows that are one shorter it is
        # T-1 for all of them.
        if rows == 1:
            return found
        start = found.flatten(-2)[..., rows - 1 : rows - 1 + rows * (length - 1)]
        return start.unflatten(-1, (rows, length - 1))[..., : length - rows + 1]

    def projected(self, x: Tensor, vectors: Tensor, weight: Tensor) -> Tensor:
        """Return x_m·(W a_(n-m)), as `products`, for vectors (L, D) and Wᵀ (D, N·H).

        Few x, as in decoding, are multiplied by W in place of the vectors.
        """
        vectors, by_head = vectors.to(weight.dtype), weight.unflatten(-1, (-1, x.shape[-1]))
        if x.shape[0] * x.shape[2] < x.shape[-1]:
            return self.products(torch.einsum("bnth,dnh->bntd", x, by_head), vectors[None])
        return self.products(x, torch.einsum("ld,dnh->nlh", vectors, by_head))

    def _block(self, x: Tensor, vectors: Tensor, first: int, end: int) -> Tensor:
        """Return the products of the queries from `first` up to `end`."""
        start = self.queries - end
        stop = len(self.distances) - first
        block = Pairs(self.distances[start:stop], end - first, None)
        return block.products(x[:, :, first:end], vectors[:, start:stop])

    def spread(self, values: Tensor) -> Tensor:
        """Return the value of each pair, (N, T, S) or (B, N, T, S), for values (N, L) of the distances."""
        if self.places is None:
            return values.unfold(-1, len(self.distances) - self.queries + 1, 1).flip(-2)
        found = values[:, self.places]
        return found if self.places.ndim == 2 else found.movedim(0, 1)


def pairs(q: Positions, k: Positions) -> Pairs:
    """Return the pairs of these queries and keys."""

    def build() -> Pairs:
        rows = q.ids.shape[-1]
        if q.first is not None and k.first is not None:
            nearest = k.first - q.first
            end = nearest + k.ids.shape[-1]
            return Pairs(torch.arange(nearest - rows + 1, end, device=q.ids.device), rows, None)
        apart = distances(q, k)
        lowest, highest = int(apart.min()), int(apart.max())
        found = torch.arange(lowest, highest + 1, device=q.ids.device)
        return Pairs(found, rows, apart - lowest)

    return q.derive(("pairs", k is q), build)


class PositionEncoding(nn.Module):
    """The hooks, and the encoding `none`, which does nothing."""

    adds_to_values = False
    """True if `value_term` is used; fused kernels, which hide the probabilities, are then out."""
    rotates_values = False
    """True if attention passes the values through `rotate` too."""

    def __init__(self, config: Any, model: TransformerConfig):
        super().__init__()
        self.init_std = model.init_std
        self.absolute: PositionEncoding | None = None
        """Absolute positions in addition to a relative encoding, added to the embeddings."""

    def prepare(self, positions: Positions) -> None:
        """Derive what all layers share, before the first of them.

        A layer that derived it would need its own compiled graph, and lose it when it is recomputed in the
        backward pass.
        """

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """Return the embeddings (B, T, D) with positions added."""
        self.prepare(positions)
        return x if self.absolute is None else self.absolute.embed(x, positions)

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Return queries and keys (B, N, T, H) with positions applied.

        Linear attention may pass the M features of each head instead, and softmax attention the values
        where the encoding `rotates_values`.
        """
        return q, k

    def bias(
        self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions
    ) -> Tensor | None:
        """Return what to add to the logits q·k/√H, broadcastable to (B, N, T, S), or None.

        The arguments are q (B, N, T, H) and k (B, N, S, H), as `rotate` left them, with their positions.
        """
        return None

    def value_term(self, probabilities: Tensor, q: Positions, k: Positions) -> Tensor:
        """Return what to add to the attention output (B, N, T, H), given (B, N, T, S)."""
        raise AssertionError("called only where adds_to_values is set")

    def for_layer(self, index: int) -> PositionEncoding:
        """Return the encoding of layer `index`; most encodings share one over all layers."""
        return self

    def reset_parameters(self) -> None:
        """Draw the parameters of this encoding, if any: N(0, init_std²)."""
        for parameter in self.parameters(recurse=False):
            nn.init.normal_(parameter, std=self.init_std)
        if self.absolute is not None:
            self.absolute.reset_parameters()


class LayeredEncoding(PositionEncoding):
    """An encoding with separate parameters per layer, which `layer` makes for each."""

    def __init__(self, config: Any, model: TransformerConfig, layer: Builder):
        super().__init__(config, model)
        self.per_layer = nn.ModuleList(layer(config, model) for _ in range(model.layers))

    def prepare(self, positions: Positions) -> None:
        self.for_layer(0).prepare(positions)

    def for_layer(self, index: int) -> PositionEncoding:
        return self.per_layer[index]  # type: ignore[return-value]

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for layer in self.per_layer:
            layer.reset_parameters()  # type: ignore[operator]


Builder = Callable[[Any, TransformerConfig], PositionEncoding]
ENCODINGS: dict[type, Builder] = {encodings.NoPosition: PositionEncoding}
E = TypeVar("E", bound=type[PositionEncoding])


def encodes(config: type, *, per_layer: bool = False) -> Callable[[E], E]:
    """Register a class as the encoding of a config dataclass, of the whole model or of one layer."""

    def register(cls: E) -> E:
        ENCODINGS[config] = partial(LayeredEncoding, layer=cls) if per_layer else cls
        return cls

    return register


def build_position(config: encodings.PositionConfig, model: TransformerConfig) -> PositionEncoding:
    """Return the encoding of a config, with its absolute part, for a model of these sizes."""
    encoding = ENCODINGS[type(config)](config, model)
    if (part := config.absolute_part) is not None:
        encoding.absolute = ENCODINGS[type(part)](part, model)
    return encoding
