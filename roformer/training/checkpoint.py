"""Checkpoints that are either complete or not there.

    checkpoints/
      step_00000400/   model.safetensors optimizer.safetensors state.json model.json complete.json
      last -> step_00000400
      best -> step_00000300

A checkpoint is written into a hidden folder, `complete.json` (size and sha256 of every file) last,
flushed to the disk, and renamed. So a kill at any moment leaves the earlier ones as they were, and
a folder that was damaged later is recognised and passed over. Nothing in it is executable: tensors
are safetensors, everything else is JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from roformer.errors import InputError, naming
from roformer.json_files import read_object
from roformer.training.sharding import cut_like, whole
from roformer.training.tensors import load_tensors, save_tensors

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
STATE, DESCRIPTION, COMPLETE = "state.json", "model.json", "complete.json"
FREE_IN_WARM_START = (
    *("model.name ", "model.size ", "model.hidden_dropout ", "model.attention_dropout "),
    *("model.init_std ", "model.position.scaling"),
)
"""Keys that may differ between a model and the weights that it starts from."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: `<run>/checkpoints`.
        keep: how many of the newest to keep; the best is kept besides.
        every: only the checkpoints of these steps count; one in between, of a stopped run or of
            the best evaluation, goes when a later one is there.
    """

    def __init__(self, folder: Path, *, keep: int, every: int = 1):
        self.folder, self.keep, self.every = folder, keep, every

    def save(
        self,
        step: int,
        weights: dict[str, Tensor],
        moments: dict[str, Tensor],
        state: dict[str, Any],
        description: dict[str, Any],
        *,
        best: bool,
    ) -> Path:
        """Write the checkpoint of a step, move the links, and remove what is too old.

        Args:
            step: number of the step.
            weights: see `model_tensors`.
            moments: see `optimizer_tensors`.
            state: the loop's counters.
            description: of the model.
            best: whether it is the best yet.

        Raises:
            OSError: the disk is full or not writable; what was there stays as it was.
        """
        target = self.folder / f"step_{step:08d}"
        partial = self.folder / f".{target.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            with naming(partial):
                save_tensors(weights, partial / MODEL)
                save_tensors(moments, partial / OPTIMIZER)
                (partial / STATE).write_text(json.dumps(state, indent=1))
                (partial / DESCRIPTION).write_text(json.dumps(description, indent=1))
                complete(partial)
                if target.exists():  # a damaged one that was resumed past
                    _remove(target)
                partial.rename(target)
                _flush(self.folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        self._publish(target, best=best)
        return target

    def tidy(self, step: int, *, best: bool) -> None:
        """Finish what a kill interrupted in `save`; `step` is the one that the run goes on from."""
        _sweep(self.folder)
        target = self.folder / f"step_{step:08d}"
        if target.exists():
            self._publish(target, best=best)

    def last(self) -> tuple[Path | None, list[str]]:
        """Return the newest complete checkpoint, and a line about each newer, damaged one."""
        problems: list[str] = []
        for path in reversed(steps_in(self.folder)):
            problem = damage(path)
            if problem is None:
                return path, problems
            problems.append(f"{path}: {problem}")
        return None, problems

    def _publish(self, target: Path, *, best: bool) -> None:
        """Link to a checkpoint as the last, and the best if it is; remove what is too old."""
        self._link("last", target)
        if best:
            self._link("best", target)
        steps = steps_in(self.folder)
        regular = [path for path in steps if step_of(path) % self.every == 0]
        links = (self.folder / "last", self.folder / "best")
        kept = {path.resolve() for path in (*links, *regular[-self.keep :])}
        for path in steps:
            if path.resolve() not in kept:
                _remove(path)

    def _link(self, name: str, target: Path) -> None:
        fresh = self.folder / f".{name}.partial"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target.name)
        fresh.replace(self.folder / name)


def complete(folder: Path) -> None:
    """Write `complete.json` on the files of a folder, and flush all of them to the disk."""
    files = {path.name: _fingerprint(path) for path in sorted(folder.iterdir())}
    (folder / COMPLETE).write_text(json.dumps(files, indent=1))
    for path in folder.iterdir():
        _flush(path)


def describe(path: Path) -> dict[str, Any]:
    """Return a checkpoint's description of its model.

    Raises:
        InputError: it is no JSON object.
    """
    return _read(path / DESCRIPTION)


def steps_in(folder: Path) -> list[Path]:
    """Return the checkpoints `step_…` of a run, the oldest first; links to elsewhere are none."""
    found = sorted(folder.glob("step_[0-9]*"))
    return [path for path in found if path.name[5:].isdecimal() and not path.is_symlink()]


def step_of(path: Path) -> int:
    """Return the step of a checkpoint folder `step_00001234`."""
    return int(path.name.removeprefix("step_"))


def keep_only_best(folder: Path) -> None:
    """Reduce the checkpoints of a finished run to the best one, or the last."""
    _sweep(folder)
    best = next((folder / name for name in ("best", "last") if (folder / name).exists()), None)
    if best is None:
        return
    kept = best.resolve()
    for name in ("last", "best"):
        Checkpoints(folder, keep=1)._link(name, kept)
    for path in steps_in(folder):
        if path.resolve() != kept:
            _remove(path)


def drop_moments(folder: Path) -> None:
    """Remove the optimizer's moments from a run's checkpoints, which stay complete without them.

    After a kill in between, a second call does the rest.
    """
    for path in steps_in(folder):
        if not (path / OPTIMIZER).is_file():
            continue
        try:
            files = _read(path / COMPLETE)
        except (OSError, InputError):  # a damaged one, which nothing can go on from anyway
            continue
        files.pop(OPTIMIZER, None)
        # Outside the checkpoint, in whose folder nothing may stand that was not finished.
        partial = folder / f".{path.name}.{COMPLETE}.partial"
        with naming(partial):
            partial.write_text(json.dumps(files, indent=1))
            _flush(partial)
            partial.replace(path / COMPLETE)
        _flush(path)
        (path / OPTIMIZER).unlink()


def _sweep(folder: Path) -> None:
    """Remove what kills left half written or half removed."""
    for path in folder.glob(".*"):
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)


def _remove(path: Path) -> None:
    """Remove a checkpoint; hidden first, so that a kill leaves no half of one."""
    hidden = path.with_name(f".{path.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)
    shutil.rmtree(hidden)


def damage(path: Path) -> str | None:
    """Return what is wrong with a checkpoint folder, or None if every file is as it was written."""
    try:
        files = read_object(path / COMPLETE)
        if lost := {MODEL, DESCRIPTION} - files.keys():
            return f"{COMPLETE} does not name {min(lost)}"
        for name, expected in files.items():
            if not (path / name).is_file():
                return f"{name} is missing"
            if (path / name).stat().st_size != expected["bytes"]:
                return f"{name} is truncated"
            if _fingerprint(path / name) != expected:
                return f"{name} does not match its checksum"
    except FileNotFoundError:
        return "it was never completed"
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"{COMPLETE} is unreadable ({type(error).__name__})"
    return None


def resolve(path: str | Path) -> Path:
    """Return the checkpoint folder that a run folder or a checkpoint folder stands for.

    Raises:
        InputError: nothing complete is there.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such run or checkpoint: give a folder under runs/")
    if (path / "checkpoints").is_dir():
        found, problems = Checkpoints(path / "checkpoints", keep=1).last()
        if found is None:
            why = f" ({'; '.join(problems)})" if problems else ""
            raise InputError(f"{path}: the run has no complete checkpoint{why}: train it first")
        return found
    if (problem := damage(path)) is not None:
        raise InputError(f"{path}: not a usable checkpoint: {problem}: choose another one")
    return path.resolve()


def load_model(
    path: Path, model: nn.Module, description: dict[str, Any], *, warm_start: bool = False
) -> None:
    """Load the weights of a checkpoint into `model`.

    Args:
        path: the checkpoint's folder.
        model: of the shapes that `description` says.
        description: what the checkpoint must be of.
        warm_start: whether what `FREE_IN_WARM_START` names may differ.

    Raises:
        InputError: the checkpoint is of another model; the first differing keys are named.
    """
    stored = describe(path)
    differing = [
        difference
        for difference in differences(description, stored)
        if not (warm_start and difference.startswith(FREE_IN_WARM_START))
    ]
    if differing:
        raise InputError(
            f"{path} is a checkpoint of another model: {'; '.join(differing[:4])}: "
            "use the config it was trained with, or start a new run"
        )
    tensors, own = load_tensors(path / MODEL), model.state_dict()
    missing, unexpected = sorted(own.keys() - tensors), sorted(tensors.keys() - own)
    if missing or unexpected:
        raise InputError(f"{path}: missing weights {missing[:4]}, unexpected {unexpected[:4]}")
    if other := [name for name, tensor in tensors.items() if tensor.shape != own[name].shape]:
        raise InputError(f"{path}: weights of other shapes than the model's: {sorted(other)[:4]}")
    model.load_state_dict(tensors)


def load_optimizer(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load the optimizer's state of a checkpoint, by parameter name.

    Raises:
        InputError: it has none, as those of a finished run.
    """
    check_moments(path)
    tensors = load_tensors(path / OPTIMIZER)
    parameters = dict(model.named_parameters())
    for key, tensor in tensors.items():
        name, _, moment = key.partition(":")
        optimizer.state[parameters[name]][moment] = cut_like(tensor, parameters[name])


def check_moments(path: Path) -> None:
    """Raise InputError where a checkpoint lacks the optimizer's moments."""
    if not (path / OPTIMIZER).is_file():
        raise InputError(
            f"{path} has no moments of AdamW to go on with: a finished run keeps them with "
            "runtime.keep_optimizer=true alone"
        )


def load_state(path: Path) -> dict[str, Any]:
    """Return the loop's counters of a checkpoint.

    Raises:
        InputError: they are no JSON object.
    """
    return _read(path / STATE)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights by name; of a sharded model whole, and then all processes must call it."""
    return {name: whole(t.detach()).contiguous() for name, t in model.state_dict().items()}


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as `parameter name:key` → tensor, whole as the weights are."""
    return {
        f"{name}:{key}": whole(value.detach()).contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _read(file: Path) -> dict[str, Any]:
    """Return a JSON object; numbers may be NaN, as a metric is that is not defined."""
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({error}): choose another checkpoint") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} is damaged (no JSON object): choose another checkpoint")
    return content


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _flush(path: Path) -> None:
    """Make what was written survive a power cut; not every file system can for folders."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def differences(wanted: Any, stored: Any, path: str = "") -> Iterator[str]:
    """Yield `key is stored there but wanted here` for every leaf that differs."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        for key in sorted(wanted.keys() | stored.keys()):
            yield from differences(
                wanted.get(key), stored.get(key), f"{path}.{key}" if path else key
            )
    elif wanted != stored:
        yield f"{path} is {stored!r} there but {wanted!r} here"
