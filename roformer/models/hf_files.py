"""The files of a Hugging Face model: fetched from the Hub, and read without running anything of them.

A folder holds config.json and the weights in one of four forms, read in this order: model.safetensors,
the same in shards, pytorch_model.bin, the same in shards. A .bin is a pickle; of it nothing but tensors
is read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from roformer.errors import InputError

CONFIG, SAFETENSORS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"
"""What the name of a list of shards adds to that of a whole file."""
TEXTS = [CONFIG, "tokenizer.json", "tokenizer_config.json", "added_tokens.json", "vocab.txt"]
HUB_FILES = {
    SAFETENSORS: [*TEXTS, SAFETENSORS, SAFETENSORS + INDEX, "model-*.safetensors"],
    PICKLE: [*TEXTS, PICKLE, PICKLE + INDEX, "pytorch_model-*.bin"],
}
"""What is downloaded of a Hub model: the pickles only where there are no safetensors."""
KNOWN = ("bert", "roformer")
REASONS = {
    "RepositoryNotFoundError": "the Hub has no such model, or it is not open to you",
    "GatedRepoError": "the Hub asks who may read this model: log in, or ask for access there",
    "RevisionNotFoundError": "the Hub has the model but not this revision",
    "LocalEntryNotFoundError": "the Hub cannot be reached, and the cache does not have it",
}
"""What the Hub's errors mean, by the name of their type."""


def download(source: str, revision: str | None) -> Path:
    """Return the folder of a Hub model in the cache, downloaded if need be.

    Args:
        source: Hub id.
        revision: branch, tag or commit; None is the newest.

    Raises:
        InputError: no such model, no network, or not in the cache of an offline machine.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(source, revision=revision, allow_patterns=HUB_FILES[SAFETENSORS])
        )
        if not has_weights(folder):
            # The commit that was found, if it is known: a second look-up may find a newer one.
            found = folder.name if re.fullmatch("[0-9a-f]{40}", folder.name) else revision
            folder = Path(
                snapshot_download(source, revision=found, allow_patterns=HUB_FILES[PICKLE])
            )
    except Exception as error:  # many types: no such repository, no network, a full disk
        hidden: BaseException = error  # a refused connection or a server's error 500 lies beneath
        while beneath := hidden.__cause__ or hidden.__context__:
            hidden = beneath
        line = (str(hidden).strip() or "no more is known").partition("\n")[0].rstrip(".")
        told = f"{type(hidden).__name__}, {line}"
        known = REASONS.get(type(error).__name__)
        reason = f"{known} ({told})" if known else told
        at = f" at revision {revision}" if revision else ""
        raise InputError(
            f"{source} cannot be read as a Hugging Face model{at}: no such folder here, and {reason}: "
            "check the id; without a network give a folder, or set HF_HUB_OFFLINE=1 with a cache "
            "that has the model"
        ) from error
    return folder


def has_weights(folder: Path) -> bool:
    """Tell whether a folder has weights in a form that `read_weights` reads."""
    names = (SAFETENSORS, PICKLE)
    return any((folder / (name + end)).is_file() for name in names for end in ("", INDEX))


def read_config(folder: Path) -> Any:
    """Return the `transformers` config of a folder; what it leaves out has that library's default.

    Raises:
        InputError: there is none, or it is of another type of model or not sound.
    """
    from transformers import BertConfig, RoFormerConfig

    if not (folder / CONFIG).is_file():
        raise InputError(f"there is no {CONFIG}: give a folder that save_pretrained wrote")
    content = read_json(folder / CONFIG)
    classes = content.get("architectures") or [""]
    architecture = str(classes[0]).lower() if isinstance(classes, list) else ""
    # Configs older than the key are recognised by the class that wrote them.
    named = next((kind for kind in KNOWN if architecture.startswith(kind)), None)
    kind = content.get("model_type", named)
    if kind not in KNOWN:
        stated = f"of type {kind}" if kind else "whose config.json names no model_type"
        raise InputError(
            f"a model {stated} cannot be read: choose one of type {' or '.join(KNOWN)}"
        )
    try:
        return (BertConfig if kind == "bert" else RoFormerConfig).from_dict(content)
    except Exception as error:  # the library checks types, with errors of its own
        line = " ".join(str(error).split())
        raise InputError(f"{CONFIG} is not sound: {type(error).__name__}, {line}") from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a folder under the names and in the types that they are stored in.

    Raises:
        InputError: there are none that can be read, a file is damaged, or a shard is missing.
    """
    for name in (SAFETENSORS, PICKLE):
        if (folder / name).is_file():
            return _read_file(folder / name)
        if (folder / (name + INDEX)).is_file():
            return _read_shards(folder, folder / (name + INDEX))
    ends = (".h5", ".msgpack", ".ckpt", ".onnx", ".index", ".safetensors", ".bin", ".pt")
    others = sorted(path.name for path in folder.iterdir() if path.suffix in ends)
    found = f" (there is {', '.join(others[:4])})" if others else ""
    raise InputError(f"there is neither {SAFETENSORS} nor {PICKLE}, whole or in shards{found}")


def read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        InputError: the file is not one.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file.name} is not JSON: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(content, dict):
        raise InputError(f"{file.name} is not a JSON object")
    return content


def _read_shards(folder: Path, index: Path) -> dict[str, Tensor]:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise InputError(f"{index.name} has no weight_map")
    state: dict[str, Tensor] = {}
    for name in sorted({str(name) for name in places.values()}):
        if Path(name).name != name:
            raise InputError(f"{index.name} names {name}, which is not a file of this folder")
        if not (folder / name).is_file():
            raise InputError(f"{index.name} names {name}, which is missing: fetch it again")
        state |= _read_file(folder / name)
    if lost := [name for name in places if name not in state]:
        raise InputError(f"{index.name} names weights that no shard has: {', '.join(lost[:4])}")
    return state


def _read_file(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        try:
            return load_file(file)
        except (SafetensorError, OSError, ValueError) as error:
            line = str(error).partition("\n")[0]
            raise InputError(
                f"{file.name} is damaged or cut short ({line}): fetch it again"
            ) from error
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # many types; what they say is advice to execute the file
        raise InputError(
            f"{file.name} is damaged, or holds more than tensors; nothing of it was executed: fetch "
            "it again, or save the model as safetensors where it is trusted"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(t, Tensor) for t in state.values()):
        raise InputError(f"{file.name} is no state dict: it must map names to tensors alone")
    return {str(name): tensor for name, tensor in state.items()}
