"""Position encodings behind one seam: how a model knows the order of its tokens.

An encoding overrides the hooks it needs; each is the identity by default:

    embed       adds to the token embeddings                learned, sinusoidal
    rotate      turns queries and keys                      rotary
    bias        adds to the attention logits                shaw (keys), t5, alibi
    value_term  adds to the attention output                shaw (values)

Models call `embed` once, attention kernels call the others, and neither knows which encoding is in
use. (Checks of lengths ask for a learned table, and the exports to transformers for what it can hold.)
A new encoding is one class here (decorated with `encodes`), one dataclass in `config/position.py` and
one file in `conf/model/position/`.

Shapes: B batch, N heads, T queries, S keys, H head dimension, D hidden size. Position ids are
(T,) when all rows share them, else (B, T).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.rotary import RotaryEmbedding, rotary_angles
from roformer.nn.rotary_scaling import ScaledRotaryEmbedding

T = TypeVar("T")


class Positions:
    """Position ids of one forward pass, with what encodings derived from them.

    Tables and distances are shared by all layers through `derive` and die with the pass: no cache
    outlives its positions, device or type. What is derived carries no gradient.
    """

    def __init__(self, ids: Tensor):
        self.ids = ids
        self._derived: dict[Hashable, Any] = {}

    def derive(self, key: Hashable, build: Callable[[], T]) -> T:
        if key not in self._derived:
            self._derived[key] = build()
        return self._derived[key]


def distances(q: Positions, k: Positions) -> Tensor:
    """Return key position minus query position: (T, S), or (B, T, S) for per-row positions."""
    return q.derive(("distances", id(k)), lambda: k.ids[..., None, :] - q.ids[..., :, None])


class PositionEncoding(nn.Module):
    """The seam. The base class is the encoding `none`: it does nothing."""

    adds_to_values = False
    """Whether `value_term` is used; fused kernels, which hide the probabilities, are then out."""

    def __init__(self, config: Any, model: TransformerConfig):
        super().__init__()

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """Return the embeddings (B, T, D) with positions added."""
        return x

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Return queries and keys (B, N, T, H) with positions applied; never the values.

        Linear attention may give the M features that it made of each head instead.
        """
        return q, k

    def bias(self, q: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor | None:
        """Return what to add to the scaled logits, broadcastable to (B, N, T, S), or None."""
        return None

    def value_term(self, probabilities: Tensor, q: Positions, k: Positions) -> Tensor:
        """Return what to add to the attention output (B, N, T, H), given (B, N, T, S)."""
        raise AssertionError("called only where adds_to_values is set")

    def for_layer(self, index: int) -> PositionEncoding:
        """Return the encoding of layer `index`; most encodings share one over all layers."""
        return self

    def reset_parameters(self) -> None:
        """Draw initial values for the parameters that this encoding owns, if any."""


ENCODINGS: dict[type, type[PositionEncoding]] = {encodings.NoPosition: PositionEncoding}
E = TypeVar("E", bound=type[PositionEncoding])


def encodes(config: type) -> Callable[[E], E]:
    """Register a class as the encoding that a schema dataclass configures."""

    def register(cls: E) -> E:
        ENCODINGS[config] = cls
        return cls

    return register


def build_position(config: encodings.Position, model: TransformerConfig) -> PositionEncoding:
    """Return the encoding that `config` names, for a model of these model."""
    return ENCODINGS[type(config)](config, model)


@encodes(encodings.Rotary)
class RotaryPosition(PositionEncoding):
    """RoFormer: queries and keys are rotated, nothing is added, nothing is learnt (Eq. 14-16)."""

    def __init__(self, config: encodings.Rotary, model: TransformerConfig):
        super().__init__(config, model)
        head: dict[str, Any] = {
            "head_dim": model.rotated_size,
            "rotary_dim": config.rotated_dims(model.rotated_size),
            "base": config.base,
            "layout": config.layout,
        }
        self.rotary = (
            RotaryEmbedding(**head)
            if isinstance(config.scaling, encodings.NoScaling)
            else ScaledRotaryEmbedding(**head, scaling=config.scaling)
        )

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        table = positions.derive("rotary", lambda: self.rotary.table(positions.ids))
        return self.rotary(q, table), self.rotary(k, table)


@encodes(encodings.Learned)
class LearnedPosition(PositionEncoding):
    """BERT: one trained vector for every absolute position up to `max_positions`."""

    def __init__(self, config: encodings.Learned, model: TransformerConfig):
        super().__init__(config, model)
        self.table = nn.Parameter(torch.empty(config.max_positions, model.hidden_size))
        self.init_std = model.init_std

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=self.init_std)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        # Elsewhere than on a CPU, reading the positions would make the device wait.
        last = int(positions.ids.max()) if x.device.type == "cpu" else x.shape[-2] - 1
        if last >= self.table.shape[0]:
            raise ValueError(
                f"position {last} is beyond the learned table of {self.table.shape[0]} positions: "
                "truncate the sequence, or train with a larger model.position.max_positions"
            )
        return x + self.table[positions.ids]


@encodes(encodings.Sinusoidal)
class SinusoidalPosition(PositionEncoding):
    """Vaswani et al. 2017, section 3.5: PE(m, 2i) = sin(m θ_i), PE(m, 2i+1) = cos(m θ_i)."""

    def __init__(self, config: encodings.Sinusoidal, model: TransformerConfig):
        super().__init__(config, model)
        self.base = config.base
        self.scale = config.scale if config.scale is not None else model.sinusoid_scale

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        angles = rotary_angles(positions.ids, x.shape[-1], self.base)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        return x + (self.scale * table).to(x.dtype)


@encodes(encodings.Shaw)
class ShawPosition(PositionEncoding):
    """Trained vectors for clipped distances, each layer's own (Shaw et al. 2018).

    The heads of a layer share them, as in the paper's big model (clip 8). Its base model (clip 16) has
    vectors of its own for each head as well, which this class does not offer.
    """

    def __init__(self, config: encodings.Shaw, model: TransformerConfig):
        super().__init__(config, model)
        self.per_layer = nn.ModuleList(ShawLayer(config, model) for _ in range(model.layers))

    def for_layer(self, index: int) -> PositionEncoding:
        return self.per_layer[index]  # type: ignore[return-value]

    def reset_parameters(self) -> None:
        for layer in self.per_layer:
            layer.reset_parameters()  # type: ignore[operator]


class ShawLayer(PositionEncoding):
    """One layer of `ShawPosition`: Eq. 4 on the keys and, with `values`, Eq. 3 on the values."""

    def __init__(self, config: encodings.Shaw, model: TransformerConfig):
        super().__init__(config, model)
        self.clip = config.clip
        self.adds_to_values = config.values
        self.init_std = model.init_std
        self.keys = nn.Parameter(torch.empty(2 * config.clip + 1, model.head_dim))
        self.values = (
            nn.Parameter(torch.empty(2 * config.clip + 1, model.head_dim))
            if config.values
            else None
        )

    def reset_parameters(self) -> None:
        nn.init.normal_(self.keys, std=self.init_std)
        if self.values is not None:
            nn.init.normal_(self.values, std=self.init_std)

    def _index(self, q: Positions, k: Positions) -> Tensor:
        """Return clip(n - m, -k, k) + k, int64 (1 or B, T, S)."""

        def build() -> Tensor:
            index = distances(q, k).clamp(-self.clip, self.clip) + self.clip
            return index if index.ndim == 3 else index[None]

        return q.derive(("shaw", self.clip, id(k)), build)

    def bias(self, q: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        # q·a^K for the 2k+1 distances, then picked per (query, key): never a (T, S, H) tensor.
        by_distance = q @ self.keys.to(q.dtype).T / math.sqrt(q.shape[-1])  # (B, N, T, 2k+1)
        index = self._index(q_positions, k_positions)[:, None]
        return by_distance.gather(-1, index.expand(*q.shape[:2], -1, -1))

    def value_term(self, probabilities: Tensor, q: Positions, k: Positions) -> Tensor:
        assert self.values is not None
        index = self._index(q, k)[:, None].expand_as(probabilities)
        by_distance = probabilities.new_zeros(*probabilities.shape[:-1], 2 * self.clip + 1)
        by_distance = by_distance.scatter_add(-1, index, probabilities)
        return by_distance @ self.values.to(probabilities.dtype)


@encodes(encodings.T5Bias)
class T5Position(PositionEncoding):
    """Raffel et al. 2020, section 2.1: a trained bias per head and bucket, one for all layers."""

    def __init__(self, config: encodings.T5Bias, model: TransformerConfig):
        super().__init__(config, model)
        self.max_distance = config.max_distance
        self.causal = model.causal
        self.biases = nn.Parameter(torch.empty(config.buckets, model.heads))
        self.init_std = model.init_std

    def reset_parameters(self) -> None:
        nn.init.normal_(self.biases, std=self.init_std)

    def bias(self, q: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        # Only what has no gradient may be derived: layers may be recomputed in the backward pass.
        bucket = q_positions.derive(
            ("t5", id(k_positions)),
            lambda: t5_bucket(
                distances(q_positions, k_positions),
                self.biases.shape[0],
                self.max_distance,
                causal=self.causal,
            ),
        )
        return self.biases[bucket].movedim(-1, -3)  # (N, T, S) or (B, N, T, S)


def t5_bucket(distance: Tensor, buckets: int, max_distance: int, *, causal: bool = False) -> Tensor:
    """Return the bucket of key position minus query position, in [0, buckets).

    Half of the buckets are for keys after the query; causal attention has no such keys, and all
    buckets for those before. Of each half (or of all), the first half holds one distance a bucket;
    the rest grow logarithmically up to `max_distance`, which ends the last.
    """
    side = buckets if causal else buckets // 2
    exact = side // 2
    far = (-distance).clamp(min=0) if causal else distance.abs()
    log_ratio = torch.log(far.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    logarithmic = (exact + (log_ratio * (side - exact)).long()).clamp(max=side - 1)
    bucket = torch.where(far < exact, far, logarithmic)
    return bucket if causal else bucket + torch.where(distance > 0, side, 0)


@encodes(encodings.Alibi)
class AlibiPosition(PositionEncoding):
    """Press et al. 2022: -slope·|m - n|, symmetric because an encoder looks both ways.

    Causal attention sees the same numbers: its keys all lie on one side.
    """

    def __init__(self, config: encodings.Alibi, model: TransformerConfig):
        super().__init__(config, model)
        self.slopes = alibi_slopes(model.heads)

    def bias(self, q: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        def build() -> Tensor:
            slopes = torch.tensor(self.slopes, device=q.device)[:, None, None]
            return -slopes * distances(q_positions, k_positions).abs()[..., None, :, :]

        return q_positions.derive(("alibi", id(k_positions)), build)


def alibi_slopes(heads: int) -> list[float]:
    """Return the paper's geometric slopes: 2^(-8/n), 2^(-16/n), … for n heads.

    When n is no power of two, the slopes of the next lower power come first, then every other
    slope of the next higher one, as in the authors' code.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (i + 1) / power) for i in range(2 * power)]
    return slopes + between[0::2][: heads - power]
