"""Start training from the weights of a trained model, or from none."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from roformer.config import schema
from roformer.config.build import build, plain
from roformer.config.lm import CausalLMConfig
from roformer.config.start import SCRATCH, Weights, fixed, of_parameters
from roformer.data.tokenizers import WordPiece, load_wordpiece, train_tokenizer
from roformer.errors import InputError, prefixed
from roformer.inference.resolve import AT_STEP, RUNS, choose, find, resolve
from roformer.interop.hugging_face import identify, is_hugging_face, read_settings
from roformer.interop.mapping import names_there
from roformer.models.description import KINDS, StoredModel
from roformer.registry import Kind
from roformer.training import checkpoint

C = TypeVar("C", bound=Any)

STARTS: tuple[Kind, ...] = ("mlm", "classifier", "encoder", "scorer")
"""Kinds of models that have an encoder."""
ENCODER = "encoder."
"""Beginning of the names of an encoder's weights in a model with a head."""


def find_start(
    init_from: str,
    revision: str | None,
    model: schema.EncoderConfig,
    tokenizer: schema.TokenizerConfig | None,
    runs_dir: str,
    texts: Callable[[], Iterable[str]],
) -> StoredModel:
    """Open the model that a fine-tuning starts from: trained weights, or random ones for `scratch`.

    `model`, `tokenizer` and the training's `texts` are for random weights. A trained model takes only the
    dropout of `model`, and `tokenizer` must be its own.
    """
    if init_from == SCRATCH:
        chosen = tokenizer or schema.TokenizerConfig()
        trains = chosen.source == "train"
        words = train_tokenizer(list(texts()), chosen) if trains else load_wordpiece(chosen)
        description = {"vocab_size": words.size}
        return StoredModel(
            SCRATCH, "encoder", model, description, {}, words, digest=words.fingerprint
        )
    start = open_start(init_from, revision, runs_dir=runs_dir)
    if tokenizer is not None:
        given = load_wordpiece(tokenizer) if tokenizer.source != "train" else None
        if given is None or given.fingerprint != start.tokenizer.fingerprint:
            raise InputError(
                f"tokenizer.source={tokenizer.source} is not the tokenizer that {init_from} was "
                "trained with: leave tokenizer out"
            )
    dropout = {"hidden_dropout": model.hidden_dropout, "attention_dropout": model.attention_dropout}
    return replace(start, model=build(schema.EncoderConfig, plain(start.model) | dropout))


def weights_of(config: schema.MaskedLMConfig | CausalLMConfig) -> StoredModel | None:
    """Open the weights that a language model starts from, and check that they fit; None: random ones."""
    if config.init_from is None:
        return None
    start = open_start(
        config.init_from,
        getattr(config, "init_revision", None),
        kinds=("causal",) if config.model.causal else STARTS,
        runs_dir=config.runtime.runs_dir,
    )
    if getattr(config, "keep_moments", False) and start.checkpoint is None:
        raise InputError(
            f"init_from={config.init_from} has no moments of AdamW: set keep_moments=false"
        )
    if not isinstance(start.tokenizer, WordPiece):
        raise InputError(f"init_from={config.init_from} reads bytes: give a run under runs/clm/")
    here, there = (fixed(plain(model)) for model in (config.model, start.model))
    if differing := list(checkpoint.differences(here, there)):
        raise InputError(
            f"init_from={config.init_from} is another model: {'; '.join(differing[:4])}: leave this out, "
            "since sizes come with the weights"
        )
    chosen = config.data.tokenizer
    if chosen.comes_with_weights:
        return start
    given = load_wordpiece(chosen)
    if given.vocabulary != start.tokenizer.vocabulary:
        own = "init_from"
        if start.checkpoint is not None:
            own = str(start.checkpoint.parent.parent / "tokenizer")
        raise InputError(
            f"data.tokenizer.source={chosen.source} is another vocabulary ({given.size:,} entries) than that "
            f"of init_from={config.init_from} ({start.tokenizer.size:,}): set data.tokenizer.source={own}"
        )
    return replace(start, tokenizer=given)


def open_start(
    init_from: str,
    revision: str | None = None,
    *,
    kinds: Collection[Kind] = STARTS,
    runs_dir: str | Path = RUNS,
) -> StoredModel:
    """Open trained weights to start from; arguments as in `resolve`."""
    given, path = Path(init_from).expanduser(), find(init_from, runs_dir)
    if not Path(path).exists() and not is_hugging_face(path):
        raise InputError(
            f"init_from={init_from}: no such run, folder or Hub id: give a run under {runs_dir}/, "
            "its id, or a Hugging Face model"
        )
    with prefixed("init_from="):
        start = resolve(path, kinds, revision=revision, runs_dir=runs_dir)
    if isinstance(start.tokenizer, str):
        raise InputError(f"init_from={init_from} cannot be trained on texts: {start.tokenizer}")
    # In the record a pre-training run is its id, with a step for one of its checkpoints, however it was
    # named; other weights have a path or a Hub id.
    name = init_from if given.exists() or start.checkpoint is None else start.name
    folder, step = Path(path), ""
    if not given.exists() and (at := AT_STEP.fullmatch(init_from)):
        folder, step = folder.parents[1], f"@{int(at['step'])}"
    run = Path(runs_dir) / "pretrain" / folder.name
    return replace(start, name=run.name + step if folder.resolve() == run.resolve() else name)


def settings_of(kind: Kind, init_from: str, revision: str | None, runs_dir: str) -> Weights | None:
    """Return the settings of the weights that `init_from` names, for a model of a kind.

    None: the weights do not exist yet, or are of another kind; opening them raises the error.
    """
    try:
        path = find(init_from, runs_dir)
        if is_hugging_face(path):
            encoder, vocabulary = read_settings(path, revision)
            found = Weights(plain(encoder), vocabulary)
            return found if KINDS[kind] is schema.EncoderConfig else None
        description = checkpoint.describe(choose(Path(path)))
        cls = KINDS[description["kind"]]
        model = plain(build(cls, description["model"]))
        return Weights(model, None) if cls is KINDS[kind] else None
    except InputError:
        return None


def pinned(config: C) -> C:
    """Return a config that names published weights by their commit and SHA-256 as well."""
    if not getattr(config, "init_from", None) or not hasattr(config, "init_digest"):
        return config
    path = find(config.init_from, config.runtime.runs_dir)
    if not is_hugging_face(path):
        return config
    with prefixed("init_from="):
        commit, digest = identify(path, config.init_revision)
    if config.init_digest not in (None, digest):
        raise InputError(
            f"init_from={config.init_from} has the SHA-256 {digest}, not "
            f"init_digest={config.init_digest}: give the weights of this digest, or leave it out"
        )
    changed: C = replace(config, init_revision=commit or config.init_revision, init_digest=digest)
    return changed


def load_start(start: StoredModel, model: nn.Module) -> list[str]:
    """Load the weights of a start into `model`; return what was taken, dropped and drawn, one line each.

    If the model has another position encoding than the start, all parameters of the encoding stay as drawn.
    So do weights of a head that the start lacks, has in another shape, or that cannot be computed here.
    """
    if start.name == SCRATCH:
        return ["all weights are new (init_from=scratch)"]
    body: Any = getattr(model, "encoder", model)
    own = model.state_dict()
    inside = "" if body is model else ENCODER
    before, now = start.model.position, body.config.position
    swapped = of_parameters(plain(before)) != of_parameters(plain(now))

    def is_free(name: str) -> bool:
        return not name.startswith(inside) or (swapped and name.startswith(f"{inside}position."))

    def fits(name: str, tensor: Tensor) -> bool:
        if name.startswith(inside):
            return not is_free(name)
        flawed = start.kind == "mlm" and start.flaw is not None and not name.startswith("pooler.")
        flawed |= start.description.get("activation", "tanh") != "tanh"  # of the pooler
        return not flawed and tensor.shape == own[name].shape

    taken = {name: t for name, t in start.weights.items() if name in own and fits(name, t)}
    drawn = [name for name in own if name not in taken]
    if lost := [name for name in drawn if not is_free(name)]:
        raise InputError(f"{start.name} lacks weights of the encoder: {', '.join(lost[:4])}")
    model.load_state_dict(taken, strict=False)

    def names(weights: Iterable[str]) -> list[str]:
        return [part for name in weights for part in names_there(name, start.architecture)]

    dropped = names(name for name in start.weights if name not in taken)
    positions = f"{before.name} positions"
    if swapped:
        others = now.name if now.name != before.name else "others of this kind"
        positions += f" replaced by {others}"
    size = f"{start.model.layers}x{start.model.hidden_size}"
    return [
        f"taken: {len(names(taken))} weights of {start.name} ({start.model.name}, {size}, {positions})",
        f"dropped: {_listed([*dropped, *start.unused])}",
        f"drawn: {_listed(drawn)}",
    ]


def _listed(names: list[str]) -> str:
    """Return the names of weights, with `*` for the number of a layer."""
    return ", ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", n) for n in names)) or "nothing"
