"""The position encodings that a model can be given; their code is in `roformer.nn.position`."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from roformer.config.typed import schema

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
"""How a rotary encoding reads more positions than it was trained on; `roformer.nn.rotary_scaling`."""


@schema
class Rotary:
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


@schema
class Learned:
    """One trained vector per absolute position, added to the embeddings (BERT)."""

    kind: Literal["learned"] = "learned"
    max_positions: PositiveInt = 512


@schema
class Sinusoidal:
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: Annotated[float, Field(gt=1.0)] = 10000.0
    scale: PositiveFloat | None = None
    """Amplitude; null: the model's own, √2·init_std in an encoder (the root mean square that a
    learned table starts with), 1 in an encoder-decoder (Vaswani et al.)."""


@schema
class Shaw:
    """Trained relative representations on keys and values (Shaw et al. 2018, Eq. 3-5)."""

    kind: Literal["shaw"] = "shaw"
    clip: PositiveInt = 16
    values: bool = True
    """Also add the representations to the values (Eq. 3), not only to the keys (Eq. 4)."""


@schema
class T5Bias:
    """A trained bias per head and bucketed distance (Raffel et al. 2020, section 2.1)."""

    kind: Literal["t5"] = "t5"
    buckets: Annotated[int, Field(ge=4, multiple_of=2)] = 32
    max_distance: PositiveInt = 128


@schema
class Alibi:
    """A fixed linear penalty on the distance (Press et al. 2022); symmetric, for encoders."""

    kind: Literal["alibi"] = "alibi"


@schema
class NoPosition:
    """No position information at all: the control arm."""

    kind: Literal["none"] = "none"


Position = Annotated[
    Rotary | Learned | Sinusoidal | Shaw | T5Bias | Alibi | NoPosition, Field(discriminator="kind")
]


def check_causal(position: Position) -> None:
    """Raise ValueError where an encoding cannot serve a decoder, which sees the past and keeps it."""
    if isinstance(position, T5Bias) and position.max_distance <= position.buckets // 2:
        raise ValueError(
            f"position.max_distance={position.max_distance} must be above half of position.buckets="
            f"{position.buckets}, where the decoder's logarithmic buckets start"
        )
    if isinstance(position, Rotary) and isinstance(position.scaling, DynamicNtkScaling):
        raise ValueError(
            "position.scaling.kind=dynamic_ntk turns all keys anew as a text grows, but the "
            "decoder keeps its keys: choose ntk, yarn or linear"
        )
