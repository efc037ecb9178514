"""Where a fine-tuning starts: a run of ours, a Hugging Face model of type bert or roformer, nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file
from torch import Tensor, nn
from typing_extensions import TypedDict

from roformer.config import schema
from roformer.config.build import build, plain
from roformer.data.tokenizers import WordPiece, load_wordpiece
from roformer.data.word_vocabulary import train_tokenizer
from roformer.errors import InputError
from roformer.json_files import check_shape, read_object
from roformer.pipelines.descriptions import (
    check_size,
    described,
    read_description,
    read_tokenizer,
    sound_weights,
)
from roformer.pipelines.hugging_face import check_folder, is_hugging_face, read_hugging_face
from roformer.pipelines.names import find
from roformer.training import checkpoint

SCRATCH = "scratch"
HEAD = ("pooler.", "classifier.")
"""What a start need not bring."""


class Stored(TypedDict):
    """What is used of what a checkpoint says of each of its files."""

    sha256: str


class Start(NamedTuple):
    """What a fine-tuning begins with."""

    name: str
    """As the record says it: a run id, a folder, a Hub id, or `scratch`."""
    model: schema.EncoderConfig
    vocab_size: int
    tokenizer: WordPiece
    weights: dict[str, Tensor]
    """Under our names; empty for a fresh model."""
    fingerprint: str
    """Equal where weights and tokenizer are."""
    revision: str | None = None
    """Commit of a Hub id, found out where none was given."""


def find_start(
    init_from: str,
    revision: str | None,
    model: schema.EncoderConfig,
    tokenizer: schema.TokenizerConfig | None,
    runs_dir: str,
    texts: Callable[[], Iterable[str]],
) -> Start:
    """Read what the config's `init_from` names.

    Args:
        init_from: what `load_model` opens (a run's folder or id, a checkpoint's folder, a Hugging Face
            folder or Hub id), or `scratch`.
        revision: of a Hub id.
        model: of a fresh model; of weights that are read it gives the dropout alone.
        tokenizer: for a fresh model; of weights that are read it may only confirm theirs.
        runs_dir: where runs are.
        texts: training texts, for a fresh model whose tokenizer is to be trained.

    Raises:
        InputError: nothing is there, the weights are of another kind, or their tokenizer differs.
    """
    if init_from == SCRATCH:
        chosen = tokenizer or schema.TokenizerConfig()
        words = (
            train_tokenizer(list(texts()), chosen)
            if chosen.source == "train"
            else load_wordpiece(chosen)
        )
        return Start(SCRATCH, model, words.size, words, {}, words.fingerprint)
    path = Path(find(init_from, runs_dir))
    if is_hugging_face(str(path)):
        start = _from_hugging_face(init_from, revision)
    elif path.exists():
        check_folder(str(path))
        found_by_id = not Path(init_from).expanduser().exists()
        start = _from_checkpoint(str(path) if found_by_id else init_from, path, runs_dir)
    else:
        raise InputError(
            f"init_from={init_from}: no such run, folder or Hub id: give a run under {runs_dir}/, "
            "its id, a Hugging Face model, scratch or auto"
        )
    if tokenizer is not None:
        given = load_wordpiece(tokenizer) if tokenizer.source != "train" else None
        if given is None or given.fingerprint != start.tokenizer.fingerprint:
            raise InputError(
                f"tokenizer.source={tokenizer.source} is not the tokenizer that {init_from} was "
                "trained with: leave tokenizer out"
            )
    dropout = {"hidden_dropout": model.hidden_dropout, "attention_dropout": model.attention_dropout}
    content = {**plain(start.model), **dropout}
    return start._replace(model=build(schema.EncoderConfig, content))


def _from_checkpoint(init_from: str, path: Path, runs_dir: str) -> Start:
    folder = checkpoint.resolve(path)
    description = read_description(folder)
    if "languages" in description:
        raise InputError(f"init_from={init_from} is a translation model, which has no classifier")
    if "reads" in description:
        raise InputError(
            f"init_from={init_from} is a causal language model, which has no classifier"
        )
    run = folder.parent.parent
    tokenizer = read_tokenizer(folder, description)
    try:
        files = read_object(folder / checkpoint.COMPLETE)
        check_shape(dict[str, Stored], files)
        fingerprint = files[checkpoint.MODEL]["sha256"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{folder / checkpoint.COMPLETE} is damaged ({error}): choose another checkpoint"
        ) from error
    with sound_weights(folder):
        weights = load_file(folder / checkpoint.MODEL)
    config = described(schema.EncoderConfig, folder, description["model"])
    check_size(config, description["vocab_size"], [folder / checkpoint.MODEL])
    # Its id names a whole run; a certain checkpoint of it is named by its path.
    by_id = path.resolve() == (Path(runs_dir) / "pretrain" / run.name).resolve()
    return Start(
        name=run.name if by_id else init_from,
        model=config,
        vocab_size=description["vocab_size"],
        tokenizer=tokenizer,
        weights=weights,
        fingerprint=fingerprint,
    )


def _from_hugging_face(init_from: str, revision: str | None) -> Start:
    try:
        read = read_hugging_face(init_from, revision)
    except InputError as error:
        raise InputError(f"init_from={error}") from error
    if isinstance(read.tokenizer, str):
        raise InputError(f"init_from={init_from} cannot be fine-tuned on texts: {read.tokenizer}")
    weights = read.weights
    if read.activation != "tanh":  # a head that a fine-tuning does not have: told as not used
        weights = {
            read.names[name][0] if name.startswith(HEAD) else name: tensor
            for name, tensor in weights.items()
        }
    weights = weights | read.unused
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].numpy().tobytes())
    return Start(
        init_from,
        read.config,
        read.vocab_size,
        read.tokenizer,
        weights,
        digest.hexdigest(),
        read.commit,
    )


def load_start(start: Start, model: nn.Module) -> str:
    """Give `model` the weights of a start; return a line on what was new and what was not used.

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
    unused = [name for name in start.weights if name not in fitting]
    return (
        f"{len(fitting)} weights from {start.name}; new: {', '.join(missing) or 'none'}; "
        f"not used: {', '.join(unused) or 'none'}"
    )
