"""Linear attention with rotary positions (RoFormer, section 4.4, Eq. 17-19).

With a feature map φ, and R_m the rotation to position m, query m attends to the keys n by

    Σ_n (R_m φ(q_m))·(R_n φ(k_n)) v_n / Σ_n φ(q_m)·φ(k_n)                     Eq. 19

The sums of φ(k_n) vᵀ_n and φ(k_n) are made once, so that time and memory grow with the length. The
denominator is not rotated, lest it be zero: weights may be negative and need not add up to 1.
(`rope_position=pre` rotates q and k before the map, in numerator and denominator alike.)

Causal attention reads the text in chunks: within one, every query meets every key before it; of what
was before the chunk, only the sums are kept. They are also all that is kept to decode token by token.

Features and sums are fp32 under autocast too: in bf16 a sum of more than some hundred keys stops
growing.

Shapes: B batch, N heads, T tokens, H head dimension, M features, D hidden size, C chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from roformer.config.attention import EluAttention, PerformerAttention
from roformer.nn.attention.cache import RunningSums, Sums
from roformer.nn.attention.features import build_features
from roformer.nn.attention.heads import MultiHead
from roformer.nn.linear import Linear
from roformer.nn.position import PositionEncoding, Positions


class LinearSelfAttention(MultiHead):
    """Multi-head self-attention by feature maps; weights as `SelfAttention`, and the random vectors.

    Args:
        config: which map, and where positions come in.
        hidden_size: D.
        heads: N.
    """

    def __init__(self, config: PerformerAttention | EluAttention, hidden_size: int, heads: int):
        super().__init__(hidden_size, heads)
        self.projection = Linear(hidden_size, 3 * hidden_size)
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
        """Attend from every token to every token that `mask` allows.

        Args:
            x: (B, T, D).
            positions: of the T tokens.
            encoding: applied to features, or to queries and keys.
            mask: additive, (B, 1, 1, S): 0 for keys that may be attended to, by all queries; None
                allows all. With a cache, of the keys before these and these.
            causal: that a token sees only itself and those before it.
            cache: from `new_cache`, of the tokens before these; the T tokens (one, unless causal)
                are added to it.
            seen: not needed here: the sums have no positions.

        Returns:
            (B, T, D).

        Raises:
            ValueError: a mask of each query's own.
        """
        if mask is not None and mask.shape[-2] != 1:
            raise ValueError(
                f"a mask of shape {tuple(mask.shape)} differs between queries, but linear attention "
                "sums the keys up once for all of them: give one of shape (batch, 1, 1, keys)"
            )
        if cache is not None and not causal and x.shape[-2] > 1:
            raise ValueError("a cache of running sums is read causally: give causal=True")
        q, k, v = self.split(self.projection(x), 3)
        with torch.autocast(x.device.type, enabled=False):
            y = self._attend(
                q.float(), k.float(), v.float(), positions, encoding, mask, causal, cache
            )
        return self.join(y.to(v.dtype))

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        mask: Tensor | None,
        causal: bool,
        cache: RunningSums | None,
    ) -> Tensor:
        causal = causal or cache is not None
        before = None if cache is None else cache.sums
        allowed = None if mask is None else (mask == 0).to(q).mT[..., -k.shape[-2] :, :]
        if self.config.rope_position == "pre":
            q, k = encoding.rotate(q, k, positions)
        q = self.feature_map.queries(q)  # type: ignore[operator]
        k, levels = self.feature_map.keys(  # type: ignore[operator]
            k, allowed, None if before is None else before.level, causal=causal
        )
        turned = (q, k)
        if self.config.rope_position == "post":
            turned = encoding.rotate(q, k, positions)
        eps = self.config.denominator_eps
        if not causal:
            return attend_to_all(q, k, v, *turned, eps=eps)
        y, sums = attend_to_earlier(
            q, k, v, *turned, levels, before, eps=eps, chunk=self.config.chunk_length
        )
        if cache is not None:
            cache.append(sums, v.shape[-2])
        return y


def attend_to_all(
    q: Tensor, k: Tensor, v: Tensor, turned_q: Tensor, turned_k: Tensor, *, eps: float
) -> Tensor:
    """Return what every query gets of all keys, (B, N, T, H).

    Args:
        q, k: features (B, N, T, M); those of excluded keys are 0.
        v: (B, N, T, H).
        turned_q, turned_k: the same with positions applied, for the numerator.
        eps: what the sum of the keys' features is at least: it is 0 where no key is allowed.
    """
    total = k.sum(-2).unsqueeze(-1).clamp(min=eps)  # (B, N, M, 1)
    return (turned_q @ (turned_k.mT @ v)) / (q @ total)


def attend_to_earlier(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    turned_q: Tensor,
    turned_k: Tensor,
    levels: Tensor,
    before: Sums | None,
    *,
    eps: float,
    chunk: int,
) -> tuple[Tensor, Sums]:
    """Return what every query gets of the keys up to its own, (B, N, T, H), and the sums at the end.

    Args:
        q, k, v, turned_q, turned_k: see `attend_to_all`.
        eps: added to every sum of the keys' features.
        levels: ln of what the features of each key were divided by, (B, N or 1, T, 1), never falling;
            a query sees all keys relative to the level of its own place.
        before: sums over the tokens before these.
        chunk: C.
    """
    same = turned_q is q  # then one matrix of weights serves numerator and denominator
    tensors = (q, k, v, turned_q, turned_k, levels)
    parts = []
    for q, k, v, turned_q, turned_k, level in zip(
        *(tensor.split(chunk, -2) for tensor in tensors), strict=True
    ):
        earlier = (level.mT - level).exp().tril()  # (B, N or 1, C, C): of key, over that of query
        weights = (turned_q @ turned_k.mT) * earlier
        shares = weights if same else (q @ k.mT) * earlier
        y = weights @ v
        total_weight = shares.sum(-1, keepdim=True) + eps * q.sum(-1, keepdim=True)
        end = level[..., -1:, :].clone()
        fading = (level - end).exp()
        k = k * fading
        turned_k = k if same else turned_k * fading
        context, total = turned_k.mT @ v, k.sum(-2).unsqueeze(-1)
        if before is not None:
            since = (before.level - level).exp()
            y = y + since * (turned_q @ before.context)
            total_weight = total_weight + since * (q @ before.total)
            kept = (before.level - end).exp()
            context, total = context + kept * before.context, total + kept * before.total
        parts.append(y / total_weight)
        before = Sums(context, total, end)
    assert before is not None
    return torch.cat(parts, -2), before
