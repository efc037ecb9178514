"""Fixed sinusoidal vectors of the distance on keys and values (NEZHA; Wei et al. 2019, section 3.1).

    q_m·(k_n + a_(n-m))/√H,  Σ_n p_mn (v_n + a_(n-m)),  a_d = sin dθ_1, cos dθ_1, sin dθ_2, …

By the addition theorem a_(n-m) = R_m a_n with the rotation R_m of RoFormer, so that neither needs one
vector per pair: q_m·a_(n-m) = (R_mᵀ q_m)·a_n, and Σ_n p_mn a_(n-m) = R_m Σ_n p_mn a_n.
"""

from __future__ import annotations

import math

from torch import Tensor

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.absolute import sinusoids
from roformer.nn.position.base import PositionEncoding, Positions, encodes
from roformer.nn.rotary import RotaryEmbedding, RotaryTable


@encodes(encodings.Nezha)
class NezhaPosition(PositionEncoding):
    """Nothing is trained; all layers and heads have the same vectors."""

    adds_to_values = True

    def __init__(self, config: encodings.Nezha, model: TransformerConfig):
        super().__init__(config, model)
        self.rotary = RotaryEmbedding(model.head_dim, base=config.base)

    def prepare(self, positions: Positions) -> None:
        self._turn(positions)
        self._vectors(positions)

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        turn = self._turn(q_positions)
        back = self.rotary(q, RotaryTable(turn.cos, -turn.sin)) / math.sqrt(q.shape[-1])
        return back @ self._vectors(k_positions).to(q.dtype).mT

    def value_term(self, probabilities: Tensor, q: Positions, k: Positions) -> Tensor:
        weighted = probabilities @ self._vectors(k).to(probabilities.dtype)
        return self.rotary(weighted, self._turn(q))

    def _turn(self, positions: Positions) -> RotaryTable:
        return positions.derive("rotary", lambda: self.rotary.table(positions.ids))

    def _vectors(self, positions: Positions) -> Tensor:
        """Return a_n, (S, H) or (B, 1, S, H)."""

        def build() -> Tensor:
            table = sinusoids(positions.ids, self.rotary.head_dim, self.rotary.base)
            return table[:, None] if positions.ids.ndim == 2 else table

        return positions.derive("nezha", build)
