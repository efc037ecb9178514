"""An epoch of fine-tuning with lengths like GLUE's: our loop against transformers' Trainer.

256 texts of lognormal lengths (mean 37, at most 128 tokens), batches of 32, mini size, the vocabulary
of bert-base-uncased, fused AdamW on both sides, without evaluation and checkpoints:

* ours: the loop of `make glue` with length-bucketed batches, in fp32 and in the precision that `auto` is;
* trainer: the Trainer as shipped, with dynamic padding, in fp32;
* published: a BERT of 22.6 M parameters on both sides, with learned positions, dropout 0.1, and the
  precision that `auto` is;
* fixed (`make bench ARGS=padding`, some minutes): ours with every text padded to 512, the paper's length.

Ours runs with the process settings of the scripts ("tuned"), the Trainer without and with them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
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

VOCABULARY, TEXTS, BATCH, FIXED = 30522, 256, 32, 512
OURS = {
    "fp32": "no dropout (recipe mini of glue)",
    "bf16": "bf16 autocast, no dropout (recipe mini of glue)",
}


def bench_finetuning(*, rounds: int) -> list[Row]:
    """Return one row for each way of comparing with the Trainer."""
    shipped = auto_precision(default_device())
    ours = [f"ours {precision}" for precision in dict.fromkeys(("fp32", shipped))]
    published = ["published ours", "published trainer"]
    requests = [
        {"variants": [*ours, *published], "tuned": True},
        {"variants": ["trainer"], "tuned": False},
        {"variants": ["trainer"], "tuned": True},
    ]
    seconds = in_turns(measure_finetuning, requests, rounds=rounds)
    rows = [_row("Trainer with dynamic padding, as shipped", "trainer", shipped, seconds, goal=3.0)]
    for precision in dict.fromkeys((shipped, "fp32")):
        what = f"Trainer, process settings on both sides, ours in {precision}"
        rows.append(_row(what, "trainer tuned", precision, seconds))
    rows.append(
        row(
            f"fine-tuning epoch of a published BERT (22.6 M), {shipped} and process settings on both sides",
            seconds["published trainer tuned"],
            seconds["published ours tuned"],
            goal=2.0,
            deviations="length-bucketed batches",
        )
    )
    return rows


def bench_padding(*, rounds: int) -> list[Row]:
    """Return one row per precision: length-bucketed batches against fixed padding, both ours."""
    pairs = [[f"ours {precision}", f"fixed {precision}"] for precision in OURS]
    requests = [{"variants": pair, "tuned": True} for pair in pairs]
    seconds = in_turns(measure_finetuning, requests, rounds=rounds)
    return [
        _row(f"padding to 512, {p} on both sides", f"fixed {p} tuned", p, seconds, goal=goal)
        for p, goal in (("fp32", 15.0), ("bf16", None))
    ]


def _row(
    what: str,
    peer: str,
    precision: str,
    seconds: dict[str, list[float]],
    goal: float | None = None,
) -> Row:
    """Return the row of a peer and ours in a precision."""
    found = row(
        f"fine-tuning epoch, against {what}",
        seconds[peer],
        seconds[f"ours {precision} tuned"],
        goal=goal,
        deviations=OURS[precision],
    )
    return {**found, "ours_tokens_per_second": int(lengths().sum()) / found["ours_seconds"]}


def measure_finetuning(
    *, variants: list[str], tuned: bool, rounds: int = 1
) -> dict[str, list[float]]:
    """Return the seconds of an epoch of each variant in this process, after one to warm up."""
    if tuned:
        tune_process()
    mini = training.our_config("mini", training.OURS["fp32, no dropout"])
    published = replace(
        training.our_config("published", training.OURS["fp32, dropout 0.1"]),
        position=encodings.Learned(),
    )
    shipped = auto_precision(default_device())
    calls: dict[str, Callable[[], float]] = {
        f"{name} {precision}": partial(our_epoch, mini, precision, inputs)
        for name, inputs in (("ours", Inputs), ("fixed", Padded))
        for precision in OURS
    }
    calls["trainer"] = partial(trainer_epoch, "mini", "fp32")
    calls["published ours"] = partial(our_epoch, published, shipped)
    calls["published trainer"] = partial(trainer_epoch, "published", shipped)
    seconds: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for name in variants:
            spent = calls[name]()
            if turn:
                seconds.setdefault(f"{name} tuned" if tuned else name, []).append(spent)
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

    def __init__(self, config: schema.EncoderConfig, inputs: type[Inputs]):
        self.encoder = config
        self.description: dict[str, Any] = {}
        ids, labels = texts()
        words = WordPiece.bert([*SPECIAL_TOKENS, "a"], lowercase=True)
        self.batches: Inputs = inputs([ids], labels, words, 128)
        self.order = epoch_batches(self.batches.lengths, BATCH, 0, 0)

    def build_model(self) -> None:
        torch.manual_seed(0)
        self.model = Classifier(self.encoder, VOCABULARY, 2, dropout=0.1)

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


def our_epoch(config: schema.EncoderConfig, precision: str, inputs: type[Inputs] = Inputs) -> float:
    """Return the seconds that our loop spends in the steps of an epoch."""
    task = Epoch(config, inputs)
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


def trainer_epoch(size: str, precision: str) -> float:
    """Return the seconds of `Trainer.train` over an epoch, without evaluation and checkpoints."""
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    model = peers.classifier(training.SIZES[size], VOCABULARY)
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
