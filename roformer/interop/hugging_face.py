"""Load bert and roformer models of Hugging Face as models of this package.

`transformers` itself loads the weights, from safetensors alone: nothing is unpickled and no code of a
repository runs. What it would fill in at random because a file lacks it is refused or left out here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from roformer.config.attention import SoftmaxAttention
from roformer.config.position import Learned, Rotary
from roformer.config.schema import EncoderConfig
from roformer.data.tokenizers import WordPiece, is_hub_id
from roformer.errors import InputError
from roformer.interop.tokenizers import read_json, read_tokenizer
from roformer.interop.weights import from_transformers, names_there
from roformer.models.classifier import Classifier
from roformer.models.description import check_size
from roformer.models.encoder import Encoder, MaskedLM
from roformer.nn.rotary import rotary_table

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
TIED = {
    "cls.predictions.decoder.weight": "{prefix}.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Parameter → the one that it is tied to."""
SECOND_VERSION = (
    "this is RoFormerV2: no biases, RMS norm without weights; this encoder and transformers' roformer, "
    "which its config names, have both: choose a RoFormer of the first version"
)


@dataclass(frozen=True)
class HuggingFaceModel:
    """A loaded Hugging Face model."""

    name: str
    """Folder or Hub id."""
    kind: Kind
    architecture: str
    """See `roformer.interop.weights.NAMES`."""
    config: EncoderConfig
    vocab_size: int
    model: nn.Module | str
    """Or a sentence why its head cannot be computed here."""
    weights: dict[str, Tensor]
    """By the names of `models`, fp32: the encoder, and what there is of heads."""
    unknown: list[str]
    """Names in `transformers` of weights that no model here has."""
    tokenizer: WordPiece | str
    """Or a sentence why there is none."""
    description: dict[str, Any]
    """Its labels and longest text, as a checkpoint describes them."""
    commit: str | None
    """Commit that the revision of a Hub id stands for."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 that is equal where the weights are."""
        digest = hashlib.sha256()
        for name in sorted(self.weights):
            digest.update(name.encode())
            digest.update(self.weights[name].numpy().tobytes())
        return digest.hexdigest()

    def build(self) -> nn.Module:
        """Return the model with its weights, on the CPU, in evaluation mode.

        Raises:
            InputError: its head is incomplete, or one that cannot be computed here.
        """
        if isinstance(self.model, str):
            raise InputError(f"{self.name}: {self.model}")
        return self.model.eval()

    def theirs(self, names: Iterable[str]) -> list[str]:
        """Return the names in `transformers` of parameters here."""
        return [part for name in names for part in names_there(name, self.architecture)]


def is_hugging_face(source: str) -> bool:
    """Return whether a folder or name is a Hugging Face model, not a run or checkpoint."""
    path = Path(source).expanduser()
    if path.exists():
        return (path / CONFIG).is_file()
    # The first models of the Hub have no owner in their names.
    return is_hub_id(source) or re.fullmatch(r"bert-(base|large)-[\w.-]+", source) is not None


def read_hugging_face(source: str, revision: str | None = None) -> HuggingFaceModel:
    """Load a folder or Hub id of type bert or roformer.

    Args:
        source: for which `is_hugging_face` is true.
        revision: of a Hub id: branch, tag or commit; None is the newest.

    Raises:
        InputError: it cannot be had, is damaged, or has variants that the encoder here does not have;
            every message begins with `source`.
    """
    folder, commit = Path(source).expanduser(), None
    if not folder.exists():
        folder = _download(source, revision)
        commit = folder.name if re.fullmatch("[0-9a-f]{40}", folder.name) else None
    try:
        return _read(source, folder, commit)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def encoder_config(config: Any) -> EncoderConfig:
    """Return the encoder that a `transformers` config of type bert or roformer describes.

    Raises:
        InputError: a variant that this encoder does not have, or sizes that do not go together.
    """
    needed = {
        "hidden_act": "gelu",
        "embedding_size": config.hidden_size,
        "rotary_value": False,
        "position_embedding_type": "absolute",
        "is_decoder": False,
    }
    for key, value in needed.items():
        if getattr(config, key, value) != value:
            raise InputError(
                f"a {config.model_type} model with {key}={getattr(config, key)} cannot be read: "
                f"this encoder has {value}"
            )
    learned = config.model_type == "bert"
    try:
        return EncoderConfig(
            name=config.model_type,
            size=f"{config.num_hidden_layers}x{config.hidden_size}",
            layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            hidden_dropout=config.hidden_dropout_prob,
            attention_dropout=config.attention_probs_dropout_prob,
            token_types=config.type_vocab_size,
            layer_norm_eps=config.layer_norm_eps,
            init_std=config.initializer_range,
            position=Learned(max_positions=config.max_position_embeddings) if learned else Rotary(),
            attention=SoftmaxAttention(),
        )
    except ValueError as error:
        raise InputError(f"{CONFIG}: {' '.join(str(error).split())}") from error


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
    if getattr(settings, "norm_type", "layer_norm") == "rms_norm":
        raise InputError(SECOND_VERSION)
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


def _read(source: str, folder: Path, commit: str | None) -> HuggingFaceModel:
    settings = _settings(folder)
    config, vocab_size = encoder_config(settings), settings.vocab_size
    stated = str((settings.architectures or [""])[0])
    kind: Kind = next((kind for end, kind in KINDS.items() if stated.endswith(end)), "encoder")
    gelu = kind == "classifier" and config.name == "roformer"
    architecture = "roformer_classifier" if gelu else config.name
    description: dict[str, Any] = {"max_length": settings.max_position_embeddings}
    with torch.device("meta"):  # no weights are drawn only to be replaced
        model: nn.Module = Encoder(config, vocab_size)
        if kind == "mlm":
            model = MaskedLM(config, vocab_size)
        elif kind == "classifier":
            names, outputs = settings.id2label, settings.num_labels
            labels = [str(names.get(number, number)) for number in range(outputs)]
            description |= {"texts": None, "labels": labels if outputs > 1 else None}
            activation: Any = "gelu" if gelu else "tanh"
            model = Classifier(config, vocab_size, outputs, dropout=0.0, activation=activation)
    state, unexpected = _load(folder, settings, kind, config)
    prefix = "encoder." if kind == "encoder" else ""
    needed = [prefix + name for name in model.state_dict()]
    lost = [
        (name, part)
        for name in needed
        for part in names_there(name, architecture)
        if part not in state
    ]
    _check_encoder([part for name, part in lost if name.startswith("encoder.")], unexpected, config)
    if TABLE in state and not is_rotary(state.pop(TABLE)):
        raise InputError(f"{TABLE} is not RoFormer's table (base 10000): it cannot be read")
    flaw = f"lacks weights of its head: {', '.join(part for _, part in lost)}" if lost else None
    for name, original in TIED.items():
        original = original.format(prefix=config.name)
        if name not in state:
            continue
        if torch.equal(state[name], state.get(original, state[name])):
            del state[name]
        elif kind == "mlm":
            flaw = (
                f"{name} is not tied to {original}: choose a model whose output matrix is that of the "
                "embeddings"
            )
    if kind == "classifier" and settings.problem_type == "multi_label_classification":
        flaw = (
            "its labels do not exclude each other (problem_type=multi_label_classification): a "
            "classifier here has one label a text"
        )
    weights = from_transformers(state, architecture)
    if flaw is None:
        own = {name.removeprefix(prefix): weights[name] for name in needed}
        model.to_empty(device="cpu").load_state_dict(own)
    used = {part for name in weights for part in names_there(name, architecture)}
    return HuggingFaceModel(
        name=source,
        kind=kind,
        architecture=architecture,
        config=config,
        vocab_size=vocab_size,
        model=flaw or model,
        weights=weights,
        unknown=sorted({*unexpected, *(state.keys() - used)}),
        tokenizer=read_tokenizer(folder, settings),
        description=description,
        commit=commit,
    )


def is_rotary(table: Tensor) -> bool:
    """Return whether a table holds the sines and, behind them, the cosines of Eq. 15 (base 10000)."""
    made = rotary_table(torch.arange(table.shape[0]), table.shape[1])
    expected = torch.cat((made.sin, made.cos), dim=1)
    return torch.allclose(table, expected, rtol=0, atol=1e-2)  # it may have been stored in bf16


def _check_encoder(lost: list[str], unexpected: list[str], config: EncoderConfig) -> None:
    """Raise InputError unless the weights of the encoder are all there, and no others."""
    ends = (".bias", "LayerNorm.weight")
    of_layers = [name for name in lost if ".encoder.layer." in name]
    # Ten of a layer's sixteen: all biases, and the weights of its norms.
    if len(of_layers) == 10 * config.layers and all(name.endswith(ends) for name in of_layers):
        raise InputError(SECOND_VERSION)
    parts = re.compile(rf"({config.name}\.)?(embeddings|encoder)\.")
    more = [name for name in unexpected if parts.match(name)]
    problems = [f"{CONFIG} asks for {_some(lost)}, which are missing"] if lost else []
    problems += [f"there are {_some(more)}, which this encoder does not have"] if more else []
    if problems:
        raise InputError(f"lacks weights of the encoder or has others: {'; '.join(problems)}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(sorted(names)[:4]) + more
