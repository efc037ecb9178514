"""Toy data, made from templates in which the order of words decides."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml


def table(name: str) -> dict[str, Any]:
    """Read the words and sentences of `<name>.yaml`."""
    text = (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))
