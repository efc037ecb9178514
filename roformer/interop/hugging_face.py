"""Load bert and roformer models of Hugging Face as models of this package.

`transformers` itself loads the weights: from safetensors or, without them, from a pickle by
`torch.load(weights_only=True)`. No code of a repository runs.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roformer.config.build import build
from roformer.config.schema import EncoderConfig
from roformer.data.hub import describe_error
from roformer.data.tokenizers import FILES as TOKENIZER_FILES
from roformer.data.tokenizers import is_hub_id, read_json
from roformer.errors import InputError, prefixed
from roformer.interop.mapping import ENCODER, from_transformers, names_there
from roformer.interop.tokenizers import read_tokenizer
from roformer.models.description import StoredModel, build_model
from roformer.nn.rotary import rotary_table
from roformer.registry import Kind

KINDS: dict[str, Kind] = {
    "MaskedLM": "mlm",
    "ForPreTraining": "mlm",
    "ForSequenceClassification": "classifier",
}
"""End of the name of a class of `transformers` → kind here; every other class gives its encoder."""
CONFIG = "config.json"
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
WEIGHTS = (*SAFETENSORS, *PICKLES)
"""Files of weights; the first that exists is read."""
FILES = [CONFIG, *SAFETENSORS, "model-*.safetensors", *TOKENIZER_FILES]
"""Files that are downloaded; pickles follow if a repository has no safetensors."""
REASONS = {
    "RepositoryNotFoundError": "the Hub has no such model, or it is not open to you",
    "GatedRepoError": "the Hub asks who may read this model: log in, or ask for access there",
    "RevisionNotFoundError": "the Hub has the model but not this revision",
    "LocalEntryNotFoundError": "the Hub cannot be reached, and the cache does not have it",
}
"""Meaning of the Hub's errors, by the name of their type."""
REQUIRED: dict[str, Any] = {
    "norm_type": "layer_norm",
    "use_bias": True,
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "quantization_config": None,
}
"""Setting → the only value that the encoder here has."""
ROFORMER_V2 = {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}
"""Settings of RoFormerV2, which differ from `REQUIRED`."""
TABLE = "roformer.encoder.embed_positions.weight"
TIED = {
    "cls.predictions.decoder.weight": "{}.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Copy → the weight that it is tied to."""
IGNORED = (*TIED, TABLE, "embeddings.position_ids", "embeddings.token_type_ids")
"""Ends of the names of what some versions stored: constants, and copies of tied weights."""


def is_hugging_face(source: str) -> bool:
    """Return whether a folder or name is a Hugging Face model, not a run or checkpoint."""
    path = Path(source).expanduser()
    if path.exists():
        return (path / CONFIG).is_file()
    # The first models of the Hub have no owner in their names.
    return is_hub_id(source) or re.fullmatch(r"bert-(base|large)-[\w.-]+", source) is not None


def read_hugging_face(source: str, revision: str | None = None) -> StoredModel:
    """Load a folder or Hub id of type bert or roformer; `revision` is a branch, tag or commit."""
    folder, commit = _locate(source, revision)
    with prefixed(f"{source}: "):
        return _read(source, folder, commit)


def read_settings(source: str, revision: str | None = None) -> tuple[EncoderConfig, int]:
    """Return the configuration of a folder or Hub id, and the size of its vocabulary, without its weights."""
    folder, _ = _locate(source, revision, [CONFIG])
    with prefixed(f"{source}: "):
        settings = _settings(folder)
        return encoder_config(settings), settings.vocab_size


def identify(source: str, revision: str | None = None) -> tuple[str | None, str]:
    """Return the commit of a Hub id, and the SHA-256 of its weights or of a folder's.

    This is the hash of the one file, as the Hub shows it, or of the hashes of several.
    """
    folder, commit = _locate(source, revision)
    file = _first_file(folder)
    files = [] if file is None else [file]
    if file is not None and file.suffix == ".json":
        files = sorted({folder / name for name in read_json(file)["weight_map"].values()})
    hashes = []
    for file in files:
        with file.open("rb") as stream:
            hashes.append(hashlib.file_digest(stream, "sha256").hexdigest())
    single = len(hashes) == 1
    return commit, hashes[0] if single else hashlib.sha256("".join(hashes).encode()).hexdigest()


def _first_file(folder: Path) -> Path | None:
    """Return the first of `WEIGHTS` that a folder has."""
    return next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)


def encoder_config(settings: Any) -> EncoderConfig:
    """Return the encoder that a `transformers` config of type bert or roformer describes."""
    kind, size = settings.model_type, settings.hidden_size
    required, special = REQUIRED, dict[str, Any]()
    if kind == "bert":
        required = REQUIRED | {"embedding_size": size, "rotary_value": False}
        longest = settings.max_position_embeddings
        special["position"] = {"kind": "learned", "max_positions": longest}
    else:
        special["position"] = {"kind": "rotary", "rotate_values": settings.rotary_value}
        if settings.embedding_size != size:
            special["embedding_size"] = settings.embedding_size
        if getattr(settings, "norm_type", None) == ROFORMER_V2["norm_type"]:
            kind, required, special["block"] = "RoFormerV2", REQUIRED | ROFORMER_V2, "roformer_v2"
    for key, value in required.items():
        if (stated := getattr(settings, key, value)) != value:
            raise InputError(
                f"a {kind} model with {key}={stated} cannot be read: this encoder has {value}"
            )
    special |= {"name": settings.model_type, "size": f"{settings.num_hidden_layers}x{size}"}
    special["attention"] = {"kind": "softmax"}
    sizes = {own: getattr(settings, key) for key, own in ENCODER.items() if own != "activation"}
    with prefixed(f"{CONFIG}: "):
        return build(EncoderConfig, sizes | special)


def _locate(source: str, revision: str | None, files: list[str] = FILES) -> tuple[Path, str | None]:
    """Return the folder of a model, its files downloaded if need be, and its commit on the Hub."""
    from huggingface_hub import snapshot_download

    folder = Path(source).expanduser()
    if folder.exists():
        return folder, None
    try:
        folder = Path(snapshot_download(source, revision=revision, allow_patterns=files))
        if files is FILES and not any((folder / name).is_file() for name in SAFETENSORS):
            patterns = [*PICKLES, "pytorch_model-*.bin"]
            snapshot_download(source, revision=folder.name, allow_patterns=patterns)
        return folder, folder.name if re.fullmatch("[0-9a-f]{40}", folder.name) else None
    except Exception as error:  # many types: no such repository, no network, a full disk
        cause, known = describe_error(error), REASONS.get(type(error).__name__)
        reason = f"{known} ({cause})" if known else cause
        at = f" at revision {revision}" if revision else ""
        raise InputError(
            f"{source} cannot be read as a Hugging Face model{at}: no such folder here, and {reason}: "
            "check the id; without a network give a folder, or set HF_HUB_OFFLINE=1 with a cache "
            "that has the model"
        ) from error


def _read(source: str, folder: Path, commit: str | None) -> StoredModel:
    settings = _settings(folder)
    model = encoder_config(settings)
    stated = str((settings.architectures or [""])[0])
    kind: Kind = next((kind for end, kind in KINDS.items() if stated.endswith(end)), "encoder")
    description: dict[str, Any] = {
        "kind": kind,
        "vocab_size": settings.vocab_size,
        "max_length": settings.max_position_embeddings,
    }
    architecture = model.name
    if kind == "classifier":
        labels = [str(settings.id2label.get(i, i)) for i in range(settings.num_labels)]
        description |= {"texts": None, "labels": labels if len(labels) > 1 else None}
        description["head_dropout"] = 0.0
        if architecture == "roformer":
            architecture = "roformer_classifier"
            description["activation"] = "gelu"
    state, unexpected = _load(folder, settings, kind, model)
    weights = from_transformers(state, architecture)
    if kind == "mlm" and {"pooler.weight", "relation.weight"} <= weights.keys():
        description["objective"] = "mlm_nsp"
    with torch.device("meta"):
        needed = list(build_model(description, model).state_dict())
    if kind == "encoder":
        needed = [f"encoder.{name}" for name in needed]
    parts = {part: name for name in needed for part in names_there(name, architecture)}
    used = {part for name in weights for part in names_there(name, architecture)} | parts.keys()
    unused = {name for name in [*unexpected, *(state.keys() - used)] if not name.endswith(IGNORED)}
    lost = [part for part in parts if part not in state]
    missing = [part for part in lost if parts[part].startswith("encoder.")]
    more = [n for n in unused if re.match(r"((bert|roformer)\.)?(embeddings|encoder)\.", n)]
    if missing or more:
        named = [", ".join(sorted(names)[:4]) or "none" for names in (missing, more)]
        raise InputError(
            f"the weights are not of its encoder: missing are {named[0]}; not known are {named[1]}"
        )
    if TABLE in state:
        made = rotary_table(torch.arange(state[TABLE].shape[0]), state[TABLE].shape[1])
        table = torch.cat((made.sin, made.cos), dim=1)
        if not torch.allclose(state[TABLE], table, rtol=0, atol=1e-2):  # it may have been in bf16
            raise InputError(f"{TABLE} is not RoFormer's table (base 10000): it cannot be read")
    return StoredModel(
        source,
        kind,
        model,
        description,
        weights,
        read_tokenizer(folder, settings),
        revision=commit,
        architecture=architecture,
        unused=tuple(sorted(unused)),
        flaw=_flaw(settings, kind, model, state, lost),
    )


def _flaw(
    settings: Any, kind: Kind, model: EncoderConfig, state: dict[str, Tensor], lost: list[str]
) -> str | None:
    """Return why the head cannot be computed here, if it cannot."""
    tied = {copy: original.format(model.name) for copy, original in TIED.items() if copy in state}
    untied = [
        f"{copy} is not tied to {original}"
        for copy, original in tied.items()
        if not torch.equal(state[copy], state.get(original, state[copy]))
    ]
    if kind == "mlm" and untied:
        return f"{', and '.join(untied)}: choose a model whose output matrix is its embeddings"
    if kind == "classifier" and not model.affine:
        return "its head is not read: of RoFormerV2 this package has the encoder and the masked LM"
    if kind == "classifier" and settings.problem_type == "multi_label_classification":
        return (
            "its labels do not exclude each other (problem_type=multi_label_classification): a "
            "classifier here has one label a text"
        )
    if kind == "classifier" and settings.problem_type == "regression" and settings.num_labels > 1:
        return f"predicts {settings.num_labels} scores of a text: a regression here has one"
    return f"lacks weights of its head: {', '.join(lost)}" if lost else None


def _settings(folder: Path) -> Any:
    """Return the configuration of a folder, or raise InputError; absent keys have their defaults."""
    from transformers import AutoConfig

    if not (folder / CONFIG).is_file():
        raise InputError(f"there is no {CONFIG}: give a folder that save_pretrained wrote")
    content = read_json(folder / CONFIG)
    kind = content.pop("model_type", None)
    if kind not in ("bert", "roformer"):
        stated = f"of type {kind}" if kind else f"whose {CONFIG} names no model_type"
        raise InputError(
            f"a model {stated} cannot be read: choose one of type bert or roformer, a run, or an "
            "export of a run"
        )
    try:
        return AutoConfig.for_model(kind, **content)
    except Exception as error:  # the library checks types and raises its own errors
        raise InputError(f"{CONFIG} is not sound: {_line(error)}") from error


def _load(
    folder: Path, settings: Any, kind: Kind, model: EncoderConfig
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the stored weights, fp32, by today's names, and the names that are not known."""
    import transformers

    file = _first_file(folder)
    if file is None:
        present = ", ".join(sorted(path.name for path in folder.iterdir())[:9])
        raise InputError(
            f"there is no {SAFETENSORS[0]} and no {PICKLES[0]}, whole or in shards, but {present}: other "
            "formats are not read; save_pretrained writes the first"
        )
    # Classes with every head that a model without labels can have: absent ones are missing.
    whole = {"bert": "BertForPreTraining", "roformer": "RoFormerForMaskedLM"}[model.name]
    loader = "AutoModelForSequenceClassification" if kind == "classifier" else whole
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            theirs, report = getattr(transformers, loader).from_pretrained(
                folder,
                config=settings,
                dtype=torch.float32,
                weights_only=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:  # many types; a damaged file, or a shard that is missing
        reason = f"is damaged or incomplete ({_line(error)}): fetch it again"
        if code := re.search(r"GLOBAL ([\w.]+)", str(error)):
            reason = (
                f"holds {code[1]}, and only tensors are read, since opening anything else can run code: "
                "ask for safetensors"
            )
        raise InputError(f"{file.name} {reason}") from error
    finally:
        transformers.logging.set_verbosity(verbosity)
    for name, stored, wanted in sorted(report["mismatched_keys"]):
        if not name.endswith(IGNORED):
            raise InputError(
                f"{name} is {tuple(stored)}, but {tuple(wanted)} by its {CONFIG}: they are not of one "
                "model"
            )
    state = {
        name: t for name, t in theirs.state_dict().items() if name not in report["missing_keys"]
    }
    return state, list(report["unexpected_keys"])


def _line(error: Exception) -> str:
    return f"{type(error).__name__}, {' '.join(str(error).split())}"
