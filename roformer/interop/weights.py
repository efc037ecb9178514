"""Names of weights in the models here and in those of `transformers`, mapped either way."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor


def _parameters(modules: Mapping[str, str]) -> dict[str, str]:
    """Return the names of the weights and biases of modules."""
    return {
        f"{own}.{kind}": f"{there}.{kind}"
        for own, there in modules.items()
        for kind in ("weight", "bias")
    }


BERT = (
    _parameters(
        {
            "transform": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "pooler": "bert.pooler.dense",
            "classifier": "classifier",
        }
    )
    | {
        "bias": "cls.predictions.bias",
        "encoder.position.table": "bert.embeddings.position_embeddings.weight",
    }
    | _parameters(
        {
            "encoder.tokens": "bert.embeddings.word_embeddings",
            "encoder.token_types": "bert.embeddings.token_type_embeddings",
            "encoder.embedding_norm": "bert.embeddings.LayerNorm",
            "encoder.blocks.*.attention.projection": (
                "bert.encoder.layer.*.attention.self.{query,key,value}"
            ),
            "encoder.blocks.*.attention.output": "bert.encoder.layer.*.attention.output.dense",
            "encoder.blocks.*.attention_residual.norm": (
                "bert.encoder.layer.*.attention.output.LayerNorm"
            ),
            "encoder.blocks.*.feed_forward.inner": "bert.encoder.layer.*.intermediate.dense",
            "encoder.blocks.*.feed_forward.outer": "bert.encoder.layer.*.output.dense",
            "encoder.blocks.*.feed_forward_residual.norm": "bert.encoder.layer.*.output.LayerNorm",
        }
    )
)
ROFORMER = {own: there.replace("bert.", "roformer.") for own, there in BERT.items()}
JINA = {"bias": "lm_head.bias"} | _parameters(
    {
        "transform": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "pooler": "classifier.dense",
        "classifier": "classifier.out_proj",
        "encoder.tokens": "roberta.embeddings.word_embeddings",
        "encoder.token_types": "roberta.embeddings.token_type_embeddings",
        "encoder.embedding_norm": "roberta.embeddings.LayerNorm",
        "encoder.blocks.*.attention.projection": "roberta.layers.*.self_attn.{q,k,v}_proj",
        "encoder.blocks.*.attention.output": "roberta.layers.*.self_attn.o_proj",
        "encoder.blocks.*.attention_residual.norm": "roberta.layers.*.post_attention_layernorm",
        "encoder.blocks.*.feed_forward.inner": "roberta.layers.*.mlp.fc1",
        "encoder.blocks.*.feed_forward.outer": "roberta.layers.*.mlp.fc2",
        "encoder.blocks.*.feed_forward_residual.norm": "roberta.layers.*.post_mlp_layernorm",
    }
)
GPT2 = {"position.table": "transformer.wpe.weight"} | _parameters(
    {
        "tokens": "transformer.wte",
        "final_norm": "transformer.ln_f",
        "blocks.*.attention.projection": "transformer.h.*.attn.c_attn",
        "blocks.*.attention.output": "transformer.h.*.attn.c_proj",
        "blocks.*.attention_residual.norm": "transformer.h.*.ln_1",
        "blocks.*.feed_forward.inner": "transformer.h.*.mlp.c_fc",
        "blocks.*.feed_forward.outer": "transformer.h.*.mlp.c_proj",
        "blocks.*.feed_forward_residual.norm": "transformer.h.*.ln_2",
    }
)
GPT_NEOX = _parameters(
    {
        "tokens": "gpt_neox.embed_in",
        "final_norm": "gpt_neox.final_layer_norm",
        "blocks.*.attention.projection": "gpt_neox.layers.*.attention.query_key_value",
        "blocks.*.attention.output": "gpt_neox.layers.*.attention.dense",
        "blocks.*.attention_residual.norm": "gpt_neox.layers.*.input_layernorm",
        "blocks.*.feed_forward.inner": "gpt_neox.layers.*.mlp.dense_h_to_4h",
        "blocks.*.feed_forward.outer": "gpt_neox.layers.*.mlp.dense_4h_to_h",
        "blocks.*.feed_forward_residual.norm": "gpt_neox.layers.*.post_attention_layernorm",
    }
)
MARIAN = _parameters({"tokens": "model.shared"}) | _parameters(
    {
        own.format(side): there.format(side)
        for side in ("encoder", "decoder")
        for own, there in {
            "{}_norm": "model.{}.layer_norm",
            "{}.*.attention.projection": "model.{}.layers.*.self_attn.{{q,k,v}}_proj",
            "{}.*.attention.output": "model.{}.layers.*.self_attn.out_proj",
            "{}.*.attention_residual.norm": "model.{}.layers.*.self_attn_layer_norm",
            "{}.*.cross_attention.query": "model.{}.layers.*.encoder_attn.q_proj",
            "{}.*.cross_attention.memory": "model.{}.layers.*.encoder_attn.{{k,v}}_proj",
            "{}.*.cross_attention.output": "model.{}.layers.*.encoder_attn.out_proj",
            "{}.*.cross_attention_residual.norm": "model.{}.layers.*.encoder_attn_layer_norm",
            "{}.*.feed_forward.inner": "model.{}.layers.*.fc1",
            "{}.*.feed_forward.outer": "model.{}.layers.*.fc2",
            "{}.*.feed_forward_residual.norm": "model.{}.layers.*.final_layer_norm",
        }.items()
    }
)
NAMES = {
    "bert": BERT,
    "roformer": ROFORMER,
    "roformer_classifier": ROFORMER
    | _parameters({"pooler": "classifier.dense", "classifier": "classifier.out_proj"}),
    "jina_embeddings_v3": JINA,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "marian": MARIAN,
}
"""Architecture → parameter here → in `transformers`; `*` is the layer, `{q,k,v}` equal parts of rows."""


def names_there(name: str, architecture: str) -> list[str]:
    """Return the names in an architecture of the parts of a parameter here, mostly one.

    Raises:
        KeyError: the architecture has no such parameter.
    """
    layer = re.search(r"\d+", name)
    pattern = NAMES[architecture][re.sub(r"\d+", "*", name)]
    pattern = pattern.replace("*", layer[0] if layer else "")
    parts = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    return [f"{parts[1]}{p}{parts[3]}" for p in parts[2].split(",")] if parts else [pattern]


def to_transformers(state: Mapping[str, Tensor], architecture: str) -> dict[str, Tensor]:
    """Return a state dict under the names of an architecture; tied output matrices are left out."""
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
