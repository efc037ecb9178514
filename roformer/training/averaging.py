"""The mean of several checkpoints' weights, itself a checkpoint that can be started from or used.

    checkpoints/averaged/   model.safetensors model.json average.json complete.json

Vaswani et al. 2017, section 6.1: the last 5 checkpoints for base models, the last 20 for big ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from roformer.errors import InputError
from roformer.training import checkpoint
from roformer.training.tensors import load_tensors, save_tensors

AVERAGED = "averaged"
"""Name of a run's averaged checkpoint, in its folder of checkpoints."""
ACCOUNT = "average.json"
DRAWN = ".feature_map.vectors"
"""End of the names of what was drawn, not learnt: the mean of two draws is none."""


def choose(path: Path, which: str | None = None) -> Path:
    """Return the checkpoint by which a trained model is opened.

    Args:
        path: a run's folder, or a checkpoint's.
        which: name of the checkpoint in a run; None: the average of a translation model, the best of a
            classifier or scorer, else the newest.

    Raises:
        InputError: it is not there or not complete.
    """
    folder = path / "checkpoints"
    if which is not None:
        named = [one.name for one in folder.glob("[!.]*")]
        if which not in named:
            there = ", ".join(sorted(named)) or "none"
            raise InputError(f"{path} has no checkpoint {which}: choose one of {there}")
        return checkpoint.resolve(folder / which)
    for name, kinds in ((AVERAGED, ["translation"]), ("best", ["classifier", "scorer"])):
        try:
            kind = checkpoint.describe(folder / name).get("kind")
        except (OSError, InputError):
            continue
        if kind in kinds and checkpoint.damage(folder / name) is None:
            return (folder / name).resolve()
    return checkpoint.resolve(path)


def last_checkpoints(run: Path, count: int, every: int = 1) -> list[Path]:
    """Return a run's last `count` checkpoints of updates divisible by `every`, the oldest first.

    Raises:
        InputError: there are fewer; says which there are.
    """
    folders = checkpoint.steps_in(run / "checkpoints")
    found = [path for path in folders if checkpoint.step_of(path) % every == 0]
    if len(found) < count:
        steps = ", ".join(str(checkpoint.step_of(path)) for path in found) or "none"
        raise InputError(
            f"{run} has {len(found)} checkpoints to average (steps: {steps}), not {count}: average "
            "fewer, or train with a larger runtime.keep_checkpoints"
        )
    return found[-count:]


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of complete checkpoints, summed in fp32 and in their types.

    Random vectors of linear attention are those of the last checkpoint.

    Raises:
        InputError: a checkpoint is missing, damaged, or of another model or vocabulary.
    """
    if not paths:
        raise InputError("no checkpoints to average: give one or more checkpoint folders")
    for path in paths:
        problem = checkpoint.damage(path)
        if problem is not None:
            raise InputError(f"{path} cannot be averaged: {problem}: take it out of the list")
    first = paths[0]
    wanted = checkpoint.describe(first)
    total: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    for path in paths:
        if differing := list(checkpoint.differences(wanted, checkpoint.describe(path))):
            raise InputError(
                f"{path} is not of the same model as {first}: {'; '.join(differing[:3])}: average "
                "checkpoints of one run"
            )
        tensors = load_tensors(path / checkpoint.MODEL)
        if total and tensors.keys() != total.keys():
            names = ", ".join(sorted(tensors.keys() ^ total.keys())[:3])
            raise InputError(f"{path} and {first} do not have the same weights: {names}")
        for name, tensor in tensors.items():
            types[name] = tensor.dtype
            if name.endswith(DRAWN):
                total[name] = tensor.float() * len(paths)
                continue
            total[name] = total[name] + tensor.float() if name in total else tensor.float()
    return {name: (tensor / len(paths)).to(types[name]) for name, tensor in total.items()}


def save_average(paths: Sequence[Path], folder: Path) -> Path:
    """Write the mean of checkpoints as a checkpoint; one that is there is replaced when it is whole.

    Args:
        paths: the checkpoints.
        folder: of the result.

    Raises:
        InputError: see `average`.
    """
    tensors = average(paths)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_tensors(tensors, partial / checkpoint.MODEL)
    shutil.copy(paths[0] / checkpoint.DESCRIPTION, partial)
    account = {"checkpoints": [path.name for path in paths]}
    (partial / ACCOUNT).write_text(json.dumps(account, indent=1))
    checkpoint.complete(partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder
