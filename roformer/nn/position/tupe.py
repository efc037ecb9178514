"""Positions correlated separately from the content (TUPE; Ke et al. 2021, Eq. 7, 9 and 10).

    A_mn = q_m·k_n/√(2H) + (p_m U_q)·(p_n U_k)/√(2H) + b_(n-m)

of which the part without content is θ_1 for [CLS] as the query, and θ_2 for it as the key: [CLS] looks
at the whole sentence, not at its beginning. p is a learned table, normalised as in the authors' code;
U_q, U_k, θ and T5's buckets b are shared by all layers, so that this part is computed once per forward pass.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.absolute import rows_of
from roformer.nn.position.base import PositionEncoding, Positions, encodes, pairs
from roformer.nn.position.t5 import t5_bucket


@encodes(encodings.Tupe)
class TupePosition(PositionEncoding):
    """[CLS] is the token at position 0."""

    def __init__(self, config: encodings.Tupe, model: TransformerConfig):
        super().__init__(config, model)
        self.config, self.causal, self.heads = config, model.causal, model.heads
        size = model.hidden_size
        self.table = nn.Parameter(torch.empty(config.max_positions, size))
        self.query, self.key = (nn.Parameter(torch.empty(size, size)) for _ in range(2))  # U_q, U_k
        self.biases = self.cls = None
        if config.relative:
            self.biases = nn.Parameter(torch.empty(config.buckets, model.heads))
        if config.untie_cls:
            self.cls = nn.Parameter(torch.empty(2, model.heads))  # θ_1, θ_2

    def prepare(self, positions: Positions) -> None:
        self._correlation(positions, positions)

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        return q / math.sqrt(2), k

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        return self._correlation(q_positions, k_positions)

    def _correlation(self, q: Positions, k: Positions) -> Tensor:
        """Return what is added to the logits, (N, T, S) or (B, N, T, S)."""
        return q.derive(("tupe", k is q), lambda: self._build(q, k))

    def _build(self, q: Positions, k: Positions) -> Tensor:
        found = self._heads(q, self.query) @ self._heads(k, self.key).mT
        found = found / math.sqrt(2 * self.table.shape[-1] / self.heads)
        if self.biases is not None:
            apart, config = pairs(q, k), self.config
            bucket = t5_bucket(
                apart.distances, config.buckets, config.max_distance, causal=self.causal
            )
            found = found + apart.spread(self.biases[bucket].T)
        if self.cls is not None:
            first, second = self.cls[:, :, None, None]
            at_q = (q.ids == 0)[..., None, :, None]
            at_k = (k.ids == 0)[..., None, None, :]
            found = torch.where(at_q, first, torch.where(at_k, second, found))
        return found

    def _heads(self, positions: Positions, weight: Tensor) -> Tensor:
        """Return projected positions, (N, T, H) or (B, N, T, H)."""
        rows = rows_of(self.table, positions.ids)
        rows = functional.layer_norm(rows, rows.shape[-1:])
        return (rows @ weight).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
