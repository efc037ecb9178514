"""Export of encoders: the model of `transformers` that computes the same, if there is one.

    rotary, masked LM, base 10000        roformer             whole heads, interleaved pairs
    rotary, masked LM, another base      jina_embeddings_v3   whole heads, half-split pairs, any base
    rotary, classifier                   jina_embeddings_v3   roformer's head has no tanh
    learned                              bert
    sinusoidal, none                     bert                 its table filled with sinusoids or zeros
    shaw, t5, alibi, partial rotary, norms before the sublayers    none of them

`marian` has the encoder-decoders, `causal` the decoders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from roformer.config.attention import SoftmaxAttention
from roformer.config.lm import CausalConfig
from roformer.config.position import Rotary
from roformer.config.schema import EncoderConfig
from roformer.interop.bert import to_transformers
from roformer.interop.layout import convert_layout
from roformer.nn.position import Positions, build_position
from roformer.nn.rotary import Layout

SHORTEST_TABLE = 512
"""Positions of a table at least, as BERT's."""
JINA = (
    (r"^bert\.encoder\.layer\.(\d+)\.", r"roberta.layers.\1."),
    (r"attention\.self\.(query|key|value)\.", lambda m: f"self_attn.{m[1][0]}_proj."),
    (r"attention\.output\.dense\.", "self_attn.o_proj."),
    (r"attention\.output\.LayerNorm\.", "post_attention_layernorm."),
    (r"intermediate\.dense\.", "mlp.fc1."),
    (r"(layers\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"(layers\.\d+)\.output\.LayerNorm\.", r"\1.post_mlp_layernorm."),
    (r"^bert\.embeddings\.", "roberta.embeddings."),
    (r"^classifier\.", "classifier.out_proj."),
    (r"^bert\.pooler\.dense\.", "classifier.dense."),
    (r"^cls\.predictions\.transform\.dense\.", "lm_head.dense."),
    (r"^cls\.predictions\.transform\.LayerNorm\.", "lm_head.layer_norm."),
    (r"^cls\.predictions\.bias$", "lm_head.bias"),
)
"""What bert's parameters are called in jina_embeddings_v3, the same block with rotary positions."""


class NoEquivalent(Exception):
    """`transformers` has no model that computes the same; the message says why."""


class ExportedModel(NamedTuple):
    """A model of `transformers` with the weights of a trained one."""

    model: Any
    """A `PreTrainedModel` in evaluation mode."""
    length: int
    """Tokens that it can read."""
    notes: tuple[str, ...]
    """Sentences on the conversion for the user."""


class Head(NamedTuple):
    """A classifier's outputs."""

    labels: list[str] | None
    """Names of the classes in the order of the outputs; None of a regression."""
    dropout: float


def exported_encoder(
    config: EncoderConfig,
    state: Mapping[str, Tensor],
    *,
    vocab_size: int,
    pad_id: int,
    length: int,
    head: Head | None,
) -> ExportedModel:
    """Return the model of `transformers` that computes the same as a trained encoder.

    Args:
        config: of the encoder.
        state: of a `MaskedLM`, or of a `Classifier` where there is a `head`.
        vocab_size: V, rows of the embeddings.
        pad_id: of the tokenizer's [PAD].
        length: the longest text it was trained on, in tokens; tables that can be of any length get
            the next power of two, at least 512.
        head: of a classifier; None of a masked-language model.

    Raises:
        NoEquivalent: there is none.
    """
    from transformers import BertConfig, JinaEmbeddingsV3Config, RoFormerConfig

    if config.norm != "post":
        raise NoEquivalent(
            "its norms stand before the sublayers, those of bert and roformer after them"
        )
    if not isinstance(config.attention, SoftmaxAttention):
        raise NoEquivalent(f"bert and roformer have no {config.attention.kind} attention")
    position, positions = config.position, table_length(length)
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": config.activation,
        "hidden_dropout_prob": config.hidden_dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "type_vocab_size": config.token_types,
        "initializer_range": config.init_std,
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": pad_id,
        "bos_token_id": None,
        "eos_token_id": None,
    } | (_labels(head) if head else {})
    if position.kind == "rotary":
        if position != Rotary(base=position.base, layout=position.layout):
            raise NoEquivalent(
                f"encoders there rotate whole heads, as trained, and nothing else; this is {position}"
            )
        common["max_position_embeddings"] = positions
        if head is None and position.base == 10000.0:
            weights = to_transformers(dict(state), "roformer")
            interleaved = in_layout(weights, config, "interleaved")
            return ExportedModel(
                with_weights(RoFormerConfig(**common), interleaved, head), positions, ()
            )
        rope = {"rope_type": "default", "rope_theta": position.base}
        weights = in_layout(to_transformers(dict(state), "bert"), config, "half")
        renamed = {jina_name(name): tensor for name, tensor in weights.items()}
        why = (
            "the head of RoFormerForSequenceClassification has the encoder's gelu where this "
            "model's pooler has tanh"
            if head
            else f"roformer has no base but 10000, and this model's is {position.base:g}"
        )
        note = (
            f"It is of type jina_embeddings_v3, the same network: {why}. Nothing in it comes from "
            "Jina's models."
        )
        model = with_weights(JinaEmbeddingsV3Config(**common, rope_parameters=rope), renamed, head)
        return ExportedModel(model, positions, (note,))
    if position.kind not in ("learned", "sinusoidal", "none"):
        raise NoEquivalent(f"no encoder there has {position.kind} positions as trained here")
    weights = to_transformers(dict(state), "bert")
    notes: tuple[str, ...] = ()
    if position.kind == "learned":
        positions = position.max_positions
    else:
        table, note = fixed_table(config, positions, "bert")
        weights["bert.embeddings.position_embeddings.weight"], notes = table, (note,)
    common["max_position_embeddings"] = positions
    return ExportedModel(with_weights(BertConfig(**common), weights, head), positions, notes)


def _labels(head: Head) -> dict[str, Any]:
    names = head.labels or ["score"]
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": "single_label_classification" if head.labels else "regression",
        "classifier_dropout": head.dropout,
    }


def table_length(length: int) -> int:
    """Return the power of two that holds `length` positions, at least 512."""
    return max(SHORTEST_TABLE, 1 << (length - 1).bit_length())


def fixed_table(
    config: EncoderConfig | CausalConfig, positions: int, kind: str
) -> tuple[Tensor, str]:
    """Return what an encoding that is not trained adds at each position, (positions, D), and a note.

    `kind` is the `model_type` that has it in place of its trained table.
    """
    encoding: Any = build_position(config.position, config)
    nothing = torch.zeros(1, positions, config.hidden_size)
    what = "sinusoids" if config.position.kind == "sinusoidal" else "zeros: it has no positions"
    note = (
        f"Its positions are a fixed table of {positions} {what}. In {kind} the table is trained: "
        "freeze it when you train on."
    )
    return encoding.embed(nothing, Positions(torch.arange(positions)))[0], note


def in_layout(
    weights: dict[str, Tensor], config: EncoderConfig, layout: Layout
) -> dict[str, Tensor]:
    """Return weights under bert's names with queries and keys for this rotary layout."""
    if config.position.kind == "rotary" and config.position.layout == layout:
        return weights
    return {
        name: convert_layout(tensor, config.heads, layout, rotary_dim=config.head_dim)
        if re.search(r"attention\.self\.(query|key)\.", name)
        else tensor
        for name, tensor in weights.items()
    }


def jina_name(name: str) -> str:
    """Return what jina_embeddings_v3 calls a parameter of bert."""
    for pattern, replacement in JINA:
        name = re.sub(pattern, replacement, name)
    return name


def with_weights(config: Any, weights: Mapping[str, Tensor], head: Head | None) -> nn.Module:
    """Return the model of a `transformers` config with these weights, all of them used.

    Raises:
        AssertionError: a weight is left over, or one that is neither tied nor computed is missing.
    """
    from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

    auto = AutoModelForMaskedLM if head is None else AutoModelForSequenceClassification
    return filled(auto.from_config(config), weights)


def filled(model: Any, weights: Mapping[str, Tensor]) -> nn.Module:
    """Load weights into a fresh model of `transformers`; see `with_weights`."""
    missing, unexpected = model.load_state_dict(dict(weights), strict=False)
    given = {model.get_parameter(name).data_ptr() for name in weights}
    lost = [
        name
        for name in missing
        # Tables that are computed; copies of what was given.
        if "embed_positions" not in name
        and name != "final_logits_bias"
        and model.get_parameter(name).data_ptr() not in given
    ]
    assert not unexpected and not lost, (unexpected, lost)
    model.eval()
    return model
