"""Export of causal language models: the model of `transformers` that computes the same, if there is one.

rotary, whole heads or a part of them, any base    gpt_neox   sequential residuals, tied output
learned                                            gpt2
sinusoidal, none                                   gpt2       its table filled with sinusoids or zeros
shaw, t5, alibi, norms after the sublayers         none of them
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roformer.config.attention import SoftmaxAttention
from roformer.config.lm import CausalConfig
from roformer.config.position import NoScaling
from roformer.interop.encoder import ExportedModel, NoEquivalent, filled, fixed_table, table_length
from roformer.interop.layout import convert_state_layout

GPT2 = {
    "tokens": "transformer.wte",
    "final_norm": "transformer.ln_f",
    "attention_residual.norm": "ln_1",
    "feed_forward_residual.norm": "ln_2",
    "attention.projection": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.inner": "mlp.c_fc",
    "feed_forward.outer": "mlp.c_proj",
    "blocks": "transformer.h",
}
"""Part of a parameter's name here → in `transformers`."""
GPT_NEOX = {
    "tokens": "gpt_neox.embed_in",
    "final_norm": "gpt_neox.final_layer_norm",
    "attention_residual.norm": "input_layernorm",
    "feed_forward_residual.norm": "post_attention_layernorm",
    "attention.projection": "attention.query_key_value",
    "attention.output": "attention.dense",
    "feed_forward.inner": "mlp.dense_h_to_4h",
    "feed_forward.outer": "mlp.dense_4h_to_h",
    "blocks": "gpt_neox.layers",
}


def exported_causal_lm(
    config: CausalConfig,
    state: Mapping[str, Tensor],
    *,
    vocab_size: int,
    length: int,
    end_id: int | None,
    pad_id: int | None,
) -> ExportedModel:
    """Return the model of `transformers` that computes the same as a causal language model.

    Args:
        config: of the model.
        state: of the `CausalLM`.
        vocab_size: V, rows of the embeddings.
        length: tokens that it was trained to read at once; tables that can be of any length get the
            next power of two, at least 512.
        end_id: of the token between documents, which begins and ends a text; None where nothing does.
        pad_id: of the padding; None where there is none.

    Raises:
        NoEquivalent: there is none.
    """
    if config.norm != "pre":
        raise NoEquivalent(
            "its norms stand after the sublayers, those of gpt2 and gpt_neox before them"
        )
    if not isinstance(config.attention, SoftmaxAttention):
        raise NoEquivalent(f"gpt2 and gpt_neox have no {config.attention.kind} attention")
    position = config.position
    if position.kind == "rotary":
        if position.scaling != NoScaling():
            raise NoEquivalent(f"its rotary positions are scaled: {position.scaling}")
        convert = _gpt_neox
    elif position.kind in ("learned", "sinusoidal", "none"):
        convert = _gpt2
    else:
        raise NoEquivalent(f"neither gpt2 nor gpt_neox has {position.kind} positions")
    common = {
        "vocab_size": vocab_size,
        "initializer_range": config.init_std,
        "tie_word_embeddings": True,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "pad_token_id": pad_id,
    }
    return convert(config, dict(state), table_length(length), common)


def _gpt_neox(
    config: CausalConfig, weights: dict[str, Tensor], positions: int, common: dict[str, Any]
) -> ExportedModel:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    rotary = config.position
    assert rotary.kind == "rotary"
    if rotary.layout == "interleaved":
        weights = convert_state_layout(weights, config.heads, "half", rotary_dim=config.rotary_dim)
    settings = GPTNeoXConfig(
        **common,
        max_position_embeddings=positions,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.intermediate_size,
        hidden_act=config.activation,
        hidden_dropout=config.hidden_dropout,
        attention_dropout=config.attention_dropout,
        layer_norm_eps=config.layer_norm_eps,
        use_parallel_residual=False,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": rotary.base,
            "partial_rotary_factor": config.rotary_dim / config.head_dim,
        },
    )
    named = {
        _renamed(name, GPT_NEOX): _by_head(tensor, config.heads)
        if "attention.projection" in name
        else tensor
        for name, tensor in weights.items()
    }
    return ExportedModel(filled(GPTNeoXForCausalLM(settings), named), positions, ())


def _gpt2(
    config: CausalConfig, weights: dict[str, Tensor], positions: int, common: dict[str, Any]
) -> ExportedModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    notes: tuple[str, ...] = ()
    if config.position.kind == "learned":
        positions, table = config.position.max_positions, weights.pop("position.table")
    else:
        table, note = fixed_table(config, positions, "gpt2")
        notes = (note,)
    settings = GPT2Config(
        **common,
        n_positions=positions,
        n_embd=config.hidden_size,
        n_layer=config.layers,
        n_head=config.heads,
        n_inner=config.intermediate_size,
        activation_function=config.activation,
        resid_pdrop=config.hidden_dropout,
        embd_pdrop=config.hidden_dropout,
        attn_pdrop=config.attention_dropout,
        layer_norm_epsilon=config.layer_norm_eps,
    )
    # Its matrices are (in, out).
    named = {
        _renamed(name, GPT2): tensor.T.contiguous()
        if name.startswith("blocks.") and tensor.ndim == 2
        else tensor
        for name, tensor in weights.items()
    }
    named["transformer.wpe.weight"] = table
    model: Any = filled(GPT2LMHeadModel(settings), named)
    model.generation_config.max_length = positions  # pipelines would write 256 tokens more
    return ExportedModel(model, positions, notes)


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for own, other in names.items():
        name = re.sub(rf"(^|\.){re.escape(own)}\.", rf"\1{other}.", name)
    return name


def _by_head(projection: Tensor, heads: int) -> Tensor:
    """Put query, key and value of a head side by side: (3D, …) for (heads, 3, D / heads)."""
    apart = projection.unflatten(0, (3, heads, projection.shape[0] // (3 * heads)))
    return torch.flatten(apart.transpose(0, 1), 0, 2)
