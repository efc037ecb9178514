"""Content and position terms with two global biases (Transformer-XL; Dai et al. 2019, section 3.3).

    A_mn = q_m·k_n + q_m·W r_(m-n) + u·k_n + v·W r_(m-n),  over √H
            (a)        (b)             (c)     (d)

r is sinusoidal and fixed, W each layer's own; u and v are the same at every position and layer.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from roformer.config import position as encodings
from roformer.config.schema import TransformerConfig
from roformer.nn.position.absolute import sinusoids
from roformer.nn.position.base import LayeredEncoding, PositionEncoding, Positions, encodes, pairs


@encodes(encodings.TransformerXL)
class TransformerXLPosition(LayeredEncoding):
    """The global biases, and W of each layer."""

    def __init__(self, config: encodings.TransformerXL, model: TransformerConfig):
        super().__init__(config, model, partial(TransformerXLLayer, shared=self))
        self.content_bias = nn.Parameter(torch.empty(model.heads, model.head_dim))  # u
        self.position_bias = nn.Parameter(torch.empty(model.heads, model.head_dim))  # v


class TransformerXLLayer(PositionEncoding):
    """One layer: terms (b), (c) and (d); (a) is the attention's own."""

    def __init__(
        self,
        config: encodings.TransformerXL,
        model: TransformerConfig,
        shared: TransformerXLPosition,
    ):
        super().__init__(config, model)
        self.base = config.base
        self.projection = nn.Parameter(torch.empty(model.hidden_size, model.hidden_size))  # Wᵀ
        self._shared = (shared,)  # in a tuple, so that its parameters are not this layer's too

    def prepare(self, positions: Positions) -> None:
        self._sines(positions, positions)

    def bias(self, q: Tensor, k: Tensor, q_positions: Positions, k_positions: Positions) -> Tensor:
        (shared,) = self._shared
        found = pairs(q_positions, k_positions)
        scale = q.shape[-1] ** -0.5
        table = self._sines(q_positions, k_positions)
        queries = (q + shared.position_bias[:, None].to(q.dtype)) * scale
        by_content = k @ (shared.content_bias[..., None].to(k.dtype) * scale)
        return found.projected(queries, table, self.projection) + by_content.mT

    def _sines(self, q: Positions, k: Positions) -> Tensor:
        """Return r of every distance, (L, D)."""

        def build() -> Tensor:
            return sinusoids(-pairs(q, k).distances, len(self.projection), self.base)

        return q.derive(("transformer_xl", k is q), build)
