"""One fine-tuning: one task, one learning rate, one seed (RoFormer, section 4.3)."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.build import plain
from roformer.config.glue import FinetuneConfig, TaskConfig
from roformer.config.schema import LoopConfig
from roformer.data.classification import Inputs, evaluation_batches
from roformer.data.examples import ExampleSplit, PreparedExamples, prepare_task, task_texts
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError, naming
from roformer.inference.start import Start, find_start, load_start
from roformer.models.classifier import Classifier
from roformer.models.cost import flops_per_token
from roformer.pipelines.epochs import Epochs, Scores, checked
from roformer.pipelines.run import Opened, Run, first_process, resolve, say
from roformer.training import checkpoint
from roformer.training.task import Batch, tokens_in

EVALUATION_BATCH = 128
LOGS_AN_EPOCH = 10
MOST_UPDATES_UNSAVED = 2000

Labels = NDArray[np.number]


class Part:
    """One validation set, by the name that its metrics end in."""

    def __init__(self, name: str, split: ExampleSplit, tokenizer: WordPiece, max_length: int):
        self.name, self.split = name, split
        self.inputs = Inputs(split.ids_a, split.ids_b, None, tokenizer, max_length)
        self.batches = evaluation_batches(self.inputs.lengths, EVALUATION_BATCH)


class ClassificationTask:
    """Predict the class of a text or pair, or its score; the loss is summed over the examples.

    Args:
        config: of the cell.
        data: prepared with the start's tokenizer.
        start: gives the weights; the rest is drawn from the seed.
    """

    higher_is_better = True

    def __init__(self, config: FinetuneConfig, data: PreparedExamples, start: Start):
        self.config = config
        self.name, self.task = config.task_name, config.task[config.task_name]
        self.max_length, self.tokenizer = longest(config), start.tokenizer
        train = data.split("train")
        self.batches = Inputs(
            train.ids_a, train.ids_b, train.labels, start.tokenizer, self.max_length
        )
        self.parts = [
            Part(split, data.split(split), start.tokenizer, self.max_length)
            for split in data.splits
            if split != "train"
        ]
        self.constant = constant_prediction(self.task, train.labels)
        self.epochs = Epochs(self.batches.lengths, config.training.batch_size, config.seed)
        self.monitor = f"{self.name}/{self.task.metrics[0]}{self._suffix(self.parts[0])}"
        outputs = len(self.task.labels or "1")
        torch.manual_seed(config.seed)
        self.model: nn.Module = Classifier(
            config.model,
            start.vocab_size,
            outputs,
            dropout=config.training.head_dropout,
            gradient_checkpointing=config.runtime.gradient_checkpointing,
        )
        self.loaded = load_start(start, self.model)
        self.description = {
            "kind": "classifier",
            "model": plain(config.model),
            "vocab_size": start.vocab_size,
            "tokenizer": start.tokenizer.fingerprint,
            "task": self.name,
            "labels": self.task.labels,
            "scores": plain(self.task)["scores"],
            "texts": self.task.texts,
            "max_length": self.max_length,
            "head_dropout": config.training.head_dropout,
        }
        mean = float(self.batches.lengths.mean())
        self.flops_per_token = flops_per_token(config.model, 0, round(mean), 0.0)

    def training(self) -> LoopConfig:
        """Return how long the loop runs; it evaluates at the end of every epoch, nowhere else."""
        training = self.config.training
        epochs = training.epochs
        if training.small_task_epochs and len(self.batches) < training.small_task_examples:
            epochs = training.small_task_epochs
        return self.epochs.loop(
            epochs,
            training.precision,
            logs=LOGS_AN_EPOCH,
            most_unsaved=MOST_UPDATES_UNSAVED,
        )

    def keys(self, update: int, rank: int, world_size: int) -> list[Any]:
        share = self.epochs.share(update, rank, world_size)
        micro = self.config.runtime.micro_batch_size or len(share)
        return [share[i : i + micro] for i in range(0, len(share), micro)]

    def samples(self, key: Any) -> list[int]:
        return [int(number) for number in key]

    def texts(self, batch: Batch) -> list[str]:
        ends = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).sum(1)
        return [
            self.tokenizer.decode(ids[:end].tolist())
            for ids, end in zip(batch["input_ids"], ends.tolist(), strict=True)
        ]

    def targets(self, batch: Batch) -> int:
        return len(batch["labels"])

    def tokens(self, batch: Batch) -> int:
        return tokens_in(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
        return self._loss(model(**inputs).float(), batch["labels"])

    def _loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if self.task.labels is None:
            return functional.mse_loss(outputs.squeeze(-1), labels, reduction="sum")
        return functional.cross_entropy(outputs, labels, reduction="sum")

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return the loss, the task's metrics of each validation part, and `<task>/constant`.

        `constant` is 1 where a part's predictions are all the same: what a model that ignores its
        input predicts, and metrics may still look well (F1 0.81 on MRPC).
        """
        loss, examples, constant = 0.0, 0, False
        metrics: dict[str, float] = {}
        for part in self.parts:
            outputs = self._outputs(
                model, part, accelerator.process_index, accelerator.num_processes
            )
            if accelerator.num_processes > 1:
                outputs = accelerator.reduce(outputs, "sum")
            scores = checked(outputs, len(part.split))
            labels = part.split.labels
            loss += float(self._loss(torch.from_numpy(scores), torch.from_numpy(labels)))
            examples += len(labels)
            predictions = predicted(self.task, scores)
            constant |= is_constant(predictions)
            metrics |= self._metrics(part, predictions)
        return {"valid/loss": loss / examples, **metrics, f"{self.name}/constant": float(constant)}

    def _outputs(self, model: nn.Module, part: Part, rank: int, world_size: int) -> Tensor:
        """Return this rank's outputs in their rows and how often each was made, (N, C + 1)."""
        device = next(model.parameters()).device
        outputs: Tensor | None = None
        for numbers in part.batches[rank::world_size]:
            batch = {name: t.to(device) for name, t in part.inputs[numbers].items()}
            rows = model(**batch).float()
            if outputs is None:
                outputs = rows.new_zeros(len(part.split), rows.shape[1] + 1)
            outputs[torch.from_numpy(numbers).to(device)] += functional.pad(rows, (0, 1), value=1.0)
        if outputs is None:  # more processes than batches
            outputs = torch.zeros(len(part.split), len(self.task.labels or "1") + 1, device=device)
        return outputs

    def _metrics(self, part: Part, predictions: Any) -> dict[str, float]:
        """Return the task's metrics of predictions for a part's labels."""
        from roformer.evaluation.glue_metrics import glue_metric  # evaluate takes seconds to import

        return {
            f"{self.name}/{metric}{self._suffix(part)}": glue_metric(
                metric, predictions, part.split.labels
            )
            for metric in self.task.metrics
        }

    def _suffix(self, part: Part) -> str:
        return part.name.removeprefix("validation")

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return metrics[f"{self.name}/constant"] == 1.0

    def majority(self) -> dict[str, float]:
        """Return the metrics of `constant_prediction`, the baseline that knows no text."""
        metrics: dict[str, float] = {}
        for part in self.parts:
            metrics |= self._metrics(part, np.full_like(part.split.labels, self.constant))
        return metrics

    @torch.no_grad()
    def write_predictions(self, folder: Path) -> None:
        """Write `<folder>/<split>.tsv`: index, label, prediction and outputs of every example."""
        folder.mkdir(parents=True, exist_ok=True)
        self.model.eval()
        for part in self.parts:
            scores = checked(self._outputs(self.model, part, 0, 1), len(part.split))
            names = self.task.labels or ["score"]
            predictions = predicted(self.task, scores)
            lines = ["\t".join(["index", "label", "prediction", *names])]
            for index, label, prediction, row in zip(
                part.split.index, part.split.labels, predictions, scores, strict=True
            ):
                pair = [self._write(label), self._write(prediction)]
                lines.append("\t".join([str(index), *pair, *(f"{value:.9g}" for value in row)]))
            file = folder / f"{part.name}.tsv"
            with naming(file):
                file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _write(self, value: Any) -> str:
        return f"{value:.9g}" if self.task.labels is None else self.task.labels[int(value)]


def longest(config: FinetuneConfig) -> int:
    """Return how many tokens an example may have: what is asked for, or what the model can read."""
    wanted = config.training.max_length
    return min(wanted, config.model.position.longest or wanted)


def predicted(task: TaskConfig, scores: Scores) -> Labels:
    """Return class numbers, int64, or scores, float32: (N,)."""
    return scores[:, 0] if task.labels is None else scores.argmax(1)


def constant_prediction(task: TaskConfig, labels: Labels) -> float:
    """Return what a model that ignores the input would say: the commonest class, or the mean score.

    Of classes that are equally common it is the last one: that of F1, which is 0 for the other.
    """
    if task.labels is None:
        return float(labels.mean())
    counts = np.bincount(labels, minlength=len(task.labels))
    return float(np.flatnonzero(counts == counts.max())[-1])


def is_constant(predictions: Labels) -> bool:
    """Tell whether all predictions are the same, scores to a thousandth."""
    return bool(np.ptp(predictions) < 1e-3)


def start_of(config: FinetuneConfig) -> Start:
    """Read the weights that a cell begins with."""
    name = config.task_name
    return find_start(
        config.init_from,
        config.init_revision,
        config.model,
        config.tokenizer,
        config.runtime.runs_dir,
        lambda: task_texts(name, config.task[name], config.data),
    )


def prepare(config: FinetuneConfig, start: Start) -> PreparedExamples:
    """Tokenise a cell's task as its start reads it, unless that is done; return it."""
    runtime = config.runtime
    return prepare_task(
        config.task_name,
        config.task[config.task_name],
        config.data,
        start.tokenizer,
        runtime.cache_dir,
        progress=runtime.progress and first_process(),
    )


def begun_on(data: PreparedExamples, start: Start) -> str:
    """Return the fingerprint of what a cell's result depends on besides its config."""
    return hashlib.sha256(f"{data.fingerprint} {start.fingerprint}".encode()).hexdigest()


def open_task(config: FinetuneConfig) -> Opened:
    """Return the parts of a run, see `Opened`."""
    start = start_of(config)
    data = prepare(config, start)
    task = ClassificationTask(config, data, start)
    return Opened(config, task, task.training(), begun_on(data, start))


def finetune(config: FinetuneConfig, start: Start | None = None) -> dict[str, Any]:
    """Fine-tune one cell, unless it is done; return its summary.

    Args:
        config: of the cell.
        start: what `config.init_from` names, where the caller has read it already.

    Raises:
        InputError: see `Run`, `find_start`, `prepare_task`; fewer examples than processes.
    """
    config = resolve(config)
    start = start or start_of(config)
    name = config.task_name
    data = prepare(config, start)
    run = Run("glue", config, begun_on(data, start))
    if run.summary is not None:
        if first_process():  # a kill may have come between the summary and this
            checkpoint.keep_only_best(run.folder.path / "checkpoints")
        return run.summary
    task = ClassificationTask(config, data, start)
    smallest = len(task.batches) // task.epochs.updates
    if smallest < (processes := int(os.environ.get("WORLD_SIZE", "1"))):
        raise InputError(
            f"{name}: batches of {smallest} examples are less than the {processes} processes: raise "
            "training.batch_size or start fewer"
        )
    say(f"{run.id}: {task.loaded}")
    tell_cut(task)

    def conclude() -> None:
        best = run.folder.path / "checkpoints" / "best"
        if best.exists():  # there is none where no evaluation had a defined metric
            checkpoint.load_model(best.resolve(), task.model, task.description)
        task.write_predictions(run.folder.path / "predictions")

    facts = {
        "task": name,
        "learning_rate": config.optimizer.learning_rate,
        "init_from": config.init_from,
        "headline": task.monitor,
        "majority": task.majority(),
        "train_examples": len(task.batches),
    }
    summary = run.train(task, task.training(), start.tokenizer, facts, conclude)
    if first_process():
        checkpoint.keep_only_best(run.folder.path / "checkpoints")
    return summary


def tell_cut(task: ClassificationTask) -> None:
    """Say how many examples were too long, split by split."""
    for split, inputs in [("train", task.batches), *((p.name, p.inputs) for p in task.parts)]:
        if cut := int(inputs.too_long.sum()):
            say(
                f"{task.name}: {cut:,} of {len(inputs):,} {split} examples are longer than "
                f"{task.max_length} tokens and were cut"
            )


def remove_weights(run: Path) -> None:
    """Remove a finished cell's checkpoints; its record and predictions stay."""
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
