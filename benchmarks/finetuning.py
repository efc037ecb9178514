"""An epoch of fine-tuning a published BERT with lengths like GLUE's: our loop against transformers' Trainer.

256 texts of lognormal lengths (mean 37, at most 128 tokens), batches of 32, a BERT of 22.6 M parameters
with learned positions and dropout 0.1, fused AdamW on both sides, without evaluation and checkpoints:

* ours: the loop of `make glue` with length-bucketed batches, in the precision that `auto` is, with the
  process settings of the scripts;
* the Trainer with dynamic padding: in the same precision with the same process settings (like for like),
  and in fp32 without them (as shipped).
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import peers, training
from benchmarks.timing import Row, in_turns, row
from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.build import build
from roformer.data.classification import Ids, Inputs, epoch_batches
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from roformer.models.classifier import Classifier
from roformer.training.distributed import open_accelerator
from roformer.training.hardware import auto_precision, default_device
from roformer.training.loop import Loop
from roformer.training.process import tune_process
from roformer.training.records import RunFolder
from roformer.training.state import State
from roformer.training.task import Batch, Task, tokens_in
from roformer.training.tracking import NoTracker

VOCABULARY, TEXTS, BATCH = 30522, 256, 32


def bench_finetuning(*, rounds: int) -> list[Row]:
    """Return the rows of like for like and as shipped."""
    requests = [
        {"variants": ["ours", "trainer"], "tuned": True},
        {"variants": ["trainer as shipped"], "tuned": False},
    ]
    seconds = in_turns(measure_finetuning, requests, rounds=rounds)
    precision = auto_precision(default_device())
    bucketed = "length-bucketed batches"
    cast = "" if precision == "fp32" else f"{precision} autocast, "
    rows = [
        row(
            f"fine-tuning epoch, like for like: {precision} and process settings on both sides",
            *(seconds["trainer"], seconds["ours"]),
            goal=2.0,
            deviations=bucketed,
        ),
        row(
            "fine-tuning epoch, as shipped",
            *(seconds["trainer as shipped"], seconds["ours"]),
            goal=3.0,
            deviations=f"{cast}{bucketed}",
        ),
    ]
    tokens = int(lengths().sum())
    return [{**each, "ours_tokens_per_second": tokens / each["ours_seconds"]} for each in rows]


def measure_finetuning(
    *, variants: list[str], tuned: bool, rounds: int = 1
) -> dict[str, list[float]]:
    """Return the seconds of an epoch of each variant in this process, after one to warm up."""
    if tuned:
        tune_process()
    precision = auto_precision(default_device())
    calls = {
        "ours": partial(our_epoch, precision),
        "trainer": partial(trainer_epoch, precision),
        "trainer as shipped": partial(trainer_epoch, "fp32"),
    }
    seconds: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for name in variants:
            spent = calls[name]()
            if turn:
                seconds.setdefault(name, []).append(spent)
    return seconds


def lengths() -> Ids:
    """Return the number of tokens of each text, special ones included, (TEXTS,)."""
    drawn = np.random.default_rng(0).lognormal(3.45, 0.56, TEXTS)
    return np.clip(drawn, 8, 128).astype(np.int64)


def texts() -> tuple[list[Ids], Ids]:
    """Return token ids without special ones, and labels."""
    random = np.random.default_rng(1)
    ids = [random.integers(5, VOCABULARY, length - 2) for length in lengths()]
    return ids, random.integers(0, 2, TEXTS)


class Epoch(Task):
    """One epoch of binary classification as a task of the loop; nothing is evaluated."""

    monitor, higher_is_better, flops_per_token = "none", True, 0.0

    def __init__(self) -> None:
        self.description: dict[str, Any] = {}
        ids, labels = texts()
        words = WordPiece.bert([*SPECIAL_TOKENS, "a"], lowercase=True)
        self.batches = Inputs([ids], labels, words, 128)
        self.order = epoch_batches(self.batches.lengths, BATCH, 0, 0)

    def build_model(self) -> None:
        torch.manual_seed(0)
        bert = training.our_config("published", training.OURS["fp32, dropout 0.1"])
        bert = replace(bert, position=encodings.Learned())
        self.model = Classifier(bert, VOCABULARY, 2, dropout=0.1)

    def keys(self, step: int, rank: int, world_size: int) -> list[Any]:
        return [self.order[step - 1]]

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


def our_epoch(precision: str) -> float:
    """Return the seconds that our loop spends in the steps of an epoch."""
    task = Epoch()
    task.build_model()
    steps = len(task.order)
    device = default_device()
    every = dict.fromkeys(("steps", "log_every", "evaluate_every", "checkpoint_every"), steps)
    task.training = build(schema.LoopConfig, {**every, "precision": precision})
    task.config = SimpleNamespace(
        seed=0,
        optimizer=schema.OptimizerConfig(learning_rate=1e-4),
        schedule=schema.ScheduleConfig(),
        runtime=build(schema.RuntimeConfig, {"device": device, "progress": False}),
    )
    accelerator = open_accelerator(task.config.runtime, precision, task.model)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        loop = Loop(task, accelerator, run, NoTracker(), State(), None)
        state, _ = loop.run()
    return state.seconds


def trainer_epoch(precision: str) -> float:
    """Return the seconds of `Trainer.train` over an epoch, without evaluation and checkpoints."""
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    model = peers.classifier(training.SIZES["published"], VOCABULARY)
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
            bf16=precision == "bf16",
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=pad)
        seconds: float = trainer.train().metrics["train_runtime"]
    return seconds
