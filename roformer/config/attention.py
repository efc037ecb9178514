"""The attention kernels that a model can be given; their code is in `roformer.nn.attention`."""

from __future__ import annotations

from typing import Literal

from roformer.config.typed import schema


@schema
class SoftmaxAttention:
    """Scaled dot-product attention (Vaswani et al. 2017, Eq. 1)."""

    kind: Literal["softmax"] = "softmax"


Attention = SoftmaxAttention
