"""Open a trained model: a run, a checkpoint, an exported folder, or a Hugging Face model.

Everything that takes a trained model (`load_model`, `load_translator`, `load_generator`, `init_from`, the
export) opens it here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from roformer.config.build import build
from roformer.config.schema import TransformerConfig
from roformer.data.bpe import Bpe
from roformer.data.tokenizers import ByteVocabulary, WordPiece
from roformer.errors import InputError
from roformer.inference.names import RUNS, find
from roformer.interop.hugging_face import (
    CONFIG,
    WEIGHTS,
    HuggingFaceModel,
    is_hugging_face,
    read_hugging_face,
)
from roformer.json_files import read_object
from roformer.models.description import KINDS, Kind, build_model
from roformer.training import checkpoint
from roformer.training.averaging import choose
from roformer.training.checkpoint import load_tensors


@dataclass(frozen=True)
class StoredModel:
    """A model in a checkpoint, whose files are as they were written."""

    folder: Path
    kind: Kind
    config: TransformerConfig
    vocab_size: int
    weights: dict[str, Tensor]
    tokenizer: WordPiece | Bpe | ByteVocabulary
    description: dict[str, Any]
    """See `roformer.models.description`."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 that is equal where the weights are."""
        files = read_object(self.folder / checkpoint.COMPLETE)
        return str(files[checkpoint.MODEL]["sha256"])

    def build(self) -> nn.Module:
        """Return the model with its weights, on the CPU, in fp32, in evaluation mode."""
        model = build_model(self.description, self.config)
        model.load_state_dict(self.weights)
        return model.eval()


def open_model(
    name: str | Path, *, revision: str | None = None, runs_dir: str | Path = RUNS
) -> StoredModel | HuggingFaceModel:
    """Open a trained model, on the CPU.

    Args:
        name: a run's folder, the id of a run below `runs_dir`, a checkpoint's folder, the folder of an
            exported or other Hugging Face model, or a Hub id. Of a run this is the average of a
            translation model, the best checkpoint of a classifier or scorer, else the newest.
        revision: of a Hub id: branch, tag or commit.
        runs_dir: where runs are.

    Raises:
        InputError: nothing complete is there, it is damaged, or it lacks its tokenizer; a Hugging Face
            model cannot be had, or has variants that are not here.
    """
    source = find(name, runs_dir)
    path = Path(source).expanduser()
    of_hub = is_hugging_face(source)
    if revision is not None and (path.exists() or not of_hub):
        what = "a folder" if of_hub else "none"
        raise InputError(
            f"revision={revision} is of a Hub id, and {source} is {what}: leave it out"
        )
    if of_hub:
        return read_hugging_face(source, revision)
    if path.is_file():
        raise InputError(f"{source} is a file: give the folder that it is in")
    own = ("checkpoints", checkpoint.DESCRIPTION, checkpoint.COMPLETE)
    if path.is_dir() and not any((path / name).exists() for name in own):
        has_weights = any((path / name).is_file() for name in WEIGHTS)
        what = "has weights but no" if has_weights else "has neither checkpoints/ nor"
        raise InputError(
            f"{source} {what} {CONFIG}: give a run, a checkpoint, or a folder that save_pretrained "
            "wrote"
        )
    folder = choose(Path(source))
    description = checkpoint.describe(folder)
    return StoredModel(
        folder=folder,
        kind=description["kind"],
        config=build(KINDS[description["kind"]], description["model"]),
        vocab_size=description["vocab_size"],
        weights=load_tensors(folder / checkpoint.MODEL),
        tokenizer=_tokenizer(folder, description),
        description=description,
    )


def _tokenizer(folder: Path, description: dict[str, Any]) -> WordPiece | Bpe | ByteVocabulary:
    """Return the tokenizer of the run that a checkpoint belongs to.

    Raises:
        InputError: it is missing, or not the one that the model was trained with.
    """
    if description.get("reads") == "bytes":
        return ByteVocabulary()
    source = folder.parent.parent / "tokenizer"
    if not source.is_dir():
        raise InputError(
            f"{source.parent} has no tokenizer/: give a whole run, not a checkpoint moved out of it"
        )
    found = (Bpe if description["kind"] == "translation" else WordPiece).load(source)
    if found.fingerprint != description["tokenizer"]:
        raise InputError(
            f"{source} is not the one that {folder.name} was trained with (vocabulary "
            f"{found.size:,} there, {description['vocab_size']:,} in the model): restore it, or "
            "choose another run"
        )
    return found
