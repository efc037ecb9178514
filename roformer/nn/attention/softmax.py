"""Scaled dot-product attention (Vaswani et al. 2017, Eq. 1) with the hooks of positions.

`SelfAttention` applies the position encoding: rotary embedding to queries and keys, before the logits,
and not to the values unless the encoding asks for it. `CrossAttention` has no positions: the distance
between tokens of two texts means nothing.

`MultiHead` is shared with linear attention. `KeyValueCache` is for incremental decoding.

Shapes: B batch, N heads, T queries, S keys, H head dimension, D hidden size.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from roformer.nn.dropout import Dropout
from roformer.nn.linear import Linear
from roformer.nn.position import PositionEncoding, Positions

LONGEST_PLAIN = {torch.float32: 128, torch.bfloat16: 1024}
"""On a CPU, the length up to which two matrix products beat the fused kernel, by type, measured by
`make bench ARGS=kernels`. Other types use the fused kernel."""

FIRST_CAPACITY = 32
"""Tokens that a new cache has room for."""

KeysValues = tuple[Tensor, Tensor]


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


class Attention(MultiHead):
    """Base class: the softmax of the logits and the dropout of the probabilities."""

    def __init__(self, hidden_size: int, heads: int, dropout: float, *, bias: bool = True):
        super().__init__(hidden_size, heads, bias=bias)
        self.dropout = Dropout(dropout)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool = False
    ) -> Tensor:
        """Return the attention output (B, T, D).

        Args:
            q, k, v: (B, N, T, H), (B, N, S, H) and (B, N, S, H).
            mask: additive, broadcastable to (B, N, T, S), or None.
            causal: a query sees only the keys up to its own position, in addition to the mask; the
                last query is at the position of the last key.
        """
        causal = causal and q.shape[-2] > 1  # one query, the last, sees all keys
        if self.fused(q, k):
            dropout = self.dropout.p if self.training else 0.0
            # The kernel's own causal form aligns the first query with the first key, which is wrong
            # where a cache holds earlier keys.
            if causal and (mask is not None or q.shape[-2] != k.shape[-2]):
                later = causal_mask(q.shape[-2], k.shape[-2], q.device)
                mask, causal = later if mask is None else mask + later, False
            if mask is not None:  # the lowest fp32 number must not become infinite in fewer bits
                lowest = max(torch.finfo(q.dtype).min, torch.finfo(mask.dtype).min)
                # On a GPU every fused kernel asks for a last stride of 1, which T5's and FIRE's lack.
                mask = mask.clamp(min=lowest).to(q.dtype).contiguous()
            y = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal
            )
        else:
            y = self.probabilities(q, k, mask, causal=causal).to(v.dtype) @ v
        return self.join(y)

    def probabilities(
        self, q: Tensor, k: Tensor, mask: Tensor | None, *, causal: bool = False
    ) -> Tensor:
        """Return softmax(q kᵀ/√H + mask) after dropout, (B, N, T, S)."""
        logits = (q / math.sqrt(self.head_dim)) @ k.transpose(-1, -2)
        if mask is not None:
            logits = logits + mask
        if causal and q.shape[-2] > 1:
            logits = logits + causal_mask(q.shape[-2], k.shape[-2], q.device)
        return self.dropout(logits.softmax(-1))

    def fused(self, q: Tensor, k: Tensor) -> bool:
        """Return whether to use the fused kernel, by device, type and length."""
        if q.device.type != "cpu":
            return True
        # The CPU's flash kernel has no dropout; with dropout the fused path has no advantage.
        dropping = self.training and self.dropout.p > 0
        longest = max(q.shape[-2], k.shape[-2])
        return longest > LONGEST_PLAIN.get(q.dtype, 0) and not dropping


class SelfAttention(Attention):
    """Multi-head self-attention: one projection for queries, keys and values, one for the output."""

    def __init__(self, hidden_size: int, heads: int, dropout: float, *, bias: bool = True):
        super().__init__(hidden_size, heads, dropout, bias=bias)
        self.projection = Linear(hidden_size, 3 * hidden_size, bias=bias)

    def new_cache(self) -> KeyValueCache:
        """Return an empty cache for `forward`, to read a text token by token."""
        return KeyValueCache()

    def forward(
        self,
        x: Tensor,
        positions: Positions,
        encoding: PositionEncoding,
        mask: Tensor | None,
        *,
        causal: bool = False,
        cache: KeyValueCache | None = None,
        seen: Positions | None = None,
    ) -> Tensor:
        """Attend from every token of x (B, T, D) to every token that `mask` allows; return (B, T, D).

        Args:
            x: hidden states.
            positions: of the T tokens.
            encoding: applied to queries, keys and logits.
            mask: additive, broadcastable to (B, N, T, S): 0 where attention is allowed, the type's
                lowest number where it is not; None allows all.
            causal: a token sees only itself and those before it.
            cache: from `new_cache`, of the tokens before these; the T tokens are added to it.
            seen: with a cache, the positions of all its tokens, these included.
        """
        q, k, v = self.split(self.projection(x), 3)
        q, k = encoding.rotate(q, k, positions)
        if encoding.rotates_values:
            v, _ = encoding.rotate(v, v, positions)
        if cache is not None:
            k, v = cache.append(k, v)
        seen = seen or positions
        bias = encoding.bias(q, k, positions, seen)
        if bias is not None:
            mask = bias if mask is None else bias + mask
        if not encoding.adds_to_values:
            return self.attend(q, k, v, mask, causal=causal)
        probabilities = self.probabilities(q, k, mask, causal=causal)
        y = probabilities.to(v.dtype) @ v
        y = y + encoding.value_term(probabilities, positions, seen).to(y.dtype)
        return self.join(y)


class CrossAttention(Attention):
    """Multi-head attention from one text to the hidden states of another, without positions."""

    def __init__(self, hidden_size: int, heads: int, dropout: float):
        super().__init__(hidden_size, heads, dropout)
        self.query = Linear(hidden_size, hidden_size)
        self.memory = Linear(hidden_size, 2 * hidden_size)

    def keys_values(self, hidden: Tensor) -> KeysValues:
        """Return keys and values (B, N, S, H) of the other text's hidden states (B, S, D)."""
        k, v = self.split(self.memory(hidden), 2)
        return k, v

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """Return (B, T, D) for x (B, T, D), `memory` from `keys_values` and an additive mask."""
        (q,) = self.split(self.query(x), 1)
        return self.attend(q, *memory, mask)


class KeyValueCache:
    """Keys and values of one layer for all tokens so far, of R rows (sentences x beams).

    The capacity grows by doubling; a search moves only the rows that change.
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add rotated keys and values (R, N, t, H) of t tokens; return those so far, (R, N, T, H)."""
        end = self.length + k.shape[-2]
        self._keys = self._room(self._keys, k, end)
        self._values = self._room(self._values, v, end)
        self._keys[:, :, self.length : end] = k
        self._values[:, :, self.length : end] = v
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _room(self, held: Tensor | None, new: Tensor, end: int) -> Tensor:
        if held is not None and held.shape[-2] >= end:
            return held
        capacity = max(end, FIRST_CAPACITY if held is None else 2 * held.shape[-2])
        larger = new.new_empty(*new.shape[:2], capacity, new.shape[-1])
        if held is not None:
            larger[:, :, : self.length] = held[:, :, : self.length]
        return larger

    def move(self, to: Tensor, origin: Tensor) -> None:
        """Overwrite the rows `to` (n,) with the contents of the rows `origin` (n,)."""
        for held in (self._keys, self._values):
            if held is not None:
                filled = held[:, :, : self.length]
                filled[to] = filled[origin]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (n,)."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[rows], self._values[rows]


def additive_mask(allowed: Tensor) -> Tensor:
    """Return 0 where attention is allowed and the lowest fp32 number elsewhere, with an axis for heads.

    (B, 1, 1, S) for `allowed` (B, S), or (B, 1, T, S) for (B, T, S), which differs between queries.
    """
    allowed = allowed[:, None, None] if allowed.ndim == 2 else allowed[:, None]
    mask = torch.zeros(allowed.shape, dtype=torch.float32, device=allowed.device)
    return mask.masked_fill(~allowed.bool(), torch.finfo(torch.float32).min)


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return 0 up to the diagonal that ends at the last query and key, and -∞ above it, (T, S) fp32."""
    return torch.full((queries, keys), -math.inf, device=device).triu(keys - queries + 1)
