"""Runs made by hand, of any architecture, with random weights: what the tests of the export share."""

import json
import math

import torch

from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.config.build import plain
from roformer.config.lm import CausalConfig
from roformer.config.position import Rotary
from roformer.config.wmt import SearchConfig, Seq2SeqConfig
from roformer.data.tokenizers import SPECIAL_TOKENS, ByteVocabulary, WordPiece
from roformer.models.causal import CausalLM
from roformer.models.classifier import Classifier
from roformer.models.encoder import MaskedLM
from roformer.models.seq2seq import Seq2Seq
from roformer.training.checkpoint import Checkpoints

LENGTH = 40
"""Tokens of the training's texts."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "mat",
    "mask",
    "sep",
    "caf",
    "##e",
    "中",
    "[",
    "]",
    ".",
    "!",
    "'",
]
VOCABULARY = [*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS]
UNCASED = WordPiece(list(dict.fromkeys(VOCABULARY)), True)
CASED = WordPiece(list(dict.fromkeys([*VOCABULARY, *LETTERS.upper(), "é", "##é"])), False)
CHINESE = WordPiece(
    list(dict.fromkeys([*VOCABULARY, *"今天气非常好。文", "非常", "中文"])), True, "jieba"
)
NASTY = [
    "The cat sat on the mat.",
    "CAFÉ café Cafe\u0301 ÀÉÎõü",
    "the 中文 cat中sat",
    "cat 🐈 on 👩‍👩‍👧 mat!",
    "the\x00 cat\ufffd\u200b sat\u00a0on\tthe\r\nmat\u2028.",
    "",
    "   ",
    "a" * 101,
    "the cat sat on the mat . " * 40,
    "ПРИВЕТ 12345 x@y",
    "the [MASK] sat [SEP] [CLS] [PAD] [UNK] [mask]",
    "don't ##e [ ] l'été",
    "今天天气非常好。中文 cat、ＣＡＴ",
]


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


def encoder_config(position=None, **changes):
    return schema.EncoderConfig(**{**TINY, "position": position or Rotary(), **changes})


def shaken(model, seed=0):
    """Give every weight a value of its own, norms and biases too, and logits a spread of about 1."""
    torch.manual_seed(seed)
    model.reset_parameters()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 1.5 / math.sqrt(parameter.shape[-1]) if parameter.ndim > 1 else 0.1
            parameter += scale * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def write_run(folder, model, tokenizer, description, config, summary, steps=(8,)):
    """Write what a finished run leaves: checkpoints, the last of them the best, and its records."""
    folder.mkdir(parents=True)
    checkpoints = Checkpoints(folder / "checkpoints", keep=5)
    for step in steps:
        weights = {name: t.detach() + 0 * step for name, t in model.state_dict().items()}
        checkpoints.save(step, weights, {"moment": torch.ones(3)}, {}, description, best=True)
    tokenizer.save(folder / "tokenizer")
    config = {"seed": 3, "optimizer": {"learning_rate": 1e-3}, **config}
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    environment = {
        "started": "2026-01-01T00:00:00+00:00",
        "commit": "0123abc",
        "dirty": True,
        "data": "fingerprint-of-the-data",
        "packages": {"torch": "2.13.0"},
        "gpu": None,
        "processor": "a processor",
    }
    (folder / "env.json").write_text(json.dumps(environment))
    (folder / "command.txt").write_text("python scripts/pretrain.py model=roformer\n")
    summary = {"status": "done", "steps": steps[-1], "tokens": 4096, "parameters": 7, **summary}
    summary["best"] = {"step": steps[-1], "metrics": summary["metrics"]}
    (folder / "summary.json").write_text(json.dumps(summary))
    row = {"step": steps[-1], **summary["metrics"]}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def described(kind, config, tokenizer, **more):
    return {
        "kind": kind,
        "model": plain(config),
        "vocab_size": tokenizer.size,
        "tokenizer": tokenizer.fingerprint,
        **more,
    }


def masked_lm_run(folder, config, tokenizer=UNCASED):
    return write_run(
        folder,
        shaken(MaskedLM(config, tokenizer.size)),
        tokenizer,
        described("mlm", config, tokenizer),
        {"data": {"kind": "builtin"}, "training": {"sequence_length": LENGTH, "precision": "bf16"}},
        {"metrics": {"valid/mlm_loss": 3.25, "valid/mlm_accuracy": 0.5}},
    )


def classifier_run(folder, config, labels, *, pairs=False):
    task = "stsb" if labels is None else "mrpc"
    description = described(
        "classifier",
        config,
        UNCASED,
        task=task,
        labels=labels,
        texts=["a", "b"] if pairs else ["a"],
        max_length=24,
        head_dropout=0.2,
    )
    return write_run(
        folder,
        shaken(Classifier(config, UNCASED.size, len(labels or "1"), dropout=0.2)),
        UNCASED,
        description,
        {"data": {"kind": "files", "path": "glue"}, "training": {"precision": "fp32"}},
        {"metrics": {f"{task}/score": 0.75, f"{task}/empty": None, "valid/loss": 0.5}},
    )


def causal_run(folder, position, tokenizer=UNCASED, **changes):
    """Write a run of a causal model; without a tokenizer it reads bytes."""
    config = CausalConfig(**{**TINY, "position": position, **changes})
    vocabulary = tokenizer or ByteVocabulary()
    reads = "tokens" if tokenizer else "bytes"
    return write_run(
        folder,
        shaken(CausalLM(config, vocabulary.size)),
        vocabulary,
        described("causal", config, vocabulary, reads=reads, length=LENGTH),
        {
            "data": {"kind": "builtin" if tokenizer else "bytes_builtin"},
            "training": {"sequence_length": LENGTH, "precision": "fp32"},
        },
        {"metrics": {"valid/loss": 3.25} if tokenizer else {"test/bits_per_byte": 2.5}},
    )


def taught_to_end(model, bpe, updates):
    """Teach an encoder-decoder to write about as many of a few letters as it reads, and to end."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    letters = torch.tensor(bpe.encode_batch(list("abcdef"), bpe.source_language)).flatten()
    end_id = bpe.end_id
    for _ in range(updates):
        length = int(torch.randint(2, 10, (), generator=generator))
        source = letters[torch.randint(len(letters), (16, length), generator=generator)]
        end = torch.full((16, 1), end_id)
        logits = model(torch.cat([source, end], 1), torch.cat([end, source], 1))
        wanted = torch.cat([source, end], 1)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def translation_run(folder, position, bpe, *, norm, updates=0, search=None, **changes):
    settings = {**TINY, "name": "transformer", "decoder_layers": 1, "position": position}
    config = Seq2SeqConfig(**settings, norm=norm, **changes)
    description = described(
        "translation",
        config,
        bpe,
        languages=[bpe.source_language, bpe.target_language],
        search=plain(search or SearchConfig()),
        max_length=30,
    )
    model = taught_to_end(shaken(Seq2Seq(config, bpe.size)), bpe, updates)
    return write_run(
        folder,
        model,
        bpe,
        description,
        {"data": {"kind": "files", "path": "text"}, "training": {"precision": "fp32"}},
        {
            "metrics": {"valid/loss": 2.0, "test/sacrebleu_single": 30.5, "test/sacrebleu": 31.5},
            "signatures": {"sacrebleu": "nrefs:1|tok:13a"},
            "test_set": {"name": "test_2016", "lines": 1000, "fingerprint": "beef"},
        },
        steps=(4, 8),
    )
