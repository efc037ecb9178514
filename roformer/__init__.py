"""RoFormer (arXiv 2104.09864): rotary position embedding, its models and their baselines."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roformer.evaluation.sampling import Sampling
    from roformer.inference.folders import convert_run_layout
    from roformer.inference.generate import Generator, load_generator
    from roformer.inference.load import TrainedModel, load_model
    from roformer.inference.translate import Translator, load_translator
    from roformer.nn.rotary import RotaryEmbedding, apply_rotary, decay_bound, rotary_angles

__all__ = [
    "Generator",
    "RotaryEmbedding",
    "Sampling",
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
    "roformer.evaluation.sampling": ("Sampling",),
    "roformer.inference.generate": ("Generator", "load_generator"),
    "roformer.inference.folders": ("convert_run_layout",),
    "roformer.inference.load": ("TrainedModel", "load_model"),
    "roformer.inference.translate": ("Translator", "load_translator"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: a command's `--help` needs no torch."""
    if name == "__version__":  # asked of the installation: a checkout works without one
        return version("roformer")
    for home, names in HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'roformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
