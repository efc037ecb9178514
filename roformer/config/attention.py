"""Configurations of the attention kernels; their code is in `roformer.nn.attention`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from roformer.config.typed import Config


class SoftmaxAttention(Config):
    """Scaled dot-product attention (Vaswani et al. 2017, Eq. 1)."""

    linear: ClassVar[bool] = False
    rotates_features: ClassVar[bool] = False
    kind: Literal["softmax"] = "softmax"


class LinearAttention(Config):
    """Attention whose cost grows with the length, not its square (RoFormer, Eq. 17).

    exp(q·k/√d) becomes φ(q)·φ(k), so that keys and values are summed up once for all queries.
    """

    linear: ClassVar[bool] = True
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

    @property
    def rotates_features(self) -> bool:
        """True if rotary positions rotate features, not heads."""
        return self.rope_position == "post"


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
