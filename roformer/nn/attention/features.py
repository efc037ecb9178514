"""The feature maps of linear attention: φ(q)·φ(k) in place of exp(q·k/√H).

    FavorFeatures   positive random features of the softmax kernel (Choromanski et al. 2021, Eq. 5)
    EluFeatures     elu(x) + 1 (Katharopoulos et al. 2020, Eq. 7)
    random_vectors  the w of FavorFeatures

Exponentials of random features differ by many orders of magnitude, so each is taken relative to a
level: for a query, its own largest product w·q; for the keys, the largest w·k of all. Levels cancel
between numerator and denominator, but for the eps that is added to every feature. Causal attention
may not look ahead for it: a key's level is the largest w·k up to that key, and `attend_to_earlier`
brings keys of different levels together.

Shapes: B batch, N heads, T tokens, H head dimension, M features.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from roformer.config.attention import EluAttention, PerformerAttention

LOWEST_LEVEL = -80.0
"""Level before the first key; its exponential is still a number."""


class EluFeatures(nn.Module):
    """elu(x) + 1: as many features as dimensions, none random, all at level 0.

    Computed as a sum that in fp32 stays above 0 for x below -17, so that no denominator is 0.
    """

    def queries(self, q: Tensor) -> Tensor:
        return self._map(q)

    def keys(
        self, k: Tensor, allowed: Tensor | None, before: Tensor | None, *, causal: bool
    ) -> tuple[Tensor, Tensor]:
        features = self._map(k)
        level = k.new_zeros(()).expand(len(k), 1, k.shape[-2], 1)
        return (features if allowed is None else features * allowed), level

    @staticmethod
    def _map(x: Tensor) -> Tensor:
        return x.clamp(max=0).exp() + x.relu()


class FavorFeatures(nn.Module):
    """exp(w·x - |x|²/2) for M random vectors w, with x scaled by H^(-1/4): never negative.

    Its mean over w ~ N(0, 1) is the softmax kernel. The vectors are saved with the weights.
    """

    vectors: Tensor

    def __init__(self, config: PerformerAttention, head_dim: int):
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):  # so that a softmax model's weights fit
            seed = int(torch.randint(2**63 - 1, (), device="cpu"))
        self.register_buffer("vectors", self._draw(seed, head_dim).to(torch.get_default_device()))
        self._drawn: tuple[int, ...] | None = None
        self._loaded = False

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state, prefix, *rest)
        self._loaded |= f"{prefix}vectors" in state

    def begin_step(self, seed: int, layer: int, step: int) -> None:
        """Draw the vectors of a step, a function only of (seed, layer, (step - 1) // interval).

        `layer` is the number of this map in the model, `step` the step, from 1. A redraw
        follows the last step of an interval, so that a model which is validated or saved there has the
        vectors that its weights were trained with: on others it loses most of what it learnt. Vectors
        that were loaded with weights stay for the first interval, for the same reason.
        """
        if self.config.redraw_interval is None:
            return
        interval = (step - 1) // self.config.redraw_interval
        key = (seed, layer, interval)
        if key != self._drawn and not (self._loaded and interval == 0):
            (state,) = np.random.SeedSequence(key).generate_state(1, np.uint64)
            self.vectors.copy_(self._draw(int(state) >> 1, self.vectors.shape[1]))
            self._drawn = key

    def _draw(self, seed: int, head_dim: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return random_vectors(
            self.config.features, head_dim, generator, orthogonal=self.config.orthogonal
        )

    def queries(self, q: Tensor) -> Tensor:
        """Return the features (B, N, T, M) of queries (B, N, T, H)."""
        features, _ = self._features(q, lambda products: products.amax(-1, keepdim=True))
        return features

    def keys(
        self, k: Tensor, allowed: Tensor | None, before: Tensor | None, *, causal: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the features of keys, and the levels they are relative to.

        Args:
            k: (B, N, T, H).
            allowed: (B, 1, T, 1), 1 for keys that may be attended to and 0 for others; None is all 1.
            before: (B, N, 1, 1), level of the keys before these; None where there are none.
            causal: a level for each key, (B, N, T, 1), of those up to it; else one, (B, N, 1, 1).
        """
        if allowed is not None:  # the exponential of an excluded key must be a number
            k = k * allowed

        def level(products: Tensor) -> Tensor:
            largest = products.amax(-1, keepdim=True)
            if allowed is not None:
                largest = largest.masked_fill(allowed == 0, LOWEST_LEVEL)
            largest = largest.cummax(-2).values if causal else largest.amax(-2, keepdim=True)
            return largest.clamp(min=LOWEST_LEVEL) if before is None else largest.maximum(before)

        features, levels = self._features(k, level)
        return (features if allowed is None else features * allowed), levels

    def _features(self, x: Tensor, level: Any) -> tuple[Tensor, Tensor]:
        scaled = x * x.shape[-1] ** -0.25
        result: tuple[Tensor, Tensor] = _PositiveFeatures.apply(
            scaled, self.vectors.float(), level, self.config.feature_eps
        )
        return result


FeatureMap = EluFeatures | FavorFeatures


def build_features(config: PerformerAttention | EluAttention, head_dim: int) -> FeatureMap:
    """Return the map of a config, for heads of this size."""
    if isinstance(config, PerformerAttention):
        return FavorFeatures(config, head_dim)
    return EluFeatures()


class _PositiveFeatures(torch.autograd.Function):
    """(exp(w·x - |x|²/2 - level) + eps)/√M, in one buffer, which is all the backward pass needs.

    Levels are constants to the gradient: they would cancel, were it not for eps.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, vectors: Tensor, level: Any, eps: float
    ) -> tuple[Tensor, Tensor]:
        features = x @ vectors.T
        levels = level(features)
        eps = eps / math.sqrt(len(vectors))
        half_norms = x.square().sum(-1, keepdim=True) / 2
        features.sub_(half_norms + (levels + math.log(len(vectors)) / 2)).exp_().add_(eps)
        ctx.save_for_backward(x, vectors, features)
        ctx.eps = eps
        ctx.mark_non_differentiable(levels)
        return features, levels

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        x, vectors, features = ctx.saved_tensors
        of_exponents = (features - ctx.eps).mul_(gradients[0])
        of_x = of_exponents @ vectors - x * of_exponents.sum(-1, keepdim=True)
        return of_x, None, None, None


def random_vectors(
    count: int, size: int, generator: torch.Generator, *, orthogonal: bool
) -> Tensor:
    """Return vectors (count, size) with uniform directions, and lengths as in N(0, 1)^size.

    `orthogonal` groups of `size` vectors, the last one in part, have a lower variance (section 3.1).
    """

    def normal(rows: int) -> Tensor:
        return torch.randn(rows, size, generator=generator, dtype=torch.float64, device="cpu")

    if not orthogonal:
        return normal(count).float()
    groups = []
    for _ in range(math.ceil(count / size)):
        q, r = torch.linalg.qr(normal(size))
        groups.append((q * r.diagonal().sign()).T)  # so that all rotations are as likely
    lengths = normal(count).norm(dim=1, keepdim=True)
    return cast(Tensor, (lengths * torch.cat(groups)[:count]).float())
