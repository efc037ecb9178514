"""Cross-entropy with label smoothing in few passes over the logits.

The logits are the largest tensor of a translation model, and a CPU reads them at the speed of its
memory. torch's own loss makes three copies of them; here only the probabilities are kept.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return Σ over rows of -(1-ε) log p(label) - ε/V Σ log p (Szegedy et al. 2016, section 7).

    The same as `torch.nn.functional.cross_entropy(..., label_smoothing=ε, reduction="sum")`, an fp32
    scalar; logits (K, V), labels (K,) without any to ignore, smoothing ε in [0, 1).
    """
    return cast(Tensor, _SmoothedCrossEntropy.apply(logits, labels, smoothing))


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        largest, place = logits.max(-1)
        probabilities = logits.softmax(-1, dtype=torch.float32)
        # log Σ exp z = max z - log max p, and max p is at least 1/V.
        normaliser = largest.float() - probabilities.gather(-1, place[:, None]).squeeze(-1).log()
        chosen = logits.gather(-1, labels[:, None]).squeeze(-1).float()
        expected = (1 - smoothing) * chosen
        if smoothing:
            expected = expected + smoothing * logits.mean(-1, dtype=torch.float32)
        ctx.save_for_backward(probabilities, labels)
        ctx.smoothing, ctx.dtype = smoothing, logits.dtype
        return (normaliser - expected).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        probabilities, labels = ctx.saved_tensors
        # Not in place: a second backward pass would start from a gradient.
        result = probabilities * gradient
        if ctx.smoothing:
            result.sub_(gradient * (ctx.smoothing / probabilities.shape[-1]))
        rows = torch.arange(len(labels), device=labels.device)
        result[rows, labels] -= gradient * (1 - ctx.smoothing)
        return result.to(ctx.dtype), None, None
