"""Conversion between the layouts of rotary pairs: interleaved (the paper) and half-split."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from roformer.config.attention import SoftmaxAttention
from roformer.config.build import build
from roformer.errors import InputError
from roformer.models.description import KINDS
from roformer.nn.rotary import Layout
from roformer.training import checkpoint
from roformer.training.averaging import choose
from roformer.training.checkpoint import load_tensors, save_tensors


def half_order(size: int) -> Tensor:
    """Return the interleaved place of each half-split dimension: 0, 2, 4, …, 1, 3, 5, …"""
    return torch.arange(size).view(-1, 2).T.reshape(-1)


def convert_layout(projection: Tensor, heads: int, to: Layout, *, rotary_dim: int) -> Tensor:
    """Permute the rows of a query or key projection so that the other rotary layout gives the same.

    Interleaved pairs are rows (0, 1), (2, 3), … of a head; half-split pairs are rows (i, i + R/2).

    Args:
        projection: weight (heads·H, D) or bias (heads·H,) of the query or of the key.
        heads: number of heads.
        to: the layout wanted; the projection is in the other one.
        rotary_dim: R, the rotated rows of each head; the rest stays.

    Returns:
        The permuted tensor; converting back restores it bit by bit.
    """
    by_head = projection.unflatten(0, (heads, -1))
    order = half_order(rotary_dim) if to == "half" else half_order(rotary_dim).argsort()
    rest = torch.arange(rotary_dim, by_head.shape[1])
    return by_head[:, torch.cat((order, rest)).to(projection.device)].flatten(0, 1)


def convert_state_layout(
    state: Mapping[str, Tensor], heads: int, to: Layout, *, rotary_dim: int
) -> dict[str, Tensor]:
    """Return a state dict, of any model here, with queries and keys in the other rotary layout.

    It computes the same where `model.position.layout` says so; see `convert_layout`.
    """
    converted = dict(state)
    for name, tensor in state.items():
        if re.search(r"(^|\.)attention\.projection\.(weight|bias)$", name):
            query, key, value = tensor.chunk(3)
            rotated = [convert_layout(t, heads, to, rotary_dim=rotary_dim) for t in (query, key)]
            converted[name] = torch.cat((*rotated, value))
    return converted


def convert_run_layout(path: str | Path, to: Layout, output: str | Path) -> Path:
    """Write a run's model with queries and keys in the other rotary layout; it computes the same.

    It can be loaded and fine-tuned, not trained on: the optimizer's state stays behind. Converting
    it back gives the first weights bit by bit.

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
    source = choose(Path(path))
    description = checkpoint.describe(source)
    config = build(KINDS[description["kind"]], description["model"])
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
    description["model"]["position"]["layout"] = to
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    written = partial / "checkpoints" / source.name
    written.mkdir(parents=True)
    save_tensors(converted, written / checkpoint.MODEL)
    (written / checkpoint.DESCRIPTION).write_text(json.dumps(description, indent=1))
    checkpoint.complete(written)
    shutil.copytree(tokenizer, partial / "tokenizer")
    partial.rename(output)
    return output / "checkpoints" / source.name
