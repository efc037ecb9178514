"""Weights to and from `transformers`' bert and roformer models, and between rotary layouts.

Both are the same encoder here; theirs keep query, key and value apart and name things differently.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from roformer.nn.rotary import Layout

HEAD = {
    "transform.": "cls.predictions.transform.dense.",
    "norm.": "cls.predictions.transform.LayerNorm.",
    "bias": "cls.predictions.bias",
}
ENCODER = {
    "tokens.weight": "embeddings.word_embeddings.weight",
    "token_types.weight": "embeddings.token_type_embeddings.weight",
    "embedding_norm.": "embeddings.LayerNorm.",
    "position.table": "embeddings.position_embeddings.weight",
}
BLOCK = {
    "attention.output.": "attention.output.dense.",
    "attention_residual.norm.": "attention.output.LayerNorm.",
    "feed_forward.inner.": "intermediate.dense.",
    "feed_forward.outer.": "output.dense.",
    "feed_forward_residual.norm.": "output.LayerNorm.",
}
PROJECTIONS = ("query", "key", "value")


def from_transformers(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the state dict of `MaskedLM` for a `BertForMaskedLM` or `RoFormerForMaskedLM`.

    Args:
        state: theirs; derived tables (`embed_positions`, `position_ids`) and the copy of the tied
            output matrix are left out.
        prefix: `bert` or `roformer`.
    """
    ours: dict[str, Tensor] = {}
    for name in our_names(state, prefix):
        their = their_names(name, prefix)
        ours[name] = torch.cat([state[t] for t in their]) if len(their) > 1 else state[their[0]]
    return ours


def to_transformers(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the state dict of a `BertForMaskedLM` or `RoFormerForMaskedLM`; the inverse.

    Theirs rotates whole heads in interleaved pairs with base 10000 and cannot be told otherwise:
    convert half-split projections with `convert_layout` first.

    The output matrix is tied and left out; `load_state_dict(..., strict=False)` then reports it and
    tables that they derive as missing.
    """
    theirs: dict[str, Tensor] = {}
    for name, tensor in state.items():
        their = their_names(name, prefix)
        theirs.update(zip(their, tensor.chunk(len(their)), strict=True))
    return theirs


def their_names(name: str, prefix: str) -> list[str]:
    """Return what `transformers` calls one of our parameters: three for the fused projection."""
    for ours, theirs in HEAD.items():
        if name.startswith(ours):
            return [theirs + name.removeprefix(ours)]
    name = name.removeprefix("encoder.")
    for ours, theirs in ENCODER.items():
        if name.startswith(ours):
            return [f"{prefix}.{theirs}{name.removeprefix(ours)}"]
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if match is not None:
        layer, part = f"{prefix}.encoder.layer.{match[1]}.", match[2]
        if part.startswith("attention.projection."):
            kind = part.rpartition(".")[2]
            return [f"{layer}attention.self.{which}.{kind}" for which in PROJECTIONS]
        for ours, theirs in BLOCK.items():
            if part.startswith(ours):
                return [layer + theirs + part.removeprefix(ours)]
    raise ValueError(f"{name} has no counterpart in transformers' {prefix} models")


def our_names(state: dict[str, Tensor], prefix: str) -> list[str]:
    """Return the names of our parameters that their state dict fills."""
    layers = {int(m[1]) for k in state if (m := re.match(rf"{prefix}\.encoder\.layer\.(\d+)\.", k))}
    names = [f"{part}{kind}" for part in ("transform.", "norm.") for kind in ("weight", "bias")]
    names += ["bias", "encoder.tokens.weight", "encoder.token_types.weight"]
    names += ["encoder.embedding_norm.weight", "encoder.embedding_norm.bias"]
    if f"{prefix}.embeddings.position_embeddings.weight" in state:
        names.append("encoder.position.table")
    for layer in sorted(layers):
        for part in ("attention.projection.", *BLOCK):
            names += [f"encoder.blocks.{layer}.{part}{kind}" for kind in ("weight", "bias")]
    return names


def convert_layout(projection: Tensor, heads: int, to: Layout, *, rotary_dim: int) -> Tensor:
    """Permute the rows of a query or key projection so that the other rotary layout gives the same.

    Interleaved pairs are rows (0, 1), (2, 3), … of a head; half-split pairs are rows (i, i + R/2).

    Args:
        projection: weight (heads·H, D) or bias (heads·H,) of the query or of the key.
        heads: number of heads.
        to: the layout wanted; the projection is in the other one.
        rotary_dim: R, the rotated rows of each head; the rest stays.

    Returns:
        The permuted tensor; converting back restores it bit by bit.
    """
    by_head = projection.unflatten(0, (heads, -1))
    pairs = torch.arange(rotary_dim).view(-1, 2).T.reshape(-1)  # 0, 2, 4, …, 1, 3, 5, …
    order = pairs if to == "half" else pairs.argsort()
    rest = torch.arange(rotary_dim, by_head.shape[1])
    return by_head[:, torch.cat((order, rest)).to(projection.device)].flatten(0, 1)
