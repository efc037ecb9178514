"""Open a trained model: a run, a checkpoint, an exported folder, or a Hugging Face model.

Everything that takes a trained model (`load_model`, `load_translator`, `load_generator`, `init_from`, the
export) opens it here and says which kinds it takes.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from roformer import registry
from roformer.config.build import build
from roformer.data.bpe import Bpe
from roformer.data.tokenizers import ByteVocabulary, WordPiece
from roformer.errors import InputError
from roformer.inference.names import RUNS, find
from roformer.interop.equivalents import read_equivalent
from roformer.interop.hugging_face import CONFIG, WEIGHTS, is_hugging_face, read_hugging_face
from roformer.interop.stored import StoredModel
from roformer.json_files import read_object
from roformer.models.description import KINDS, Kind
from roformer.training import checkpoint
from roformer.training.averaging import choose

TEXT_MODEL: tuple[Kind, ...] = ("mlm", "classifier", "encoder")
DESCRIPTION = "roformer.json"
"""File of an exported folder with the description of its model."""
WHAT = {
    "mlm": "a masked language model, which roformer.load_model opens",
    "classifier": "a classifier, which roformer.load_model opens",
    "encoder": "an encoder without a head, which roformer.load_model opens",
    "translation": "a translation model, which roformer.load_translator opens",
    "causal": "a causal language model, which roformer.load_generator opens",
    "scorer": "a model that scores pairs of documents: its scores are in predictions/, and init_from "
    "can start from it",
}
"""Kind of a model → what it is and what takes it."""


def open_model(
    name: str | Path,
    kinds: Collection[Kind] = tuple(KINDS),
    *,
    revision: str | None = None,
    runs_dir: str | Path = RUNS,
) -> StoredModel:
    """Open a trained model, on the CPU.

    Args:
        name: a run's folder, the id of a run below `runs_dir`, a checkpoint's folder, the folder of an
            exported or other Hugging Face model, or a Hub id. Of a run this is the average of a
            translation model, the best checkpoint of a classifier or scorer, else the newest.
        kinds: that are wanted.
        revision: of a Hub id: branch, tag or commit.
        runs_dir: where runs are.
    """
    source = find(name, runs_dir)
    path, of_hub = Path(source).expanduser(), is_hugging_face(source)
    if revision is not None and (path.exists() or not of_hub):
        raise InputError(f"revision={revision} is of a Hub id, not of a folder: leave it out")
    if (path / DESCRIPTION).is_file():
        stored = _read_export(source, path)
    else:
        stored = read_hugging_face(source, revision) if of_hub else _read_checkpoint(source, path)
    if stored.kind not in kinds:
        entries = registry.pipelines().values()
        names = sorted(entry.name for entry in entries if entry.kind in kinds and not entry.runs)
        places = " or ".join(f"{runs_dir}/{name}/" for name in names)
        raise InputError(f"{source} is {WHAT[stored.kind]}: give a run under {places}")
    return stored


def _read_export(source: str, folder: Path) -> StoredModel:
    try:
        description = read_object(folder / DESCRIPTION)
        kind, weights = description["kind"], read_equivalent(folder, description)
        model = build(KINDS[kind], description["model"])
    except (KeyError, OSError, SafetensorError, TypeError, ValueError) as error:
        raise InputError(f"{source} is damaged or incomplete ({error}): export it again") from error
    return StoredModel(source, kind, model, description, weights, _tokenizer(folder, description))


def _read_checkpoint(source: str, path: Path) -> StoredModel:
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
    folder = choose(path)
    description = checkpoint.describe(folder)
    kind = description["kind"]
    return StoredModel(
        source,
        kind,
        build(KINDS[kind], description["model"]),
        description,
        checkpoint.load_tensors(folder / checkpoint.MODEL),
        _tokenizer(folder.parent.parent / "tokenizer", description),
        digest=checkpoint.weights_digest(folder),
        checkpoint=folder,
    )


def _tokenizer(source: Path, description: dict[str, Any]) -> WordPiece | Bpe | ByteVocabulary:
    """Return the tokenizer of a model's folder, or raise InputError: it is missing or another one."""
    if description.get("reads") == "bytes":
        return ByteVocabulary()
    if not source.is_dir():
        raise InputError(
            f"{source.parent} has no tokenizer/: give a whole run, not a checkpoint moved out of it"
        )
    found = (Bpe if description["kind"] == "translation" else WordPiece).load(source)
    if found.fingerprint != description["tokenizer"]:
        raise InputError(
            f"{source} is not the tokenizer that the model was trained with (vocabulary "
            f"{found.size:,} there, {description['vocab_size']:,} in the model): restore it, or "
            "choose another run"
        )
    return found
