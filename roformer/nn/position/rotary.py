"""Rotary positions (RoFormer): q_m·k_n becomes (R_m q)·(R_n k), a function of n - m.

The mathematics is in `roformer.nn.rotary`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import PositionEncoding, Positions, encodes
from roformer.nn.rotary import RotaryEmbedding, RotaryTable
from roformer.nn.rotary_scaling import ScaledRotaryEmbedding


@encodes(encodings.Rotary)
class RotaryPosition(PositionEncoding):
    """RoFormer: queries and keys are rotated, nothing is added or trained (Eq. 14-16)."""

    def __init__(self, config: encodings.Rotary, model: TransformerConfig):
        super().__init__(config, model)
        self.rotates_values = config.rotate_values
        size = model.rotated_size
        options: dict[str, Any] = {
            "rotary_dim": config.rotated_dims(size),
            "base": config.base,
            "layout": config.layout,
        }
        if isinstance(config.scaling, encodings.NoScaling):
            self.rotary = RotaryEmbedding(size, **options)
        else:
            self.rotary = ScaledRotaryEmbedding(size, scaling=config.scaling, **options)

    def prepare(self, positions: Positions) -> None:
        self._table(positions)

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        table = self._table(positions)
        return self.rotary(q, table), self.rotary(k, table)

    def _table(self, positions: Positions) -> RotaryTable:
        return positions.derive("rotary", lambda: self.rotary.table(positions.ids))
