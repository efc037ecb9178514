"""Configurations of the attention kernels; their code is in `roformer.nn.attention`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from roformer.config.position import Position
from roformer.config.typed import schema


@schema
class SoftmaxAttention:
    """Scaled dot-product attention (Vaswani et al. 2017, Eq. 1)."""

    kind: Literal["softmax"] = "softmax"

    def rotated_size(self, head_dim: int) -> int:
        """Return the size of the vectors that rotary positions turn: whole heads."""
        return head_dim


@schema
class LinearAttention:
    """Attention whose cost grows with the length, not its square (RoFormer, Eq. 17).

    exp(q·k/√d) becomes φ(q)·φ(k), so that keys and values are summed up once for all queries.
    """

    rope_position: Literal["post", "pre"] = "post"
    """Rotate φ(q) and φ(k), in the numerator alone (`post`, RoFormer, Eq. 19), or q and k before the
    map (`pre`), as performer-pytorch, the code that the paper cites, does."""
    denominator_eps: PositiveFloat = 1e-6
    """Added to the sums of the keys' features in the causal denominator, as in performer-pytorch; what
    the sums are at least in the other form, to which it adds nothing."""
    chunk_length: PositiveInt = 128
    """Tokens that the causal form attends to at once; changes memory and time, not the result."""

    def feature_size(self, head_dim: int) -> int:
        """Return M, how many features the map makes of a head."""
        return head_dim

    def rotated_size(self, head_dim: int) -> int:
        """Return the size of the vectors that rotary positions turn: features, or heads."""
        return self.feature_size(head_dim) if self.rope_position == "post" else head_dim


@schema
class PerformerAttention(LinearAttention):
    """FAVOR+: positive random features of the softmax kernel (Choromanski et al. 2021)."""

    kind: Literal["performer"] = "performer"
    features: PositiveInt = 266
    """M, random features a head; even where rotary positions turn pairs of them. 266 is ⌊d ln d⌋ for
    heads of 64, performer-pytorch's choice."""
    orthogonal: bool = True
    """Random vectors orthogonal in groups of a head's size (section 3.1), or independent."""
    redraw_interval: PositiveInt | None = 1000
    """Updates after which new random vectors are drawn; null keeps those of the start."""
    feature_eps: PositiveFloat = 1e-4
    """Added to every exponential, so that no feature is zero."""

    def feature_size(self, head_dim: int) -> int:
        return self.features


@schema
class EluAttention(LinearAttention):
    """φ(x) = elu(x) + 1 (Katharopoulos et al. 2020, Eq. 7)."""

    kind: Literal["elu"] = "elu"


Attention = Annotated[
    SoftmaxAttention | PerformerAttention | EluAttention, Field(discriminator="kind")
]


def check_attention(
    attention: Attention, position: Position, dropout: float, head_dim: int
) -> None:
    """Raise ValueError where linear attention does not go with positions or dropout.

    It has no logits to add to and no probabilities to drop.
    """
    if not isinstance(attention, LinearAttention):
        return
    kind = attention.kind
    if position.adds_to_logits:
        raise ValueError(
            f"model/attention={kind} has no matrix of logits for model/position={position.kind} to "
            "add to: choose rotary, sinusoidal, learned or none"
        )
    if dropout > 0:
        raise ValueError(
            f"model/attention={kind} has no probabilities to drop: set model.attention_dropout=0, "
            f"not {dropout}"
        )
    if attention.rope_position == "post":
        position.check_features(kind, attention.feature_size(head_dim))


def check_documents(attention: Attention, documents: str) -> None:
    """Raise ValueError where packed documents are to be isolated, which linear attention cannot do."""
    if documents == "isolate" and isinstance(attention, LinearAttention):
        raise ValueError(
            "training.documents=isolate needs a mask for every query, but linear attention sums the "
            "keys up once for all of them: choose training.documents=cross"
        )
