"""Rotary positions that also decay (xPos; Sun et al. 2022, section 3.2): beyond the paper.

    (ζ^m R_m q)·(ζ^(-n) R_n k) = Σ_i ζ_i^(m-n) q_i·R_(n-m) k_i,  ζ_i = ((i/(H/2) + γ)/(1 + γ))^(1/512)

for the pairs of dimensions i from 0 to H/2 - 1: the faster a pair turns, the sooner it fades. The
exponents are positions, so a text may have some 35,000 of them before ζ^(-n) leaves the range of fp32 and
bf16, and 4,000 before it leaves the range of fp16.
"""

from __future__ import annotations

import torch
from torch import Tensor

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import PositionEncoding, Positions, encodes
from roformer.nn.rotary import RotaryEmbedding, RotaryTable


@encodes(encodings.Xpos)
class XposPosition(PositionEncoding):
    """Queries and keys are rotated and scaled, nothing is added or trained."""

    def __init__(self, config: encodings.Xpos, model: TransformerConfig):
        super().__init__(config, model)
        self.gamma, self.scale_base = config.gamma, config.scale_base
        self.rotary = RotaryEmbedding(model.head_dim, base=config.base)

    def prepare(self, positions: Positions) -> None:
        self._turns(positions)

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        grown, faded = self._turns(positions)
        return self.rotary(q, grown), self.rotary(k, faded)

    def _turns(self, positions: Positions) -> tuple[RotaryTable, RotaryTable]:
        return positions.derive("xpos", lambda: self._tables(positions.ids))

    def _tables(self, ids: Tensor) -> tuple[RotaryTable, RotaryTable]:
        """Return the turns of queries, times ζ^m, and of keys, times ζ^(-m)."""
        turn, size = self.rotary.table(ids), self.rotary.head_dim // 2
        pair = torch.arange(size, device=ids.device) / size
        zeta = (pair + self.gamma) / (1 + self.gamma)
        scale = zeta ** (ids[..., None] / self.scale_base)
        scale = scale[:, None] if ids.ndim == 2 else scale
        return (
            RotaryTable(turn.cos * scale, turn.sin * scale),
            RotaryTable(turn.cos / scale, turn.sin / scale),
        )
