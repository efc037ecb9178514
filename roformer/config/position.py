"""Configurations of the position encodings; their code is in `roformer.nn.position`.

Each says what it can do (`PositionConfig`): other code asks for that, never for its type.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from roformer.config.typed import schema

if TYPE_CHECKING:
    from roformer.config.schema import TransformerConfig

Factor = Annotated[float, Field(ge=1.0, allow_inf_nan=False)]
"""s: how many times more positions than in training the encoding is stretched to."""


@schema
class NoScaling:
    """Every position as the paper has it."""

    kind: Literal["none"] = "none"


@schema
class LinearScaling:
    """Position interpolation (Chen et al. 2023); beyond the paper, as all scalings are."""

    kind: Literal["linear"] = "linear"
    factor: Factor


@schema
class NtkScaling:
    """NTK-aware scaling by a larger base (bloc97 2023)."""

    kind: Literal["ntk"] = "ntk"
    factor: Factor


@schema
class DynamicNtkScaling:
    """NTK-aware scaling that grows with the length read (as transformers' `dynamic`)."""

    kind: Literal["dynamic_ntk"] = "dynamic_ntk"
    factor: Factor
    """1 makes it the fixed form at the length read; more stretches further."""
    trained_length: PositiveInt
    """L: positions of the training; nothing is scaled up to them."""


@schema
class YarnScaling:
    """NTK by parts with a temperature of the attention (Peng et al. 2023)."""

    kind: Literal["yarn"] = "yarn"
    factor: Factor
    trained_length: PositiveInt
    """L: positions of the training."""
    beta_fast: PositiveFloat = 32.0
    """Pairs that turn at least this often within L keep their frequency."""
    beta_slow: PositiveFloat = 1.0
    """Pairs that turn at most this often within L are interpolated as a whole."""

    @model_validator(mode="after")
    def _ramp(self) -> YarnScaling:
        if not self.beta_slow < self.beta_fast:
            raise ValueError(
                f"beta_fast={self.beta_fast} must be above beta_slow={self.beta_slow}: the ramp "
                "lies between them"
            )
        if not self.trained_length > 2 * math.pi * self.beta_slow:
            raise ValueError(
                f"trained_length={self.trained_length} is too short for beta_slow={self.beta_slow}: "
                f"even the fastest pair needs {2 * math.pi * self.beta_slow:.1f} positions to turn "
                "that often"
            )
        return self


Scaling = Annotated[
    NoScaling | LinearScaling | NtkScaling | DynamicNtkScaling | YarnScaling,
    Field(discriminator="kind"),
]
"""Ways for a rotary encoding to read more positions than it was trained on; `roformer.nn.rotary_scaling`."""


@schema
class PositionConfig:
    """Base class of the encodings: what one can do, and which models it refuses."""

    adds_to_logits: ClassVar[bool] = False
    """True if it needs the matrix of attention logits, which linear attention does not have."""

    @property
    def longest(self) -> int | None:
        """Positions that it was given vectors for; None: it reads any number."""
        return None

    def rotated_dims(self, size: int) -> int:
        """Return how many of the `size` dimensions of a query or key it rotates."""
        return 0

    def check_model(self, model: TransformerConfig) -> None:
        """Raise ValueError where it does not fit the sizes of a model."""

    def check_causal(self) -> None:
        """Raise ValueError where it cannot serve a decoder, which sees the past and keeps it."""

    def check_features(self, attention: str, features: int) -> None:
        """Raise ValueError where it cannot be applied to the feature maps of linear attention.

        Args:
            attention: kind of the attention.
            features: M, features of a head.
        """

    def check_length(self, length: int, key: str, remedy: str) -> None:
        """Raise ValueError where `length` tokens, set by `key`, have more positions than it has."""
        if self.longest is not None and length > self.longest:
            raise ValueError(
                f"{key} is beyond the learned table of model.position.max_positions={self.longest}: "
                f"{remedy}, or choose model/position=rotary, which has no table"
            )


@schema
class Rotary(PositionConfig):
    """Rotary position embedding (RoFormer, Eq. 14-16)."""

    kind: Literal["rotary"] = "rotary"
    base: Annotated[float, Field(gt=1.0)] = 10000.0
    """θ_i = base^(-2(i-1)/d), Eq. 15."""
    layout: Literal["interleaved", "half"] = "interleaved"
    """Which dimensions form a pair: (0, 1), (2, 3), … (the paper) or (i, i + d/2)."""
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of each head's dimensions that is rotated; the rest carries no position."""
    scaling: Scaling = NoScaling()
    """Beyond the paper."""

    def rotated_dims(self, size: int) -> int:
        return round(size * self.fraction)

    def check_model(self, model: TransformerConfig) -> None:
        rotated = self.rotated_dims(model.rotated_size)
        if rotated % 2:
            raise ValueError(
                f"rotary positions rotate pairs, but fraction={self.fraction} of a head of "
                f"{model.head_dim} is {rotated} dimensions: choose hidden_size, heads or "
                "position.fraction so that it is even"
            )
        if rotated == 0:
            raise ValueError(
                f"position.fraction={self.fraction} of a head of {model.head_dim} rotates "
                "nothing: raise it, or choose model/position=none"
            )
        if isinstance(self.scaling, NtkScaling | DynamicNtkScaling) and rotated < 4:
            raise ValueError(
                f"position.scaling.kind={self.scaling.kind} spreads the factor over the pairs of a "
                "head and needs two of them: choose larger heads, or position.scaling.kind=linear"
            )

    def check_causal(self) -> None:
        if isinstance(self.scaling, DynamicNtkScaling):
            raise ValueError(
                "position.scaling.kind=dynamic_ntk rotates all keys anew as a text grows, but the "
                "decoder keeps its keys: choose ntk, yarn or linear"
            )

    def check_features(self, attention: str, features: int) -> None:
        if isinstance(self.scaling, YarnScaling):
            raise ValueError(
                "position.scaling.kind=yarn sharpens the softmax by longer queries and keys, but "
                "after a feature map longer ones scale the output: choose ntk or linear"
            )
        rotated = self.rotated_dims(features)
        if attention == "performer" and rotated % 2:
            raise ValueError(
                f"rotary positions rotate pairs of features, but position.fraction={self.fraction} "
                f"of attention.features={features} are {rotated}: choose an even number"
            )


@schema
class Learned(PositionConfig):
    """One trained vector per absolute position, added to the embeddings (BERT)."""

    kind: Literal["learned"] = "learned"
    max_positions: PositiveInt = 512

    @property
    def longest(self) -> int:
        return self.max_positions


@schema
class Sinusoidal(PositionConfig):
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: Annotated[float, Field(gt=1.0)] = 10000.0
    scale: PositiveFloat | None = None
    """Amplitude; null: the model's own, √2·init_std in an encoder (the root mean square that a
    learned table starts with), 1 in an encoder-decoder (Vaswani et al.)."""

    def check_model(self, model: TransformerConfig) -> None:
        if model.hidden_size % 2:
            raise ValueError(
                f"sinusoidal positions need an even hidden_size, not {model.hidden_size}"
            )


@schema
class Shaw(PositionConfig):
    """Trained relative representations on keys and values (Shaw et al. 2018, Eq. 3-5).

    Each layer has its own, shared by its heads.
    """

    adds_to_logits = True

    kind: Literal["shaw"] = "shaw"
    clip: PositiveInt = 16
    """k: distances beyond it count as k. 16 in the paper's base model, 8 in its big one."""
    values: bool = True
    """Also add the representations to the values (Eq. 3), not only to the keys (Eq. 4)."""


@schema
class T5Bias(PositionConfig):
    """A trained bias per head and bucketed distance (Raffel et al. 2020, section 2.1)."""

    adds_to_logits = True

    kind: Literal["t5"] = "t5"
    buckets: Annotated[int, Field(ge=4, multiple_of=2)] = 32
    max_distance: PositiveInt = 128

    def check_model(self, model: TransformerConfig) -> None:
        if self.max_distance <= self.buckets // 4:
            raise ValueError(
                f"position.max_distance={self.max_distance} must be above a quarter of "
                f"position.buckets={self.buckets}, where the logarithmic buckets start"
            )

    def check_causal(self) -> None:
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"position.max_distance={self.max_distance} must be above half of position.buckets="
                f"{self.buckets}, where the decoder's logarithmic buckets start"
            )


@schema
class Alibi(PositionConfig):
    """A fixed linear penalty on the distance (Press et al. 2022); symmetric, for encoders."""

    adds_to_logits = True

    kind: Literal["alibi"] = "alibi"


@schema
class NoPosition(PositionConfig):
    """No position information at all: the control."""

    kind: Literal["none"] = "none"


Position = Annotated[
    Rotary | Learned | Sinusoidal | Shaw | T5Bias | Alibi | NoPosition, Field(discriminator="kind")
]
