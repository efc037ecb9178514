"""Sampling of the next token from a model's logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from roformer.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """Settings of the draw of a token, applied in this order."""

    temperature: float = 1.0
    """Divides the logits; 0 takes the most probable token."""
    top_k: int | None = None
    """Draw from this many most probable tokens; None: from all."""
    top_p: float | None = None
    """Draw from the fewest most probable tokens with at least this total probability (Holtzman et al. 2020);
    None: from all."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature={self.temperature} must be at least 0 and finite")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k={self.top_k} must be at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top_p={self.top_p} must be above 0 and at most 1")


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the distribution of the next token from logits (V,): (V,) fp64 on the host.

    Of equally probable tokens the first counts as the more probable.
    """
    logits = logits.detach().cpu().double()
    chosen = torch.zeros_like(logits)
    if sampling.temperature == 0:
        chosen[logits.argmax()] = 1.0
        return chosen
    # The highest becomes 0, so that no temperature overflows.
    probabilities = ((logits - logits.max()) / sampling.temperature).softmax(-1)
    ordered, order = probabilities.sort(descending=True, stable=True)
    if sampling.top_k is not None:
        ordered = ordered[: sampling.top_k]
        ordered = ordered / ordered.sum()
    if sampling.top_p is not None:
        before = ordered.cumsum(0) - ordered
        ordered = ordered[before < sampling.top_p]
    kept = order[: len(ordered)]
    chosen[kept] = ordered / ordered.sum()
    return chosen


def draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Return a token's id, drawn from `probabilities` by a generator of the host."""
    return int(torch.multinomial(probabilities(logits, sampling), 1, generator=generator))
