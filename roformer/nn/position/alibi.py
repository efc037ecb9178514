"""A fixed penalty on the distance (ALiBi; Press et al. 2022): q_m·k_n/√H - slope·|m - n|."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.base import PositionEncoding, Positions, distances, encodes


@encodes(encodings.Alibi)
class AlibiPosition(PositionEncoding):
    """Press et al. 2022: -slope·|m - n|, symmetric because an encoder looks both ways.

    For causal attention, whose keys all lie on one side, this is the paper's form.
    """

    def __init__(self, config: encodings.Alibi, model: TransformerConfig):
        super().__init__(config, model)
        self.slopes = alibi_slopes(model.heads)

    def prepare(self, positions: Positions) -> None:
        self._penalty(positions, positions)

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        return self._penalty(q_positions, k_positions)

    def _penalty(self, q: Positions, k: Positions) -> Tensor:
        def build() -> Tensor:
            slopes = torch.tensor(self.slopes, device=q.ids.device)[:, None, None]
            return -slopes * distances(q, k).abs()[..., None, :, :]

        return q.derive(("alibi", k is q), build)


def alibi_slopes(heads: int) -> list[float]:
    """Return the paper's geometric slopes: 2^(-8/n), 2^(-16/n), … for n heads.

    When n is no power of two, the slopes of the next lower power come first, then every other slope of
    the next higher one, as in the authors' code.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (i + 1) / power) for i in range(2 * power)]
    return slopes + between[0::2][: heads - power]
