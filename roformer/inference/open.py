"""Open a trained model: a run, a checkpoint, an exported folder, or a Hugging Face model.

Everything that takes a trained model (`load_model`, `load_translator`, `load_generator`, `init_from`, the
export) opens it here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from roformer.config.build import build
from roformer.config.schema import TransformerConfig
from roformer.data.bpe import Bpe
from roformer.data.tokenizers import ByteVocabulary, WordPiece
from roformer.errors import InputError
from roformer.inference.names import RUNS, find
from roformer.interop.hugging_face import (
    HuggingFaceModel,
    build_encoder,
    check_folder,
    is_hugging_face,
    read_hugging_face,
)
from roformer.json_files import check_shape, read_object
from roformer.models.description import KINDS, Description, Kind, build_model, check_size
from roformer.training import checkpoint
from roformer.training.averaging import choose

C = TypeVar("C")
Tokenizer = WordPiece | Bpe | ByteVocabulary


@dataclass(frozen=True)
class OpenedModel:
    """A trained model as it is stored."""

    name: str
    """The path of a run or checkpoint, or a Hub id."""
    kind: Kind | Literal["encoder"]
    """`encoder`: a Hugging Face model without a head that is known here."""
    config: TransformerConfig
    vocab_size: int
    weights: dict[str, Tensor]
    """By the names of `models`; of a Hugging Face model the heads may be incomplete."""
    tokenizer: Tokenizer | str
    """Or a sentence why there is none."""
    description: dict[str, Any]
    """See `roformer.models.description`; of a Hugging Face model what its configuration says of it."""
    checkpoint: Path | None = None
    """Folder of a checkpoint; None of a Hugging Face model."""
    hugging_face: HuggingFaceModel | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 that is equal where the weights are."""
        if self.checkpoint is not None:
            files = read_object(self.checkpoint / checkpoint.COMPLETE)
            return str(files[checkpoint.MODEL]["sha256"])
        digest = hashlib.sha256()
        for name in sorted(self.weights):
            digest.update(name.encode())
            digest.update(self.weights[name].numpy().tobytes())
        return digest.hexdigest()

    def build(self) -> nn.Module:
        """Return the model with its weights, on the CPU, in fp32, in evaluation mode.

        Raises:
            InputError: the weights are not those of the configuration; a Hugging Face model has an
                incomplete head, or one that cannot be computed here.
        """
        if self.hugging_face is not None:
            return build_encoder(self.hugging_face)
        assert self.checkpoint is not None
        with sound_weights(self.checkpoint):
            model = build_model(self.description, self.config)
            model.load_state_dict(self.weights)
        return model.eval()


def open_model(
    name: str | Path,
    *,
    revision: str | None = None,
    runs_dir: str | Path = RUNS,
    which: str | None = None,
) -> OpenedModel:
    """Open a trained model, on the CPU.

    Args:
        name: a run's folder, the id of a run below `runs_dir`, a checkpoint's folder, the folder of an
            exported or other Hugging Face model, or a Hub id.
        revision: of a Hub id: branch, tag or commit.
        runs_dir: where runs are.
        which: checkpoint of a run, by the name of its folder; None: the average of a translation
            model, the best checkpoint of a classifier or scorer, else the newest.

    Raises:
        InputError: nothing complete is there, it is damaged, or it lacks its tokenizer; a Hugging Face
            model cannot be had, or has variants that are not here.
    """
    path = find(name, runs_dir)
    if is_hugging_face(path):
        if revision is not None and Path(path).expanduser().exists():
            raise InputError(
                f"revision={revision} is of a Hub id, and {path} is a folder: leave it out"
            )
        return _from_hugging_face(path, revision)
    if revision is not None:
        raise InputError(f"revision={revision} is of a Hub id, and {path} is none: leave it out")
    check_folder(path)
    folder = choose(Path(path), which)
    return _from_checkpoint(path, folder, read_description(folder))


def read_description(folder: Path) -> dict[str, Any]:
    """Return the description of a checkpoint; see `roformer.models.description`.

    Raises:
        InputError: it is damaged or of an unknown kind.
    """
    file = folder / checkpoint.DESCRIPTION
    try:
        description = read_object(file)
        check_shape(Description, description)
        check_shape(KINDS[description["kind"]].description, description)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is damaged ({error}): choose another checkpoint") from error
    return description


def described(cls: type[C], folder: Path, content: dict[str, Any]) -> C:
    """Build a part of a checkpoint's description as the configuration that it is.

    Raises:
        InputError: a value is unknown, missing or impossible; names the file and the key.
    """
    try:
        return build(cls, content)
    except InputError as error:
        raise InputError(f"{folder / checkpoint.DESCRIPTION} is damaged ({error})") from error


@contextmanager
def sound_weights(folder: Path) -> Iterator[None]:
    """Turn errors of reading a checkpoint's weights into an InputError that names them."""
    try:
        yield
    except (SafetensorError, OSError, RuntimeError) as error:  # RuntimeError: of other shapes
        lines = " ".join(str(error).split())
        raise InputError(
            f"{folder / checkpoint.MODEL} is not the weights of its model ({lines}): choose another "
            "checkpoint"
        ) from error


def _from_checkpoint(name: str, folder: Path, description: dict[str, Any]) -> OpenedModel:
    vocab_size = description["vocab_size"]
    config = described(KINDS[description["kind"]].config, folder, description["model"])
    check_size(config, vocab_size, [folder / checkpoint.MODEL])
    with sound_weights(folder):
        weights = load_file(folder / checkpoint.MODEL)
    return OpenedModel(
        name=name,
        kind=description["kind"],
        config=config,
        vocab_size=vocab_size,
        weights=weights,
        tokenizer=_tokenizer(folder, description),
        description=description,
        checkpoint=folder,
    )


def _tokenizer(folder: Path, description: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer of the run that a checkpoint belongs to.

    Raises:
        InputError: it is missing, or not the one that the model was trained with.
    """
    found: Tokenizer = ByteVocabulary()
    source = folder.parent.parent / "tokenizer"
    if description.get("reads") != "bytes":
        if not source.is_dir():
            raise InputError(
                f"{source.parent} has no tokenizer/: give a whole run, not a checkpoint moved out of it"
            )
        found = (Bpe if description["kind"] == "translation" else WordPiece).load(source)
    # The embeddings of a model that began as one of Hugging Face may have rows to spare.
    differs = not isinstance(found, WordPiece) and found.size != description["vocab_size"]
    if found.fingerprint != description["tokenizer"] or differs:
        raise InputError(
            f"{source} is not the one that {folder.name} was trained with (vocabulary "
            f"{found.size:,} there, {description['vocab_size']:,} in the model): restore it, or "
            "choose another run"
        )
    return found


def _from_hugging_face(name: str, revision: str | None) -> OpenedModel:
    read = read_hugging_face(name, revision)
    description: dict[str, Any] = {"max_length": read.settings.max_position_embeddings}
    if read.kind == "classifier":
        names = read.settings.id2label
        labels = [str(names.get(number, number)) for number in range(read.settings.num_labels)]
        description |= {"texts": None, "labels": labels if len(labels) > 1 else None}
    return OpenedModel(
        name=name,
        kind=read.kind,
        config=read.config,
        vocab_size=read.vocab_size,
        weights=read.weights,
        tokenizer=read.tokenizer,
        description=description,
        hugging_face=read,
    )
