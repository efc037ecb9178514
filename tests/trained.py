"""Trained models made by hand, tiny, of every kind: as they are stored, and as the runs that leave them."""

import json
import math

import torch

from roformer.config.attention import SoftmaxAttention
from roformer.config.build import plain
from roformer.config.position import Rotary
from roformer.config.wmt import SearchConfig
from roformer.data.tokenizers import SPECIAL_TOKENS, ByteVocabulary, WordPiece
from roformer.models.description import KINDS, StoredModel, build_model
from roformer.training.checkpoint import Checkpoints

LENGTH = 40
"""Tokens of the training's texts."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "cat", "sat", "on", "mat", "mask", "sep", "caf", "##e", *"中[].!'"]
ENTRIES = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS]
UNCASED = WordPiece.bert(list(dict.fromkeys(ENTRIES)), True)
CASED = WordPiece.bert(list(dict.fromkeys([*ENTRIES, *LETTERS.upper(), "é", "##é"])), False)
CHINESE = WordPiece.bert(
    list(dict.fromkeys([*ENTRIES, *"今天气非常好。文", "非常", "中文"])), True, "jieba"
)
TINY = {
    "name": "roformer",
    "size": "tiny",
    "layers": 2,
    "hidden_size": 32,
    "heads": 2,
    "intermediate_size": 48,
    "attention": SoftmaxAttention(),
}
"""A model's settings, but for its position encoding."""
HEAD = {"max_length": 24, "head_dropout": 0.2}
DESCRIPTIONS = {
    "mlm": {},
    "classifier": {"task": "mrpc", "labels": ["no", "yes"], "texts": ["a"], **HEAD},
    "scorer": {"pair": {}, **HEAD},
    "causal": {"length": LENGTH},
    "translation": {"search": plain(SearchConfig()), "max_length": 30},
}
"""Kind → what its description has in addition to the keys of all kinds."""
RECORDS = {
    "mlm": ("builtin", {"valid/mlm_loss": 3.25, "valid/mlm_accuracy": 0.5}),
    "classifier": ("files", {"mrpc/score": 0.75, "mrpc/empty": None, "valid/loss": 0.5}),
    "scorer": ("builtin", {"valid/loss": 0.5}),
    "causal": ("builtin", {"valid/loss": 3.25}),
    "translation": (
        "files",
        {"valid/loss": 2.0, "test/sacrebleu_single": 30.5, "test/sacrebleu": 31.5},
    ),
}
"""Kind → kind of its data, and the metrics in its summary."""


def config_of(kind="mlm", position=None, **changes):
    more = {"decoder_layers": 1} if kind == "translation" else {}
    return KINDS[kind](**{**TINY, "position": position or Rotary(), **more, **changes})


def shaken(model, seed=0):
    """Give every weight its own value, norms and biases too, and logits a spread of about 1."""
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 1.5 / math.sqrt(parameter.shape[-1]) if parameter.ndim > 1 else 0.1
            parameter += scale * torch.randn(parameter.shape)
    return model.eval()


def stored(kind="mlm", position=None, tokenizer=UNCASED, described=(), **changes):
    """Return a model with random weights; `described` changes its description, the rest its config."""
    config = config_of(kind, position, **changes)
    description = {
        "kind": kind,
        "model": plain(config),
        "vocab_size": tokenizer.size,
        "tokenizer": tokenizer.fingerprint,
        **DESCRIPTIONS[kind],
        **dict(described),
    }
    if kind == "causal":
        description["reads"] = "bytes" if isinstance(tokenizer, ByteVocabulary) else "tokens"
    if kind == "translation":
        description["languages"] = [tokenizer.source_language, tokenizer.target_language]
    torch.manual_seed(0)
    weights = shaken(build_model(description, config)).state_dict()
    return StoredModel("made by hand", kind, config, description, weights, tokenizer)


def run_of(folder, trained=None, steps=(8,), best=None):
    """Write what a finished run leaves: its records, and checkpoints that differ in every weight."""
    trained = trained or stored()
    checkpoints = Checkpoints(folder / "checkpoints", keep=5)
    for step in steps:
        weights = {name: t * (1 + 0.01 * (step - steps[-1])) for name, t in trained.weights.items()}
        moments, is_best = {"moment": torch.ones(3)}, step == (best or steps[-1])
        checkpoints.save(step, weights, moments, {}, trained.description, best=is_best)
    trained.tokenizer.save(folder / "tokenizer")
    data, metrics = RECORDS[trained.kind]
    config = {
        "seed": 3,
        "optimizer": {"learning_rate": 1e-3},
        "data": {"kind": data},
        "training": {"sequence_length": LENGTH, "precision": "fp32"},
    }
    environment = {
        "started": "2026-01-01T00:00:00+00:00",
        "commit": "0123abc",
        "dirty": True,
        "data": "fingerprint-of-the-data",
        "packages": {"torch": "2.13.0"},
        "gpu": None,
        "processor": "a processor",
    }
    summary = {
        "status": "done",
        "steps": steps[-1],
        "tokens": 4096,
        "parameters": 7,
        "metrics": metrics,
        "best": {"step": steps[-1], "metrics": metrics},
    }
    if trained.kind == "translation":
        summary["signatures"] = {"sacrebleu": "nrefs:1|tok:13a"}
        summary["test_set"] = {"name": "test_2016", "lines": 1000, "fingerprint": "beef"}
    # JSON is YAML.
    for name, content in (("config.yaml", config), ("env.json", environment)):
        (folder / name).write_text(json.dumps(content))
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "command.txt").write_text("python scripts/pretrain.py model=roformer\n")
    (folder / "metrics.jsonl").write_text(json.dumps({"step": steps[-1], **metrics}) + "\n")
    return folder


def relative(ours, theirs):
    """Return the largest difference over the largest value."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()
