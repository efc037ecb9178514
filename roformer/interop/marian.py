"""Export of encoder-decoders with sinusoidal positions: Marian, or Pegasus, of `transformers`.

Marian has norms after the sublayers; Pegasus, otherwise the same, has them before, and one at the end.

Both keep query, key and value apart, and have all sines in the first half of the dimensions and all
cosines in the second, where Vaswani et al. interleave them. Hidden dimensions have no order, so the
export permutes them, in every weight that reads or writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roformer.config.attention import SoftmaxAttention
from roformer.config.wmt import SearchConfig, Seq2SeqConfig
from roformer.interop.encoder import ExportedModel, NoEquivalent, filled, table_length

# Name here → names there (several: the fused projection cut into equal parts), and the axis of the
# hidden dimensions in weights of two axes.
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


def to_marian(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state dict of a `MarianMTModel` for that of a sinusoidal `Seq2Seq`.

    With norms before the sublayers it is that of a `PegasusForConditionalGeneration`.

    Tied matrices, tables and the zero bias are left out: load it with `strict=False`.
    """
    shared = state["tokens.weight"]
    order = to_halves(shared.shape[1]).to(shared.device)
    converted = {"model.shared.weight": shared[:, order]}
    for name, tensor in state.items():
        if final := re.fullmatch(r"(encoder|decoder)_norm\.(weight|bias)", name):
            converted[f"model.{final[1]}.layer_norm.{final[2]}"] = tensor[order]
        match = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)\.(weight|bias)", name)
        if match is None:
            continue
        side, layer, part, kind = match.groups()
        names, axis = LAYER[part]
        for other, piece in zip(names, tensor.chunk(len(names)), strict=True):
            key = f"model.{side}.layers.{layer}.{other}.{kind}"
            converted[key] = _permute(piece, axis, order)
    return converted


def exported_translation(
    config: Seq2SeqConfig,
    state: Mapping[str, Tensor],
    search: SearchConfig,
    *,
    vocab_size: int,
    pad_id: int,
    end_id: int,
    max_length: int,
) -> ExportedModel:
    """Return the Marian or Pegasus model that computes the same as a trained encoder-decoder.

    Its `generation_config` has the search as far as `generate` has it; the notes say what differs.

    Args:
        config: of the encoder-decoder.
        state: of the `Seq2Seq`.
        search: that of the run.
        vocab_size: V.
        pad_id: of padding, never generated.
        end_id: of the end, which also begins a translation.
        max_length: longest source in tokens, the end not counted.

    Raises:
        NoEquivalent: there is none.
    """
    from transformers import (
        GenerationConfig,
        MarianConfig,
        MarianMTModel,
        PegasusConfig,
        PegasusForConditionalGeneration,
    )

    position = config.position
    if position.kind != "sinusoidal":
        raise NoEquivalent(
            f"marian and pegasus compute sinusoids; this model has {position.kind} positions"
        )
    if position.base != 10000.0 or position.scale not in (None, 1.0):
        raise NoEquivalent(
            "marian and pegasus have sinusoids of base 10000 and amplitude 1; this model's are of "
            f"base {position.base:g} and amplitude {position.scale or 1.0:g}"
        )
    if config.layer_norm_eps != 1e-5:
        raise NoEquivalent(
            f"marian and pegasus have layer_norm_eps=1e-5, this model {config.layer_norm_eps:g}"
        )
    if not isinstance(config.attention, SoftmaxAttention):
        raise NoEquivalent(f"marian and pegasus have no {config.attention.kind} attention")
    longest = int((max_length + 1) * search.max_length_ratio) + search.max_length_extra
    positions = table_length(max(max_length + 1, longest + 1))
    post = config.norm == "post"
    config_class: Any = MarianConfig if post else PegasusConfig
    settings = config_class(
        vocab_size=vocab_size,
        d_model=config.hidden_size,
        encoder_layers=config.layers,
        decoder_layers=config.decoder.layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.intermediate_size,
        decoder_ffn_dim=config.intermediate_size,
        activation_function=config.activation,
        dropout=config.hidden_dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=0.0,
        init_std=config.init_std,
        scale_embedding=True,
        max_position_embeddings=positions,
        pad_token_id=pad_id,
        eos_token_id=end_id,
        decoder_start_token_id=end_id,
        forced_eos_token_id=None,
    )
    model_class: Any = MarianMTModel if post else PegasusForConditionalGeneration
    model = model_class(settings)
    filled(model, to_marian(state))
    beams = {"early_stopping": True, "length_penalty": search.alpha} if search.beam > 1 else {}
    model.generation_config = GenerationConfig(
        num_beams=search.beam,
        max_new_tokens=longest,
        bad_words_ids=[[pad_id]],
        pad_token_id=pad_id,
        eos_token_id=end_id,
        decoder_start_token_id=end_id,
        do_sample=False,
        **beams,
    )
    return ExportedModel(model, max_length + 1, _search_notes(search, longest))


def _search_notes(search: SearchConfig, longest: int) -> tuple[str, ...]:
    """Say where the search of `generate` is not the one that the run was scored with."""
    notes: tuple[str, ...] = (
        f"`generate` ends any translation at {longest} tokens, and where it is; the run's search "
        f"ended each at {search.max_length_ratio:g} x source tokens + {search.max_length_extra}, "
        "with the end. Translations that end before are the same.",
    )
    if search.beam > 1:
        notes += (
            "With `early_stopping` it stops, as the run's search, when as many hypotheses as beams "
            "are finished.",
        )
        if search.length_penalty == "gnmt":
            notes += (
                f"`generate` has no length penalty ((5 + L) / 6)^{search.alpha:g}, which the run's "
                f"search had, and divides by L^{search.alpha:g}: its scores and some translations "
                "differ.",
            )
    return notes


def to_halves(size: int) -> Tensor:
    """Return the interleaved dimension for each dimension of the export: 0, 2, 4, …, 1, 3, 5, …"""
    return torch.arange(size).view(-1, 2).T.reshape(-1)


def _permute(tensor: Tensor, axis: int, order: Tensor) -> Tensor:
    """Permute the hidden dimensions: of a matrix along `axis`; of a vector where it is of them."""
    if tensor.ndim == 2:
        return tensor.index_select(axis, order)
    return tensor[order] if axis == 0 else tensor
