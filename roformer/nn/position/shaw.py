"""Trained vectors of clipped distances on keys and values (Shaw et al. 2018).

q_m·(k_n + a^K_(n-m))/√H,  Σ_n p_mn (v_n + a^V_(n-m))
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import PositionEncoding, Positions, distances, encodes


@encodes(encodings.Shaw, per_layer=True)
class ShawPosition(PositionEncoding):
    """The vectors of one layer: Eq. 4 on the keys and, with `values`, Eq. 3 on the values.

    The heads share the vectors, as in the paper's big model, or with `per_head` have their own, as in
    its base model.
    """

    def __init__(self, config: encodings.Shaw, model: TransformerConfig):
        super().__init__(config, model)
        self.clip = config.clip
        self.adds_to_values = config.values
        shape: tuple[int, ...] = (2 * config.clip + 1, model.head_dim)
        if config.per_head:
            shape = (model.heads, *shape)
        self.keys = nn.Parameter(torch.empty(shape))
        self.values = nn.Parameter(torch.empty(shape)) if config.values else None

    def prepare(self, positions: Positions) -> None:
        self._index(positions, positions)

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        # q·a^K for the 2k+1 distances, then selected per (query, key): never a (T, S, H) tensor.
        by_distance = q @ self.keys.to(q.dtype).mT / math.sqrt(q.shape[-1])  # (B, N, T, 2k+1)
        index = self._index(q_positions, k_positions)
        return by_distance.gather(-1, index.expand(*q.shape[:2], -1, -1))

    def value_term(self, probabilities: Tensor, q: Positions, k: Positions) -> Tensor:
        assert self.values is not None
        index = self._index(q, k).expand_as(probabilities)
        by_distance = probabilities.new_zeros(*probabilities.shape[:-1], 2 * self.clip + 1)
        by_distance = by_distance.scatter_add(-1, index, probabilities)
        return by_distance @ self.values.to(probabilities.dtype)

    def _index(self, q: Positions, k: Positions) -> Tensor:
        """Return clip(n - m, -k, k) + k, int64 (1 or B, 1, T, S)."""

        def build() -> Tensor:
            index = distances(q, k).clamp(-self.clip, self.clip) + self.clip
            return index[:, None] if index.ndim == 3 else index[None, None]

        return q.derive(("shaw", k is q), build)
