"""The model of `transformers` that computes the same as one here, if there is one.

masked LM, rotary, base 10000         roformer             whole heads, interleaved pairs; values that
                                                           are rotated too; embeddings of another size
masked LM, rotary, otherwise          jina_embeddings_v3   any base, whole heads or a part of them;
                                                           half-split pairs
classifier, rotary                    jina_embeddings_v3   roformer's head has no tanh
either, learned                       bert                 only bert has the head for segment pairs
either, sinusoidal or no positions    bert                 its table filled with sinusoids or zeros
causal LM, rotary                     gpt_neox             any base, whole heads or a part of them
causal LM, learned                    gpt2
causal LM, sinusoidal or no positions gpt2                 its table filled with sinusoids or zeros
translation, sinusoidal               marian, pegasus      norms after, before the sublayers
everything else                       none
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roformer.config.build import build, plain
from roformer.config.wmt import SearchConfig
from roformer.data.bpe import Bpe
from roformer.interop.layout import convert_state_layout, half_order
from roformer.interop.mapping import from_transformers, settings_of, to_transformers
from roformer.models.description import StoredModel
from roformer.nn.position import Positions, build_position
from roformer.nn.rotary import Layout

LAYOUTS: dict[str, Layout] = {
    "roformer": "interleaved",
    "jina_embeddings_v3": "half",
    "gpt_neox": "half",
}
"""`model_type` with rotary positions → how it pairs dimensions."""
AUTO = {
    "mlm": "AutoModelForMaskedLM",
    "classifier": "AutoModelForSequenceClassification",
    "causal": "AutoModelForCausalLM",
    "translation": "AutoModelForSeq2SeqLM",
}
FAMILIES = {
    "mlm": ("bert and roformer", "post"),
    "classifier": ("bert and roformer", "post"),
    "causal": ("gpt2 and gpt_neox", "pre"),
    "translation": ("marian and pegasus", None),
}
"""Kind of a model → the models of `transformers` that are compared, and their order of norms."""


class NoEquivalent(Exception):
    """`transformers` has no model that computes the same; the message says why."""


class ExportedModel(NamedTuple):
    """A model of `transformers` with the weights of a trained one."""

    model: Any  # a `PreTrainedModel` in evaluation mode
    length: int  # tokens that it can read
    notes: tuple[str, ...]  # sentences on the conversion for the user
    description: dict[str, Any] | None  # None of a type that `roformer.interop.hugging_face` reads


def equivalent(stored: StoredModel, length: int) -> ExportedModel:
    """Return the model of `transformers` that computes the same as a trained one, or raise NoEquivalent.

    `length` is the longest text that it was trained on, in tokens; tables that can be of any length get
    the next power of two, at least 512.
    """
    import transformers

    for reason in _differences(stored):
        raise NoEquivalent(reason)
    kind, position = _model_type(stored), stored.model.position
    generation: dict[str, Any] = {}
    if stored.kind == "translation":
        search = build(SearchConfig, stored.description["search"])
        settings, generation, notes = _translation(stored.tokenizer, search, length)
    else:
        settings, notes = _settings(stored, kind)
    needed = max(length, generation.get("max_new_tokens", 0)) + (stored.kind == "translation")
    table = position.longest or max(512, 1 << (needed - 1).bit_length())
    config = transformers.AutoConfig.for_model(
        kind,
        **settings_of(stored.model, kind),
        **settings,
        vocab_size=stored.vocab_size,
        max_position_embeddings=table,
    )
    auto, objective = AUTO[stored.kind], stored.description.get("objective")
    if objective and kind == "bert":
        auto = "AutoModelForPreTraining"
        if objective == "mlm_sop":
            notes.append("Its next-sentence head predicts whether two segments are in their order.")
    elif objective:
        heads = ("pooler.", "relation.")
        kept = {name: t for name, t in stored.weights.items() if not name.startswith(heads)}
        stored = replace(stored, weights=kept)
        notes.append(f"{kind} has no head for pairs of segments, so the run's is excluded.")
    model = getattr(transformers, auto).from_config(config)
    if stored.kind == "translation":
        weights = to_marian(stored.weights)
        model.generation_config = transformers.GenerationConfig(**generation)
    else:
        weights = to_transformers(_arranged(stored, kind, table), kind)
    if kind in ("bert", "gpt2") and position.kind != "learned":
        what = "sinusoids" if position.kind == "sinusoidal" else "zeros: it has no positions"
        notes.append(
            f"Its positions are a fixed table of {table} {what}. In {kind} the table is trained: "
            "freeze it when you train on."
        )
    if kind == "gpt2":
        model.generation_config.max_length = table  # pipelines would write 256 tokens more
    _, unexpected = model.load_state_dict(weights, strict=False)  # absent ones are tied or computed
    assert not unexpected, unexpected
    reads = length + 1 if stored.kind == "translation" else table
    own = None if kind in ("bert", "roformer") else _description(stored, kind, table)
    return ExportedModel(model.eval(), reads, tuple(notes), own)


def read_equivalent(folder: Path, description: dict[str, Any]) -> dict[str, Tensor]:
    """Return the weights of an exported model under their names here, fp32."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    theirs = getattr(transformers, AUTO[description["kind"]]).from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, local_files_only=True
    )
    kind, model = theirs.config.model_type, description["model"]
    weights = from_transformers(theirs.state_dict(), "marian" if kind == "pegasus" else kind)
    if kind in LAYOUTS and (layout := model["position"]["layout"]) != LAYOUTS[kind]:
        heads, size = model["heads"], model["hidden_size"] // model["heads"]
        weights = convert_state_layout(weights, heads, layout, rotary_dim=size)
    if description["kind"] == "translation":
        return _permuted(weights, half_order(model["hidden_size"]).argsort())
    return _rearranged(weights, kind, (model["heads"], 3))


def _description(stored: StoredModel, kind: str, table: int) -> dict[str, Any]:
    """Return the description of a model as its export stores it, layout and table included."""
    model = plain(stored.model)
    if kind in LAYOUTS:
        # A rotated part is not half-split within a whole head, so Jina's are read back interleaved.
        model["position"]["layout"] = "half" if kind == "gpt_neox" else "interleaved"
    elif kind == "gpt2":
        model["position"] = {"kind": "learned", "max_positions": table}
    description = {**stored.description, "model": model}
    description.pop("objective", None)  # only bert has its head
    return description


def _model_type(stored: StoredModel) -> str:
    """Return the `model_type` of the model that computes the same."""
    model, rotary = stored.model, stored.model.position.kind == "rotary"
    if stored.kind == "translation":
        return "marian" if model.norm == "post" else "pegasus"
    if stored.kind == "causal":
        return "gpt_neox" if rotary else "gpt2"
    if not rotary:
        return "bert"
    whole = model.position.base == 10000.0 and model.rotary_dim == model.head_dim
    return "roformer" if stored.kind == "mlm" and whole else "jina_embeddings_v3"


def _differences(stored: StoredModel) -> Iterator[str]:
    """Yield by what a model differs from those that `transformers` has."""
    model, position = stored.model, stored.model.position
    names, norm = FAMILIES[stored.kind]
    own = _model_type(stored) == "roformer"
    if model.embedding_width != model.hidden_size and not own:
        yield "only roformer's masked LM has embeddings of another size than the hidden one"
    if model.attention.kind != "softmax":
        yield f"{names} have no {model.attention.kind} attention"
    if not model.affine:
        yield f"{names} have biases and norms with weights"
    if norm not in (None, model.norm):
        places = {"pre": "before", "post": "after"}
        yield f"its norms are {places[model.norm]} the sublayers, in {names} they are {places[norm]} them"
    if position.absolute != "none":
        yield f"{names} have no {position.name} positions"
    if stored.kind == "translation":
        if position.kind != "sinusoidal":
            yield f"{names} compute sinusoids; this model has {position.kind} positions"
        elif (position.base, position.scale or 1.0) != (10000.0, 1.0):
            yield f"{names} have sinusoids of base 10000 and amplitude 1; this model has {position}"
        if model.layer_norm_eps != 1e-5:
            yield f"{names} have layer_norm_eps=1e-5, this model {model.layer_norm_eps:g}"
    elif position.kind == "rotary":
        if position.scaling.kind != "none":
            yield f"{names} rotate otherwise than {position}"
        if position.rotate_values and not own:
            yield "only roformer's masked LM rotates values, with base 10000 and whole heads"
        power, most = model.head_dim / model.rotary_dim, torch.finfo(torch.float32).max
        if stored.kind != "causal" and math.log(position.base) * power > math.log(most):
            yield f"jina_embeddings_v3 would need the base {position.base:g}^{power:g}, too large for fp32"
    elif not position.exports:
        yield f"{names} have no {position.kind} positions as trained here"
    if stored.kind == "causal" and getattr(stored.tokenizer, "words", "none") != "none":
        yield "no tokenizer of a causal model there cuts Chinese into words"


def _settings(stored: StoredModel, kind: str) -> tuple[dict[str, Any], list[str]]:
    """Return the settings except sizes, and notes for the user."""
    model, tokenizer, description = stored.model, stored.tokenizer, stored.description
    base = getattr(model.position, "base", None)
    settings: dict[str, Any] = {"pad_token_id": getattr(tokenizer, "pad_id", None)}
    settings |= {"bos_token_id": None, "eos_token_id": None}
    if stored.kind == "causal":
        end_id = getattr(tokenizer, "sep_id", None)
        settings |= {"bos_token_id": end_id, "eos_token_id": end_id, "tie_word_embeddings": True}
    if stored.kind == "classifier":
        labels = description["labels"]
        names = dict(enumerate(labels or ["score"]))
        settings |= {
            "id2label": names,
            "label2id": {name: number for number, name in names.items()},
            "problem_type": "single_label_classification" if labels else "regression",
            "classifier_dropout": description["head_dropout"],
        }
    if kind not in ("gpt_neox", "jina_embeddings_v3"):
        return settings, []
    factor = model.rotary_dim / model.head_dim
    # transformers cuts the product off, and 30 / 44 · 44 is 29.99….
    if int(model.head_dim * factor) < model.rotary_dim:
        factor = math.nextafter(factor, 1.0)
    rope = {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": factor}
    if kind == "gpt_neox":
        return settings | {"use_parallel_residual": False, "rope_parameters": rope}, []
    why = f"roformer has no base but 10000, and this model's is {base:g}"
    if model.rotary_dim < model.head_dim:
        # With this base the first frequencies of a whole head equal the frequencies of the part.
        rope |= {
            "rope_type": "proportional",
            "rope_theta": base ** (model.head_dim / model.rotary_dim),
        }
        why = f"roformer rotates whole heads, this model {model.rotary_dim} of {model.head_dim} dimensions"
    if stored.kind == "classifier":
        why = (
            "the head of RoFormerForSequenceClassification has the encoder's gelu where this "
            "model's pooler has tanh"
        )
    note = f"It is of type {kind}, the same network: {why}. Nothing in it comes from Jina's models."
    return settings | {"rope_parameters": rope}, [note]


def _translation(
    tokenizer: Bpe, search: SearchConfig, length: int
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the settings except sizes, the settings of `generate`, and notes."""
    longest = int((length + 1) * search.max_length_ratio) + search.max_length_extra
    ends = {
        "pad_token_id": tokenizer.pad_id,
        "eos_token_id": tokenizer.end_id,
        "decoder_start_token_id": tokenizer.end_id,
    }
    generation: dict[str, Any] = ends | {
        "num_beams": search.beam,
        "max_new_tokens": longest,
        "bad_words_ids": [[tokenizer.pad_id]],
        "do_sample": False,
    }
    notes = [
        f"`generate` cuts any translation at {longest} tokens; the run's search ended each at "
        f"{search.max_length_ratio:g} x source tokens + {search.max_length_extra}. Shorter translations "
        "are the same."
    ]
    if search.beam > 1:
        generation |= {"early_stopping": True, "length_penalty": search.alpha}
        notes.append(
            "`early_stopping` ends the search, like the run's search, when as many hypotheses as "
            "beams are finished."
        )
    if search.beam > 1 and search.length_penalty == "gnmt":
        notes.append(
            f"`generate` has no length penalty ((5 + L) / 6)^{search.alpha:g}, which the run's "
            f"search had, and divides by L^{search.alpha:g}: its scores and some translations "
            "differ."
        )
    fixed = {"activation_dropout": 0.0, "scale_embedding": True, "forced_eos_token_id": None}
    return ends | fixed, generation, notes


def _arranged(stored: StoredModel, kind: str, positions: int) -> dict[str, Tensor]:
    """Return the weights of a model that is not a translation model as another lays them out."""
    model, position = stored.model, stored.model.position
    weights, layout = dict(stored.weights), LAYOUTS.get(kind)
    if layout is not None:
        convert = partial(convert_state_layout, heads=model.heads, values=position.rotate_values)
        if position.layout == "half":
            weights = convert(weights, to="interleaved", rotary_dim=model.rotary_dim)
        if layout == "half":
            # Jina's models pair all dimensions of a head, those that we do not rotate with frequency 0.
            size = model.rotary_dim if kind == "gpt_neox" else model.head_dim
            weights = convert(weights, to="half", rotary_dim=size)
    weights = _rearranged(weights, kind, (3, model.heads))
    if layout is None and position.kind != "learned":
        encoding: Any = build_position(position, model)
        nothing = torch.zeros(1, positions, model.hidden_size)
        name = "position.table" if kind == "gpt2" else "encoder.position.table"
        weights[name] = encoding.embed(nothing, Positions(torch.arange(positions)))[0]
    return weights


def _rearranged(
    weights: Mapping[str, Tensor], kind: str, axes: tuple[int, int]
) -> dict[str, Tensor]:
    """Return weights of a causal model in the other arrangement, here or of `transformers`.

    The matrices of GPT-2 are (in, out). A fused projection has all queries, then keys and values, here,
    `axes` (3, heads), and query, key and value of each head in GPT-NeoX, `axes` (heads, 3).
    """
    arranged = dict(weights)
    for name, tensor in weights.items():
        if kind == "gpt_neox" and ".attention.projection." in name:
            arranged[name] = tensor.unflatten(0, (*axes, -1)).transpose(0, 1).flatten(0, 2)
        elif kind == "gpt2" and name.startswith("blocks.") and tensor.ndim == 2:
            arranged[name] = tensor.T.contiguous()
    return arranged


def to_marian(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the state dict of a sinusoidal `Seq2Seq` to the names of Marian and Pegasus.

    Both have all sines in the first half of the dimensions and all cosines in the second, where
    Vaswani et al. interleave them. Hidden dimensions have no order, so they are permuted in every
    weight that reads or writes them. Tied matrices, tables and the zero bias are excluded.
    """
    shared = state["tokens.weight"]
    order = half_order(shared.shape[1]).to(shared.device)
    return to_transformers(_permuted(state, order), "marian")


def _permuted(state: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Return the weights of a `Seq2Seq` with its hidden dimensions in another order."""
    permuted = dict(state)
    for name, tensor in state.items():
        if name.rpartition(".")[0].endswith(("output", "outer", "norm")):  # writes them
            permuted[name] = tensor[order]
        elif tensor.ndim == 2:
            permuted[name] = tensor[:, order]
    return permuted
