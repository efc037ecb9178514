"""Names and weights of `transformers`' bert and roformer models, and of the encoder here.

Both are the same encoder here; `transformers` keeps query, key and value apart and has other names.
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
from roformer.nn.rotary import rotary_table

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
TIED = {
    "cls.predictions.decoder.weight": "{prefix}.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Parameter → the one that it is tied to."""
ROFORMER_CLASSIFIER = {
    f"{name}.{kind}": [f"classifier.{part}.{kind}"]
    for name, part in (("pooler", "dense"), ("classifier", "out_proj"))
    for kind in ("weight", "bias")
}
"""Head of RoFormerForSequenceClassification: that of BERT with other names and another activation."""


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
    """Return the state dict of a model here for one of `transformers`: the encoder and its heads.

    Args:
        state: of a model without a head, for masked tokens or for sequence classification; computed
            tables (`embed_positions`, `position_ids`) and the tied output matrix are left out.
        prefix: `bert` or `roformer`.
    """
    return fused(state, sources(state, prefix))


def to_transformers(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the state dict of `transformers` for that of a model here; inverse of `from_transformers`.

    `roformer` rotates whole heads in interleaved pairs with base 10000: convert half-split projections
    with `convert_layout` first.

    The output matrix is tied and left out; `load_state_dict(..., strict=False)` then reports it and
    computed tables as missing.
    """
    converted: dict[str, Tensor] = {}
    for name, tensor in state.items():
        parts = transformers_names(name, prefix)
        converted.update(zip(parts, tensor.chunk(len(parts)), strict=True))
    return converted


def sources(state: dict[str, Tensor], prefix: str) -> dict[str, list[str]]:
    """Return, for each parameter here that a state dict of `transformers` fills, the names of its parts."""
    found = {name: transformers_names(name, prefix) for name in _parameters(state, prefix)}
    return found | (ROFORMER_CLASSIFIER if has_roformer_classifier(state, prefix) else {})


def fused(state: dict[str, Tensor], names: dict[str, list[str]]) -> dict[str, Tensor]:
    """Return parameters, each the concatenation of the weights that `names` lists for it."""
    return {
        name: torch.cat([state[part] for part in parts]) if len(parts) > 1 else state[parts[0]]
        for name, parts in names.items()
    }


def has_roformer_classifier(state: dict[str, Tensor], prefix: str) -> bool:
    """Return whether a head is that of `RoFormerForSequenceClassification`."""
    names = [parts[0] for parts in ROFORMER_CLASSIFIER.values()]
    return prefix == "roformer" and all(name in state for name in names)


def transformers_names(name: str, prefix: str) -> list[str]:
    """Return the names in `transformers` of a parameter here: three for the fused projection."""
    for own, other in HEADS.items():
        if name.startswith(own):
            return [other.format(prefix=prefix) + name.removeprefix(own)]
    name = name.removeprefix("encoder.")
    for own, other in ENCODER.items():
        if name.startswith(own):
            return [f"{prefix}.{other}{name.removeprefix(own)}"]
    match = re.fullmatch(r"blocks\.(\d+)\.(.+)", name)
    if match is not None:
        layer, part = f"{prefix}.encoder.layer.{match[1]}.", match[2]
        if part.startswith("attention.projection."):
            kind = part.rpartition(".")[2]
            return [f"{layer}attention.self.{which}.{kind}" for which in PROJECTIONS]
        for own, other in BLOCK.items():
            if part.startswith(own):
                return [layer + other + part.removeprefix(own)]
    raise ValueError(f"{name} has no counterpart in transformers' {prefix} models")


def is_rotary(table: Tensor) -> bool:
    """Return whether a table holds the sines and, behind them, the cosines of Eq. 15 (base 10000)."""
    made = rotary_table(torch.arange(table.shape[0]), table.shape[1])
    expected = torch.cat((made.sin, made.cos), dim=1)
    return torch.allclose(table, expected, rtol=0, atol=1e-2)  # it may have been stored in bf16


def _parameters(state: dict[str, Tensor], prefix: str) -> list[str]:
    """Return the names of parameters here that a state dict of `transformers` fills."""
    layers = {int(m[1]) for k in state if (m := re.match(rf"{prefix}\.encoder\.layer\.(\d+)\.", k))}
    heads = [f"{part}{kind}" for part in HEADS if part != "bias" for kind in ("weight", "bias")]
    names = [name for name in (*heads, "bias") if transformers_names(name, prefix)[0] in state]
    names += ["encoder.tokens.weight", "encoder.token_types.weight"]
    names += ["encoder.embedding_norm.weight", "encoder.embedding_norm.bias"]
    if f"{prefix}.embeddings.position_embeddings.weight" in state:
        names.append("encoder.position.table")
    for layer in sorted(layers):
        for part in ("attention.projection.", *BLOCK):
            names += [f"encoder.blocks.{layer}.{part}{kind}" for kind in ("weight", "bias")]
    return names
