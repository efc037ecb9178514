"""The position encodings that a model can be given; their code is in `roformer.nn.position`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from roformer.config.typed import schema


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
