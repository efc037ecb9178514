"""One epoch of fine-tuning with GLUE-like lengths: our loop against `transformers`' Trainer.

512 texts, lognormal lengths (mean 37, at most 128 tokens), batches of 32, mini size, vocabulary of
bert-base-uncased, fused AdamW on both sides. Three ways of one epoch:

* ours: the loop of `make glue` with length-bucketed batches, in fp32 and in bf16;
* the same with every text padded to 512, the paper's length, where padding is fixed;
* the Trainer with dynamic padding, as it comes: `BertForSequenceClassification`, fp32.

Ours runs with the process settings of the scripts, the Trainer without and, in a further row, with
them. Evaluation and checkpoints are left out on both sides. Processes take turns.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import in_child, ratio
from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.config.build import build
from roformer.data.classification import Ids, Inputs, epoch_batches
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from roformer.models.classifier import Classifier
from roformer.training.hardware import default_device
from roformer.training.loop import Loop
from roformer.training.process import tune_process
from roformer.training.records import RunFolder
from roformer.training.state import State
from roformer.training.task import Batch, Settings, Task, tokens_in
from roformer.training.tracking import NoTracker

VOCABULARY, TEXTS, BATCH, FIXED = 30522, 512, 32, 512
OURS = {
    "fp32": "no dropout (recipe mini of glue)",
    "bf16": "bf16 autocast, no dropout (recipe mini of glue)",
}
COMPARISONS = [
    ("fixed fp32", "ours fp32", "padding to 512, fp32 on both sides", 15.0),
    ("fixed bf16", "ours bf16", "padding to 512, bf16 on both sides", None),
    ("trainer", "ours bf16", "Trainer with dynamic padding, as shipped", 3.0),
    ("trainer, tuned", "ours bf16", "Trainer, process settings on both sides", None),
    ("trainer, tuned", "ours fp32", "Trainer, process settings and fp32 on both sides", None),
]
"""Peer, ours, what it is against, goal."""


def bench_finetuning(*, rounds: int) -> list[dict[str, Any]]:
    """Return one row a comparison; the processes take turns, `rounds` of them each."""
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for precision in OURS:
            variants = [f"ours {precision}", f"fixed {precision}"]
            for name, times in in_child("finetuning", variants=variants, tuned=True).items():
                seconds.setdefault(name, []).append(statistics.median(times))
        for name, tuned in (("trainer", False), ("trainer, tuned", True)):
            times = in_child("finetuning", variants=["trainer"], tuned=tuned)["trainer"]
            seconds.setdefault(name, []).append(statistics.median(times))
    return [
        {
            "what": f"fine-tuning epoch, against {what}",
            "ratio": ratio(seconds[peer], seconds[ours]),
            "goal": goal,
            "peer_seconds": statistics.median(seconds[peer]),
            "ours_seconds": statistics.median(seconds[ours]),
            "ours_tokens_per_second": int(lengths().sum()) / statistics.median(seconds[ours]),
            "deviations": OURS[ours.removeprefix("ours ")],
        }
        for peer, ours, what, goal in COMPARISONS
    ]


def measure_finetuning(
    *, variants: list[str], tuned: bool, rounds: int = 3
) -> dict[str, list[float]]:
    """Return seconds an epoch of each variant in this process, after one to warm up."""
    if tuned:
        tune_process()
    calls: dict[str, Callable[[], float]] = {
        f"{name} {precision}": partial(our_epoch, inputs, precision)
        for name, inputs in (("ours", Inputs), ("fixed", Padded))
        for precision in ("fp32", "bf16")
    }
    calls["trainer"] = trainer_epoch
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name in variants:
            spent = calls[name]()
            if turn:
                seconds[name].append(spent)
    return seconds


def lengths() -> Ids:
    """Return tokens of each text, special ones included, (TEXTS,)."""
    drawn = np.random.default_rng(0).lognormal(3.45, 0.56, TEXTS)
    return np.clip(drawn, 8, 128).astype(np.int64)


def texts() -> tuple[list[Ids], Ids]:
    """Return token ids without special ones, and labels."""
    random = np.random.default_rng(1)
    ids = [random.integers(5, VOCABULARY, length - 2) for length in lengths()]
    return ids, random.integers(0, 2, TEXTS)


class Padded(Inputs):
    """Inputs with every text padded to `FIXED` tokens."""

    def __getitem__(self, numbers: Any) -> dict[str, Tensor]:
        batch = super().__getitem__(numbers)
        short = FIXED - batch["input_ids"].shape[1]
        mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"], dtype=torch.bool))
        padded = {**batch, "attention_mask": mask}
        return {
            name: tensor if name == "labels" else functional.pad(tensor, (0, short))
            for name, tensor in padded.items()
        }


class Epoch(Task):
    """One epoch of binary classification as a task of the loop; nothing is evaluated."""

    monitor, higher_is_better, flops_per_token = "none", True, 0.0

    def __init__(self, inputs: type[Inputs]):
        self.description: dict[str, Any] = {}
        ids, labels = texts()
        words = WordPiece([*SPECIAL_TOKENS, "a"], lowercase=True)
        self.batches: Inputs = inputs(ids, None, labels, words, 128)
        self.order = epoch_batches(self.batches.lengths, BATCH, 0, 0)
        torch.manual_seed(0)
        config = schema.EncoderConfig(
            name="roformer",
            size="mini",
            layers=4,
            hidden_size=256,
            heads=4,
            intermediate_size=1024,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            position=encodings.Rotary(),
            attention=SoftmaxAttention(),
        )
        self.model: nn.Module = Classifier(config, VOCABULARY, 2, dropout=0.1)

    def keys(self, update: int, rank: int, world_size: int) -> list[Any]:
        return [self.order[update - 1]]

    def samples(self, key: Any) -> list[int]:
        return [int(number) for number in key]

    def texts(self, batch: Batch) -> list[str]:
        return [str(ids) for ids in batch["input_ids"].tolist()]

    def tokens(self, batch: Batch) -> int:
        return tokens_in(batch)

    def targets(self, batch: Batch) -> int:
        return len(batch["labels"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
        return functional.cross_entropy(model(**inputs).float(), batch["labels"], reduction="sum")

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        return {"none": 0.0}

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return False


def our_epoch(inputs: type[Inputs], precision: str) -> float:
    """Return the seconds that our loop spends in the updates of an epoch."""
    task = Epoch(inputs)
    steps = len(task.order)
    device = default_device()
    settings = Settings(
        seed=0,
        training=build(
            schema.LoopConfig,
            {
                "steps": steps,
                "precision": precision,
                "log_every": steps,
                "evaluate_every": steps,
                "checkpoint_every": steps,
            },
        ),
        optimizer=schema.OptimizerConfig(learning_rate=1e-4),
        schedule=schema.ScheduleConfig(),
        runtime=build(schema.RuntimeConfig, {"device": device, "progress": False}),
    )
    autocast = "no" if precision == "fp32" else precision
    accelerator = Accelerator(cpu=device == "cpu", mixed_precision=autocast)
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(
            task, settings, accelerator, RunFolder(Path(folder)), NoTracker(), State(), None
        )
        state, _ = loop.run()
    return state.seconds


def trainer_epoch() -> float:
    """Return the seconds of `Trainer.train` over an epoch, without evaluation and checkpoints."""
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Trainer,
        TrainingArguments,
    )

    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
        )
    )
    ids, labels = texts()
    rows = [
        {"input_ids": [2, *row.tolist(), 3], "labels": int(label)}
        for row, label in zip(ids, labels, strict=True)
    ]

    def pad(examples: list[dict[str, Any]]) -> dict[str, Tensor]:
        sequences = [torch.tensor(example["input_ids"]) for example in examples]
        padded = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
        return {
            "input_ids": padded,
            "attention_mask": (padded != 0).long(),
            "labels": torch.tensor([example["labels"] for example in examples]),
        }

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            learning_rate=1e-4,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=default_device() == "cpu",
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=pad)
        seconds: float = trainer.train().metrics["train_runtime"]
    return seconds
