"""Scaled dot-product self-attention (Vaswani et al. 2017, Eq. 1) with the position seam.

This is where rotary position embedding is applied: to queries and keys, before the logits, never
to the values.

Shapes: B batch, N heads, T sequence, H head dimension, D hidden size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from roformer.nn.dropout import Dropout
from roformer.nn.linear import Linear
from roformer.nn.position import PositionEncoding, Positions

LONGEST_PLAIN = {torch.float32: 128, torch.bfloat16: 1024}
"""On a CPU, tokens up to which two matrix products beat the fused kernel, by type: measured by
`make bench ARGS=kernels`. Types that are not listed use the fused kernel."""


class SelfAttention(nn.Module):
    """Multi-head self-attention: one projection for queries, keys and values, one for the output."""

    def __init__(self, hidden_size: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.head_dim = hidden_size // heads
        self.projection = Linear(hidden_size, 3 * hidden_size)
        self.output = Linear(hidden_size, hidden_size)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, positions: Positions, encoding: PositionEncoding, mask: Tensor | None
    ) -> Tensor:
        """Attend from every token to every token that `mask` allows.

        Args:
            x: (B, T, D).
            positions: of the T tokens.
            encoding: applied to queries, keys and logits.
            mask: additive, broadcastable to (B, N, T, T): 0 where attention is allowed, the type's
                lowest number where it is not; None allows all.

        Returns:
            (B, T, D).
        """
        q, k, v = self.projection(x).unflatten(-1, (3, self.heads, self.head_dim)).unbind(-3)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        q, k = encoding.rotate(q, k, positions)
        bias = encoding.bias(q, positions, positions)
        if bias is not None:
            mask = bias if mask is None else bias + mask
        if self._fused(q, encoding):
            dropout = self.dropout.p if self.training else 0.0
            if mask is not None:  # the lowest number must not become infinite in fewer bits
                mask = mask.clamp(min=torch.finfo(q.dtype).min).to(q.dtype)
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        else:
            logits = (q / math.sqrt(self.head_dim)) @ k.transpose(-1, -2)
            probabilities = self.dropout((logits if mask is None else logits + mask).softmax(-1))
            y = probabilities.to(v.dtype) @ v
            if encoding.adds_to_values:
                y = y + encoding.value_term(probabilities, positions, positions)
        return self.output(y.transpose(1, 2).flatten(-2))

    def _fused(self, q: Tensor, encoding: PositionEncoding) -> bool:
        """Whether to use the fused kernel: chosen by device, type and length."""
        if encoding.adds_to_values:
            return False
        if q.device.type != "cpu":
            return True
        # The CPU's flash kernel has no dropout; without it the fused path has no advantage left.
        dropping = self.training and self.dropout.p > 0
        return q.shape[-2] > LONGEST_PLAIN.get(q.dtype, 0) and not dropping


def additive_mask(allowed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 0 where attention is allowed and the lowest number elsewhere, with axes for heads.

    Args:
        allowed: (B, S), true for tokens that may be attended to, or (B, T, S) per query.
        dtype: type of the result.

    Returns:
        (B, 1, 1, S) or (B, 1, T, S).
    """
    allowed = allowed[:, None, None] if allowed.ndim == 2 else allowed[:, None]
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill(~allowed.bool(), torch.finfo(dtype).min)
