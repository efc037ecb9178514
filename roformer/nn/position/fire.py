"""A learned function of the distance relative to the length (FIRE; Li et al. 2023, Eq. 5): beyond the paper.

    q_m·k_n/√H + f(ψ(|m - n|) / ψ(max(L, m))),  ψ(x) = log(c x + 1)

f is a network of one hidden layer from a number to one number per head; f, c and the threshold L are trained,
each layer's own. Distances are relative to the query's position, so that a text of any length is read
as one of those in training; up to L the bias is a function of the distance.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import PositionEncoding, Positions, distances, encodes

EPS = 1e-6


@encodes(encodings.Fire, per_layer=True)
class FirePosition(PositionEncoding):
    """The network of one layer; c starts at 0.1, and L, a trained multiple of `threshold`, at `threshold`."""

    def __init__(self, config: encodings.Fire, model: TransformerConfig):
        super().__init__(config, model)
        self.threshold = config.threshold
        self.inner_weight, self.inner_bias = (
            nn.Parameter(torch.empty(config.width)) for _ in range(2)
        )
        self.outer_weight = nn.Parameter(torch.empty(model.heads, config.width))
        self.outer_bias = nn.Parameter(torch.empty(model.heads))
        self.c, self.multiplier = (nn.Parameter(torch.empty(())) for _ in range(2))

    def reset_parameters(self) -> None:
        """Draw f as `torch.nn.Linear` does."""
        nn.init.uniform_(self.inner_weight, -1, 1)
        nn.init.uniform_(self.inner_bias, -1, 1)
        bound = len(self.inner_bias) ** -0.5
        nn.init.uniform_(self.outer_weight, -bound, bound)
        nn.init.uniform_(self.outer_bias, -bound, bound)
        nn.init.constant_(self.c, 0.1)
        nn.init.ones_(self.multiplier)

    def prepare(self, positions: Positions) -> None:
        distances(positions, positions)

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        c, far = self.c.abs(), distances(q_positions, k_positions).abs()
        longest = torch.maximum(q_positions.ids, (self.multiplier * self.threshold).abs())
        ratio = torch.log1p(c * far) / (torch.log1p(c * longest) + EPS)[..., None]
        hidden = functional.relu(ratio[..., None] * self.inner_weight + self.inner_bias)
        return (hidden @ self.outer_weight.mT + self.outer_bias).movedim(-1, -3)
