"""Load bert and roformer models of Hugging Face as models of this package.

`transformers` itself loads the weights, from safetensors alone: nothing is unpickled and no code of a
repository runs. What it would fill in at random because a file lacks it is refused or left out here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from roformer.config.schema import EncoderConfig
from roformer.data.tokenizers import WordPiece, is_hub_id
from roformer.errors import InputError
from roformer.interop.bert import (
    ROFORMER_CLASSIFIER,
    TIED,
    encoder_config,
    fused,
    has_roformer_classifier,
    is_rotary,
    sources,
    transformers_names,
)
from roformer.interop.tokenizers import read_json, read_tokenizer
from roformer.models.classifier import Classifier
from roformer.models.description import check_size
from roformer.models.encoder import Encoder, MaskedLM
from roformer.training import checkpoint

Kind = Literal["encoder", "mlm", "classifier"]
KINDS: dict[str, Kind] = {
    "ForMaskedLM": "mlm",
    "ForPreTraining": "mlm",
    "ForSequenceClassification": "classifier",
}
"""End of the name of a class of `transformers` → kind here; every other class gives its encoder."""
CONFIG, WEIGHTS = "config.json", ("model.safetensors", "model.safetensors.index.json")
FILES = [
    *(CONFIG, *WEIGHTS, "model-*.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "added_tokens.json", "vocab.txt"),
]
"""Files that are downloaded."""
REASONS = {
    "RepositoryNotFoundError": "the Hub has no such model, or it is not open to you",
    "GatedRepoError": "the Hub asks who may read this model: log in, or ask for access there",
    "RevisionNotFoundError": "the Hub has the model but not this revision",
    "LocalEntryNotFoundError": "the Hub cannot be reached, and the cache does not have it",
}
"""Meaning of the Hub's errors, by the name of their type."""
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Ends of the names of constants that older versions stored."""
TABLE = "roformer.encoder.embed_positions.weight"


class HuggingFaceModel(NamedTuple):
    """A loaded Hugging Face model."""

    name: str
    """Folder or Hub id."""
    kind: Kind
    config: EncoderConfig
    vocab_size: int
    weights: dict[str, Tensor]
    """By the names of `models`, fp32; the encoder is complete, a head may not be."""
    names: dict[str, list[str]]
    """Names in `transformers` of the parts of each of `weights`."""
    unused: list[str]
    """Names in `transformers` of weights that no model here has."""
    activation: Literal["tanh", "gelu"]
    """Of a classifier's pooler."""
    tokenizer: WordPiece | str
    """Or a sentence why there is none."""
    settings: Any
    """Configuration of `transformers`."""
    commit: str | None = None
    """Commit that the revision of a Hub id stands for."""


def is_hugging_face(source: str) -> bool:
    """Return whether a folder or name is a Hugging Face model, not a run or checkpoint."""
    path = Path(source).expanduser()
    if path.exists():
        return (path / CONFIG).is_file()
    # The first models of the Hub have no owner in their names.
    return is_hub_id(source) or re.fullmatch(r"bert-(base|large)-[\w.-]+", source) is not None


def check_folder(source: str) -> None:
    """Raise InputError if a path exists and is neither a run, a checkpoint nor a Hugging Face model."""
    path = Path(source).expanduser()
    if path.is_file():
        raise InputError(f"{source} is a file: give the folder that it is in")
    own = ("checkpoints", checkpoint.DESCRIPTION, checkpoint.COMPLETE)
    if path.is_dir() and not any((path / name).exists() for name in (*own, CONFIG)):
        has_weights = any((path / name).is_file() for name in WEIGHTS)
        what = "has weights but no" if has_weights else "has neither checkpoints/ nor"
        raise InputError(
            f"{source} {what} {CONFIG}: give a run, a checkpoint, or a folder that save_pretrained "
            "wrote"
        )


def read_hugging_face(source: str, revision: str | None = None) -> HuggingFaceModel:
    """Load a folder or Hub id of type bert or roformer.

    Args:
        source: for which `is_hugging_face` is true.
        revision: of a Hub id: branch, tag or commit; None is the newest.

    Raises:
        InputError: it cannot be had, is damaged, or has variants that the encoder here does not have;
            every message begins with `source`.
    """
    folder = Path(source).expanduser()
    commit = None
    if not folder.exists():
        folder = _download(source, revision)
        commit = folder.name if re.fullmatch("[0-9a-f]{40}", folder.name) else None
    try:
        return _read(source, folder)._replace(commit=commit)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def build_encoder(read: HuggingFaceModel) -> nn.Module:
    """Return the model of this package with the loaded weights, in evaluation mode.

    Raises:
        InputError: its head is incomplete, or one that cannot be computed here.
    """
    settings, vocab_size = read.settings, read.vocab_size
    if read.kind == "mlm" and (untied := [name for name in TIED if name in read.unused]):
        raise InputError(
            f"{read.name}: {untied[0]} is not tied to {TIED[untied[0]].format(prefix=read.config.name)}: "
            "choose a model whose output matrix is that of the embeddings"
        )
    if read.kind == "classifier" and settings.problem_type == "multi_label_classification":
        raise InputError(
            f"{read.name}: its labels do not exclude each other (problem_type="
            "multi_label_classification): a classifier here has one label a text"
        )
    with torch.device("meta"):  # no weights are drawn only to be replaced
        model: nn.Module
        if read.kind == "mlm":
            model = MaskedLM(read.config, vocab_size)
        elif read.kind == "classifier":
            model = Classifier(
                read.config,
                vocab_size,
                settings.num_labels,
                dropout=0.0,
                activation=read.activation,
            )
        else:
            model = Encoder(read.config, vocab_size)
    prefix = "encoder." if read.kind == "encoder" else ""
    needed = [f"{prefix}{name}" for name in model.state_dict()]
    names = {name: transformers_names(name, read.config.name) for name in needed}
    if read.kind == "classifier" and read.config.name == "roformer":
        names |= ROFORMER_CLASSIFIER
    if lost := [name for name in needed if read.names.get(name) != names[name]]:
        of_file = [part for name in lost for part in names[name]]
        raise InputError(f"{read.name} lacks weights of its head: {', '.join(of_file)}")
    state = {name.removeprefix(prefix): read.weights[name] for name in needed}
    model.to_empty(device="cpu").load_state_dict(state)
    return model.eval()


# --- files ---------------------------------------------------------------------------------------


def _download(source: str, revision: str | None) -> Path:
    """Return the folder of a Hub model in the cache, downloaded if need be.

    Raises:
        InputError: there is no such model, no network, or the cache of an offline machine lacks it.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=FILES))
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


def _settings(folder: Path) -> Any:
    """Return the configuration of a folder; keys that it leaves out have the library's defaults.

    Raises:
        InputError: there is none, or it is damaged or of another type of model.
    """
    from transformers import BertConfig, RoFormerConfig

    if not (folder / CONFIG).is_file():
        raise InputError(f"there is no {CONFIG}: give a folder that save_pretrained wrote")
    content = read_json(folder / CONFIG)
    kind = content.get("model_type")
    if kind not in ("bert", "roformer"):
        stated = f"of type {kind}" if kind else f"whose {CONFIG} names no model_type"
        raise InputError(f"a model {stated} cannot be read: choose one of type bert or roformer")
    try:
        settings: Any = (BertConfig if kind == "bert" else RoFormerConfig).from_dict(content)
    except Exception as error:  # the library checks types, with errors of its own
        raise InputError(f"{CONFIG} is not sound: {_line(error)}") from error
    if getattr(settings, "quantization_config", None):
        raise InputError("quantised weights cannot be read: choose a model that is not quantised")
    return settings


def _load(
    folder: Path, settings: Any, kind: Kind, config: EncoderConfig
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the stored weights, fp32, by today's names, and the names that are not known.

    Raises:
        InputError: there are no safetensors, or they are damaged or of other shapes.
    """
    from transformers import (
        AutoModelForSequenceClassification,
        BertForPreTraining,
        RoFormerForMaskedLM,
    )
    from transformers.utils import logging

    if not any((folder / name).is_file() for name in WEIGHTS):
        ends = (".h5", ".msgpack", ".ckpt", ".onnx", ".index", ".safetensors", ".bin", ".pt")
        others = sorted(path.name for path in folder.iterdir() if path.suffix in ends)
        found = f" (there is {', '.join(others[:4])})" if others else ""
        raise InputError(
            f"there is no {WEIGHTS[0]}, whole or in shards{found}: other formats are not read; the Hub "
            "often has a converted one at revision refs/pr/1, and save_pretrained writes one"
        )
    check_size(config, settings.vocab_size, folder.glob("*.safetensors"))
    # Classes with every head that a model without labels can have: absent ones are missing.
    whole: Any = BertForPreTraining if settings.model_type == "bert" else RoFormerForMaskedLM
    loader = AutoModelForSequenceClassification if kind == "classifier" else whole
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model, told = loader.from_pretrained(
            folder,
            config=settings,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # many types; a damaged file, or a shard that is missing
        raise InputError(
            f"{WEIGHTS[0]} is damaged or incomplete ({_line(error)}): fetch it again"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    for name, stored, wanted in sorted(told["mismatched_keys"]):
        if name != TABLE:
            raise InputError(
                f"{name} is {tuple(stored)}, but {tuple(wanted)} by its {CONFIG}: they are not of one "
                "model"
            )
    state = {name: t for name, t in model.state_dict().items() if name not in told["missing_keys"]}
    return state, sorted(n for n in told["unexpected_keys"] if not n.endswith(BUFFERS))


def _line(error: Exception) -> str:
    return f"{type(error).__name__}, {' '.join(str(error).split())}"


# --- weights -------------------------------------------------------------------------------------


def _read(source: str, folder: Path) -> HuggingFaceModel:
    settings = _settings(folder)
    prefix: str = settings.model_type
    if getattr(settings, "norm_type", "layer_norm") == "rms_norm":
        _refuse_second_version()
    try:
        config = encoder_config(settings)
    except InputError:
        raise
    except ValueError as error:  # sizes that do not go together, as pydantic tells it
        raise InputError(f"{CONFIG}: {' '.join(str(error).split())}") from error
    classes = settings.architectures or [""]
    ends = (kind for end, kind in KINDS.items() if str(classes[0]).endswith(end))
    kind: Kind = next(ends, "encoder")
    state, unexpected = _load(folder, settings, kind, config)
    _check_encoder(state, unexpected, config, settings.vocab_size)
    state, names = _untied(state), sources(state, prefix)
    used = {part for parts in names.values() for part in parts}
    return HuggingFaceModel(
        name=source,
        kind=kind,
        config=config,
        vocab_size=settings.vocab_size,
        weights=fused(state, names),
        names=names,
        unused=sorted({*unexpected, *(state.keys() - used)}),
        activation="gelu" if has_roformer_classifier(state, prefix) else "tanh",
        tokenizer=read_tokenizer(folder, settings),
        settings=settings,
    )


def _untied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without those that are computed or equal to the ones that they are tied to.

    Raises:
        InputError: the table of rotary positions is not RoFormer's.
    """
    prefix = "roformer" if TABLE in state else "bert"
    if TABLE in state and not is_rotary(state[TABLE]):
        raise InputError(f"{TABLE} is not RoFormer's table (base 10000): it cannot be read")
    tied = {name: original.format(prefix=prefix) for name, original in TIED.items()}
    return {
        name: tensor
        for name, tensor in state.items()
        if name != TABLE
        and not (tied.get(name) in state and torch.equal(tensor, state[tied[name]]))
    }


def _check_encoder(
    state: dict[str, Tensor], unexpected: list[str], config: EncoderConfig, vocab_size: int
) -> None:
    """Raise InputError unless the weights of the encoder are all there, and no others."""
    kind = config.name
    with torch.device("meta"):
        own = Encoder(config, vocab_size).state_dict()
    needed = [name for one in own for name in transformers_names(f"encoder.{one}", kind)]
    lost = [name for name in needed if name not in state]
    layers = [name for name in needed if ".encoder.layer." in name]
    ends = (".bias", "LayerNorm.weight")
    if layers and set(lost) & set(layers) == {name for name in layers if name.endswith(ends)}:
        _refuse_second_version()
    parts = re.compile(rf"({kind}\.)?(embeddings|encoder)\.")
    problems = [
        (f"{CONFIG} asks for", lost, "which are missing"),
        (
            "there are",
            [n for n in unexpected if parts.match(n)],
            "which this encoder does not have",
        ),
    ]
    said = [f"{one} {_some(found)}, {two}" for one, found, two in problems if found]
    if said:
        raise InputError(f"lacks weights of the encoder or has others: {'; '.join(said)}")


def _refuse_second_version() -> None:
    raise InputError(
        "this is RoFormerV2: no biases, RMS norm without weights; this encoder and transformers' "
        "roformer, which its config names, have both: choose a RoFormer of the first version"
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(sorted(names)[:4]) + more
