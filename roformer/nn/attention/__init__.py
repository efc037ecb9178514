"""Attention kernels: the only callers of `PositionEncoding.rotate`, `bias` and `value_term`."""

from roformer.nn.attention.softmax import SelfAttention, additive_mask

__all__ = ["SelfAttention", "additive_mask"]
