"""The model of `transformers` that computes the same as one here, if there is one.

masked LM, rotary, base 10000        roformer             whole heads, interleaved pairs
masked LM, rotary, another base      jina_embeddings_v3   whole heads, half-split pairs, any base
classifier, rotary                   jina_embeddings_v3   roformer's head has no tanh
either, learned                      bert
either, sinusoidal or none           bert                 its table filled with sinusoids or zeros
causal LM, rotary                    gpt_neox             any base, whole heads or a part of them
causal LM, learned                   gpt2
causal LM, sinusoidal or none        gpt2                 its table filled with sinusoids or zeros
translation, sinusoidal              marian, pegasus      norms after, before the sublayers
everything else                      none
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roformer.config.attention import SoftmaxAttention
from roformer.config.lm import CausalConfig
from roformer.config.position import NoScaling, Rotary
from roformer.config.schema import EncoderConfig
from roformer.config.wmt import SearchConfig, Seq2SeqConfig
from roformer.interop.layout import convert_state_layout, half_order
from roformer.interop.weights import to_transformers
from roformer.nn.position import Positions, build_position
from roformer.nn.rotary import Layout

SHORTEST_TABLE = 512
"""Positions of a table at least, as BERT's."""


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


# --- encoders ------------------------------------------------------------------------------------


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
    from transformers import (
        AutoModelForMaskedLM,
        AutoModelForSequenceClassification,
        BertConfig,
        JinaEmbeddingsV3Config,
        RoFormerConfig,
    )

    position = config.position
    _require(
        config.norm == "post",
        "its norms stand before the sublayers, those of bert and roformer after them",
    )
    _require_softmax(config, "bert and roformer")
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": config.activation,
        "hidden_dropout_prob": config.hidden_dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": _table_length(length),
        "type_vocab_size": config.token_types,
        "initializer_range": config.init_std,
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": pad_id,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if head is not None:
        names = head.labels or ["score"]
        common |= {
            "id2label": dict(enumerate(names)),
            "label2id": {name: number for number, name in enumerate(names)},
            "problem_type": "single_label_classification" if head.labels else "regression",
            "classifier_dropout": head.dropout,
        }
    weights, notes = dict(state), tuple[str, ...]()
    settings: Any
    layout: Layout
    if position.kind == "rotary":
        _require(
            position == Rotary(base=position.base, layout=position.layout),
            f"encoders there rotate whole heads, as trained, and nothing else; this is {position}",
        )
        if head is None and position.base == 10000.0:
            settings, layout = RoFormerConfig(**common), "interleaved"
        else:
            rope = {"rope_type": "default", "rope_theta": position.base}
            settings, layout = JinaEmbeddingsV3Config(**common, rope_parameters=rope), "half"
            why = (
                "the head of RoFormerForSequenceClassification has the encoder's gelu where this "
                "model's pooler has tanh"
                if head
                else f"roformer has no base but 10000, and this model's is {position.base:g}"
            )
            notes = (
                f"It is of type jina_embeddings_v3, the same network: {why}. Nothing in it comes "
                "from Jina's models.",
            )
        if position.layout != layout:
            weights = convert_state_layout(
                weights, config.heads, layout, rotary_dim=config.head_dim
            )
    else:
        _require(
            position.kind in ("learned", "sinusoidal", "none"),
            f"no encoder there has {position.kind} positions as trained here",
        )
        if position.kind == "learned":
            common["max_position_embeddings"] = position.max_positions
        else:
            weights["encoder.position.table"], notes = _fixed_table(
                config, common["max_position_embeddings"], "bert"
            )
        settings = BertConfig(**common)
    auto = AutoModelForMaskedLM if head is None else AutoModelForSequenceClassification
    model = _filled(auto.from_config(settings), to_transformers(weights, settings.model_type))
    return ExportedModel(model, common["max_position_embeddings"], notes)


# --- causal language models ----------------------------------------------------------------------


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
        length: tokens that it was trained to read at once; see `exported_encoder`.
        end_id: of the token between documents, which begins and ends a text; None where nothing does.
        pad_id: of the padding; None where there is none.

    Raises:
        NoEquivalent: there is none.
    """
    position = config.position
    _require(
        config.norm == "pre",
        "its norms stand after the sublayers, those of gpt2 and gpt_neox before them",
    )
    _require_softmax(config, "gpt2 and gpt_neox")
    common = {
        "vocab_size": vocab_size,
        "initializer_range": config.init_std,
        "tie_word_embeddings": True,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "pad_token_id": pad_id,
    }
    if position.kind == "rotary":
        _require(
            position.scaling == NoScaling(),
            f"its rotary positions are scaled: {position.scaling}",
        )
        return _gpt_neox(config, position, dict(state), _table_length(length), common)
    _require(
        position.kind in ("learned", "sinusoidal", "none"),
        f"neither gpt2 nor gpt_neox has {position.kind} positions",
    )
    return _gpt2(config, dict(state), _table_length(length), common)


def _gpt_neox(
    config: CausalConfig,
    rotary: Rotary,
    weights: dict[str, Tensor],
    positions: int,
    common: dict[str, Any],
) -> ExportedModel:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    if rotary.layout == "interleaved":
        weights = convert_state_layout(weights, config.heads, "half", rotary_dim=config.rotary_dim)
    for name, tensor in weights.items():
        if ".attention.projection." in name:  # query, key and value of a head side by side
            apart = tensor.unflatten(0, (3, config.heads, config.head_dim))
            weights[name] = apart.transpose(0, 1).flatten(0, 2)
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
    model = _filled(GPTNeoXForCausalLM(settings), to_transformers(weights, "gpt_neox"))
    return ExportedModel(model, positions, ())


def _gpt2(
    config: CausalConfig, weights: dict[str, Tensor], positions: int, common: dict[str, Any]
) -> ExportedModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    notes: tuple[str, ...] = ()
    if config.position.kind == "learned":
        positions = config.position.max_positions
    else:
        weights["position.table"], notes = _fixed_table(config, positions, "gpt2")
    for name, tensor in weights.items():
        if name.startswith("blocks.") and tensor.ndim == 2:  # its matrices are (in, out)
            weights[name] = tensor.T.contiguous()
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
    model = _filled(GPT2LMHeadModel(settings), to_transformers(weights, "gpt2"))
    model.generation_config.max_length = positions  # pipelines would write 256 tokens more
    return ExportedModel(model, positions, notes)


# --- encoder-decoders ----------------------------------------------------------------------------


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
    _require(
        position.base == 10000.0 and position.scale in (None, 1.0),
        "marian and pegasus have sinusoids of base 10000 and amplitude 1; this model's are of "
        f"base {position.base:g} and amplitude {position.scale or 1.0:g}",
    )
    _require(
        config.layer_norm_eps == 1e-5,
        f"marian and pegasus have layer_norm_eps=1e-5, this model {config.layer_norm_eps:g}",
    )
    _require_softmax(config, "marian and pegasus")
    longest = int((max_length + 1) * search.max_length_ratio) + search.max_length_extra
    post = config.norm == "post"
    config_class: Any = MarianConfig if post else PegasusConfig
    model_class: Any = MarianMTModel if post else PegasusForConditionalGeneration
    ends = {"pad_token_id": pad_id, "eos_token_id": end_id, "decoder_start_token_id": end_id}
    settings = config_class(
        **ends,
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
        max_position_embeddings=_table_length(max(max_length, longest) + 1),
        forced_eos_token_id=None,
    )
    model = _filled(model_class(settings), to_marian(state))
    beams = {"early_stopping": True, "length_penalty": search.alpha} if search.beam > 1 else {}
    model.generation_config = GenerationConfig(
        **ends,
        **beams,
        num_beams=search.beam,
        max_new_tokens=longest,
        bad_words_ids=[[pad_id]],
        do_sample=False,
    )
    return ExportedModel(model, max_length + 1, _search_notes(search, longest))


def to_marian(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state dict of a Marian or Pegasus model for that of a sinusoidal `Seq2Seq`.

    Both have all sines in the first half of the dimensions and all cosines in the second, where
    Vaswani et al. interleave them. Hidden dimensions have no order, so they are permuted in every
    weight that reads or writes them.

    Tied matrices, tables and the zero bias are left out: load it with `strict=False`.
    """
    shared = state["tokens.weight"]
    order = half_order(shared.shape[1]).to(shared.device)
    permuted = dict(state)
    for name, tensor in state.items():
        if name.rpartition(".")[0].endswith(("output", "outer", "norm")):  # writes them
            permuted[name] = tensor[order]
        elif tensor.ndim == 2:
            permuted[name] = tensor[:, order]
    return to_transformers(permuted, "marian")


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


# --- all of them ---------------------------------------------------------------------------------


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise NoEquivalent(otherwise)


def _require_softmax(config: EncoderConfig | CausalConfig | Seq2SeqConfig, models: str) -> None:
    _require(
        isinstance(config.attention, SoftmaxAttention),
        f"{models} have no {config.attention.kind} attention",
    )


def _table_length(length: int) -> int:
    """Return the power of two that holds `length` positions, at least 512."""
    return max(SHORTEST_TABLE, 1 << (length - 1).bit_length())


def _fixed_table(
    config: EncoderConfig | CausalConfig, positions: int, kind: str
) -> tuple[Tensor, tuple[str]]:
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
    return encoding.embed(nothing, Positions(torch.arange(positions)))[0], (note,)


def _filled(model: Any, weights: Mapping[str, Tensor]) -> Any:
    """Load weights into a fresh model of `transformers`, in evaluation mode.

    What it lacks is tied or computed; the tests of exported folders hold that nothing is lost.
    """
    _, unexpected = model.load_state_dict(dict(weights), strict=False)
    assert not unexpected, unexpected
    return model.eval()
