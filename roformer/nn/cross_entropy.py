"""Cross-entropy with its gradient in one pass over the logits.

The logits are the largest tensor of a small model, and a CPU reads them at the speed of its memory;
torch's own loss reads them eight times, in fp32. Here a few rows at a time are turned into
probabilities and then into the gradient while they are in the processor's cache, and the gradient, of
the type of the logits, is all that is kept.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

PIECE = {"cpu": 2**19}
"""fp32 numbers per piece on a CPU: 2 MiB, which stay in its cache."""
LARGEST = 2**26
"""fp32 numbers per piece on other devices: 256 MiB, for few launches and little memory."""


def smoothed_cross_entropy(
    logits: Tensor, labels: Tensor, smoothing: float = 0.0, *, ignored: int | None = None
) -> Tensor:
    """Return Σ over rows of -(1-ε) log p(label) - ε/V Σ log p (Szegedy et al. 2016, section 7).

    The same as `torch.nn.functional.cross_entropy(..., label_smoothing=ε, reduction="sum")` in fp32, for
    logits (K, V), labels (K,) and `smoothing` ε in [0, 1). Rows with the label `ignored` are skipped.
    """
    if logits.dtype == torch.float16:  # small probabilities vanish in it until the loss is scaled
        logits = logits.float()
    return cast(Tensor, _CrossEntropy.apply(logits, labels, smoothing, ignored))


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, smoothing: float, ignored: int | None
    ) -> Tensor:
        size = logits.shape[-1]
        rows = max(1, PIECE.get(logits.device.type, LARGEST) // size)
        slope = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        total = torch.zeros((), device=logits.device)
        for first in range(0, len(logits), rows):
            piece = slice(first, first + rows)
            z, label = logits[piece].float(), labels[piece, None]
            kept = None if ignored is None else label != ignored
            if kept is not None:
                label = label.where(kept, 0)
            expected = (1 - smoothing) * z.gather(-1, label)
            if smoothing:
                expected += smoothing * z.mean(-1, keepdim=True)
            p = z.softmax(-1)
            # log Σ exp z = max z - log max p, and max p is at least 1/V.
            loss = z.amax(-1, keepdim=True) - p.amax(-1, keepdim=True).log() - expected
            total += (loss if kept is None else loss.where(kept, 0.0)).sum()
            if slope is None:
                continue
            if smoothing:
                p -= smoothing / size
            p.scatter_(-1, label, p.gather(-1, label) - (1 - smoothing))
            slope[piece] = p if kept is None else p.mul_(kept)
        ctx.save_for_backward(slope)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        # In place: torch raises on a second backward pass, which would start from the product.
        (slope,) = ctx.saved_tensors
        return slope.mul_(gradient), None, None, None
