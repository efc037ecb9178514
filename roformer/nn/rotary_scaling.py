"""Rotary frequencies for more positions than a model was trained on. Beyond the paper.

RoFormer is evaluated at lengths of its pre-training. Positions past them have angles that the model
never saw; each form below turns pairs more slowly, so that they come to lie among those it did.
With θ_i of Eq. 15, i = 1..d/2, the factor s ≥ 1 and the trained length L:

    linear        θ_i / s                            Chen et al. 2023, arXiv 2306.15595, section 2.3
    ntk           θ_i s^(-2(i-1)/(d-2))              bloc97 2023, the form with a larger base
    dynamic_ntk   ntk with a factor that grows with  emozilla 2023, as transformers' `dynamic`
                  the length read
    yarn          θ_i by parts, and a temperature    Peng et al. 2023, arXiv 2309.00071, sections
                  of the attention                   3.2 and 3.4

All but `dynamic_ntk`, which shrinks frequencies as a text grows, leave products a function of m - n
whatever the positions. Frequencies and angles are fp32 and made on demand, as in `roformer.nn.rotary`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from roformer.config import position as encodings
from roformer.nn.rotary import Layout, RotaryEmbedding, RotaryTable, rotary_frequencies

Stretch = (
    encodings.LinearScaling
    | encodings.NtkScaling
    | encodings.DynamicNtkScaling
    | encodings.YarnScaling
)
"""A scaling that scales."""


class ScaledRotaryEmbedding(RotaryEmbedding):
    """`RotaryEmbedding` whose frequencies are scaled; no weights and no buffers either.

    Args:
        head_dim: H, the size of a head.
        scaling: which of the forms above, and its factor.
        rotary_dim: R ≤ H, even; the default rotates the whole head.
        base: see `rotary_frequencies`.
        layout: see `rotate`.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        scaling: Stretch,
        rotary_dim: int | None = None,
        base: float = 10000.0,
        layout: Layout = "interleaved",
    ):
        super().__init__(head_dim, rotary_dim=rotary_dim, base=base, layout=layout)
        self.scaling = scaling

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scaling={self.scaling}"

    def frequencies(self, positions: Tensor) -> Tensor:
        """Return the scaled θ_i, (R/2,) fp32 on the device of `positions`; these give the length."""
        dim, base, device = self.rotary_dim, self.base, positions.device
        match self.scaling:
            case encodings.LinearScaling(factor=factor):
                return linear_frequencies(dim, base, factor, device)
            case encodings.NtkScaling(factor=factor):
                return ntk_frequencies(dim, base, factor, device)
            case encodings.DynamicNtkScaling(factor=factor, trained_length=trained_length):
                growth = dynamic_factor(positions.max() + 1, factor, trained_length)
                return ntk_frequencies(dim, base, growth, device)
            case encodings.YarnScaling() as yarn:
                return yarn_frequencies(
                    dim,
                    base,
                    yarn.factor,
                    yarn.trained_length,
                    beta_fast=yarn.beta_fast,
                    beta_slow=yarn.beta_slow,
                    device=device,
                )

    @property
    def amplitude(self) -> float:
        """What rotated queries and keys are multiplied by: above 1 in YaRN alone."""
        yarn = isinstance(self.scaling, encodings.YarnScaling)
        return yarn_amplitude(self.scaling.factor) if yarn else 1.0

    def _table(self, positions: Tensor) -> RotaryTable:
        angles = positions.to(torch.float32)[..., None] * self.frequencies(positions)
        return RotaryTable(self.amplitude * angles.cos(), self.amplitude * angles.sin())


def linear_frequencies(
    head_dim: int, base: float, factor: float, device: torch.device | None = None
) -> Tensor:
    """Return θ_i / s: position s·m turns as m did in training (Chen et al. 2023, section 2.3).

    Args:
        head_dim: d, even: the number of dimensions that are rotated.
        base: see `rotary_frequencies`.
        factor: s ≥ 1.
        device: of the result.

    Returns:
        (head_dim/2,) fp32, as all functions here.
    """
    return rotary_frequencies(head_dim, base, device) / factor


def ntk_frequencies(
    head_dim: int, base: float, factor: float | Tensor, device: torch.device | None = None
) -> Tensor:
    """Return the frequencies of base·s^(d/(d-2)), which are θ_i s^(-2(i-1)/(d-2)) (bloc97 2023).

    The fastest pair is left as it is and the slowest is interpolated by s exactly.

    Args:
        head_dim: d, even, at least 4.
        base: see `rotary_frequencies`.
        factor: s ≥ 1, a number or a tensor of no dimensions.
        device: of the result.

    Raises:
        ValueError: `head_dim` is below 4: one pair cannot be both the fastest and the slowest.
    """
    frequencies = rotary_frequencies(head_dim, base, device)
    if head_dim < 4:
        raise ValueError(f"NTK-aware scaling needs two rotary pairs, not head_dim={head_dim}")
    pair = torch.arange(head_dim // 2, device=device, dtype=torch.float32)
    return frequencies * torch.pow(factor, -2.0 * pair / (head_dim - 2))


def dynamic_factor(length: Tensor | int, factor: float, trained_length: int) -> Tensor:
    """Return the s that `ntk_frequencies` takes at this length: s·l/L - (s - 1), at least 1.

    It is 1 up to L, so that short texts are read as they were trained, and l/L with a factor of 1
    (emozilla 2023; transformers' `dynamic`, which is also where the form with s comes from).

    Args:
        length: l, the largest position read plus 1: one for the whole batch.
        factor: s ≥ 1.
        trained_length: L.

    Returns:
        A tensor of no dimensions, so that reading the length makes no device wait.
    """
    beyond = torch.as_tensor(length).to(torch.float32) / trained_length - 1.0
    return 1.0 + factor * beyond.clamp(min=0.0)


def yarn_frequencies(
    head_dim: int,
    base: float,
    factor: float,
    trained_length: int,
    *,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    device: torch.device | None = None,
) -> Tensor:
    """Return θ_i for pairs that turn often within L, θ_i / s for those that hardly do, and a ramp.

    Pair i turns L θ_i / 2π times, which is β at i(β) = d ln(L / 2πβ) / (2 ln base). From
    i(beta_fast), rounded down, to i(beta_slow), rounded up, the share that is interpolated rises
    from 0 to 1: Peng et al. 2023, section 3.2, with the ramp linear in i as in the authors' code and
    transformers (the paper's is linear in the number of turns).

    Args:
        head_dim: d, even: the number of dimensions that are rotated.
        base: see `rotary_frequencies`.
        factor: s ≥ 1.
        trained_length: L, above 2π·beta_slow.
        beta_fast: turns within L from which a pair keeps its frequency.
        beta_slow: turns within L up to which a pair is interpolated; below `beta_fast`.
        device: of the result.
    """

    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(trained_length / (times * 2 * math.pi)) / (2 * math.log(base))

    first = max(math.floor(pair_that_turns(beta_fast)), 0)
    last = min(math.ceil(pair_that_turns(beta_slow)), head_dim - 1)
    pair = torch.arange(head_dim // 2, device=device, dtype=torch.float32)
    interpolated = ((pair - first) / max(last - first, 0.001)).clamp(0.0, 1.0)
    return rotary_frequencies(head_dim, base, device) * (1.0 - interpolated * (1.0 - 1.0 / factor))


def yarn_amplitude(factor: float) -> float:
    """Return 0.1 ln s + 1, for queries and keys each: logits grow by its square (section 3.4)."""
    return 0.1 * math.log(factor) + 1.0
