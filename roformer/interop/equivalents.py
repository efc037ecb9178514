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
from roformer.config.build import build
from roformer.config.lm import CausalConfig
from roformer.config.position import NoScaling, Rotary
from roformer.config.schema import EncoderConfig
from roformer.config.wmt import SearchConfig, Seq2SeqConfig
from roformer.data.bpe import Bpe
from roformer.data.tokenizers import ByteVocabulary, WordPiece
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


def equivalent(
    description: dict[str, Any],
    config: Any,
    weights: Mapping[str, Tensor],
    tokenizer: WordPiece | Bpe | ByteVocabulary,
    length: int,
) -> ExportedModel:
    """Return the model of `transformers` that computes the same as a trained one.

    Args:
        description: of the model, see `roformer.models.description`.
        config: the description's `model`, built.
        weights: of the model.
        tokenizer: that of the training.
        length: the longest text that it was trained on, in tokens; tables that can be of any length
            get the next power of two, at least 512.

    Raises:
        NoEquivalent: there is none.
    """
    kind = description["kind"]
    convert: Any = {"translation": _translation, "causal": _causal}.get(kind, _encoder)
    models = {"translation": "marian and pegasus", "causal": "gpt2 and gpt_neox"}
    names = models.get(kind, "bert and roformer")
    if not isinstance(config.attention, SoftmaxAttention):
        raise NoEquivalent(f"{names} have no {config.attention.kind} attention")
    if kind != "translation" and config.norm != ("pre" if kind == "causal" else "post"):
        places = ("after", "before") if kind == "causal" else ("before", "after")
        raise NoEquivalent(
            f"its norms stand {places[0]} the sublayers, those of {names} {places[1]} them"
        )
    exported: ExportedModel = convert(description, config, dict(weights), tokenizer, length)
    return exported


def _encoder(
    description: dict[str, Any],
    config: EncoderConfig,
    weights: dict[str, Tensor],
    tokenizer: Any,
    length: int,
) -> ExportedModel:
    from transformers import (
        AutoModelForMaskedLM,
        AutoModelForSequenceClassification,
        BertConfig,
        JinaEmbeddingsV3Config,
        RoFormerConfig,
    )

    position, classifies = config.position, description["kind"] == "classifier"
    common = _sizes(config, description["vocab_size"]) | {
        "hidden_dropout_prob": config.hidden_dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": _table_length(length),
        "type_vocab_size": config.token_types,
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if classifies:
        labels = description["labels"]
        names = dict(enumerate(labels or ["score"]))
        common |= {
            "id2label": names,
            "label2id": {name: number for number, name in names.items()},
            "problem_type": "single_label_classification" if labels else "regression",
            "classifier_dropout": description["head_dropout"],
        }
    notes: tuple[str, ...] = ()
    settings: Any
    layout: Layout
    if position.kind == "rotary":
        if position != Rotary(base=position.base, layout=position.layout):
            raise NoEquivalent(
                f"encoders there rotate whole heads, as trained, and nothing else; this is {position}"
            )
        if not classifies and position.base == 10000.0:
            settings, layout = RoFormerConfig(**common), "interleaved"
        else:
            rope = {"rope_type": "default", "rope_theta": position.base}
            settings, layout = JinaEmbeddingsV3Config(**common, rope_parameters=rope), "half"
            why = (
                "the head of RoFormerForSequenceClassification has the encoder's gelu where this "
                "model's pooler has tanh"
                if classifies
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
    elif position.kind in ("learned", "sinusoidal", "none"):
        positions, table, notes = _table(config, length, "bert")
        common["max_position_embeddings"] = positions
        weights |= {"encoder.position.table": table} if table is not None else {}
        settings = BertConfig(**common)
    else:
        raise NoEquivalent(f"no encoder there has {position.kind} positions as trained here")
    auto = AutoModelForSequenceClassification if classifies else AutoModelForMaskedLM
    model = _filled(auto.from_config(settings), to_transformers(weights, settings.model_type))
    return ExportedModel(model, settings.max_position_embeddings, notes)


def _causal(
    description: dict[str, Any],
    config: CausalConfig,
    weights: dict[str, Tensor],
    tokenizer: Any,
    length: int,
) -> ExportedModel:
    from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

    position, reads_bytes = config.position, isinstance(tokenizer, ByteVocabulary)
    if not reads_bytes and tokenizer.words != "none":
        raise NoEquivalent("no tokenizer of a causal model there cuts Chinese into words")
    end_id = None if reads_bytes else tokenizer.sep_id
    common = _sizes(config, description["vocab_size"]) | {
        "tie_word_embeddings": True,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "pad_token_id": None if reads_bytes else tokenizer.pad_id,
    }
    if position.kind == "rotary":
        if position.scaling != NoScaling():
            raise NoEquivalent(f"its rotary positions are scaled: {position.scaling}")
        if position.layout == "interleaved":
            weights = convert_state_layout(
                weights, config.heads, "half", rotary_dim=config.rotary_dim
            )
        for name, tensor in weights.items():
            if ".attention.projection." in name:  # query, key and value of a head side by side
                apart = tensor.unflatten(0, (3, config.heads, config.head_dim))
                weights[name] = apart.transpose(0, 1).flatten(0, 2)
        neox = GPTNeoXConfig(
            **common,
            max_position_embeddings=_table_length(length),
            hidden_dropout=config.hidden_dropout,
            attention_dropout=config.attention_dropout,
            use_parallel_residual=False,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": position.base,
                "partial_rotary_factor": config.rotary_dim / config.head_dim,
            },
        )
        model = _filled(GPTNeoXForCausalLM(neox), to_transformers(weights, "gpt_neox"))
        return ExportedModel(model, neox.max_position_embeddings, ())
    if position.kind not in ("learned", "sinusoidal", "none"):
        raise NoEquivalent(f"neither gpt2 nor gpt_neox has {position.kind} positions")
    positions, table, notes = _table(config, length, "gpt2")
    for name, tensor in weights.items():
        if name.startswith("blocks.") and tensor.ndim == 2:  # its matrices are (in, out)
            weights[name] = tensor.T.contiguous()
    weights |= {"position.table": table} if table is not None else {}
    inner, activation, eps = (
        common.pop(key) for key in ("intermediate_size", "hidden_act", "layer_norm_eps")
    )
    gpt2 = GPT2Config(
        **common,
        n_positions=positions,
        n_inner=inner,
        activation_function=activation,
        layer_norm_epsilon=eps,
        resid_pdrop=config.hidden_dropout,
        embd_pdrop=config.hidden_dropout,
        attn_pdrop=config.attention_dropout,
    )
    model = _filled(GPT2LMHeadModel(gpt2), to_transformers(weights, "gpt2"))
    model.generation_config.max_length = positions  # pipelines would write 256 tokens more
    return ExportedModel(model, positions, notes)


def _translation(
    description: dict[str, Any],
    config: Seq2SeqConfig,
    weights: dict[str, Tensor],
    tokenizer: Any,
    length: int,
) -> ExportedModel:
    """Return the Marian or Pegasus model, its `generation_config` as near to the run's search as can be."""
    from transformers import (
        GenerationConfig,
        MarianConfig,
        MarianMTModel,
        PegasusConfig,
        PegasusForConditionalGeneration,
    )

    position, search = config.position, build(SearchConfig, description["search"])
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
    longest = int((length + 1) * search.max_length_ratio) + search.max_length_extra
    post = config.norm == "post"
    config_class: Any = MarianConfig if post else PegasusConfig
    model_class: Any = MarianMTModel if post else PegasusForConditionalGeneration
    ends = {
        "pad_token_id": tokenizer.pad_id,
        "eos_token_id": tokenizer.end_id,
        "decoder_start_token_id": tokenizer.end_id,
    }
    settings = config_class(
        **ends,
        vocab_size=description["vocab_size"],
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
        max_position_embeddings=_table_length(max(length, longest) + 1),
        forced_eos_token_id=None,
    )
    model = _filled(model_class(settings), to_marian(weights))
    beams = {"early_stopping": True, "length_penalty": search.alpha} if search.beam > 1 else {}
    model.generation_config = GenerationConfig(
        **ends,
        **beams,
        num_beams=search.beam,
        max_new_tokens=longest,
        bad_words_ids=[[tokenizer.pad_id]],
        do_sample=False,
    )
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
    if search.beam > 1 and search.length_penalty == "gnmt":
        notes += (
            f"`generate` has no length penalty ((5 + L) / 6)^{search.alpha:g}, which the run's "
            f"search had, and divides by L^{search.alpha:g}: its scores and some translations "
            "differ.",
        )
    return ExportedModel(model, length + 1, notes)


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


# --- all of them ---------------------------------------------------------------------------------


def _sizes(config: EncoderConfig | CausalConfig, vocab_size: int) -> dict[str, Any]:
    """Return the settings that most configurations of `transformers` name alike."""
    return {
        "vocab_size": vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": config.activation,
        "initializer_range": config.init_std,
        "layer_norm_eps": config.layer_norm_eps,
    }


def _table_length(length: int) -> int:
    """Return the power of two that holds `length` positions, at least 512."""
    return max(SHORTEST_TABLE, 1 << (length - 1).bit_length())


def _table(
    config: EncoderConfig | CausalConfig, length: int, kind: str
) -> tuple[int, Tensor | None, tuple[str, ...]]:
    """Return the size of the table of a model with one, its rows if they are not trained, and notes.

    Args:
        config: of a model with learned positions, sinusoids or none.
        length: the longest text in tokens.
        kind: `model_type` that has the table.
    """
    if config.position.kind == "learned":
        return config.position.max_positions, None, ()
    positions = _table_length(length)
    encoding: Any = build_position(config.position, config)
    nothing = torch.zeros(1, positions, config.hidden_size)
    what = "sinusoids" if config.position.kind == "sinusoidal" else "zeros: it has no positions"
    note = (
        f"Its positions are a fixed table of {positions} {what}. In {kind} the table is trained: "
        "freeze it when you train on."
    )
    return positions, encoding.embed(nothing, Positions(torch.arange(positions)))[0], (note,)


def _filled(model: Any, weights: Mapping[str, Tensor]) -> Any:
    """Load weights into a fresh model of `transformers`; all that it lacks is tied or computed."""
    _, unexpected = model.load_state_dict(dict(weights), strict=False)
    assert not unexpected, unexpected
    return model.eval()
