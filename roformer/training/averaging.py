"""Average the weights of several checkpoints into a new one.

    checkpoints/averaged/   model.safetensors model.json average.json complete.json

Vaswani et al. 2017, section 6.1: the last 5 checkpoints for base models, the last 20 for big ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from roformer.errors import InputError
from roformer.training import checkpoint

AVERAGED = "averaged"
"""Name of a run's averaged checkpoint, in its folder of checkpoints."""
ACCOUNT = "average.json"
DRAWN = ".feature_map.vectors"
"""End of the names of random vectors, which are drawn and not learned: their mean means nothing."""


def last_checkpoints(run: Path, count: int, every: int = 1) -> list[Path]:
    """Return a run's last `count` checkpoints of steps divisible by `every`, the oldest first."""
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
    """Return the mean of the weights of complete checkpoints, summed in fp32 and cast back.

    Random vectors of linear attention come from the last checkpoint.
    """
    total: dict[str, Tensor] = {}
    for path in paths:
        if (problem := checkpoint.damage(path)) is not None:
            raise InputError(f"{path} cannot be averaged: {problem}: take it out of the list")
        first, here = checkpoint.describe(paths[0]), checkpoint.describe(path)
        if differing := list(checkpoint.differences(first, here)):
            raise InputError(
                f"{path} is not of the same model as {paths[0]}: {'; '.join(differing[:3])}: average "
                "checkpoints of one run"
            )
        tensors = checkpoint.load_tensors(path / checkpoint.MODEL)
        for name, tensor in tensors.items():
            summed = total[name] + tensor.float() if name in total else tensor.float()
            total[name] = tensor.float() * len(paths) if name.endswith(DRAWN) else summed
    return {name: (total[name] / len(paths)).to(last.dtype) for name, last in tensors.items()}


def save_average(paths: Sequence[Path], folder: Path) -> Path:
    """Write the `average` of checkpoints as a checkpoint; an existing one is replaced."""
    weights = average(paths)
    account = {"checkpoints": [path.name for path in paths]}
    objects = {checkpoint.DESCRIPTION: checkpoint.describe(paths[0]), ACCOUNT: account}
    checkpoint.write(folder, {checkpoint.MODEL: weights}, objects)
    return folder
