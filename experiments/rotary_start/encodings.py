"""The encodings of this study: rotary positions with and without a content-free part, and a fast T5 table.

Shapes: B batch, N heads, T tokens, H head dimension.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from roformer.config.position import Rotary, T5Bias
from roformer.config.schema import TransformerConfig
from roformer.nn.position import Positions, encodes
from roformer.nn.position.rotary import RotaryPosition
from roformer.nn.position.t5 import T5Position


class RotaryCentred(Rotary):
    """Rotary positions on queries and keys without their mean: no content-free part is left."""

    kind: Literal["rotary_centred"] = "rotary_centred"  # type: ignore[assignment]


class RotaryConstant(Rotary):
    """Rotary positions on the mean query and the mean key: nothing but the content-free part is left."""

    kind: Literal["rotary_constant"] = "rotary_constant"  # type: ignore[assignment]


class T5Fast(T5Bias):
    """T5's bias with a table that learns `speed` times as fast."""

    kind: Literal["t5_fast"] = "t5_fast"  # type: ignore[assignment]
    speed: float = 30.0


def token_mean(x: Tensor) -> Tensor:
    """Return the mean over all tokens of the batch, (1, N, 1, H), for x (B, N, T, H)."""
    return x.mean((0, 2), keepdim=True)


@encodes(RotaryCentred)
class RotaryCentredPosition(RotaryPosition):
    """(R_m (q - q̄))·(R_n (k - k̄)): biases and every other constant part of q and k cancel."""

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        return super().rotate(q - token_mean(q), k - token_mean(k), positions)


@encodes(RotaryConstant)
class RotaryConstantPosition(RotaryPosition):
    """(R_m q̄)·(R_n k̄): a function of n - m, equal for all texts."""

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        return super().rotate(token_mean(q).expand_as(q), token_mean(k).expand_as(k), positions)


@encodes(T5Fast)
class T5FastPosition(T5Position):
    """b = speed · table. AdamW's steps ignore the gradient's scale, so b moves `speed` times as far."""

    def __init__(self, config: Any, model: TransformerConfig):
        super().__init__(config, model)
        self.speed = config.speed

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            self.biases /= self.speed

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        return self.speed * super().bias(q, k, q_positions, k_positions)
