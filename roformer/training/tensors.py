"""Safetensors files, with errors of the system as OSError and damage as InputError."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from roformer.errors import InputError


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file with the mode that the umask gives.

    Raises:
        OSError: the disk is full or not writable; safetensors says so in its text only.
    """
    path.touch()
    mode = path.stat().st_mode  # safetensors writes for its owner alone, whatever the umask is
    try:
        save_file(tensors, path)
        path.chmod(mode)
    except SafetensorError as error:
        raise system_error(error, path) from error


def system_error(error: SafetensorError, path: Path) -> OSError:
    """Return the error of the system that a writer of `path` met."""
    found = re.search(r"os error (\d+)", str(error))
    number = int(found[1]) if found else errno.EIO
    return OSError(number, os.strerror(number), str(path))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        InputError: it is none.
    """
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is damaged ({error}): choose another checkpoint") from error
