"""The parts of a Transformer block without positions.

Shapes: B batch, T sequence, D hidden size, F intermediate size.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from roformer.config.schema import TransformerConfig
from roformer.nn.dropout import Dropout
from roformer.nn.linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
}


def build_norm(config: TransformerConfig, size: int) -> nn.Module:
    """Return a layer norm, or RoFormerV2's: x over its root mean square, without weights."""
    norm = nn.LayerNorm if config.affine else nn.RMSNorm
    return norm(size, eps=config.layer_norm_eps, elementwise_affine=config.affine)


class FeedForward(nn.Module):
    """Linear, activation, linear: ReLU (Vaswani et al. 2017, Eq. 2) or exact GELU (BERT)."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.affine
        self.inner = Linear(size, inner, bias=bias)
        self.outer = Linear(inner, size, bias=bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))


class Residual(nn.Module):
    """A sublayer's dropout, residual sum and layer norm, in either order.

    post: norm(x + dropout(sublayer(x)))    BERT, the Transformer
    pre:  x + dropout(sublayer(norm(x)))    GPT-2
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.norm = build_norm(config, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout)
        self.pre = config.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """Return the block's output, given its input and the output of the sublayer."""
        x = x + self.dropout(output)
        return x if self.pre else self.norm(x)
