"""Linear attention with rotary positions (RoFormer, section 4.4, Eq. 17-19).

Query m attends to the keys n, with a feature map φ and the rotation R_m to position m, by

    Σ_n (R_m φ(q_m))·(R_n φ(k_n)) v_n / Σ_n φ(q_m)·φ(k_n)                     Eq. 19

The sums of φ(k_n) vᵀ_n and φ(k_n) are computed once for all queries, so time and memory are linear in
the length. The denominator is not rotated, so that it is never zero: weights may be negative and need
not add up to 1. (`rope_position=pre` rotates q and k before the map, in numerator and denominator.)

Causal attention reads the text in chunks: within one, every query meets every key up to its own; of
the keys before the chunk only the sums are kept, as they are for decoding token by token.

Features and sums are fp32 under autocast too: in bf16 a sum of more than some hundred keys stops
growing.

Shapes: B batch, N heads, T tokens, H head dimension, M features, D hidden size, C chunk,
R rows of a cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from roformer.config.attention import EluAttention, PerformerAttention
from roformer.nn.attention.features import build_features
from roformer.nn.attention.softmax import MultiHead
from roformer.nn.linear import Linear
from roformer.nn.position import PositionEncoding, Positions


class Sums(NamedTuple):
    """Sums over the keys before a causal query."""

    context: Tensor  # Σ φ(k) vᵀ with positions applied, (R, N, M, H)
    total: Tensor  # Σ φ(k), (R, N, M, 1)
    level: Tensor  # ln of the divisor of both, (R, N or 1, 1, 1)


class RunningSums:
    """Sums of one linear attention layer."""

    def __init__(self) -> None:
        self.length = 0
        self.sums: Sums | None = None

    def append(self, sums: Sums, tokens: int) -> None:
        """Replace the sums by those that include `tokens` more tokens."""
        self.sums = sums
        self.length += tokens

    def move(self, to: Tensor, origin: Tensor) -> None:
        """Overwrite the rows `to` (n,) with the contents of the rows `origin` (n,)."""
        for held in self.sums or ():
            held[to] = held[origin]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (n,)."""
        if self.sums is not None:
            self.sums = Sums(*(held[rows] for held in self.sums))


class LinearSelfAttention(MultiHead):
    """Multi-head self-attention by a feature map; its weights are named as in `SelfAttention`."""

    def __init__(
        self,
        config: PerformerAttention | EluAttention,
        hidden_size: int,
        heads: int,
        *,
        bias: bool = True,
    ):
        super().__init__(hidden_size, heads, bias=bias)
        self.projection = Linear(hidden_size, 3 * hidden_size, bias=bias)
        self.config = config
        self.feature_map = build_features(config, self.head_dim)

    def new_cache(self) -> RunningSums:
        """Return an empty cache for `forward`, to read a text token by token."""
        return RunningSums()

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        mask: Tensor | None,
        *,
        causal: bool = False,
        cache: RunningSums | None = None,
        seen: Positions | None = None,
    ) -> Tensor:
        """See `SelfAttention.forward`. The mask is the same for all queries, (B, 1, 1, S).

        `seen` is not needed, because sums have no positions.
        """
        q, k, values = self.split(self.projection(x), 3)
        config, before = self.config, None if cache is None else cache.sums
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = q.float(), k.float(), values.float()
            allowed = None if mask is None else (mask == 0).to(q).mT[..., -k.shape[-2] :, :]
            if config.rope_position == "pre":
                q, k = encoding.rotate(q, k, positions)
            q = self.feature_map.queries(q)
            k, levels = self.feature_map.keys(
                k, allowed, None if before is None else before.level, causal=causal
            )
            rotated = (q, k)
            if config.rope_position == "post":
                rotated = encoding.rotate(q, k, positions)
            eps, chunk = config.denominator_eps, config.chunk_length
            if causal:
                y, sums = attend_to_earlier(q, k, v, *rotated, levels, before, eps=eps, chunk=chunk)
                if cache is not None:
                    cache.append(sums, v.shape[-2])
            else:
                y = attend_to_all(q, k, v, *rotated, eps=eps)
        return self.join(y.to(values.dtype))


def attend_to_all(
    q: Tensor, k: Tensor, v: Tensor, rotated_q: Tensor, rotated_k: Tensor, *, eps: float
) -> Tensor:
    """Return the attention of every query to all keys, (B, N, T, H).

    Args:
        q, k: features (B, N, T, M), 0 for excluded keys.
        v: (B, N, T, H).
        rotated_q, rotated_k: the features with positions applied, for the numerator.
        eps: lower bound of the sum of the keys' features, which is 0 where no key is allowed.
    """
    total = k.sum(-2).unsqueeze(-1).clamp(min=eps)  # (B, N, M, 1)
    return (rotated_q @ (rotated_k.mT @ v)) / (q @ total)


def attend_to_earlier(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rotated_q: Tensor,
    rotated_k: Tensor,
    levels: Tensor,
    before: Sums | None,
    *,
    eps: float,
    chunk: int,
) -> tuple[Tensor, Sums]:
    """Return the attention of every query to the keys up to its own, (B, N, T, H), and the last sums.

    Args:
        q, k, v, rotated_q, rotated_k: see `attend_to_all`.
        levels: ln of the divisor of each key's features, (B, N or 1, T, 1), never falling; a query
            sees all keys relative to the level at its position.
        before: sums over the tokens before these.
        eps: added to every sum of the keys' features.
        chunk: C.
    """
    same = rotated_q is q  # then one matrix of weights serves numerator and denominator
    tensors = (q, k, v, rotated_q, rotated_k, levels)
    parts = []
    for q, k, v, rotated_q, rotated_k, level in zip(
        *(tensor.split(chunk, -2) for tensor in tensors), strict=True
    ):
        # Divisor of the key over the query's, (B, N or 1, C, C).
        earlier = (level.mT - level).exp().tril()
        weights = (rotated_q @ rotated_k.mT) * earlier
        shares = weights if same else (q @ k.mT) * earlier
        y = weights @ v
        total_weight = shares.sum(-1, keepdim=True) + eps * q.sum(-1, keepdim=True)
        end = level[..., -1:, :].clone()
        fading = (level - end).exp()
        k = k * fading
        rotated_k = k if same else rotated_k * fading
        context, total = rotated_k.mT @ v, k.sum(-2).unsqueeze(-1)
        if before is not None:
            since = (before.level - level).exp()
            y = y + since * (rotated_q @ before.context)
            total_weight = total_weight + since * (q @ before.total)
            kept = (before.level - end).exp()
            context, total = context + kept * before.context, total + kept * before.total
        parts.append(y / total_weight)
        before = Sums(context, total, end)
    assert before is not None
    return torch.cat(parts, -2), before
