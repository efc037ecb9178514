"""Start training from the weights of a trained model, or from none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from torch import nn

from roformer.config import schema
from roformer.config.build import build, plain
from roformer.data.tokenizers import load_wordpiece, train_tokenizer
from roformer.errors import InputError
from roformer.inference.names import AT_STEP, find
from roformer.inference.open import open_model
from roformer.interop.hugging_face import is_hugging_face
from roformer.interop.mapping import names_there
from roformer.interop.stored import StoredModel
from roformer.models.description import Kind

SCRATCH = "scratch"
STARTS: tuple[Kind, ...] = ("mlm", "classifier", "encoder", "scorer")
"""Kinds of models that have an encoder."""
HEAD = ("pooler.", "classifier.")
"""Beginnings of the names of weights that may be missing."""


def find_start(
    init_from: str,
    revision: str | None,
    model: schema.EncoderConfig,
    tokenizer: schema.TokenizerConfig | None,
    runs_dir: str,
    texts: Callable[[], Iterable[str]],
) -> StoredModel:
    """Open the model that `init_from` names.

    Args:
        init_from: a name that `open_model` opens, or `scratch`.
        revision: of a Hub id.
        model: the model for random weights; of a trained model only its dropout is used.
        tokenizer: for random weights; of a trained model it may only confirm its tokenizer.
        runs_dir: where runs are.
        texts: training texts, for random weights whose tokenizer is to be trained.

    Raises:
        InputError: there is no such model, it has no encoder, or its tokenizer differs.
    """
    if init_from == SCRATCH:
        chosen = tokenizer or schema.TokenizerConfig()
        trains = chosen.source == "train"
        words = train_tokenizer(list(texts()), chosen) if trains else load_wordpiece(chosen)
        description = {"vocab_size": words.size}
        return StoredModel(
            SCRATCH, "encoder", model, description, {}, words, digest=words.fingerprint
        )
    start = _trained(init_from, revision, runs_dir)
    if tokenizer is not None:
        given = load_wordpiece(tokenizer) if tokenizer.source != "train" else None
        if given is None or given.fingerprint != start.tokenizer.fingerprint:
            raise InputError(
                f"tokenizer.source={tokenizer.source} is not the tokenizer that {init_from} was "
                "trained with: leave tokenizer out"
            )
    dropout = {"hidden_dropout": model.hidden_dropout, "attention_dropout": model.attention_dropout}
    return replace(start, model=build(schema.EncoderConfig, plain(start.model) | dropout))


def _trained(init_from: str, revision: str | None, runs_dir: str) -> StoredModel:
    path = find(init_from, runs_dir)
    of_hub, exists = is_hugging_face(path), Path(path).expanduser().exists()
    if not exists and not of_hub:
        raise InputError(
            f"init_from={init_from}: no such run, folder or Hub id: give a run under {runs_dir}/, "
            "its id, a Hugging Face model, scratch or auto"
        )
    try:
        start = open_model(path, STARTS, revision=revision if of_hub else None, runs_dir=runs_dir)
    except InputError as error:
        raise InputError(f"init_from={error}") from error
    if isinstance(start.tokenizer, str):
        raise InputError(f"init_from={init_from} cannot be fine-tuned on texts: {start.tokenizer}")
    if start.architecture == "roformer_classifier":  # its pooler has gelu, ours tanh
        heads = [name for name in start.weights if name.startswith(HEAD)]
        theirs = [part for name in heads for part in names_there(name, start.architecture)]
        encoder = {name: tensor for name, tensor in start.weights.items() if name not in heads}
        unused, digest = (*start.unused, *theirs), start.fingerprint
        start = replace(start, weights=encoder, unused=unused, digest=digest)
    if of_hub or Path(init_from).expanduser().exists():
        start = replace(start, name=init_from)
    # An id stands for a whole run, and with a step for one of its checkpoints; others have a path.
    folder, step = Path(path), ""
    if not Path(init_from).expanduser().exists() and (at := AT_STEP.fullmatch(init_from)):
        folder, step = folder.parents[1], f"@{int(at['step'])}"
    run = Path(runs_dir) / "pretrain" / folder.name
    return replace(start, name=run.name + step) if folder.resolve() == run.resolve() else start


def load_start(start: StoredModel, model: nn.Module) -> str:
    """Load the weights of a start into `model`; return a line on what was new and what was not used.

    Raises:
        InputError: a weight of the encoder is missing.
    """
    if start.name == SCRATCH:
        return "all weights are new (init_from=scratch)"
    own = model.state_dict()
    fitting = {
        name: tensor
        for name, tensor in start.weights.items()
        if name in own and (tensor.shape == own[name].shape or not name.startswith(HEAD))
    }
    missing = [name for name in own if name not in fitting]
    if lost := [name for name in missing if not name.startswith(HEAD)]:
        raise InputError(f"{start.name} lacks weights of the encoder: {', '.join(lost[:4])}")
    model.load_state_dict(fitting, strict=False)
    unused = [*(name for name in start.weights if name not in fitting), *start.unused]
    return (
        f"{len(fitting)} weights from {start.name}; new: {', '.join(missing) or 'none'}; "
        f"not used: {', '.join(unused) or 'none'}"
    )
