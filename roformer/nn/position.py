"""Position encodings behind one seam: how a model knows the order of its tokens.

An encoding overrides the hooks it needs; each is the identity by default:

    embed       adds to the token embeddings                learned, sinusoidal
    rotate      rotates queries and keys                    rotary
    bias        adds to the attention logits                shaw (keys), t5, alibi
    value_term  adds to the attention output                shaw (values)

Models call `embed` once, attention calls the others, and neither knows which encoding is in use; what
an encoding can do, its config says. A new encoding is one class here (decorated with `encodes`), one
dataclass in `config/position.py` and one file in `conf/model/position/`.

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
    """Position ids of one forward pass, with the tensors that encodings derive from them.

    Tables and distances are shared by all layers through `derive` and die with the pass: no cache
    outlives its positions, device or type. Only tensors without a gradient may be derived, because
    layers may be recomputed in the backward pass.
    """

    def __init__(self, ids: Tensor):
        self.ids = ids
        self._derived: dict[Hashable, Any] = {}

    def derive(self, key: Hashable, build: Callable[[], T]) -> T:
        """Return what `build` returned for this key, building it at the first call."""
        if key not in self._derived:
            self._derived[key] = build()
        return self._derived[key]


def distances(q: Positions, k: Positions) -> Tensor:
    """Return key position minus query position: (T, S), or (B, T, S) for per-row positions."""
    return q.derive(("distances", id(k)), lambda: k.ids[..., None, :] - q.ids[..., :, None])


class PositionEncoding(nn.Module):
    """The seam, and the encoding `none`, which does nothing.

    Args:
        config: of the encoding.
        model: the sizes of the model.
    """

    adds_to_values = False
    """True if `value_term` is used; fused kernels, which hide the probabilities, are then out."""

    def __init__(self, config: Any, model: TransformerConfig):
        super().__init__()
        self.init_std = model.init_std

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """Return the embeddings (B, T, D) with positions added."""
        return x

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Return queries and keys (B, N, T, H) with positions applied; never the values.

        Linear attention may pass the M features of each head instead.
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
        """Draw the parameters of this encoding, if any: N(0, init_std²)."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=self.init_std)


ENCODINGS: dict[type, type[PositionEncoding]] = {encodings.NoPosition: PositionEncoding}
E = TypeVar("E", bound=type[PositionEncoding])


def encodes(config: type) -> Callable[[E], E]:
    """Register a class as the encoding of a config dataclass."""

    def register(cls: E) -> E:
        ENCODINGS[config] = cls
        return cls

    return register


def build_position(config: encodings.Position, model: TransformerConfig) -> PositionEncoding:
    """Return the encoding of a config, for a model of these sizes."""
    return ENCODINGS[type(config)](config, model)


@encodes(encodings.Rotary)
class RotaryPosition(PositionEncoding):
    """RoFormer: queries and keys are rotated, nothing is added or trained (Eq. 14-16)."""

    def __init__(self, config: encodings.Rotary, model: TransformerConfig):
        super().__init__(config, model)
        size = model.rotated_size
        options: dict[str, Any] = {
            "rotary_dim": config.rotated_dims(size),
            "base": config.base,
            "layout": config.layout,
        }
        if isinstance(config.scaling, encodings.NoScaling):
            self.rotary = RotaryEmbedding(size, **options)
        else:
            self.rotary = ScaledRotaryEmbedding(size, scaling=config.scaling, **options)

    def rotate(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        table = positions.derive("rotary", lambda: self.rotary.table(positions.ids))
        return self.rotary(q, table), self.rotary(k, table)


@encodes(encodings.Learned)
class LearnedPosition(PositionEncoding):
    """BERT: one trained vector for every absolute position up to `max_positions`."""

    def __init__(self, config: encodings.Learned, model: TransformerConfig):
        super().__init__(config, model)
        self.table = nn.Parameter(torch.empty(config.max_positions, model.hidden_size))

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        # Reading the positions would make any device but a CPU wait.
        last = int(positions.ids.max()) if x.device.type == "cpu" else x.shape[-2] - 1
        if last >= len(self.table):
            raise ValueError(
                f"position {last} is beyond the learned table of {len(self.table)} positions: "
                "truncate the sequence, or train with a larger model.position.max_positions"
            )
        return x + self.table[positions.ids]


@encodes(encodings.Sinusoidal)
class SinusoidalPosition(PositionEncoding):
    """Vaswani et al. 2017, section 3.5: PE(m, 2i) = sin(m θ_i), PE(m, 2i+1) = cos(m θ_i)."""

    def __init__(self, config: encodings.Sinusoidal, model: TransformerConfig):
        super().__init__(config, model)
        self.base = config.base
        self.scale = model.sinusoid_scale if config.scale is None else config.scale

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        angles = rotary_angles(positions.ids, x.shape[-1], self.base)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        return x + (self.scale * table).to(x.dtype)


@encodes(encodings.Shaw)
class ShawPosition(PositionEncoding):
    """Trained vectors for clipped distances, each layer's own (Shaw et al. 2018).

    The heads of a layer share them, as in the paper's big model (clip 8). Its base model (clip 16) has
    separate vectors for each head, which this class does not offer.
    """

    def __init__(self, config: encodings.Shaw, model: TransformerConfig):
        super().__init__(config, model)
        self.per_layer = nn.ModuleList(ShawLayer(config, model) for _ in range(model.layers))

    def for_layer(self, index: int) -> PositionEncoding:
        return self.per_layer[index]  # type: ignore[return-value]


class ShawLayer(PositionEncoding):
    """One layer of `ShawPosition`: Eq. 4 on the keys and, with `values`, Eq. 3 on the values."""

    def __init__(self, config: encodings.Shaw, model: TransformerConfig):
        super().__init__(config, model)
        self.clip = config.clip
        self.adds_to_values = config.values
        shape = (2 * config.clip + 1, model.head_dim)
        self.keys = nn.Parameter(torch.empty(shape))
        self.values = nn.Parameter(torch.empty(shape)) if config.values else None

    def _index(self, q: Positions, k: Positions) -> Tensor:
        """Return clip(n - m, -k, k) + k, int64 (1 or B, 1, T, S)."""

        def build() -> Tensor:
            index = distances(q, k).clamp(-self.clip, self.clip) + self.clip
            return index[:, None] if index.ndim == 3 else index[None, None]

        return q.derive(("shaw", self.clip, id(k)), build)

    def bias(self, q: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        # q·a^K for the 2k+1 distances, then selected per (query, key): never a (T, S, H) tensor.
        by_distance = q @ self.keys.to(q.dtype).T / math.sqrt(q.shape[-1])  # (B, N, T, 2k+1)
        index = self._index(q_positions, k_positions)
        return by_distance.gather(-1, index.expand(*q.shape[:2], -1, -1))

    def value_term(self, probabilities: Tensor, q: Positions, k: Positions) -> Tensor:
        assert self.values is not None
        index = self._index(q, k).expand_as(probabilities)
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

    def bias(self, q: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        def build() -> Tensor:
            distance = distances(q_positions, k_positions)
            return t5_bucket(distance, len(self.biases), self.max_distance, causal=self.causal)

        bucket = q_positions.derive(("t5", id(k_positions)), build)
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

    For causal attention, whose keys all lie on one side, this is the paper's form.
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

    When n is no power of two, the slopes of the next lower power come first, then every other slope of
    the next higher one, as in the authors' code.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    between = [2.0 ** (-4.0 * (i + 1) / power) for i in range(2 * power)]
    return slopes + between[0::2][: heads - power]
