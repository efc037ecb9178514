"""Configurations of the attention kernels; their code is in `roformer.nn.attention`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from roformer.config.position import PositionConfig
from roformer.config.typed import Config, Rules


class SoftmaxAttention(Config):
    """Scaled dot-product attention (Vaswani et al. 2017, Eq. 1)."""

    masks_queries: ClassVar[bool] = True
    """True if every query can have its own mask."""
    kind: Literal["softmax"] = "softmax"

    def rotated_size(self, head_dim: int) -> int:
        """Return the size of the vectors that rotary positions turn: whole heads."""
        return head_dim

    def model_rules(self, position: PositionConfig, head_dim: int, dropout: float) -> Rules:
        """Yield the rules for the position encoding, heads and attention dropout of its model."""
        yield from ()


class LinearAttention(Config):
    """Attention whose cost grows with the length, not its square (RoFormer, Eq. 17).

    exp(q·k/√d) becomes φ(q)·φ(k), so that keys and values are summed up once for all queries.
    """

    masks_queries: ClassVar[bool] = False
    rope_position: Literal["post", "pre"] = "post"
    """Rotate φ(q) and φ(k), only in the numerator (`post`, RoFormer, Eq. 19), or q and k before the
    map (`pre`, performer-pytorch, which the paper cites)."""
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

    def model_rules(self, position: PositionConfig, head_dim: int, dropout: float) -> Rules:
        """Yield the rules for its model: there are no logits to add to, and no weights to drop."""
        kind = getattr(self, "kind", "")
        yield not position.can("linear"), f"model/attention={kind} {position.why('linear')}"
        yield (
            dropout > 0,
            f"model/attention={kind} has no probabilities to drop: set model.attention_dropout=0, not "
            f"{dropout}",
        )
        if self.rope_position == "post":
            yield from position.feature_rules(kind, self.feature_size(head_dim))


class PerformerAttention(LinearAttention):
    """FAVOR+: positive random features of the softmax kernel (Choromanski et al. 2021)."""

    kind: Literal["performer"] = "performer"
    features: PositiveInt = 266
    """M, random features per head; performer-pytorch's ⌊d ln d⌋ for heads of 64. Even where
    rotary positions rotate the features (`post`)."""
    orthogonal: bool = True
    """Random vectors orthogonal in groups of a head's size (section 3.1), or independent."""
    redraw_interval: PositiveInt | None = 1000
    """Steps after which new random vectors are drawn; null keeps the initial ones."""
    feature_eps: PositiveFloat = 1e-4
    """Added to every exponential, so that no feature is zero."""

    def feature_size(self, head_dim: int) -> int:
        return self.features


class EluAttention(LinearAttention):
    """φ(x) = elu(x) + 1 (Katharopoulos et al. 2020, Eq. 7)."""

    kind: Literal["elu"] = "elu"


Attention = Annotated[
    SoftmaxAttention | PerformerAttention | EluAttention, Field(discriminator="kind")
]
