"""Rotary frequencies for more positions than a model was trained on. Beyond the paper.

RoFormer is evaluated at the lengths of its pre-training. Later positions have angles that the model
has never seen; each form below rotates more slowly, so that they fall among those it has. With θ_i of
Eq. 15, i = 1..d/2, the factor s ≥ 1 and the trained length L:

    linear        θ_i / s                            Chen et al. 2023, arXiv 2306.15595, section 2.3
    ntk           θ_i s^(-2(i-1)/(d-2))              bloc97 2023, the form with a larger base
    dynamic_ntk   ntk with a factor that grows with  emozilla 2023, as transformers' `dynamic`
                  the length read
    yarn          θ_i by parts, and a temperature    Peng et al. 2023, arXiv 2309.00071, sections
                  of the attention                   3.2 and 3.4

All but `dynamic_ntk`, which lowers the frequencies as a text grows, keep the product of a query and a
key a function of m - n at any position. Frequencies and angles are computed on demand in fp32, as in
`roformer.nn.rotary`. d is the number of rotated dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from roformer.config import position as encodings
from roformer.nn.rotary import RotaryEmbedding, RotaryTable, rotary_frequencies


class ScaledRotaryEmbedding(RotaryEmbedding):
    """`RotaryEmbedding` with scaled frequencies; no weights and no buffers either."""

    def __init__(self, head_dim: int, *, scaling: encodings.Scaling, **options: Any):
        super().__init__(head_dim, **options)
        self.scaling = scaling

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scaling={self.scaling}"

    def frequencies(self, positions: Tensor) -> Tensor:
        """Return the scaled θ_i, (R/2,) fp32 on the device of `positions`, which give the length."""
        plain = rotary_frequencies(self.rotary_dim, self.base, positions.device)
        match self.scaling:
            case encodings.LinearScaling(factor=factor):
                return plain / factor
            case encodings.NtkScaling(factor=factor):
                return ntk_frequencies(plain, factor)
            case encodings.DynamicNtkScaling(factor=factor, trained_length=trained_length):
                length = positions.max() + 1
                return ntk_frequencies(plain, dynamic_factor(length, factor, trained_length))
            case encodings.YarnScaling() as yarn:
                return yarn_frequencies(plain, self.base, yarn)
        return plain

    @property
    def amplitude(self) -> float:
        """The factor of rotated queries and keys, above 1 only in YaRN."""
        scaling = self.scaling
        return yarn_amplitude(scaling.factor) if isinstance(scaling, encodings.YarnScaling) else 1.0

    def _table(self, positions: Tensor) -> RotaryTable:
        angles = positions.to(torch.float32)[..., None] * self.frequencies(positions)
        return RotaryTable(self.amplitude * angles.cos(), self.amplitude * angles.sin())


def ntk_frequencies(plain: Tensor, factor: float | Tensor) -> Tensor:
    """Return θ_i s^(-2(i-1)/(d-2)), the frequencies of base·s^(d/(d-2)) (bloc97 2023).

    The fastest pair of `plain` (d/2,) keeps its frequency, the slowest is interpolated by exactly s.
    """
    pairs = len(plain)
    if pairs < 2:  # a single pair would be the fastest and the slowest
        raise ValueError(f"NTK-aware scaling needs two rotary pairs, not head_dim={2 * pairs}")
    pair = torch.arange(pairs, device=plain.device, dtype=torch.float32)
    return plain * torch.pow(factor, -2.0 * pair / (2 * pairs - 2))


def dynamic_factor(length: Tensor | int, factor: float, trained_length: int) -> Tensor:
    """Return the factor for `ntk_frequencies` at this length: s·l/L - (s - 1), at least 1.

    It is 1 up to L, so that short texts are read as in training, and l/L where s is 1 (emozilla 2023;
    transformers' `dynamic` has the form with s). l is the largest position of the batch plus 1,
    padding counted: beyond L the factor of a text depends on the longest text in its batch.
    The result is a tensor of no dimensions, so that nothing waits for the device.
    """
    beyond = torch.as_tensor(length).to(torch.float32) / trained_length - 1.0
    return 1.0 + factor * beyond.clamp(min=0.0)


def yarn_frequencies(plain: Tensor, base: float, yarn: encodings.YarnScaling) -> Tensor:
    """Return θ_i for pairs with many turns within L, θ_i / s for those with few, and a ramp between.

    Pair i, counted from 0, makes L θ_i / 2π turns, which is β at i(β) = d ln(L / 2πβ) / (2 ln base). From
    i(beta_fast), rounded down, to i(beta_slow), rounded up, the interpolated share rises from 0 to 1:
    Peng et al. 2023, section 3.2, with the ramp linear in i as in the authors' code and transformers
    (the paper's is linear in the number of turns).
    """
    dims = 2 * len(plain)

    def pair_with_turns(turns: float) -> float:
        return dims * math.log(yarn.trained_length / (turns * 2 * math.pi)) / (2 * math.log(base))

    first = max(math.floor(pair_with_turns(yarn.beta_fast)), 0)
    last = min(math.ceil(pair_with_turns(yarn.beta_slow)), dims - 1)
    pair = torch.arange(len(plain), device=plain.device, dtype=torch.float32)
    interpolated = ((pair - first) / max(last - first, 0.001)).clamp(0.0, 1.0)
    return plain * (1.0 - interpolated * (1.0 - 1.0 / yarn.factor))


def yarn_amplitude(factor: float) -> float:
    """Return 0.1 ln s + 1, for queries and keys each: logits grow by its square (section 3.4)."""
    return 0.1 * math.log(factor) + 1.0
