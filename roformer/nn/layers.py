"""The parts of a Transformer block that know nothing of positions.

Shapes: B batch, T sequence, D hidden size, F intermediate size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional

from roformer.config.attention import Attention
from roformer.nn.dropout import Dropout
from roformer.nn.linear import Linear


class BlockConfig(Protocol):
    """What the parts of a block read of a model's config."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def activation(self) -> str: ...
    @property
    def norm(self) -> str: ...
    @property
    def hidden_dropout(self) -> float: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def attention(self) -> Attention: ...
    @property
    def layer_norm_eps(self) -> float: ...


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
}


class FeedForward(nn.Module):
    """Linear, activation, linear: ReLU (Vaswani et al. 2017, Eq. 2) or exact GELU (BERT)."""

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.inner = Linear(config.hidden_size, config.intermediate_size)
        self.outer = Linear(config.intermediate_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))


class Residual(nn.Module):
    """A sublayer's dropout, residual sum and layer norm, in either order.

    post: norm(x + dropout(sublayer(x)))    BERT, the Transformer
    pre:  x + dropout(sublayer(norm(x)))    GPT-2
    """

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout)
        self.pre = config.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """Return what the sublayer reads."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        """Return the block's output, given its input and what the sublayer made of it."""
        x = x + self.dropout(update)
        return x if self.pre else self.norm(x)
