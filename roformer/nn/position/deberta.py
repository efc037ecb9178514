"""Disentangled attention (DeBERTa; He et al. 2021, section 3.1).

    A_mn = q_m·k_n + q_m·K_δ(m,n) + k_n·Q_δ(n,m),  over √(3H)

K = P W_k and Q = P W_q are projections, each layer's own, of vectors P of the distances, which all
layers share; δ(m, n) = m - n, clipped to [-k, k) and counted from 0.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import LayeredEncoding, PositionEncoding, Positions, encodes, pairs

TERMS = 3
"""Number of terms of the logits, which are divided by its square root."""


@encodes(encodings.Deberta)
class DebertaPosition(LayeredEncoding):
    """The vectors P, (2k, D), and the projections of each layer."""

    def __init__(self, config: encodings.Deberta, model: TransformerConfig):
        super().__init__(config, model, partial(DebertaLayer, shared=self))
        self.table = nn.Parameter(torch.empty(2 * config.span, model.hidden_size))


class DebertaLayer(PositionEncoding):
    """One layer: content to position, and position to content."""

    def __init__(
        self, config: encodings.Deberta, model: TransformerConfig, shared: DebertaPosition
    ):
        super().__init__(config, model)
        self.config = config
        shape = (model.hidden_size, model.hidden_size)
        self.key, self.query = (nn.Parameter(torch.empty(shape)) for _ in range(2))  # W_k, W_q
        self._shared = (shared,)  # in a tuple, so that its parameters are not this layer's too

    def prepare(self, positions: Positions) -> None:
        pairs(positions, positions)

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        return q / math.sqrt(TERMS), k

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        (shared,), scale = self._shared, q.shape[-1] ** -0.5
        to_position, to_content = pairs(q_positions, k_positions), pairs(k_positions, q_positions)
        seen = shared.table[self._delta(-to_position.distances)]
        sign = 1 if self.config.mirrored else -1
        back = shared.table[self._delta(sign * to_content.distances)]
        bias = to_position.projected(q * scale, seen, self.key)
        scaled = k * (scale / math.sqrt(TERMS))
        return bias + to_content.projected(scaled, back, self.query).mT

    def _delta(self, apart: Tensor) -> Tensor:
        """Return the place in P of m - n, (L,)."""
        config, span = self.config, self.config.span
        if config.buckets is not None:
            apart = log_bucket(apart, config.buckets, config.max_distance)
        return (apart + span).clamp(0, 2 * span - 1)


def log_bucket(apart: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Return the signed bucket of m - n: itself up to half of the buckets, then logarithmic.

    As in the second version of DeBERTa, where distances of max_distance - 1 end the last bucket.
    """
    middle, far = buckets // 2, apart.abs()
    ratio = torch.log(far.clamp(min=1) / middle) / math.log((max_distance - 1) / middle)
    logarithmic = torch.ceil(ratio * (middle - 1)) + middle
    return torch.where(far <= middle, apart, (logarithmic * apart.sign()).long())
