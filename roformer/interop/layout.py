"""Conversion between the layouts of rotary pairs: interleaved (the paper) and half-split."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from roformer.nn.rotary import Layout


def half_order(size: int) -> Tensor:
    """Return the interleaved place of each half-split dimension: 0, 2, 4, …, 1, 3, 5, …"""
    return torch.arange(size).view(-1, 2).T.reshape(-1)


def convert_layout(projection: Tensor, heads: int, to: Layout, *, rotary_dim: int) -> Tensor:
    """Permute the rows of a query or key projection so that the other rotary layout gives the same.

    Interleaved pairs are rows (0, 1), (2, 3), … of a head; half-split pairs are rows (i, i + R/2).
    Converting back restores it bit by bit.

    Args:
        projection: weight (heads·H, D) or bias (heads·H,) of the query or of the key.
        rotary_dim: R, the rotated rows of each head; the rest stays.
    """
    by_head = projection.unflatten(0, (heads, -1))
    order = half_order(rotary_dim) if to == "half" else half_order(rotary_dim).argsort()
    rest = torch.arange(rotary_dim, by_head.shape[1])
    return by_head[:, torch.cat((order, rest)).to(projection.device)].flatten(0, 1)


def convert_state_layout(
    state: Mapping[str, Tensor], heads: int, to: Layout, *, rotary_dim: int, values: bool = False
) -> dict[str, Tensor]:
    """Return a state dict, of any model here, with queries and keys in the other rotary layout.

    It computes the same where `model.position.layout` says so; see `convert_layout`. Where `values` are
    rotated too, they change as the queries, and so do the columns of the output that read them.
    """
    converted = dict(state)
    for name, tensor in state.items():
        if re.search(r"(^|\.)attention\.projection\.(weight|bias)$", name):
            parts = list(tensor.chunk(3))
            for part in range(3 if values else 2):
                parts[part] = convert_layout(parts[part], heads, to, rotary_dim=rotary_dim)
            converted[name] = torch.cat(parts)
        elif values and re.search(r"(^|\.)attention\.output\.weight$", name):
            columns = convert_layout(tensor.T, heads, to, rotary_dim=rotary_dim)
            converted[name] = columns.T.contiguous()
    return converted
