"""Configurations of the position encodings; their code is in `roformer.nn.position`.

Each says what it can do (`PositionConfig`): other code asks for that, never for its type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from roformer.config.typed import Base, Config, OpenUnion, Rules, later


class Shape(NamedTuple):
    """Sizes and kinds of a model that the rules of its position encoding depend on."""

    hidden_size: int
    embedding_width: int
    """Size of the embeddings, and of absolute positions, which are added to them."""
    head_dim: int
    rotated_size: int
    """Size of the vectors that rotary positions rotate: a head, or the features made of it."""
    causal: bool
    """True if no token sees later ones."""
    decodes: bool
    """True if it, or its decoder, keeps keys for later tokens."""
    attention: str
    """Kind of its attention."""
    features: bool
    """True if rotary positions rotate the features of linear attention."""


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


Capability = Literal["bidirectional", "causal", "cached", "longer", "linear", "absolute"]
"""Something that not every encoding can do:

    bidirectional   serve an encoder, whose queries also see the keys after them
    causal          serve a decoder or a causal model
    cached          decode with a cache of keys, which are read at later lengths as they are
    longer          read more positions than in training
    linear          rotate, or keep, the features of linear attention
    absolute        be combined with absolute positions on the embeddings
"""
NO_LOGITS = (
    "has no matrix of logits for model/position={kind} to add to: choose rotary, sinusoidal, "
    "learned or none"
)
SOFTMAX_ALONE: Mapping[Capability, str] = {"linear": NO_LOGITS}
"""Limits of encodings that add to the logits."""


class PositionConfig(OpenUnion):
    """Base class of the encodings: their capabilities, and the rules for their models."""

    cannot: ClassVar[Mapping[Capability, str]] = {}
    """Missing capabilities, and the reason, as the end of an error message."""
    exports: ClassVar[tuple[str, ...]] = ()
    """Types of models of `transformers` that have it."""
    absolute: Literal["none", "learned", "sinusoidal"] = later("none")
    """Absolute positions on the embeddings in addition to a relative encoding, as in the Performers
    that the paper cites."""
    absolute_positions: PositiveInt = later(512)
    """Positions of the table of absolute=learned."""

    def rules(self) -> Rules:
        both = f"position.absolute={self.absolute} beside model/position={self.kind}"
        yield (
            self.absolute != "none" and "absolute" in self.cannot,
            f"{both}: {self.why('absolute')}",
        )
        yield (
            self.absolute_positions != 512 and self.absolute != "learned",
            f"position.absolute_positions={self.absolute_positions} is of position.absolute=learned, and "
            f"it is {self.absolute}: set both or neither",
        )

    @classmethod
    def can(cls, capability: Capability) -> bool:
        return capability not in cls.cannot

    @classmethod
    def why(cls, capability: Capability) -> str:
        """Return the reason why it cannot do something; nothing if it can."""
        return cls.cannot.get(capability, "").format(kind=getattr(cls, "kind", ""))

    @property
    def name(self) -> str:
        """Its name in reports: its kind, and the kind of the absolute part."""
        return self.kind if self.absolute == "none" else f"{self.kind}+{self.absolute}"

    @property
    def absolute_part(self) -> Learned | Sinusoidal | None:
        """The additional absolute encoding."""
        if self.absolute == "learned":
            return Learned(max_positions=self.absolute_positions)
        return Sinusoidal() if self.absolute == "sinusoidal" else None

    @property
    def longest(self) -> int | None:
        """Positions that it was given vectors for; None: it reads any number."""
        return self.absolute_positions if self.absolute == "learned" else None

    @property
    def begins_with_cls(self) -> bool:
        """True if it takes the token at position 0 for [CLS]."""
        return False

    def rotated_dims(self, size: int) -> int:
        """Return how many of the `size` dimensions of a query or key it rotates."""
        return 0

    def model_rules(self, shape: Shape) -> Rules:
        """Yield what the sizes of a model must be for it."""
        yield from ()

    def refusals(self, shape: Shape) -> Rules:
        """Yield what it cannot do for a model, and what is wrong with the model's sizes."""
        encoder: tuple[Capability, ...] = () if shape.causal else ("bidirectional",)
        decoder: tuple[Capability, ...] = ("causal", "cached") if shape.decodes else ()
        for capability in encoder + decoder:
            yield not self.can(capability), f"model/position={self.kind} {self.why(capability)}"
        yield from self.model_rules(shape)
        if (part := self.absolute_part) is not None:
            yield from part.model_rules(shape)

    def length_rules(self, length: int, key: str) -> Rules:
        """Yield that `length` tokens, set by `key`, have no more positions than it has."""
        table = "absolute_positions" if self.absolute == "learned" else "max_positions"
        yield (
            self.longest is not None and length > self.longest,
            f"{key} is beyond the learned table of model.position.{table}={self.longest}: "
            "raise it (trained weights then get a new table), lower the length, or choose "
            "model/position=rotary, which has no table",
        )


class Rotary(PositionConfig):
    """Rotary position embedding (RoFormer, Eq. 14-16)."""

    exports = ("roformer", "jina_embeddings_v3", "gpt_neox")
    kind: Literal["rotary"] = "rotary"
    base: Base = 10000.0
    """θ_i = base^(-2(i-1)/d), Eq. 15."""
    layout: Literal["interleaved", "half"] = "interleaved"
    """Dimensions of a pair: (0, 1), (2, 3), … (the paper) or (i, i + d/2)."""
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of each head's dimensions that is rotated; the rest carries no position."""
    scaling: Scaling = NoScaling()
    """Beyond the paper."""
    rotate_values: bool = later(False)
    """Rotate the values as well (`rotary_value` of transformers' RoFormer); the paper does not."""

    def rotated_dims(self, size: int) -> int:
        return round(size * self.fraction)

    def model_rules(self, shape: Shape) -> Rules:
        rotated = self.rotated_dims(shape.rotated_size)
        given = f"position.fraction={self.fraction} of {shape.rotated_size} dimensions"
        yield rotated == 0, f"{given} rotates nothing: raise it, or choose model/position=none"
        size = "attention.features" if shape.features else "hidden_size, heads"
        yield (
            rotated % 2,
            f"rotary positions rotate pairs, but {given} is {rotated}: change {size} or "
            "position.fraction so that it is even",
        )
        yield (
            rotated < 4 and self.scaling.kind in ("ntk", "dynamic_ntk"),
            f"position.scaling.kind={self.scaling.kind} spreads the factor over the pairs of a head and "
            "needs two of them: choose larger heads, or position.scaling.kind=linear",
        )
        yield (
            self.rotate_values and (shape.attention != "softmax" or self.scaling.kind == "yarn"),
            "position.rotate_values=true needs model/attention=softmax, and a scaling other than yarn, "
            "which would lengthen the values",
        )
        yield (
            shape.decodes and self.scaling.kind == "dynamic_ntk",
            "position.scaling.kind=dynamic_ntk rotates all keys anew as a text grows, but the decoder "
            "keeps its keys: choose ntk, yarn or linear",
        )
        yield (
            shape.features and self.scaling.kind == "yarn",
            "position.scaling.kind=yarn sharpens the softmax by longer queries and keys, but after a "
            "feature map longer ones scale the output: choose ntk or linear",
        )


class Learned(PositionConfig):
    """One trained vector per absolute position, added to the embeddings (BERT)."""

    cannot: ClassVar[Mapping[Capability, str]] = {
        "longer": "has no vectors beyond its table",
        "absolute": "it is absolute itself: choose rotary or another relative encoding",
    }
    exports = ("bert", "gpt2")
    kind: Literal["learned"] = "learned"
    max_positions: PositiveInt = 512

    @property
    def longest(self) -> int:
        return self.max_positions


class Sinusoidal(PositionConfig):
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    cannot: ClassVar[Mapping[Capability, str]] = {
        "absolute": "it is absolute itself: choose rotary or another relative encoding"
    }
    exports = ("bert", "gpt2", "marian", "pegasus")
    kind: Literal["sinusoidal"] = "sinusoidal"
    base: Base = 10000.0
    scale: PositiveFloat | None = None
    """Amplitude; null: the model's own, √2·init_std in an encoder (the root mean square that a
    learned table starts with), 1 in an encoder-decoder (Vaswani et al.)."""

    def model_rules(self, shape: Shape) -> Rules:
        size = shape.embedding_width
        yield size % 2, f"sinusoidal positions need embeddings of an even size, not {size}"


class Shaw(PositionConfig):
    """Trained relative representations on keys and values, for each layer (Shaw et al. 2018, Eq. 3-5)."""

    cannot = SOFTMAX_ALONE
    kind: Literal["shaw"] = "shaw"
    clip: PositiveInt = 16
    """k: distances beyond it count as k. 16 in the paper's base model, 8 in its big one."""
    values: bool = True
    """Also add the representations to the values (Eq. 3), not only to the keys (Eq. 4)."""
    per_head: bool = later(False)
    """Representations of each head, as in the paper's base model, or shared by the heads, as in its big
    one."""


class T5Bias(PositionConfig):
    """A trained bias per head and bucketed distance (Raffel et al. 2020, section 2.1)."""

    cannot = SOFTMAX_ALONE
    kind: Literal["t5"] = "t5"
    buckets: Annotated[int, Field(ge=4, multiple_of=2)] = 32
    max_distance: PositiveInt = 128

    def model_rules(self, shape: Shape) -> Rules:
        yield too_near(self, shape)


def too_near(position: T5Bias | Tupe, shape: Shape) -> tuple[bool, str]:
    """Return the rule that T5's logarithmic buckets have distances to hold."""
    share, exact = ("half", 2) if shape.decodes else ("a quarter", 4)
    return position.max_distance <= position.buckets // exact, (
        f"position.max_distance={position.max_distance} must be above {share} of "
        f"position.buckets={position.buckets}, where the logarithmic buckets start"
    )


class Alibi(PositionConfig):
    """A fixed linear penalty on the distance (Press et al. 2022); symmetric, for encoders."""

    cannot = SOFTMAX_ALONE
    kind: Literal["alibi"] = "alibi"


class TransformerXL(PositionConfig):
    """Content and position terms with two global biases (Dai et al. 2019, section 3.3)."""

    cannot = SOFTMAX_ALONE
    kind: Literal["transformer_xl"] = "transformer_xl"
    base: Base = 10000.0
    """Of the sinusoidal vectors of the distances."""

    def model_rules(self, shape: Shape) -> Rules:
        size = shape.hidden_size
        yield size % 2, f"sinusoidal vectors of distances need an even hidden_size, not {size}"


class Tupe(PositionConfig):
    """Absolute positions correlated apart from the content, and a T5 bias (Ke et al. 2021)."""

    cannot: ClassVar[Mapping[Capability, str]] = {
        "longer": "has no vectors beyond its table",
        "linear": NO_LOGITS,
        "absolute": "it keeps positions out of the embeddings on purpose: choose t5, its relative part",
    }
    kind: Literal["tupe"] = "tupe"
    max_positions: PositiveInt = 512
    relative: bool = True
    """The paper's TUPE-R, with the bias of T5; false is its TUPE-A."""
    buckets: Annotated[int, Field(ge=4, multiple_of=2)] = 32
    max_distance: PositiveInt = 128
    untie_cls: bool = True
    """One trained number per head for [CLS], the token at position 0, as a query, and one for it as a
    key, in place of its correlations."""

    @property
    def longest(self) -> int:
        return self.max_positions

    @property
    def begins_with_cls(self) -> bool:
        return self.untie_cls

    def model_rules(self, shape: Shape) -> Rules:
        yield too_near(self, shape)
        yield (
            shape.decodes and self.untie_cls,
            "model/position=tupe unties [CLS], which no decoder has: set model.position.untie_cls=false",
        )


class Deberta(PositionConfig):
    """Content to position and position to content (He et al. 2021, section 3.1)."""

    cannot = SOFTMAX_ALONE
    kind: Literal["deberta"] = "deberta"
    max_distance: Annotated[int, Field(ge=2)] = 512
    """k: distances beyond it count as the farthest."""
    buckets: Annotated[int, Field(ge=4, multiple_of=2)] | None = None
    """Logarithmic buckets on either side, as in the second version, which has 256; null: every distance
    has its own vector."""
    mirrored: bool = False
    """Take the position of a query from its key with the other sign, δ(m, n), as the authors' code
    does; the paper has δ(n, m)."""

    @property
    def span(self) -> int:
        """Half of the vectors: keys on one side."""
        return self.buckets or self.max_distance

    def rules(self) -> Rules:
        yield from super().rules()
        yield (
            self.buckets is not None and self.max_distance - 1 <= self.buckets // 2,
            f"position.max_distance={self.max_distance} must be above half of "
            f"position.buckets={self.buckets} by more than 1, where the logarithmic buckets start",
        )


class Nezha(PositionConfig):
    """Fixed sinusoidal representations of the distance on keys and values (Wei et al. 2019)."""

    cannot = SOFTMAX_ALONE
    kind: Literal["nezha"] = "nezha"
    base: Base = 10000.0

    def model_rules(self, shape: Shape) -> Rules:
        yield odd_head(self, shape)


class Xpos(PositionConfig):
    """Rotary positions that decay with the distance (Sun et al. 2022); beyond the paper."""

    cannot: ClassVar[Mapping[Capability, str]] = {
        "bidirectional": "fades keys before the query and lets keys after it grow without bound, so it "
        "is only for causal models: choose rotary, or a causal model (make clm)",
        "linear": "scales keys by ζ^(-n), and sums of such keys, unlike their products with queries, "
        "outgrow fp32: choose rotary",
    }
    kind: Literal["xpos"] = "xpos"
    base: Base = 10000.0
    gamma: PositiveFloat = 0.4
    """γ: the slowest pairs fade the least, and the more so the larger it is."""
    scale_base: PositiveFloat = 512.0
    """Distance at which pair i has faded by (i/(d/2) + γ)/(1 + γ)."""

    def model_rules(self, shape: Shape) -> Rules:
        yield odd_head(self, shape)


def odd_head(position: Nezha | Xpos, shape: Shape) -> tuple[object, str]:
    """Return the rule that dimensions come in pairs."""
    return shape.head_dim % 2, (
        f"{position.kind} positions turn pairs of dimensions, but heads have {shape.head_dim}: change "
        "hidden_size or heads so that it is even"
    )


class Fire(PositionConfig):
    """A learned function of the distance over the query's position (Li et al. 2023); beyond the paper."""

    cannot = SOFTMAX_ALONE
    kind: Literal["fire"] = "fire"
    width: PositiveInt = 32
    """Of the hidden layer of the function."""
    threshold: PositiveFloat = 512.0
    """L at the start of training: up to this position distances are relative to L itself."""


class Kerple(PositionConfig):
    """A trained kernel of the distance (Chi et al. 2022); beyond the paper."""

    cannot = SOFTMAX_ALONE
    kind: Literal["kerple"] = "kerple"
    form: Literal["log", "power"] = "log"
    """-r_1 log(1 + r_2|m - n|), or -r_1|m - n|^r_2."""


class NoPosition(PositionConfig):
    """No position information at all: the control."""

    cannot: ClassVar[Mapping[Capability, str]] = {
        "absolute": "choose model/position=learned or sinusoidal"
    }
    exports = ("bert", "gpt2")
    kind: Literal["none"] = "none"
