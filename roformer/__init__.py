"""RoFormer (arXiv 2104.09864): rotary position embedding, its models and their baselines."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roformer.nn.rotary import RotaryEmbedding, apply_rotary, decay_bound, rotary_angles
    from roformer.pipelines.generating import Generator, load_generator
    from roformer.pipelines.layout import convert_run_layout
    from roformer.pipelines.loading import TrainedModel, load_model
    from roformer.pipelines.translating import Translator, load_translator

__version__ = version("roformer")

__all__ = [
    "Generator",
    "RotaryEmbedding",
    "TrainedModel",
    "Translator",
    "apply_rotary",
    "convert_run_layout",
    "decay_bound",
    "load_generator",
    "load_model",
    "load_translator",
    "rotary_angles",
]

HOMES = {
    "roformer.nn.rotary": ("RotaryEmbedding", "apply_rotary", "decay_bound", "rotary_angles"),
    "roformer.pipelines.generating": ("Generator", "load_generator"),
    "roformer.pipelines.layout": ("convert_run_layout",),
    "roformer.pipelines.loading": ("TrainedModel", "load_model"),
    "roformer.pipelines.translating": ("Translator", "load_translator"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: a command's `--help` needs no torch."""
    for home, names in HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'roformer' has no attribute {name!r}")
