"""Attention kernels: the only callers of `PositionEncoding.rotate`, `bias` and `value_term`."""

from roformer.nn.attention.cache import KeyValueCache
from roformer.nn.attention.softmax import CrossAttention, KeysValues, SelfAttention, additive_mask
from roformer.nn.layers import BlockConfig

__all__ = [
    "CrossAttention",
    "KeyValueCache",
    "KeysValues",
    "SelfAttention",
    "additive_mask",
    "build_attention",
]


def build_attention(config: BlockConfig) -> SelfAttention:
    """Return the self-attention of one block, of the kind that the config names."""
    return SelfAttention(config.hidden_size, config.heads, config.attention_dropout)
