"""What a checkpoint says of its model, and its parts, checked: description, tokenizer, weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field
from safetensors import SafetensorError
from typing_extensions import TypedDict

from roformer.config.build import build, plain
from roformer.config.schema import TransformerConfig
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError
from roformer.json_files import check_shape
from roformer.training import checkpoint

C = TypeVar("C")


class Description(TypedDict):
    """What every checkpoint says of its model."""

    model: dict[str, Any]
    vocab_size: Annotated[int, Field(ge=1)]
    tokenizer: str


class TaskDescription(Description):
    """What that of a fine-tuning says besides."""

    task: str
    labels: Annotated[list[str], Field(min_length=1)] | None
    texts: Annotated[list[str], Field(min_length=1, max_length=2)]
    max_length: Annotated[int, Field(ge=4)]
    head_dropout: Annotated[float, Field(ge=0, le=1)]


def read_description(folder: Path, shape: type = Description) -> dict[str, Any]:
    """Return what a checkpoint says of its model.

    Args:
        folder: the checkpoint's.
        shape: what it must say; of a fine-tuning always what `TaskDescription` has.

    Raises:
        InputError: it says something else.
    """
    try:
        description = checkpoint.describe(folder)
        check_shape(shape, description)
        if "task" in description:
            check_shape(TaskDescription, description)
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{folder / checkpoint.DESCRIPTION} is damaged ({error}): choose another checkpoint"
        ) from error
    return description


def described(cls: type[C], folder: Path, content: dict[str, Any]) -> C:
    """Return a part of a checkpoint's description as the config that it is.

    Raises:
        InputError: a value is unknown, missing or impossible; names the file and the key.
    """
    try:
        return build(cls, content)
    except InputError as error:
        raise InputError(f"{folder / checkpoint.DESCRIPTION} is damaged ({error})") from error


def check_size(config: TransformerConfig, vocab_size: int, files: Iterable[Path]) -> None:
    """Check, before a model is built, that files of weights can hold it: it may not fit in memory.

    Raises:
        InputError: the model has more parameters than the files have bytes.
    """
    wide, layers = config.hidden_size, config.layers + (getattr(config, "decoder_layers", 0) or 0)
    tables = sum(v for v in plain(config.position).values() if type(v) is int) * config.head_dim
    fewest = wide * (vocab_size + layers * (4 * wide + 2 * config.intermediate_size)) + tables
    known = [file for file in files if file.is_file()]
    if fewest > sum(file.stat().st_size for file in known):
        where = known[0].parent if known else "the folder"
        raise InputError(
            f"{where} describes a model of {fewest:,} parameters, which is more than its weights have "
            "bytes: they are not of one model"
        )


@contextmanager
def sound_weights(folder: Path) -> Iterator[None]:
    """Turn what goes wrong in reading a checkpoint's weights into an InputError that names them."""
    try:
        yield
    except (SafetensorError, OSError, RuntimeError) as error:  # RuntimeError: of other shapes
        lines = " ".join(str(error).split())
        raise InputError(
            f"{folder / checkpoint.MODEL} is not the weights of its model ({lines}): choose another "
            "checkpoint"
        ) from error


def read_tokenizer(folder: Path, description: dict[str, Any]) -> WordPiece:
    """Return the tokenizer of the run that a checkpoint belongs to.

    Raises:
        InputError: it is not there, or not the one that the model was trained with.
    """
    run = folder.parent.parent
    if not (run / "tokenizer").is_dir():
        raise InputError(
            f"{run} has no tokenizer/: give a whole run, not a checkpoint moved out of it"
        )
    tokenizer = WordPiece.load(run / "tokenizer")
    if tokenizer.fingerprint != description["tokenizer"]:
        raise InputError(
            f"{run}/tokenizer is not the one that {folder.name} was trained with: restore it, or "
            "choose another run"
        )
    return tokenizer
