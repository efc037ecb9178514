"""Names of settings and weights here and in `transformers`, for every architecture, either way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

# --- settings ------------------------------------------------------------------------------------

ENCODER = {
    "num_hidden_layers": "layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "heads",
    "intermediate_size": "intermediate_size",
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "type_vocab_size": "token_types",
    "layer_norm_eps": "layer_norm_eps",
    "initializer_range": "init_std",
    "hidden_act": "activation",
}
SIZES = {key: own for key, own in ENCODER.items() if own in ("layers", "hidden_size", "heads")}
TRANSLATION = {
    "d_model": "hidden_size",
    "encoder_layers": "layers",
    "decoder_layers": "decoder.layers",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "heads",
    "encoder_ffn_dim": "intermediate_size",
    "decoder_ffn_dim": "intermediate_size",
    "activation_function": "activation",
    "dropout": "hidden_dropout",
    "attention_dropout": "attention_dropout",
    "init_std": "init_std",
}
SETTINGS = {
    "bert": ENCODER,
    "roformer": ENCODER
    | {"embedding_size": "embedding_width", "rotary_value": "position.rotate_values"},
    "jina_embeddings_v3": ENCODER,
    "gpt2": SIZES
    | {
        "n_inner": "intermediate_size",
        "activation_function": "activation",
        "layer_norm_epsilon": "layer_norm_eps",
        "initializer_range": "init_std",
        "resid_pdrop": "hidden_dropout",
        "embd_pdrop": "hidden_dropout",
        "attn_pdrop": "attention_dropout",
    },
    "gpt_neox": SIZES
    | {
        "intermediate_size": "intermediate_size",
        "hidden_act": "activation",
        "layer_norm_eps": "layer_norm_eps",
        "initializer_range": "init_std",
        "hidden_dropout": "hidden_dropout",
        "attention_dropout": "attention_dropout",
    },
    "marian": TRANSLATION,
    "pegasus": TRANSLATION,
}
"""`model_type` of `transformers` → its setting → the setting of a model here."""


def settings_of(model: Any, model_type: str) -> dict[str, Any]:
    """Return the settings in `transformers` of a model's configuration."""
    return {there: attrgetter(own)(model) for there, own in SETTINGS[model_type].items()}


# --- weights -------------------------------------------------------------------------------------


def _parameters(modules: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the weights and biases of modules."""
    return {
        f"{own}.{kind}": f"{there}.{kind}"
        for own, there in modules.items()
        for kind in ("weight", "bias")
    }


def _layer(own: str, there: str, names: str) -> dict[str, str]:
    """Return the names of a layer's weights, given the names of its six modules in this order."""
    modules = (
        *("attention.projection", "attention.output", "attention_residual.norm"),
        *("feed_forward.inner", "feed_forward.outer", "feed_forward_residual.norm"),
    )
    each = zip(modules, names.split(), strict=True)
    return _parameters({f"{own}.*.{module}": f"{there}.*.{name}" for module, name in each})


BERT = (
    _parameters(
        {
            "transform": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "pooler": "bert.pooler.dense",
            "relation": "cls.seq_relationship",
            "classifier": "classifier",
            "encoder.tokens": "bert.embeddings.word_embeddings",
            "encoder.token_types": "bert.embeddings.token_type_embeddings",
            "encoder.embedding_norm": "bert.embeddings.LayerNorm",
        }
    )
    | {
        "bias": "cls.predictions.bias",
        "encoder.position.table": "bert.embeddings.position_embeddings.weight",
    }
    | _layer(
        "encoder.blocks",
        "bert.encoder.layer",
        "attention.self.{query,key,value} attention.output.dense attention.output.LayerNorm "
        "intermediate.dense output.dense output.LayerNorm",
    )
)
ROFORMER = {own: there.replace("bert.", "roformer.") for own, there in BERT.items()} | _parameters(
    {"encoder.embedding_projection": "roformer.embeddings_project"}
)
HEAD = {"pooler": "classifier.dense", "classifier": "classifier.out_proj"}
JINA = (
    {"bias": "lm_head.bias"}
    | _parameters(
        {
            "transform": "lm_head.dense",
            "norm": "lm_head.layer_norm",
            "encoder.tokens": "roberta.embeddings.word_embeddings",
            "encoder.token_types": "roberta.embeddings.token_type_embeddings",
            "encoder.embedding_norm": "roberta.embeddings.LayerNorm",
            **HEAD,
        }
    )
    | _layer(
        "encoder.blocks",
        "roberta.layers",
        "self_attn.{q,k,v}_proj self_attn.o_proj post_attention_layernorm "
        "mlp.fc1 mlp.fc2 post_mlp_layernorm",
    )
)
GPT2 = (
    {"position.table": "transformer.wpe.weight"}
    | _parameters({"tokens": "transformer.wte", "final_norm": "transformer.ln_f"})
    | _layer("blocks", "transformer.h", "attn.c_attn attn.c_proj ln_1 mlp.c_fc mlp.c_proj ln_2")
)
GPT_NEOX = _parameters(
    {"tokens": "gpt_neox.embed_in", "final_norm": "gpt_neox.final_layer_norm"}
) | _layer(
    "blocks",
    "gpt_neox.layers",
    "attention.query_key_value attention.dense input_layernorm "
    "mlp.dense_h_to_4h mlp.dense_4h_to_h post_attention_layernorm",
)
MARIAN = _parameters(
    {
        "tokens": "model.shared",
        "encoder_norm": "model.encoder.layer_norm",
        "decoder_norm": "model.decoder.layer_norm",
        "decoder.*.cross_attention.query": "model.decoder.layers.*.encoder_attn.q_proj",
        "decoder.*.cross_attention.memory": "model.decoder.layers.*.encoder_attn.{k,v}_proj",
        "decoder.*.cross_attention.output": "model.decoder.layers.*.encoder_attn.out_proj",
        "decoder.*.cross_attention_residual.norm": "model.decoder.layers.*.encoder_attn_layer_norm",
    }
)
for side in ("encoder", "decoder"):
    MARIAN |= _layer(
        side,
        f"model.{side}.layers",
        "self_attn.{q,k,v}_proj self_attn.out_proj self_attn_layer_norm fc1 fc2 final_layer_norm",
    )
NAMES = {
    "bert": BERT,
    "roformer": ROFORMER,
    "roformer_classifier": ROFORMER | _parameters(HEAD),
    "jina_embeddings_v3": JINA,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "marian": MARIAN,
}
"""Architecture → parameter here → in `transformers`; `*` is the layer, `{q,k,v}` equal parts of rows."""


def names_there(name: str, architecture: str | None) -> list[str]:
    """Return the names in an architecture of the parts of a parameter here; None: of a model here."""
    if architecture is None:
        return [name]
    layer = re.search(r"\d+", name)
    pattern = NAMES[architecture][re.sub(r"\d+", "*", name)]
    pattern = pattern.replace("*", layer[0] if layer else "")
    parts = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    return [f"{parts[1]}{p}{parts[3]}" for p in parts[2].split(",")] if parts else [pattern]


def to_transformers(state: Mapping[str, Tensor], architecture: str) -> dict[str, Tensor]:
    """Return a state dict under the names of an architecture; tied output matrices are excluded."""
    converted: dict[str, Tensor] = {}
    for name, tensor in state.items():
        parts = names_there(name, architecture)
        converted.update(zip(parts, tensor.chunk(len(parts)), strict=True))
    return converted


def from_transformers(state: Mapping[str, Tensor], architecture: str) -> dict[str, Tensor]:
    """Return the parameters here whose parts are all in a state dict of an architecture."""
    layers = sorted({int(number) for name in state for number in re.findall(r"\d+", name)[:1]})
    found: dict[str, Tensor] = {}
    for key in NAMES[architecture]:
        for layer in layers if "*" in key else [0]:
            name = key.replace("*", str(layer))
            parts = names_there(name, architecture)
            if all(part in state for part in parts):
                tensors = [state[part] for part in parts]
                found[name] = torch.cat(tensors) if len(tensors) > 1 else tensors[0]
    return found
