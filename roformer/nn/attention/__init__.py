"""Attention kernels: the only callers of `PositionEncoding.rotate`, `bias` and `value_term`."""

from roformer.config.attention import SoftmaxAttention
from roformer.config.schema import TransformerConfig
from roformer.nn.attention.linear import LinearSelfAttention
from roformer.nn.attention.softmax import CrossAttention, KeysValues, SelfAttention, additive_mask

__all__ = ["CrossAttention", "KeysValues", "SelfAttention", "additive_mask", "build_attention"]


def build_attention(config: TransformerConfig) -> SelfAttention | LinearSelfAttention:
    """Return the self-attention of one block."""
    size, heads, bias = config.hidden_size, config.heads, config.affine
    if isinstance(config.attention, SoftmaxAttention):
        return SelfAttention(size, heads, config.attention_dropout, bias=bias)
    return LinearSelfAttention(config.attention, size, heads, bias=bias)
