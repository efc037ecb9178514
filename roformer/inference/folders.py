"""Folders of trained models: written aside and renamed, so that a folder is complete or missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from torch import Tensor

from roformer.data.bpe import Bpe
from roformer.data.tokenizers import ByteVocabulary, WordPiece
from roformer.errors import InputError
from roformer.inference.resolve import resolve
from roformer.interop.layout import convert_state_layout
from roformer.json_files import read_object
from roformer.training import checkpoint
from roformer.training.averaging import ACCOUNT


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `output` at the end or, after an error, is removed."""
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise InputError(f"{output} exists already and is not empty: choose another folder")
    partial = output.absolute().with_name(f".{output.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.replace(output)
    except SafetensorError as error:
        raise checkpoint.system_error(error, partial) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_run(
    folder: Path,
    source: Path | None,
    weights: Mapping[str, Tensor],
    description: dict[str, Any],
    tokenizer: WordPiece | Bpe | ByteVocabulary,
) -> Path:
    """Write a run with one checkpoint, without moments; return the folder of the checkpoint.

    It has the name of `source`, the checkpoint that the weights are from, if there is one.
    """
    name, objects = "step_00000000", {checkpoint.DESCRIPTION: description}
    if source is not None:
        name = source.name
        if (source / ACCOUNT).is_file():
            objects[ACCOUNT] = read_object(source / ACCOUNT)
            # Only translation looks for an average.
            if description["kind"] != "translation":
                name = objects[ACCOUNT]["checkpoints"][-1]
    target = folder / "checkpoints" / name
    checkpoint.write(target, {checkpoint.MODEL: dict(weights)}, objects)
    tokenizer.save(folder / "tokenizer")
    return target


def convert_run_layout(
    path: str | Path, to: Literal["interleaved", "half"], output: str | Path
) -> Path:
    """Write a run's model with queries and keys in the other rotary layout; it computes the same.

    `path` is a run or one of its checkpoints, `output` the folder of a new run with one checkpoint, which
    is returned. It can be loaded and fine-tuned, but not resumed, because the optimizer's state is not
    copied. Converting it back gives the first weights bit by bit.
    """
    stored = resolve(path)
    folder = stored.checkpoint
    if folder is None:
        raise InputError(f"{path} is no run of this package, whose layout can be changed: give one")
    model, position = stored.model, stored.model.position
    if position.kind != "rotary":
        raise InputError(f"{path} has {position.kind} positions: only rotary ones have a layout")
    if model.attention.kind != "softmax":
        raise InputError(
            f"{path} has {model.attention.kind} attention, whose features are not the rows of its "
            "projection: only softmax attention can change its layout"
        )
    if position.layout == to:
        raise InputError(f"{path} is in the layout {to} already")
    size, values = model.rotary_dim, position.rotate_values
    weights = convert_state_layout(stored.weights, model.heads, to, rotary_dim=size, values=values)
    stored.description["model"]["position"]["layout"] = to
    with new_folder(Path(output)) as partial:
        written = write_run(partial, folder, weights, stored.description, stored.tokenizer)
    return Path(output) / "checkpoints" / written.name
