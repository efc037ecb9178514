"""A trained bias per head and bucket of distances (T5; Raffel et al. 2020): q_m·k_n/√H + b_(n-m)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import PositionEncoding, Positions, distances, encodes


@encodes(encodings.T5Bias)
class T5Position(PositionEncoding):
    """Raffel et al. 2020, section 2.1: a trained bias per head and bucket, one for all layers."""

    def __init__(self, config: encodings.T5Bias, model: TransformerConfig):
        super().__init__(config, model)
        self.max_distance = config.max_distance
        self.causal = model.causal
        self.biases = nn.Parameter(torch.empty(config.buckets, model.heads))

    def prepare(self, positions: Positions) -> None:
        self._buckets(positions, positions)

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        bucket = self._buckets(q_positions, k_positions)
        return self.biases[bucket].movedim(-1, -3)  # (N, T, S) or (B, N, T, S)

    def _buckets(self, q: Positions, k: Positions) -> Tensor:
        def build() -> Tensor:
            return t5_bucket(
                distances(q, k), len(self.biases), self.max_distance, causal=self.causal
            )

        return q.derive(("t5", k is q), build)


def t5_bucket(distance: Tensor, buckets: int, max_distance: int, *, causal: bool = False) -> Tensor:
    """Return the bucket of key position minus query position, in [0, buckets).

    Half of the buckets are for keys after the query; causal attention has no such keys, and all
    buckets for those before. The first half of each half (or of all) holds one distance per bucket;
    the rest grow logarithmically up to `max_distance`, which ends the last.
    """
    side = buckets if causal else buckets // 2
    exact = side // 2
    far = (-distance).clamp(min=0) if causal else distance.abs()
    log_ratio = torch.log(far.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    logarithmic = (exact + (log_ratio * (side - exact)).long()).clamp(max=side - 1)
    bucket = torch.where(far < exact, far, logarithmic)
    return bucket if causal else bucket + torch.where(distance > 0, side, 0)
