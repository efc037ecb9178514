"""A trained kernel of the distance (KERPLE; Chi et al. 2022, section 4): beyond the paper.

    q_m·k_n/√H - r_1 log(1 + r_2|m - n|),  or  - r_1 |m - n|^r_2

with r_1 and r_2 above 0, and r_2 at most 2 in the second form, for each head of each layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import PositionEncoding, Positions, encodes, pairs

SMALLEST = 0.01
"""Smallest r_1 and r_2 drawn."""


@encodes(encodings.Kerple, per_layer=True)
class KerplePosition(PositionEncoding):
    """Two numbers per head of one layer: the softplus, or twice the sigmoid, of what is trained."""

    def __init__(self, config: encodings.Kerple, model: TransformerConfig):
        super().__init__(config, model)
        self.form = config.form
        self.first, self.second = (nn.Parameter(torch.empty(model.heads)) for _ in range(2))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw r_1 from U(0, 2) and r_2 from U(0, 1), of form=power the reverse, as the authors' code."""
        power = self.form == "power"
        ends = (1, 2) if power else (2, 1)
        first, second = (
            (end * torch.rand_like(self.first)).clamp(SMALLEST, end - SMALLEST) for end in ends
        )
        self.first.copy_(first.expm1().log())
        self.second.copy_((second / 2).logit() if power else second.expm1().log())

    def prepare(self, positions: Positions) -> None:
        pairs(positions, positions)

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        found = pairs(q_positions, k_positions)
        far = found.distances.abs()
        first, second = functional.softplus(self.first), self.second
        if self.form == "log":
            kernel = torch.log1p(functional.softplus(second)[:, None] * far)
        else:
            kernel = far ** (2 * second.sigmoid()[:, None])
        return found.spread(-first[:, None] * kernel)
