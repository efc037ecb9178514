"""Configurations of the position encodings; their code is in `roformer.nn.position`.

Each says what it can do (`PositionConfig`): other code asks for that, never for its type.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from roformer.config.typed import Base, Config, Rules

if TYPE_CHECKING:
    from roformer.config.schema import TransformerConfig

Factor = Annotated[float, Field(ge=1.0, allow_inf_nan=False)]
"""s: how many times more positions than in training the encoding is stretched to."""


class NoScaling(Config):
    """Every position as the paper has it."""

    kind: Literal["none"] = "none"


class LinearScaling(Config):
    """Position interpolation (Chen et al. 2023); beyond the paper, as all scalings are."""

    kind: Literal["linear"] = "linear"
    factor: Factor


class NtkScaling(Config):
    """NTK-aware scaling by a larger base (bloc97 2023)."""

    kind: Literal["ntk"] = "ntk"
    factor: Factor


class DynamicNtkScaling(Config):
    """NTK-aware scaling that grows with the length read (as transformers' `dynamic`)."""

    kind: Literal["dynamic_ntk"] = "dynamic_ntk"
    factor: Factor
    """1 makes it the fixed form at the length read; more stretches further."""
    trained_length: PositiveInt
    """L: positions of the training; nothing is scaled up to them."""


class YarnScaling(Config):
    """NTK by parts with a temperature of the attention (Peng et al. 2023)."""

    kind: Literal["yarn"] = "yarn"
    factor: Factor
    trained_length: PositiveInt
    """L: positions of the training."""
    beta_fast: PositiveFloat = 32.0
    """Pairs that turn at least this often within L keep their frequency."""
    beta_slow: PositiveFloat = 1.0
    """Pairs that turn at most this often within L are interpolated as a whole."""

    def rules(self) -> Rules:
        fast, slow, shortest = self.beta_fast, self.beta_slow, 2 * math.pi * self.beta_slow
        yield slow >= fast, f"beta_fast={fast} must be above beta_slow={slow}"
        yield (
            self.trained_length <= shortest,
            f"trained_length={self.trained_length} is too short for beta_slow={slow}: "
            f"the fastest pair needs {shortest:.1f} positions to turn that often",
        )


Scaling = Annotated[
    NoScaling | LinearScaling | NtkScaling | DynamicNtkScaling | YarnScaling,
    Field(discriminator="kind"),
]
"""Ways for a rotary encoding to read more positions than it was trained on; `roformer.nn.rotary_scaling`."""


class PositionConfig(Config):
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

    def model_rules(self, model: TransformerConfig) -> Rules:
        """Yield what the sizes of a model must be for it."""
        yield from ()

    def causal_rules(self) -> Rules:
        """Yield what it must be to serve a decoder, which sees the past and keeps it."""
        yield from ()

    def feature_rules(self, attention: str, features: int) -> Rules:
        """Yield what it must be to rotate the M `features` of a head in a kind of linear attention."""
        yield from ()

    def length_rules(self, length: int, key: str) -> Rules:
        """Yield that `length` tokens, set by `key`, have no more positions than it has."""
        yield (
            self.longest is not None and length > self.longest,
            f"{key} is beyond the learned table of model.position.max_positions={self.longest}: "
            "raise it, lower the length, or choose model/position=rotary, which has no table",
        )


class Rotary(PositionConfig):
    """Rotary position embedding (RoFormer, Eq. 14-16)."""

    kind: Literal["rotary"] = "rotary"
    base: Base = 10000.0
    """θ_i = base^(-2(i-1)/d), Eq. 15."""
    layout: Literal["interleaved", "half"] = "interleaved"
    """Which dimensions form a pair: (0, 1), (2, 3), … (the paper) or (i, i + d/2)."""
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of each head's dimensions that is rotated; the rest carries no position."""
    scaling: Scaling = NoScaling()
    """Beyond the paper."""

    def rotated_dims(self, size: int) -> int:
        return round(size * self.fraction)

    def model_rules(self, model: TransformerConfig) -> Rules:
        rotated = self.rotated_dims(model.rotated_size)
        given = f"position.fraction={self.fraction} of a head of {model.head_dim}"
        yield rotated == 0, f"{given} rotates nothing: raise it, or choose model/position=none"
        yield (
            rotated % 2,
            f"rotary positions rotate pairs, but {given} is {rotated} dimensions: change hidden_size, "
            "heads or position.fraction so that it is even",
        )
        yield (
            rotated < 4 and self.scaling.kind in ("ntk", "dynamic_ntk"),
            f"position.scaling.kind={self.scaling.kind} spreads the factor over the pairs of a head and "
            "needs two of them: choose larger heads, or position.scaling.kind=linear",
        )

    def causal_rules(self) -> Rules:
        yield (
            self.scaling.kind == "dynamic_ntk",
            "position.scaling.kind=dynamic_ntk rotates all keys anew as a text grows, but the decoder "
            "keeps its keys: choose ntk, yarn or linear",
        )

    def feature_rules(self, attention: str, features: int) -> Rules:
        yield (
            self.scaling.kind == "yarn",
            "position.scaling.kind=yarn sharpens the softmax by longer queries and keys, but after a "
            "feature map longer ones scale the output: choose ntk or linear",
        )
        rotated = self.rotated_dims(features)
        yield (
            attention == "performer" and rotated % 2,
            f"rotary positions rotate pairs of features, but position.fraction={self.fraction} of "
            f"attention.features={features} are {rotated}: choose an even number",
        )


class Learned(PositionConfig):
    """One trained vector per absolute position, added to the embeddings (BERT)."""

    kind: Literal["learned"] = "learned"
    max_positions: PositiveInt = 512

    @property
    def longest(self) -> int:
        return self.max_positions


class Sinusoidal(PositionConfig):
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: Base = 10000.0
    scale: PositiveFloat | None = None
    """Amplitude; null: the model's own, √2·init_std in an encoder (the root mean square that a
    learned table starts with), 1 in an encoder-decoder (Vaswani et al.)."""

    def model_rules(self, model: TransformerConfig) -> Rules:
        size = model.hidden_size
        yield size % 2, f"sinusoidal positions need an even hidden_size, not {size}"


class Shaw(PositionConfig):
    """Trained relative representations on keys and values, for each layer (Shaw et al. 2018, Eq. 3-5)."""

    adds_to_logits = True
    kind: Literal["shaw"] = "shaw"
    clip: PositiveInt = 16
    """k: distances beyond it count as k. 16 in the paper's base model, 8 in its big one."""
    values: bool = True
    """Also add the representations to the values (Eq. 3), not only to the keys (Eq. 4)."""


class T5Bias(PositionConfig):
    """A trained bias per head and bucketed distance (Raffel et al. 2020, section 2.1)."""

    adds_to_logits = True
    kind: Literal["t5"] = "t5"
    buckets: Annotated[int, Field(ge=4, multiple_of=2)] = 32
    max_distance: PositiveInt = 128

    def model_rules(self, model: TransformerConfig) -> Rules:
        yield self._too_near(self.buckets // 4, "a quarter", "the")

    def causal_rules(self) -> Rules:
        yield self._too_near(self.buckets // 2, "half", "the decoder's")

    def _too_near(self, exact: int, share: str, whose: str) -> tuple[bool, str]:
        return self.max_distance <= exact, (
            f"position.max_distance={self.max_distance} must be above {share} of "
            f"position.buckets={self.buckets}, where {whose} logarithmic buckets start"
        )


class Alibi(PositionConfig):
    """A fixed linear penalty on the distance (Press et al. 2022); symmetric, for encoders."""

    adds_to_logits = True
    kind: Literal["alibi"] = "alibi"


class NoPosition(PositionConfig):
    """No position information at all: the control."""

    kind: Literal["none"] = "none"


Position = Annotated[
    Rotary | Learned | Sinusoidal | Shaw | T5Bias | Alibi | NoPosition, Field(discriminator="kind")
]
