"""Modules of other packages that add pipelines or position encodings."""

from __future__ import annotations

import importlib
import os
from functools import cache

from roformer.errors import InputError

VARIABLE = "ROFORMER_EXTENSIONS"
"""Environment variable with the names of such modules, separated by commas."""


def import_extensions() -> None:
    """Import the modules that ROFORMER_EXTENSIONS names, each once per process."""
    for module in filter(None, os.environ.get(VARIABLE, "").split(",")):
        _import(module.strip())


@cache
def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{VARIABLE}: cannot import {module} ({error})") from error
