"""RoFormer (arXiv 2104.09864): rotary position embedding, its models and their baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roformer.nn.rotary import RotaryEmbedding, apply_rotary, decay_bound, rotary_angles
    from roformer.pipelines.generating import Generator, load_generator
    from roformer.pipelines.layout import convert_run_layout
    from roformer.pipelines.loading import TrainedModel, load_model
    from roformer.pipelines.translating import Translator, load_translator

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


def __getattr__(name: str) -> Any:
    """Import a name's module when it is first asked for: a script's settings come before torch."""
    if name in ("RotaryEmbedding", "apply_rotary", "decay_bound", "rotary_angles"):
        from roformer.nn import rotary

        return getattr(rotary, name)
    if name in ("TrainedModel", "load_model"):
        from roformer.pipelines import loading

        return getattr(loading, name)
    if name == "convert_run_layout":
        from roformer.pipelines import layout

        return getattr(layout, name)
    if name in ("Generator", "load_generator"):
        from roformer.pipelines import generating

        return getattr(generating, name)
    if name in ("Translator", "load_translator"):
        from roformer.pipelines import translating

        return getattr(translating, name)
    raise AttributeError(f"module 'roformer' has no attribute {name!r}")
