"""Attention kernels: the only callers of `PositionEncoding.rotate`, `bias` and `value_term`."""

from roformer.nn.attention.cache import KeyValueCache
from roformer.nn.attention.softmax import CrossAttention, KeysValues, SelfAttention, additive_mask

__all__ = ["CrossAttention", "KeyValueCache", "KeysValues", "SelfAttention", "additive_mask"]
