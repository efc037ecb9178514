"""Weights to and from `transformers`' Marian models: the same encoder-decoder with sinusoidal positions.

Theirs keeps query, key and value apart, and has all sines in the first half of the dimensions and
all cosines in the second, where Vaswani et al. interleave them. Hidden dimensions have no order, so
theirs is ours with the hidden dimensions permuted, in every weight that reads or writes them.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from roformer.config.position import Sinusoidal
from roformer.config.schema import SoftmaxAttention
from roformer.config.wmt import Seq2SeqConfig
from roformer.errors import InputError

# Ours → theirs (several: the fused projection cut into equal parts), and the axis of the hidden
# dimensions in weights of two axes.
LAYER: dict[str, tuple[tuple[str, ...], int]] = {
    "attention.projection": (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), 1),
    "attention.output": (("self_attn.out_proj",), 0),
    "attention_residual.norm": (("self_attn_layer_norm",), 0),
    "cross_attention.query": (("encoder_attn.q_proj",), 1),
    "cross_attention.memory": (("encoder_attn.k_proj", "encoder_attn.v_proj"), 1),
    "cross_attention.output": (("encoder_attn.out_proj",), 0),
    "cross_attention_residual.norm": (("encoder_attn_layer_norm",), 0),
    "feed_forward.inner": (("fc1",), 1),
    "feed_forward.outer": (("fc2",), 0),
    "feed_forward_residual.norm": (("final_layer_norm",), 0),
}


def seq2seq_config(config: Any) -> Seq2SeqConfig:
    """Return the encoder-decoder that a `transformers` Marian config describes.

    Raises:
        InputError: a variant that this encoder-decoder does not have.
    """
    needed = {
        "model_type": "marian",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "encoder_ffn_dim": config.decoder_ffn_dim,
        "encoder_attention_heads": config.decoder_attention_heads,
        "activation_dropout": 0.0,
    }
    for key, value in needed.items():
        if getattr(config, key) != value:
            raise InputError(
                f"a Marian model with {key}={getattr(config, key)} cannot be read: this "
                f"encoder-decoder has {value}"
            )
    if config.activation_function not in ("relu", "gelu"):
        raise InputError(
            f"a Marian model with activation_function={config.activation_function} cannot be read: "
            "this encoder-decoder has relu and gelu"
        )
    return Seq2SeqConfig(
        name="marian",
        size=f"{config.encoder_layers}x{config.d_model}",
        layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        hidden_size=config.d_model,
        heads=config.encoder_attention_heads,
        intermediate_size=config.encoder_ffn_dim,
        norm="post",
        activation=config.activation_function,
        hidden_dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        position=Sinusoidal(),
        attention=SoftmaxAttention(),
    )


def from_marian(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state dict of our `Seq2Seq` for that of a `MarianMTModel`.

    Raises:
        InputError: a `final_logits_bias` that is not zero; ours has none.
    """
    bias = state.get("final_logits_bias")
    if bias is not None and bool((bias != 0).any()):
        raise InputError("a Marian model with a final_logits_bias cannot be read: ours has none")
    shared = state["model.shared.weight"]
    order = to_halves(shared.shape[1]).argsort().to(shared.device)
    ours = {"tokens.weight": shared[:, order]}
    for side, layer in _layers(state):
        prefix = f"model.{side}.layers.{layer}."
        for name, (theirs, axis) in LAYER.items():
            if prefix + theirs[0] + ".weight" not in state:  # an encoder's cross-attention
                continue
            for kind in ("weight", "bias"):
                parts = [
                    _permute(state[f"{prefix}{their}.{kind}"], axis, order) for their in theirs
                ]
                ours[f"{side}.{layer}.{name}.{kind}"] = torch.cat(parts)
    return ours


def to_marian(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state dict of a `MarianMTModel` for that of our post-norm, sinusoidal `Seq2Seq`.

    Tied matrices, tables and the zero bias are left out: load it with `strict=False`.
    """
    shared = state["tokens.weight"]
    order = to_halves(shared.shape[1]).to(shared.device)
    theirs = {"model.shared.weight": shared[:, order]}
    for name, tensor in state.items():
        match = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)\.(weight|bias)", name)
        if match is None:
            continue
        side, layer, part, kind = match.groups()
        names, axis = LAYER[part]
        for their, piece in zip(names, tensor.chunk(len(names)), strict=True):
            key = f"model.{side}.layers.{layer}.{their}.{kind}"
            theirs[key] = _permute(piece, axis, order)
    return theirs


def to_halves(size: int) -> Tensor:
    """Return the interleaved dimension that stands at each of theirs: 0, 2, 4, …, 1, 3, 5, …"""
    return torch.arange(size).view(-1, 2).T.reshape(-1)


def _permute(tensor: Tensor, axis: int, order: Tensor) -> Tensor:
    """Permute the hidden dimensions: of a matrix along `axis`; of a vector where it is of them."""
    if tensor.ndim == 2:
        return tensor.index_select(axis, order)
    return tensor[order] if axis == 0 else tensor


def _layers(state: dict[str, Tensor]) -> list[tuple[str, int]]:
    found = (re.match(r"model\.(encoder|decoder)\.layers\.(\d+)\.", name) for name in state)
    return sorted({(match[1], int(match[2])) for match in found if match})
