"""A run's weights in the other rotary layout: interleaved pairs (the paper) or half-split ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from roformer.config.attention import SoftmaxAttention
from roformer.config.build import build
from roformer.config.lm import CausalConfig
from roformer.config.schema import EncoderConfig, TransformerConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.errors import InputError
from roformer.models.hf import convert_state_layout
from roformer.nn.rotary import Layout
from roformer.training import checkpoint
from roformer.training.averaging import AVERAGED
from roformer.training.tensors import load_tensors, save_tensors


def convert_run_layout(path: str | Path, to: Layout, output: str | Path) -> Path:
    """Write a run's model with queries and keys in the other rotary layout; it computes the same.

    What is written can be loaded, fine-tuned and translated with. It cannot be trained on: the
    optimizer's state stays behind. Converting it back gives the first weights bit by bit.

    Args:
        path: a run, of which the checkpoint that loading takes is converted, or a checkpoint in one.
        to: the layout wanted.
        output: folder of the new run, with one checkpoint and the tokenizer; must not exist.

    Returns:
        The new checkpoint's folder.

    Raises:
        InputError: nothing complete is there, it has no rotary positions or is in that layout
            already, or `output` exists.
    """
    output = Path(output)
    if output.exists():
        raise InputError(f"{output} exists: choose another folder")
    source = _chosen(Path(path))
    description = checkpoint.describe(source)
    config = build(config_of(description), description["model"])
    if config.position.kind != "rotary":
        raise InputError(
            f"{path} has {config.position.kind} positions: only rotary ones have a layout"
        )
    if not isinstance(config.attention, SoftmaxAttention):
        raise InputError(
            f"{path} has {config.attention.kind} attention, whose features are not the rows of its "
            "projection: only softmax attention can change its layout"
        )
    if config.position.layout == to:
        raise InputError(f"{path} is in the layout {to} already")
    tokenizer = source.parent.parent / "tokenizer"
    if not tokenizer.is_dir():
        raise InputError(
            f"{source.parent.parent} has no tokenizer/: give a whole run, not a checkpoint moved out "
            "of it"
        )
    state = load_tensors(source / checkpoint.MODEL)
    converted = convert_state_layout(state, config.heads, to, rotary_dim=config.rotary_dim)
    model: dict[str, Any] = description["model"]
    model["position"] = {**model["position"], "layout": to}
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    written = Path("checkpoints") / source.name
    (partial / written).mkdir(parents=True)
    save_tensors(converted, partial / written / checkpoint.MODEL)
    (partial / written / checkpoint.DESCRIPTION).write_text(json.dumps(description, indent=1))
    checkpoint.complete(partial / written)
    shutil.copytree(tokenizer, partial / "tokenizer")
    partial.rename(output)
    return output / written


def config_of(description: dict[str, Any]) -> type[TransformerConfig]:
    """Return the kind of model that a checkpoint describes."""
    if "reads" in description:
        return CausalConfig
    return Seq2SeqConfig if "languages" in description else EncoderConfig


def _chosen(path: Path) -> Path:
    """Return the checkpoint that `load_model` or `load_translator` opens."""
    for name in (AVERAGED, "best"):
        special = path / "checkpoints" / name
        if special.is_dir() and (name == AVERAGED or _is_classifier(path)):
            return checkpoint.resolve(special)
    return checkpoint.resolve(path)


def _is_classifier(path: Path) -> bool:
    return "task" in checkpoint.describe(checkpoint.resolve(path))
