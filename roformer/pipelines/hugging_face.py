"""Bert and roformer models of `transformers`, read as ours: what loading and fine-tuning start from.

config.json           → our config; every variant that this encoder does not have is refused
weights, any vintage  → `clean_state` → ours; each weight of the encoder is used, once
tokenizer files       → WordPiece of characters or of jieba's words, or the reason why texts cannot be
                        read
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from roformer.config.schema import EncoderConfig, Words
from roformer.data.tokenizers import WordPiece, is_hub_id
from roformer.data.vocabularies import CLASSES, has_words
from roformer.errors import InputError
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder, MaskedLM
from roformer.models.hf import (
    ROFORMER_CLASSIFIER,
    TIED,
    clean_state,
    encoder_config,
    fused,
    has_roformer_classifier,
    is_second_version,
    sources,
    their_names,
)
from roformer.models.hf_files import (
    CONFIG,
    download,
    has_weights,
    read_config,
    read_json,
    read_weights,
)
from roformer.training import checkpoint

Kind = Literal["encoder", "masked_lm", "classifier"]
KINDS: dict[str, Kind] = {
    "ForMaskedLM": "masked_lm",
    "ForPreTraining": "masked_lm",
    "ForSequenceClassification": "classifier",
}
"""End of their class's name → what becomes of it; every other class gives its encoder."""
TOKENIZERS: dict[str, Words] = {
    f"{name}{end}": words for words, name in CLASSES.items() for end in ("", "Fast")
}
"""Name of their class → how it cuts words."""
PADDING = 128
"""Embeddings may be longer than the vocabulary by less than this: rounded up for speed."""


class HuggingFaceModel(NamedTuple):
    """A model of theirs, read."""

    name: str
    """Folder or Hub id."""
    kind: Kind
    config: EncoderConfig
    vocab_size: int
    weights: dict[str, Tensor]
    """Under our names, fp32; the encoder's are whole, a head's may not be."""
    names: dict[str, list[str]]
    """What each of `weights` is made of, by their names."""
    unused: dict[str, Tensor]
    """What neither encoder nor heads of ours hold, under their names."""
    activation: Literal["tanh", "gelu"]
    """Of a classifier's pooler."""
    tokenizer: WordPiece | str
    """Or why there is none, in a sentence."""
    theirs: Any
    """Their config."""
    commit: str | None = None
    """Of a Hub id: what its revision stands for."""


def is_hugging_face(source: str) -> bool:
    """Tell whether a folder or name is a Hugging Face model, not a run or checkpoint of ours."""
    path = Path(source).expanduser()
    if path.exists():
        return (path / CONFIG).is_file()
    # The first models of the Hub have no owner in their names.
    return is_hub_id(source) or re.fullmatch(r"bert-(base|large)-[\w.-]+", source) is not None


def check_folder(source: str) -> None:
    """Raise InputError if a path exists and is neither ours nor a Hugging Face model."""
    path = Path(source).expanduser()
    if path.is_file():
        raise InputError(f"{source} is a file: give the folder that it is in")
    ours = ("checkpoints", checkpoint.DESCRIPTION, checkpoint.COMPLETE)
    if path.is_dir() and not any((path / name).exists() for name in (*ours, CONFIG)):
        what = "has weights but no" if has_weights(path) else "has neither checkpoints/ nor"
        raise InputError(
            f"{source} {what} {CONFIG}: give a run, a checkpoint, or a folder that save_pretrained "
            "wrote"
        )


def read_hugging_face(source: str, revision: str | None = None) -> HuggingFaceModel:
    """Read a folder or Hub id of type bert or roformer.

    Args:
        source: what `is_hugging_face` accepts.
        revision: of a Hub id.

    Raises:
        InputError: it cannot be had, is damaged, or is a model that this encoder is not; every
            message begins with `source`.
    """
    folder = Path(source).expanduser()
    commit = None
    if not folder.exists():
        folder = download(source, revision)
        commit = folder.name if re.fullmatch("[0-9a-f]{40}", folder.name) else None
    try:
        return _read(source, folder)._replace(commit=commit)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def build_model(read: HuggingFaceModel) -> nn.Module:
    """Return our model with the weights that were read, in evaluation mode.

    Raises:
        InputError: its head is incomplete, or one that ours cannot compute.
    """
    theirs, vocab_size = read.theirs, read.vocab_size
    if read.kind == "masked_lm" and (untied := [name for name in TIED if name in read.unused]):
        raise InputError(
            f"{read.name}: {untied[0]} is not {TIED[untied[0]]}: an output matrix that is not tied to "
            "the embeddings cannot be read"
        )
    if read.kind == "classifier" and theirs.problem_type == "multi_label_classification":
        raise InputError(
            f"{read.name}: its labels do not exclude each other (problem_type="
            "multi_label_classification): a classifier here has one label a text"
        )
    with torch.device("meta"):  # no weights are drawn only to be replaced
        model: nn.Module
        if read.kind == "masked_lm":
            model = MaskedLM(read.config, vocab_size)
        elif read.kind == "classifier":
            model = Classifier(
                read.config, vocab_size, theirs.num_labels, dropout=0.0, activation=read.activation
            )
        else:
            model = Encoder(read.config, vocab_size)
    prefix = "encoder." if read.kind == "encoder" else ""
    expected = {f"{prefix}{name}": tensor.shape for name, tensor in model.state_dict().items()}
    names = {name: their_names(name, read.config.name) for name in expected}
    if read.kind == "classifier" and read.config.name == "roformer":
        names |= ROFORMER_CLASSIFIER
    if lost := [name for name in expected if read.names.get(name) != names[name]]:
        theirs_lost = [their for name in lost for their in names[name]]
        raise InputError(f"{read.name} lacks weights of its head: {', '.join(theirs_lost)}")
    for name, shape in expected.items():
        if read.weights[name].shape != shape:
            raise InputError(
                f"{read.name}: {name} is {tuple(read.weights[name].shape)}, but {tuple(shape)} by its "
                f"{CONFIG}"
            )
    state = {name.removeprefix(prefix): read.weights[name] for name in expected}
    # Copied: what was read may still lie in the file, which may be overwritten.
    model.to_empty(device="cpu").load_state_dict(state)
    return model.eval()


def _read(source: str, folder: Path) -> HuggingFaceModel:
    theirs = read_config(folder)
    kind: str = theirs.model_type
    # Before any weight is looked at: transformers itself fills what is missing in at random.
    second = getattr(theirs, "norm_type", "layer_norm") == "rms_norm"
    stored = {} if second else read_weights(folder)
    if second or is_second_version(stored):
        raise InputError(
            "this is RoFormerV2: no biases, RMS norm without weights; this encoder and transformers' "
            "roformer, which its config names, have both: choose a RoFormer of the first version"
        )
    try:
        config = encoder_config(theirs)
    except InputError:
        raise
    except ValueError as error:  # sizes that do not go together, as pydantic tells it
        raise InputError(f"{CONFIG}: {' '.join(str(error).split())}") from error
    state = clean_state(stored, kind)
    names = sources(state, kind)
    _check_encoder(state, names, config, theirs.vocab_size)
    used = {their for theirs_of in names.values() for their in theirs_of}
    unused = {name: tensor for name, tensor in state.items() if name not in used}
    return HuggingFaceModel(
        name=source,
        kind=_kind(theirs, state),
        config=config,
        vocab_size=theirs.vocab_size,
        weights=fused(state, names),
        names=names,
        unused=unused,
        activation="gelu" if has_roformer_classifier(state, kind) else "tanh",
        tokenizer=_tokenizer(folder, theirs),
        theirs=theirs,
    )


def _check_encoder(
    state: dict[str, Tensor], names: dict[str, list[str]], config: EncoderConfig, vocab_size: int
) -> None:
    """Raise InputError unless their encoder has exactly the weights, of the shapes, that ours has."""
    with torch.device("meta"):
        own = Encoder(config, vocab_size).state_dict()
    kind = config.name
    shapes: dict[str, tuple[int, ...]] = {}
    for name, tensor in own.items():
        theirs = their_names(f"encoder.{name}", kind)
        rows = tensor.shape[0] // len(theirs)
        shapes |= dict.fromkeys(theirs, (rows, *tensor.shape[1:]))
    parts = tuple(f"{kind}.{part}" for part in ("embeddings", "encoder."))
    problems = [
        (f"{CONFIG} asks for", [name for name in shapes if name not in state], "which are missing"),
        (
            "there are",
            [name for name in state if name.startswith(parts) and name not in shapes],
            "which this encoder does not have",
        ),
    ]
    said = [f"{one} {_some(found)}, {two}" for one, found, two in problems if found]
    if said:
        raise InputError(f"lacks weights of the encoder or has others: {'; '.join(said)}")
    for name, shape in shapes.items():
        if state[name].shape != shape:
            raise InputError(
                f"{name} is {tuple(state[name].shape)}, but {shape} by its {CONFIG}: they are not of "
                "one model"
            )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(sorted(names)[:4]) + more


def _kind(theirs: Any, state: dict[str, Tensor]) -> Kind:
    """Return what the config says that the weights are, or else what they look like."""
    architecture = str((theirs.architectures or [""])[0])
    if architecture:
        return next((kind for end, kind in KINDS.items() if architecture.endswith(end)), "encoder")
    if "cls.predictions.transform.dense.weight" in state:
        return "masked_lm"
    bert = {"classifier.weight", "bert.pooler.dense.weight"} <= state.keys()
    return "classifier" if bert or has_roformer_classifier(state, theirs.model_type) else "encoder"


# --- tokenizers ----------------------------------------------------------------------------------


def _tokenizer(folder: Path, theirs: Any) -> WordPiece | str:
    """Return the tokenizer of a folder, or why its texts cannot be read.

    Raises:
        InputError: a vocabulary that is damaged or of another model.
    """
    if not any((folder / name).is_file() for name in ("vocab.txt", "tokenizer.json")):
        return "it comes without a tokenizer (vocab.txt or tokenizer.json)"
    settings = folder / "tokenizer_config.json"
    stated = read_json(settings) if settings.is_file() else {}
    named = stated.get("tokenizer_class") or getattr(theirs, "tokenizer_class", None)
    if named is not None and named not in TOKENIZERS:
        return f"its tokenizer is {named}, and only BERT's and RoFormer's are read"
    read = WordPiece.load(folder)
    if named is None:
        named = CLASSES["jieba" if has_words(read.vocabulary) else "none"]
    words = TOKENIZERS[named]
    tokenizer = WordPiece(read.vocabulary, read.lowercase, words)
    if words == "none" and has_words(tokenizer.vocabulary):
        return (
            f"its tokenizer is {named}, which cuts Chinese into characters, but its vocabulary has "
            f"words: tokenizer_class {CLASSES['jieba']} in its tokenizer_config.json would use them"
        )
    if reason := _unlike_ours(folder, stated, tokenizer):
        return f"its tokenizer is {named} with {reason}, which is not built here"
    spare = theirs.vocab_size - tokenizer.size
    if not 0 <= spare < PADDING:
        raise InputError(
            f"its tokenizer has {tokenizer.size:,} entries, its embeddings {theirs.vocab_size:,}: they "
            "are not of one model"
        )
    return tokenizer


def _unlike_ours(folder: Path, stated: dict[str, Any], tokenizer: WordPiece) -> str | None:
    """Return the setting by which their tokenizer cuts texts otherwise than `WordPiece`."""
    whole = folder / "tokenizer.json"
    content = read_json(whole) if whole.is_file() else {}
    normalizer = content.get("normalizer") or {}
    accents = stated.get("strip_accents", normalizer.get("strip_accents"))
    if accents is not None and accents != tokenizer.lowercase:
        return f"strip_accents={accents}"
    apart = stated.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True))
    # RoFormer's tokenizer reads neither key.
    if not apart and tokenizer.words == "none":
        return "tokenize_chinese_chars=false"
    if not stated.get("do_basic_tokenize", True) and tokenizer.words == "none":
        return "do_basic_tokenize=false"
    added = [str(entry.get("content")) for entry in content.get("added_tokens") or []]
    if (file := folder / "added_tokens.json").is_file():
        added += read_json(file)
    known = set(tokenizer.vocabulary)
    new = [entry for entry in added if entry not in known]
    return f"added tokens ({', '.join(new[:3])})" if new else None
