"""Open a trained model by its name: a run, a checkpoint, an export, or a Hugging Face model."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from roformer import registry
from roformer.config.build import build
from roformer.data.bpe import Bpe
from roformer.data.tokenizers import ByteVocabulary, WordPiece
from roformer.errors import InputError
from roformer.interop.equivalents import read_equivalent
from roformer.interop.hugging_face import CONFIG, is_hugging_face, read_hugging_face
from roformer.json_files import read_object
from roformer.models.description import KINDS, StoredModel
from roformer.registry import Kind
from roformer.training import checkpoint
from roformer.training.averaging import AVERAGED

RUNS = "runs"
"""Folder of runs, unless `runtime.runs_dir` says otherwise."""
EXPORT = "export"
"""Folder next to the pipelines' folders; an export has the name of its run."""
DESCRIPTION = "roformer.json"
"""File of an exported folder with the description of its model."""
AT_STEP = re.compile(r"(?P<run>.+)@(?P<step>\d+)")
"""A run and the step of one of its checkpoints."""
TAKEN_BY = {
    "mlm": "a masked language model, which roformer.load_model opens",
    "classifier": "a classifier, which roformer.load_model opens",
    "encoder": "an encoder without a head, which roformer.load_model opens",
    "translation": "a translation model, which roformer.load_translator opens",
    "causal": "a causal language model, which roformer.load_generator opens",
    "scorer": "a model that scores pairs of documents: its scores are in predictions/, and init_from "
    "can start from it",
}


def resolve(
    name: str | Path,
    kinds: Collection[Kind] = tuple(KINDS),
    *,
    revision: str | None = None,
    runs_dir: str | Path = RUNS,
) -> StoredModel:
    """Open a trained model of one of these kinds, on the CPU.

    `name` is what `find` takes, or a Hub id, of which `revision` is a branch, tag or commit.
    """
    source = find(name, runs_dir)
    path, published = Path(source).expanduser(), is_hugging_face(source)
    if revision is not None and (path.exists() or not published):
        raise InputError(f"{source} is no Hub id: leave out the revision {revision}")
    if (path / DESCRIPTION).is_file():
        stored = _read_export(source, path)
    else:
        stored = read_hugging_face(source, revision) if published else _read_checkpoint(source)
    if stored.kind not in kinds:
        entries = registry.pipelines().values()
        names = sorted(entry.name for entry in entries if entry.kind in kinds and not entry.runs)
        places = " or ".join(f"{runs_dir}/{name}/" for name in names)
        raise InputError(f"{source} is {TAKEN_BY[stored.kind]}: give a run under {places}")
    return stored


def find(name: str | Path, runs_dir: str | Path = RUNS) -> str:
    """Return the path of a name: itself if it exists, else a run of this id.

    A checkpoint may follow a run (`<run>@610`: step 610) or an id (`<id>/checkpoints/best`);
    anything else, such as a Hub id, stays as it is.
    """
    given = Path(name).expanduser()
    if given.exists():
        return str(given)
    if at := AT_STEP.fullmatch(str(name)):
        return _at_step(Path(find(at["run"], runs_dir)), int(at["step"]))
    pipelines = [] if ".." in given.parts else sorted(Path(runs_dir).glob("*"))
    places = (folder / given for folder in pipelines if folder.name != EXPORT)
    found = [str(place) for place in places if place.exists()]
    if len(found) > 1:
        raise InputError(f"{name} is the id of several runs: give one of {', '.join(found)}")
    return found[0] if found else str(name)


def _at_step(run: Path, step: int) -> str:
    folder = run / "checkpoints"
    if not folder.is_dir():
        raise InputError(f"{run}@{step}: no such run {run}: give the folder or id of one")
    if (chosen := folder / f"step_{step:08d}").is_dir():
        return str(chosen)
    steps = [str(checkpoint.step_of(path)) for path in checkpoint.steps_in(folder)]
    raise InputError(
        f"{run}@{step}: the run has no checkpoint of step {step}: choose one of "
        f"{', '.join(steps) or 'none'}, or train it again with "
        f"training.keep_at=[{step}] resume=false"
    )


def choose(path: Path) -> Path:
    """Return the checkpoint to open: of a translation model the average, of a classifier or scorer the
    best one, or else the newest.
    """
    folder = path / "checkpoints"
    for name, kinds in ((AVERAGED, ("translation",)), ("best", ("classifier", "scorer"))):
        chosen = folder / name
        if not chosen.exists():
            continue
        problem = checkpoint.damage(chosen, verify=False)
        if problem is None and checkpoint.describe(chosen).get("kind") not in kinds:
            continue
        if (problem := problem or checkpoint.damage(chosen)) is None:
            return chosen.resolve()
        warnings.warn(f"{chosen} is skipped: {problem}", stacklevel=2)
    return checkpoint.resolve(path)


def _read_export(source: str, folder: Path) -> StoredModel:
    try:
        description = read_object(folder / DESCRIPTION)
        kind, weights = description["kind"], read_equivalent(folder, description)
        model = build(KINDS[kind], description["model"])
    except (KeyError, OSError, SafetensorError, TypeError, ValueError) as error:
        raise InputError(f"{source} is damaged or incomplete ({error}): export it again") from error
    return StoredModel(source, kind, model, description, weights, _tokenizer(folder, description))


def _read_checkpoint(source: str) -> StoredModel:
    path = Path(source)
    if path.is_file():
        raise InputError(
            f"{source} is a file: give the folder of a model, such as one under {RUNS}/"
        )
    own = ("checkpoints", checkpoint.DESCRIPTION, checkpoint.COMPLETE)
    if path.is_dir() and not any((path / name).exists() for name in own):
        if (path / "summary.json").is_file():
            raise InputError(
                f"{source} has no weights: fine-tuning keeps them only of each task's best run, which "
                "has a folder checkpoints/; give that one"
            )
        raise InputError(
            f"{source} has neither checkpoints/ nor {CONFIG}: give a run, a checkpoint, or a folder "
            "that save_pretrained wrote"
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
    """Return the tokenizer of a model's folder, which must be the one of its training."""
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
