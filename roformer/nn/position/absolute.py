"""Absolute positions: x_m + p_m, one vector per position added to the embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import PositionEncoding, Positions, encodes
from roformer.nn.rotary import rotary_angles


def sinusoids(positions: Tensor, size: int, base: float = 10000.0) -> Tensor:
    """Return sin(m θ_i) and cos(m θ_i) in turn, (…, T, size) fp32 (Vaswani et al. 2017, section 3.5)."""
    angles = rotary_angles(positions, size, base)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def rows_of(table: Tensor, ids: Tensor) -> Tensor:
    """Return the vectors of positions from a learned table, (…, T, D)."""
    # Reading the positions would make any device but a CPU wait.
    last = int(ids.max()) if ids.device.type == "cpu" else ids.shape[-1] - 1
    if last >= len(table):
        raise ValueError(
            f"position {last} is beyond the learned table of {len(table)} positions: "
            "truncate the sequence, or train with a larger model.position.max_positions"
        )
    return table[ids]


@encodes(encodings.Learned)
class LearnedPosition(PositionEncoding):
    """BERT: one trained vector for every absolute position up to `max_positions`."""

    def __init__(self, config: encodings.Learned, model: TransformerConfig):
        super().__init__(config, model)
        self.table = nn.Parameter(torch.empty(config.max_positions, model.embedding_width))

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + rows_of(self.table, positions.ids)


@encodes(encodings.Sinusoidal)
class SinusoidalPosition(PositionEncoding):
    """Vaswani et al. 2017, section 3.5: PE(m, 2i) = sin(m θ_i), PE(m, 2i+1) = cos(m θ_i)."""

    def __init__(self, config: encodings.Sinusoidal, model: TransformerConfig):
        super().__init__(config, model)
        self.base = config.base
        self.scale = model.sinusoid_scale if config.scale is None else config.scale

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        table = sinusoids(positions.ids, x.shape[-1], self.base)
        return x + (self.scale * table).to(x.dtype)
