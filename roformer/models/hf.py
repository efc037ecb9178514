"""Weights to and from `transformers`' bert and roformer models, and between rotary layouts.

Both are the same encoder here; theirs keep query, key and value apart and name things differently.
Older checkpoints name them differently again: `clean_state` gives all of them today's names.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from roformer.config.attention import SoftmaxAttention
from roformer.config.position import Learned, Position, Rotary
from roformer.config.schema import EncoderConfig
from roformer.errors import InputError
from roformer.nn.rotary import Layout, rotary_table

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
WRAPPERS = ("module.", "_orig_mod.", "bert.", "roformer.")
"""What older checkpoints put before a name, none or several of them."""
BODY = ("embeddings.", "embeddings_project.", "encoder.", "pooler.")
"""The parts of a model without a head, whose names begin with its type."""
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
ROTARY_TABLE = "encoder.embed_positions.weight"
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Stored copy → what it is a copy of."""
ROFORMER_CLASSIFIER = {
    f"{ours}.{kind}": [f"classifier.{theirs}.{kind}"]
    for ours, theirs in (("pooler", "dense"), ("classifier", "out_proj"))
    for kind in ("weight", "bias")
}
"""RoFormerForSequenceClassification's head: BERT's but for its names and activation."""


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


def clean_state(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return their weights in fp32 under today's names, without what is made from other weights.

    Undone are: `gamma` and `beta` for a norm's weight and bias; missing and additional prefixes; stored
    position tables and ids; copies of tied weights. A copy that differs is kept under its name.

    Args:
        state: as stored.
        prefix: `bert` or `roformer`, which the names of the result begin with.

    Raises:
        InputError: two different weights of one name, a weight that is no floating-point number, or
            a position table that is not RoFormer's.
    """
    plain: dict[str, Tensor] = {}
    for stored, tensor in state.items():
        name = plain_name(stored)
        if name in BUFFERS:
            continue
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InputError(f"{stored} is {kind}: quantised weights cannot be read")
        tensor = tensor.float()
        if name in plain and not torch.equal(plain[name], tensor):
            raise InputError(f"there are two different weights for {name}, one of them {stored}")
        plain[name] = tensor
    if (table := plain.pop(ROTARY_TABLE, None)) is not None and not _is_rotary(table):
        raise InputError(f"{ROTARY_TABLE} is not RoFormer's table (base 10000): it cannot be read")
    for copy, original in TIED.items():
        if copy in plain and torch.equal(plain.setdefault(original, plain[copy]), plain[copy]):
            del plain[copy]
    return {f"{prefix}.{n}" if n.startswith(BODY) else n: t for n, t in plain.items()}


def plain_name(name: str) -> str:
    """Return a stored name without prefixes and with today's name for a norm's weight and bias."""
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def _is_rotary(table: Tensor) -> bool:
    """Tell whether a stored table holds the sines and, behind them, the cosines of Eq. 15."""
    if table.ndim != 2 or table.shape[1] % 2:
        return False
    made = rotary_table(torch.arange(table.shape[0]), table.shape[1])
    expected = torch.cat((made.sin, made.cos), dim=1)
    return torch.allclose(table, expected, rtol=0, atol=1e-2)  # it may have been stored in bf16


def is_second_version(state: dict[str, Tensor]) -> bool:
    """Tell whether stored weights are RoFormerV2's: layers without any bias or norm weight."""
    layers = [name for name in map(plain_name, state) if name.startswith("encoder.layer.")]
    ends = (".bias", "LayerNorm.weight")
    return bool(layers) and not any(name.endswith(ends) for name in layers)


def from_transformers(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the state dict of ours for theirs: the encoder, and the heads that are there.

    Theirs may be a model without a head, for masked tokens or for sequence classification.

    Args:
        state: theirs; derived tables (`embed_positions`, `position_ids`) and the copy of the tied
            output matrix are left out.
        prefix: `bert` or `roformer`.
    """
    return fused(state, sources(state, prefix))


def sources(state: dict[str, Tensor], prefix: str) -> dict[str, list[str]]:
    """Return, for each of our parameters that their state dict fills, the names it is made of."""
    found = {name: their_names(name, prefix) for name in our_names(state, prefix)}
    return found | (ROFORMER_CLASSIFIER if has_roformer_classifier(state, prefix) else {})


def fused(state: dict[str, Tensor], names: dict[str, list[str]]) -> dict[str, Tensor]:
    """Return our parameters, each made of the weights that `names` lists for it."""
    return {
        ours: torch.cat([state[t] for t in theirs]) if len(theirs) > 1 else state[theirs[0]]
        for ours, theirs in names.items()
    }


def has_roformer_classifier(state: dict[str, Tensor], prefix: str) -> bool:
    """Tell whether a head is that of `RoFormerForSequenceClassification`."""
    names = [theirs[0] for theirs in ROFORMER_CLASSIFIER.values()]
    return prefix == "roformer" and all(name in state for name in names)


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


def convert_state_layout(
    state: dict[str, Tensor], heads: int, to: Layout, *, rotary_dim: int
) -> dict[str, Tensor]:
    """Return a state dict of ours whose queries and keys are in the other rotary layout.

    It computes the same where `model.position.layout` says so; converting back restores every bit.

    Args:
        state: of an encoder, with or without a head, or of an encoder-decoder; every
            `attention.projection` holds query, key and value.
        heads: number of heads.
        to: the layout wanted; the weights are in the other one.
        rotary_dim: R, the rotated rows of each head.
    """
    converted = dict(state)
    for name, tensor in state.items():
        if re.search(r"(^|\.)attention\.projection\.(weight|bias)$", name):
            query, key, value = tensor.chunk(3)
            turned = [convert_layout(t, heads, to, rotary_dim=rotary_dim) for t in (query, key)]
            converted[name] = torch.cat((*turned, value))
    return converted
