"""The heads and output projection that all kinds of attention share.

Shapes: B batch, N heads, T tokens, H head dimension, D hidden size.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from roformer.nn.linear import Linear


class MultiHead(nn.Module):
    """N heads of D/N dimensions, and the output projection."""

    def __init__(self, hidden_size: int, heads: int, *, bias: bool = True):
        super().__init__()
        self.heads = heads
        self.head_dim = hidden_size // heads
        self.output = Linear(hidden_size, hidden_size, bias=bias)

    def split(self, projected: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Split a projection (B, T, parts·D) into tensors (B, N, T, H)."""
        by_head = projected.unflatten(-1, (parts, self.heads, self.head_dim))
        return tuple(part.transpose(1, 2) for part in by_head.unbind(-3))

    def join(self, y: Tensor) -> Tensor:
        """Return the output projection (B, T, D) of the heads (B, N, T, H)."""
        return cast(Tensor, self.output(y.transpose(1, 2).flatten(-2)))
