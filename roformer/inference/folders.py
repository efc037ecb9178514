"""Folders of trained models: written aside and renamed, so that one is whole or not there."""

from __future__ import annotations

import json
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
from roformer.inference.open import open_model
from roformer.interop.layout import convert_state_layout
from roformer.training import checkpoint
from roformer.training.averaging import ACCOUNT, choose
from roformer.training.tensors import save_tensors, system_error


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `output` at the end or, after an error, is removed.

    Raises:
        InputError: `output` is there already and not empty.
        OSError: the disk is full or not writable.
    """
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise InputError(f"{output} is there already and not empty: choose another folder")
    partial = output.absolute().with_name(f".{output.absolute().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.replace(output)
    except SafetensorError as error:
        raise system_error(error, partial) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_run(
    folder: Path,
    source: Path | None,
    weights: Mapping[str, Tensor],
    description: dict[str, Any],
    tokenizer: WordPiece | Bpe | ByteVocabulary,
) -> Path:
    """Write a run with one checkpoint, without moments, which opens as any run does; return that.

    Args:
        folder: of the run.
        source: checkpoint that the weights are of, whose name it has; None: there is none.
        weights: of the model.
        description: of the model.
        tokenizer: of the model.
    """
    name = "step_00000000" if source is None else source.name
    account = None if source is None or not (source / ACCOUNT).is_file() else source / ACCOUNT
    # An average is looked for in translation alone.
    if account is not None and description["kind"] != "translation":
        name = json.loads(account.read_text())["checkpoints"][-1]
    target = folder / "checkpoints" / name
    target.mkdir(parents=True)
    if account is not None:
        shutil.copyfile(account, target / ACCOUNT)
    save_tensors(dict(weights), target / checkpoint.MODEL)
    (target / checkpoint.DESCRIPTION).write_text(json.dumps(description, indent=1))
    checkpoint.complete(target)
    tokenizer.save(folder / "tokenizer")
    return target


def convert_run_layout(
    path: str | Path, to: Literal["interleaved", "half"], output: str | Path
) -> Path:
    """Write a run's model with queries and keys in the other rotary layout; it computes the same.

    It can be loaded and fine-tuned, not trained on: the optimizer's state stays behind. Converting
    it back gives the first weights bit by bit.

    Args:
        path: a run, of which the checkpoint that loading takes is converted, or a checkpoint in one.
        to: the layout wanted.
        output: folder of the new run, with one checkpoint and the tokenizer; not there yet, or empty.

    Returns:
        The new checkpoint's folder.

    Raises:
        InputError: nothing complete is there, it has no rotary positions or is in that layout
            already, or `output` exists.
    """
    folder = choose(Path(path))
    stored = open_model(folder)
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
    weights = convert_state_layout(stored.weights, model.heads, to, rotary_dim=model.rotary_dim)
    stored.description["model"]["position"]["layout"] = to
    with new_folder(Path(output)) as partial:
        written = write_run(partial, folder, weights, stored.description, stored.tokenizer)
    return Path(output) / "checkpoints" / written.name
