"""Checkpoints that are either complete or absent.

    checkpoints/
      step_00000400/   model.safetensors optimizer.safetensors state.json model.json complete.json
      last -> step_00000400
      best -> step_00000300

A checkpoint is written into a hidden folder, flushed to the disk and renamed. `complete.json` (the size of
every file, and the sha256 of the weights) is written last. So a kill at any moment leaves the earlier
checkpoints intact, and a checkpoint that was damaged later is recognised and skipped. A finished run may
lack the optimizer's moments, which are half of a checkpoint or more. Nothing in it is executable: tensors
are safetensors, everything else is JSON.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from roformer.errors import InputError, naming, one_line
from roformer.training.distributed import cut_like, kept_by_first

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
STATE, DESCRIPTION, COMPLETE = "state.json", "model.json", "complete.json"


# --- the checkpoints of a run --------------------------------------------------------------------


class Checkpoints:
    """The checkpoints of one run: the last, the best, and the newest `keep` at multiples of `every`.

    Older checkpoints are deleted, except at the steps `keep_at`, where they only lose their moments.
    """

    def __init__(self, folder: Path, *, keep: int, every: int = 1, keep_at: Collection[int] = ()):
        self.folder, self.keep, self.every, self.keep_at = folder, keep, every, keep_at

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
        """Write the checkpoint of a step, move the links, and remove old checkpoints.

        `weights` and `moments` come from `model_tensors` and `optimizer_tensors`, `state` from the loop.
        """
        target = self.folder / f"step_{step:08d}"
        tensors = {MODEL: weights, OPTIMIZER: moments}
        write(target, tensors, {STATE: state, DESCRIPTION: description})
        self._publish(target, best=best)
        return target

    def tidy(self, step: int, *, best: bool) -> None:
        """Finish what a kill interrupted in `save`; the run resumes from `step`."""
        _sweep(self.folder)
        target = self.folder / f"step_{step:08d}"
        if target.exists():
            self._publish(target, best=best)

    def last(self, *, verify: bool = True) -> tuple[Path | None, list[str]]:
        """Return the newest complete checkpoint, and a line about each newer, damaged one.

        After a damaged one, a checkpoint with moments is preferred, because a run can resume from it;
        checkpoints of `keep_at` and of finished runs have none. For `verify` see `damage`.
        """
        problems: list[str] = []
        without: Path | None = None
        for path in reversed(steps_in(self.folder)):
            problem = damage(path, verify=verify)
            if problem is not None:
                problems.append(f"{path}: {problem}")
            elif not problems or (path / OPTIMIZER).is_file():
                return path, problems
            else:
                without = without or path
        return without, problems

    def _publish(self, target: Path, *, best: bool) -> None:
        for name in ("last", "best") if best else ("last",):
            _link(self.folder / name, target)
        found = steps_in(self.folder)
        regular = [path for path in found if step_of(path) % self.every == 0][-self.keep :]
        linked = [(self.folder / name).resolve() for name in ("last", "best")]
        for path in found:
            if path in regular or path.resolve() in linked:
                continue
            if step_of(path) in self.keep_at:
                (path / OPTIMIZER).unlink(missing_ok=True)
            else:
                _remove(path)


def steps_in(folder: Path) -> list[Path]:
    """Return the checkpoints `step_…` of a run, the oldest first, without links to other folders."""
    found = sorted(folder.glob("step_[0-9]*"))
    return [path for path in found if path.name[5:].isdecimal() and not path.is_symlink()]


def step_of(path: Path) -> int:
    """Return the step of a checkpoint folder `step_00001234`."""
    return int(path.name.removeprefix("step_"))


def keep_only_best(folder: Path) -> None:
    """Reduce the checkpoints of a finished run to the best one, or the last."""
    _sweep(folder)
    for name in ("best", "last"):
        if (folder / name).exists():
            kept = (folder / name).resolve()
            _link(folder / "last", kept)
            _link(folder / "best", kept)
            for path in steps_in(folder):
                if path.resolve() != kept:
                    _remove(path)
            return


def drop_moments(folder: Path) -> None:
    """Remove the optimizer's moments from a run's checkpoints, which stay complete without them."""
    for path in steps_in(folder):
        (path / OPTIMIZER).unlink(missing_ok=True)


def resolve(path: str | Path) -> Path:
    """Return a run's newest complete checkpoint, or the checkpoint itself, verified."""
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


def _link(link: Path, target: Path) -> None:
    fresh = link.with_name(f".{link.name}.partial")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target.name)
    fresh.replace(link)


def _remove(path: Path) -> None:
    """Rename a checkpoint to a hidden name, then remove it, so that a kill leaves no half of it visible."""
    hidden = path.with_name(f".{path.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)
    path.rename(hidden)
    shutil.rmtree(hidden)


def _sweep(folder: Path) -> None:
    """Remove what a kill left half written or half removed."""
    for path in folder.glob(".*"):
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)


# --- one checkpoint ------------------------------------------------------------------------------


def write(
    target: Path, tensors: dict[str, dict[str, Tensor]], objects: dict[str, dict[str, Any]]
) -> None:
    """Write a complete checkpoint, contents by file name; an existing one is replaced.

    If the disk is full or read-only, the existing one stays as it was.
    """
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with naming(partial):
            for name, content in tensors.items():
                save_tensors(content, partial / name)
            for name, content in objects.items():
                (partial / name).write_text(json.dumps(content, indent=1))
            complete(partial)
            if target.exists():
                _remove(target)
            partial.rename(target)
            _flush(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def complete(folder: Path) -> None:
    """Write `complete.json` for the files of a folder, and flush all of them to the disk."""
    files: dict[str, Any] = {
        path.name: {"bytes": path.stat().st_size} for path in sorted(folder.iterdir())
    }
    files[MODEL]["sha256"] = _sha256(folder / MODEL)
    (folder / COMPLETE).write_text(json.dumps(files, indent=1))
    for path in folder.iterdir():
        _flush(path)


def damage(path: Path, *, verify: bool = True) -> str | None:
    """Return what is wrong with a checkpoint, or None.

    Every file must have its size and, with `verify`, the weights their checksum. Moments may be missing.
    """
    try:
        files = _read(path / COMPLETE)
        for name, expected in files.items():
            if name == OPTIMIZER and not (path / name).exists():
                continue
            if not (path / name).is_file():
                return f"{name} is missing"
            if (path / name).stat().st_size != expected["bytes"]:
                return f"{name} is truncated"
        if verify and _sha256(path / MODEL) != files[MODEL]["sha256"]:
            return f"{MODEL} does not match its checksum"
    except FileNotFoundError:
        return "it was never completed"
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"{COMPLETE} is unreadable ({type(error).__name__})"
    return None


def describe(path: Path) -> dict[str, Any]:
    """Return a checkpoint's description of its model."""
    return _read(path / DESCRIPTION)


def weights_digest(path: Path) -> str:
    """Return the SHA-256 of a checkpoint's weights when it was written."""
    return str(_read(path / COMPLETE)[MODEL]["sha256"])


def load_state(path: Path) -> dict[str, Any]:
    """Return the loop's counters of a checkpoint."""
    return _read(path / STATE)


def load_model(path: Path, model: nn.Module, description: dict[str, Any]) -> None:
    """Load the weights of a checkpoint of the described model into `model`."""
    if differing := list(differences(description, describe(path))):
        raise InputError(
            f"{path} is a checkpoint of another model: {'; '.join(differing[:4])}: "
            "use the config it was trained with, or start a new run"
        )
    try:
        model.load_state_dict(load_tensors(path / MODEL))
    except RuntimeError as error:  # names or shapes
        raise InputError(f"{path} has other weights: {one_line(str(error))}") from error


def load_optimizer(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load the optimizer's state of a checkpoint, by parameter name; see `check_moments`."""
    check_moments(path)
    parameters = dict(model.named_parameters())
    for key, tensor in load_tensors(path / OPTIMIZER).items():
        name, _, moment = key.partition(":")
        optimizer.state[parameters[name]][moment] = cut_like(tensor, parameters[name])


def check_moments(path: Path) -> None:
    """Raise InputError if a checkpoint has no moments, as in a finished run."""
    if not (path / OPTIMIZER).is_file():
        raise InputError(
            f"{path} has no moments of AdamW to resume from: a finished run keeps them only with "
            "runtime.keep_optimizer=true"
        )


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights by name; of a sharded model see `kept_by_first`."""
    return {name: kept_by_first(t.detach()).contiguous() for name, t in model.state_dict().items()}


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state as `parameter name:key` → tensor; see `kept_by_first`."""
    return {
        f"{name}:{key}": kept_by_first(value.detach()).contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def differences(wanted: Any, stored: Any, path: str = "") -> Iterator[str]:
    """Yield `key is stored there but wanted here` for every leaf that differs."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        for key in sorted(wanted.keys() | stored.keys()):
            inner = f"{path}.{key}" if path else key
            yield from differences(wanted.get(key), stored.get(key), inner)
    elif wanted != stored:
        yield f"{path} is {stored!r} there but {wanted!r} here"


# --- files ---------------------------------------------------------------------------------------


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file with the mode that the umask gives, or raise the system's OSError."""
    path.touch()
    mode = path.stat().st_mode  # safetensors writes only for its owner, whatever the umask is
    try:
        save_file(tensors, path)
        path.chmod(mode)
    except SafetensorError as error:
        raise system_error(error, path) from error


def system_error(error: SafetensorError, path: Path) -> OSError:
    """Return the system's error, which safetensors gives only as text, with the path."""
    found = re.search(r"os error (\d+)", str(error))
    number = int(found[1]) if found else errno.EIO
    return OSError(number, os.strerror(number), str(path))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; a damaged one is an InputError."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is damaged ({error}): choose another checkpoint") from error


def _read(file: Path) -> dict[str, Any]:
    """Return a JSON object; its numbers may be NaN, because an undefined metric is."""
    try:
        content = json.loads(file.read_bytes())
        if not isinstance(content, dict):
            raise ValueError("no JSON object")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is damaged ({error}): choose another checkpoint") from error
    return content


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Flush a file or folder to the disk; not every file system can flush folders."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)
