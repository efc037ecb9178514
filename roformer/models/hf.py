"""Weights to and from `transformers`' bert and roformer models, and between rotary layouts.

Both are the same encoder here; theirs keep query, key and value apart and name things differently.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from roformer.config.position import Learned, Position, Rotary
from roformer.config.schema import EncoderConfig, SoftmaxAttention
from roformer.errors import InputError
from roformer.nn.rotary import Layout

MASKED_LM = {
    "transform.": "cls.predictions.transform.dense.",
    "norm.": "cls.predictions.transform.LayerNorm.",
    "bias": "cls.predictions.bias",
}
CLASSIFIER = {"pooler.": "{prefix}.pooler.dense.", "classifier.": "classifier."}
HEADS = MASKED_LM | CLASSIFIER
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


def encoder_config(config: Any) -> EncoderConfig:
    """Return the encoder that a `transformers` config of type bert or roformer describes.

    Raises:
        InputError: another type of model, or a variant that this encoder does not have.
    """
    if config.model_type not in ("bert", "roformer"):
        raise InputError(
            f"a model of type {config.model_type} cannot be read: choose one of type bert or roformer"
        )
    position: Position = Rotary()
    if config.model_type == "bert":
        position = Learned(max_positions=config.max_position_embeddings)
    needed = {
        "hidden_act": "gelu",
        "embedding_size": config.hidden_size,
        "rotary_value": False,
        "position_embedding_type": "absolute",
        "is_decoder": False,
    }
    for key, value in needed.items():
        if getattr(config, key, value) != value:
            raise InputError(
                f"a {config.model_type} model with {key}={getattr(config, key)} cannot be read: "
                f"this encoder has {value}"
            )
    return EncoderConfig(
        name=config.model_type,
        size=f"{config.num_hidden_layers}x{config.hidden_size}",
        layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        hidden_dropout=config.hidden_dropout_prob,
        attention_dropout=config.attention_probs_dropout_prob,
        token_types=config.type_vocab_size,
        layer_norm_eps=config.layer_norm_eps,
        init_std=config.initializer_range,
        position=position,
        attention=SoftmaxAttention(),
    )


def from_transformers(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the state dict of ours for theirs: the encoder, and the heads that are there.

    Theirs may be a `BertForMaskedLM`, a `RoFormerForMaskedLM` or a `BertForSequenceClassification`.

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
    """Return the state dict of theirs for ours; the inverse of `from_transformers`.

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
    for ours, theirs in HEADS.items():
        if name.startswith(ours):
            return [theirs.format(prefix=prefix) + name.removeprefix(ours)]
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
    heads = [f"{part}{kind}" for part in HEADS if part != "bias" for kind in ("weight", "bias")]
    names = [name for name in (*heads, "bias") if their_names(name, prefix)[0] in state]
    names += ["encoder.tokens.weight", "encoder.token_types.weight"]
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
