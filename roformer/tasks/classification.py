"""Fine-tuning on texts or pairs (RoFormer, section 4.3) and on triplets ranked by a score (section 4.5).

weights   ← init_from: a trained model or `scratch`
examples  tokenized once with the tokenizer of the weights
train     epochs of batches of similar lengths; evaluation at the end of every epoch
conclude  predictions for all held-out splits with the weights of the best evaluation
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.build import build, plain
from roformer.config.glue import FinetuneConfig, TaskConfig
from roformer.config.schema import LoopConfig
from roformer.config.scm import Order, ScmConfig
from roformer.config.start import SCRATCH
from roformer.config.typed import refuse
from roformer.data.classification import (
    Ids,
    Inputs,
    TripletInputs,
    epoch_batches,
    evaluation_batches,
)
from roformer.data.examples import (
    ExampleSplit,
    LabelledRows,
    PreparedExamples,
    task_rows,
)
from roformer.data.tokenizers import WordPiece
from roformer.data.triplets import LABELS, PLACES, triplet_rows
from roformer.errors import InputError, naming
from roformer.evaluation.ranking import is_chance, ranking_accuracy
from roformer.inference.start import find_start, load_start
from roformer.models.classifier import Classifier, PairScorer
from roformer.models.cost import flops_per_token
from roformer.models.description import StoredModel
from roformer.training import checkpoint
from roformer.training.distributed import check_share, first_process
from roformer.training.hardware import autocast_of
from roformer.training.task import Batch, Task, cost, share_of, tokens_in

C = TypeVar("C", bound=Any)
Labels = NDArray[Any]
Scores = NDArray[np.float32]


class Epochs:
    """The rows of each step, a function of the seed and the step.

    The order `short_first` begins the first epoch with the batches of short rows.
    """

    def __init__(
        self, lengths: NDArray[Any], batch_size: int, seed: int, order: Order = "shuffled"
    ):
        self.lengths, self.batch_size, self.seed, self.order = lengths, batch_size, seed, order
        self.steps = -(-len(lengths) // batch_size)
        """Steps of one epoch."""
        self._epoch: tuple[int, list[Ids]] = (-1, [])

    def batch(self, step: int) -> Ids:
        """Return the rows of step 1, 2, … of all ranks."""
        epoch, place = divmod(step - 1, self.steps)
        if self._epoch[0] != epoch:
            batches = epoch_batches(self.lengths, self.batch_size, self.seed, epoch)
            if epoch == 0 and self.order == "short_first":
                # By powers of two: inside, the order stays random, because length may reveal the label.
                batches.sort(key=lambda batch: int(self.lengths[batch].max()).bit_length())
            self._epoch = (epoch, batches)
        return self._epoch[1][place]


class HeldOut:
    """A held-out split; `name` prefixes its metrics and predictions."""

    def __init__(self, name: str, split: ExampleSplit, inputs: Any, batch_size: int):
        self.name, self.split, self.inputs = name, split, inputs
        self.batches = evaluation_batches(inputs.lengths, batch_size)


class ExamplesTask(Task):
    """Learn labelled examples in epochs, starting from trained weights or `scratch`."""

    higher_is_better = True
    rows: str
    """Noun for the examples in messages."""
    evaluation_batch: int
    """Examples per forward pass of an evaluation."""
    logs_per_epoch: int
    most_unsaved: int
    """Most steps between two checkpoints; there is at least one per epoch."""
    sequences: int = 1
    """Sequences per example; an example is never divided."""
    columns: tuple[str, ...]
    """Column names of the model's outputs in predictions/*.tsv."""
    record_columns: tuple[str, ...]
    """Column names of `prediction_columns`."""

    def __init__(self, config: Any):
        self.origin = start_of(config)
        self.config = with_start(config, self.origin)
        self.tokenizer: WordPiece = self.origin.tokenizer
        self.data = prepare(config, self.tokenizer)
        inputs = f"{self.data.fingerprint} {self.origin.fingerprint}"
        self.fingerprint = hashlib.sha256(inputs.encode()).hexdigest()

    def build_model(self) -> None:
        config, data, start = self.config, self.data, self.origin
        training = config.training
        train = data.split("train")
        self.batches: Any = self.inputs(train)
        self.held_out = [
            HeldOut(split, rows := data.split(split), self.inputs(rows), self.evaluation_batch)
            for split in data.splits
            if split != "train"
        ]
        order: Order = getattr(training, "order", "shuffled")
        self.epochs = Epochs(self.batches.lengths, training.batch_size, config.seed, order)
        steps = self.epochs.steps
        smallest = len(self.batches) // steps
        check_share(smallest, f"batches of {smallest} {self.rows} are")
        self.training = LoopConfig(
            steps=self.epoch_count() * steps,
            precision=training.precision,
            log_every=-(-steps // self.logs_per_epoch),
            evaluate_every=steps,
            checkpoint_every=min(steps, self.most_unsaved),
        )
        refuse(config.schedule.steps_rules(self.training.steps))
        torch.manual_seed(config.seed)
        self.model = self.new_model(start.vocab_size)
        self.loaded = load_start(start, self.model)
        self.description = {
            "model": plain(config.model),
            "vocab_size": start.vocab_size,
            "tokenizer": start.tokenizer.fingerprint,
            "max_length": self.max_length,
            "head_dropout": training.head_dropout,
        }
        mean = float(self.batches.lengths.mean())
        self.flops_per_token = flops_per_token(config.model, 0, round(mean), 0.0)

    @property
    def max_length(self) -> int:
        """Most tokens of an example."""
        return int(self.config.training.max_length)

    def epoch_count(self) -> int:
        """Return the number of epochs."""
        return int(self.config.training.epochs)

    @abstractmethod
    def inputs(self, split: ExampleSplit) -> Any:
        """Return the examples of a split as inputs of the model."""

    @abstractmethod
    def new_model(self, vocab_size: int) -> nn.Module:
        """Return the model with random weights from torch's generator."""

    @abstractmethod
    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the outputs that the loss takes, (n, C) fp32; the batch may have labels."""

    @abstractmethod
    def summed_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of outputs (n, C), summed over the targets."""

    @abstractmethod
    def prediction_columns(self, part: HeldOut, outputs: Scores) -> list[list[str]]:
        """Return the columns between index and outputs in predictions/*.tsv, for each example."""

    def keys(self, step: int, rank: int, world_size: int) -> list[Any]:
        sequences = self.config.runtime.micro_batch_size
        micro = max(1, sequences // self.sequences) if sequences else None
        return share_of(self.epochs.batch(step), rank, world_size, micro)

    def targets(self, batch: Batch) -> int:
        return len(batch["labels"])

    def tokens(self, batch: Batch) -> int:
        return tokens_in(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.summed_loss(self.outputs(model, batch), batch["labels"])

    def held_out_outputs(
        self, model: nn.Module, part: HeldOut, accelerator: Accelerator | None = None
    ) -> Scores:
        """Return the outputs (N, C) of all rows of a part; the ranks share the work."""
        rank, world_size = 0, 1
        if accelerator is not None:
            rank, world_size = accelerator.process_index, accelerator.num_processes
        device = next(model.parameters()).device
        outputs = torch.zeros(len(part.split), len(self.columns), device=device)
        for numbers in part.batches[rank::world_size]:
            batch = {name: t.to(device) for name, t in part.inputs[numbers].items()}
            outputs[torch.from_numpy(numbers).to(device)] = self.outputs(model, batch)
        if accelerator is not None and world_size > 1:
            outputs = accelerator.reduce(outputs, "sum")
        scores: Scores = outputs.cpu().numpy()
        return scores

    @torch.no_grad()
    def write_predictions(self, run: Path) -> dict[str, Scores]:
        """Write `predictions/<split>.tsv` with the best weights; return the outputs of each split."""
        checkpoints, folder = run / "checkpoints", run / "predictions"
        # Without a defined metric in any evaluation, there is no best.
        chosen = "best" if (checkpoints / "best").exists() else "last"
        # Another copy: the trained model may be sharded.
        model = self.new_model(self.description["vocab_size"])
        checkpoint.load_model((checkpoints / chosen).resolve(), model, self.description)
        model.to(next(self.model.parameters()).device)
        folder.mkdir(parents=True, exist_ok=True)
        model.eval()
        outputs_of = {}
        # In the precision of the validations, which chose the weights.
        half = autocast_of(next(model.parameters()).device, self.config.training.precision)
        for part in self.held_out:
            with half:
                outputs_of[part.name] = outputs = self.held_out_outputs(model, part)
            rows = [["index", *self.record_columns, *self.columns]]
            for index, columns, row in zip(
                part.split.index, self.prediction_columns(part, outputs), outputs, strict=True
            ):
                rows.append([str(index), *columns, *(f"{value:.9g}" for value in row)])
            file = folder / f"{part.name}.tsv"
            with naming(file):
                file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
        return outputs_of


class ClassificationTask(ExamplesTask):
    """Predict the class or the score of a text or pair; the loss is summed over the examples."""

    rows, evaluation_batch, logs_per_epoch, most_unsaved = "examples", 128, 10, 2000
    record_columns = ("label", "prediction")
    config: FinetuneConfig
    keep_only_best = True

    def build_model(self) -> None:
        self.name, self.task = self.config.task_name, self.config.task[self.config.task_name]
        self.columns = tuple(self.task.labels or ("score",))
        super().build_model()
        first = self.held_out[0].name.removeprefix("validation")
        self.monitor = f"{self.name}/{self.task.metrics[0]}{first}"
        self.description |= {
            "kind": "classifier",
            "task": self.name,
            "labels": self.task.labels,
            "scores": plain(self.task)["scores"],
            "texts": self.task.texts,
        }

    @property
    def max_length(self) -> int:
        wanted = self.config.training.max_length
        return min(wanted, self.config.model.position.longest or wanted)

    def epoch_count(self) -> int:
        training = self.config.training
        small = len(self.batches) < training.small_task_examples
        return (training.small_task_epochs if small else None) or training.epochs

    def inputs(self, split: ExampleSplit) -> Inputs:
        return Inputs(split.ids, split.labels, self.tokenizer, self.max_length)

    def new_model(self, vocab_size: int) -> nn.Module:
        config, outputs = self.config, len(self.columns)
        return Classifier(config.model, vocab_size, outputs, dropout=config.training.head_dropout)

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
        return model(**inputs).float()

    def summed_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if self.task.labels is None:
            return functional.mse_loss(outputs.squeeze(-1), labels, reduction="sum")
        return functional.cross_entropy(outputs, labels, reduction="sum")

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return the loss, the task's metrics of each validation part, and `<task>/constant`.

        `constant` is 1 if all predictions of a part are equal (scores to a thousandth): a model that ignores
        its input may still have good metrics (F1 0.81 on MRPC).
        """
        loss, examples, constant = 0.0, 0, False
        metrics: dict[str, float] = {}
        for part in self.held_out:
            outputs = self.held_out_outputs(model, part, accelerator)
            labels = part.split.labels
            loss += float(self.summed_loss(torch.from_numpy(outputs), torch.from_numpy(labels)))
            examples += len(labels)
            predictions = predicted(self.task, outputs)
            constant |= bool(np.ptp(predictions) < 1e-3)
            metrics |= task_scores(self.name, self.task, part.name, predictions, labels)
        return {"valid/loss": loss / examples, **metrics, f"{self.name}/constant": float(constant)}

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return metrics[f"{self.name}/constant"] == 1.0

    def introduction(self) -> list[str]:
        splits = [("train", self.batches), *((part.name, part.inputs) for part in self.held_out)]
        return self.loaded + [
            f"{self.name}: {cut:,} of {len(inputs):,} {split} examples are longer than "
            f"{self.max_length} tokens and were cut"
            for split, inputs in splits
            if (cut := int(inputs.too_long.sum()))
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "learning_rate": self.config.optimizer.learning_rate,
            "init_from": self.config.init_from,
            "headline": self.monitor,
            "train_examples": len(self.batches),
        }

    def conclude(self, run: Path) -> dict[str, Any]:
        self.write_predictions(run)
        return {}

    def result(self, summary: dict[str, Any], run: Path) -> list[str]:
        return []  # the grid reports

    def prediction_columns(self, part: HeldOut, outputs: Scores) -> list[list[str]]:
        pairs = zip(part.split.labels, predicted(self.task, outputs), strict=True)
        if (names := self.task.labels) is None:
            return [[f"{value:.9g}" for value in pair] for pair in pairs]
        return [[names[int(value)] for value in pair] for pair in pairs]


def task_scores(
    name: str, task: TaskConfig, split: str, predictions: Labels, labels: Labels
) -> dict[str, float]:
    """Return a task's metrics for the predictions of a split; MNLI's second part adds its name to them."""
    from roformer.evaluation.glue_metrics import glue_metric  # evaluate takes seconds to import

    return {
        f"{name}/{metric}{split.removeprefix('validation')}": glue_metric(
            metric, predictions, labels
        )
        for metric in task.metrics
    }


def predicted(task: TaskConfig, scores: Scores) -> Labels:
    """Return class numbers, int64, or scores, float32: (N,)."""
    return scores[:, 0] if task.labels is None else scores.argmax(1)


def accuracies(
    split: str, scores: NDArray[Any], labels: Labels, places: Labels
) -> dict[str, float]:
    """Return the accuracy of a split's scores (N, 2), in total and per place of the evidence."""
    name = split.replace("validation", "valid")
    metrics = {f"{name}/accuracy": ranking_accuracy(scores, labels)}
    for number, place in enumerate(PLACES):
        if (here := places == number).any():
            metrics[f"{name}/accuracy_{place}"] = ranking_accuracy(scores[here], labels[here])
    return metrics


class TripletTask(ExamplesTask):
    """Is A closer to B or to C? Both pairs are scored; the loss is summed over triplets, or pairs (`bce`)."""

    rows, evaluation_batch, logs_per_epoch, most_unsaved = "triplets", 4, 20, 500
    sequences = 2
    monitor = "valid/accuracy"
    record_columns, columns = ("label",), ("score_b", "score_c")
    config: ScmConfig

    def build_model(self) -> None:
        super().build_model()
        parts = {part.name: part for part in self.held_out}
        self.valid, self.test = parts["validation"], parts.get("test")
        self.description |= {"kind": "scorer", "pair": plain(self.config.pair)}

    def inputs(self, split: ExampleSplit) -> TripletInputs:
        return TripletInputs(split, self.tokenizer, self.max_length, self.config.pair)

    def new_model(self, vocab_size: int) -> nn.Module:
        config = self.config
        return PairScorer(
            config.model, vocab_size, config.pair, dropout=config.training.head_dropout
        )

    @property
    def targets_per_triplet(self) -> int:
        """Terms of the loss per triplet: one, or one per pair."""
        return 2 if self.config.training.loss == "bce" else 1

    def targets(self, batch: Batch) -> int:
        return len(batch["labels"]) * self.targets_per_triplet

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the scores of n triplets, (n, 2) fp32: of the pairs with B and with C."""
        flat = {name: tensor.flatten(0, 1) for name, tensor in batch.items() if name != "labels"}
        scores: Tensor = model(**flat).float()
        return scores.unflatten(0, (-1, 2))

    def summed_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        if self.config.training.loss == "ranking":
            return functional.cross_entropy(outputs, labels, reduction="sum")
        closer = functional.one_hot(labels, 2).to(outputs)
        return functional.binary_cross_entropy_with_logits(outputs, closer, reduction="sum")

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        return self.metrics(self.valid, self.held_out_outputs(model, self.valid, accelerator))

    def metrics(self, part: HeldOut, scores: Scores) -> dict[str, float]:
        """Return loss and accuracies of a split's scores (N, 2)."""
        labels = part.split.labels.astype(np.int64)
        loss = float(self.summed_loss(torch.from_numpy(scores), torch.from_numpy(labels)))
        targets = len(labels) * self.targets_per_triplet
        name = part.name.replace("validation", "valid")
        metrics = accuracies(part.name, scores, labels, part.split.places)
        return {f"{name}/loss": loss / targets} | metrics

    def degenerate(self, metrics: dict[str, float]) -> bool:
        """Return whether the validation accuracy is within two standard errors of chance."""
        return is_chance(metrics[self.monitor], len(self.valid.split))

    def introduction(self) -> list[str]:
        facts, lines = self.facts(), [*self.loaded]
        for split, labels in facts["labels"].items():
            balance = ", ".join(f"{label} {count:,}" for label, count in labels.items())
            lines.append(
                f"{split}: {facts['triplets'][split]:,} triplets (closer: {balance}), "
                f"{facts['cut'][split]:.0%} of the pairs cut to {self.max_length} tokens"
            )
        return lines + [
            f"{split}: {count:,} of {facts['triplets'][split]:,} triplets have a document of the "
            "training triplets, which a model can know without comparing"
            for split, count in facts["shared"].items()
            if count
        ]

    def facts(self) -> dict[str, Any]:
        inputs = {"train": self.batches} | {part.name: part.inputs for part in self.held_out}
        manifest = self.data.manifest
        return {
            "headline": self.monitor,
            "init_from": self.config.init_from,
            "max_length": self.max_length,
            "triplets": manifest["rows"],
            "labels": manifest["labels"],
            "shared": manifest["shared"],
            "cut": {split: float(part.too_long.mean()) for split, part in inputs.items()},
            "source": manifest["source"],
        }

    def conclude(self, run: Path) -> dict[str, Any]:
        scores = self.write_predictions(run)
        if self.test is None:
            return {}
        return {"metrics": self.metrics(self.test, scores["test"])}

    def result(self, summary: dict[str, Any], run: Path) -> list[str]:
        metrics = summary["best"]["metrics"] | {
            name: value for name, value in summary["metrics"].items() if name.startswith("test/")
        }
        accuracies_text = [
            f"{name} {value:.1%}" for name, value in metrics.items() if "/accuracy" in name
        ]
        return [
            f"{', '.join(accuracies_text)} after {cost(summary)} [{summary['status']}]",
            f"run: {run}",
        ]

    def prediction_columns(self, part: HeldOut, outputs: Scores) -> list[list[str]]:
        return [[LABELS[label]] for label in part.split.labels]


# --- data ----------------------------------------------------------------------------------------


def start_of(config: FinetuneConfig | ScmConfig) -> StoredModel:
    """Load the weights that a run begins with."""
    wanted = tokenizer = config.tokenizer
    triplets = isinstance(config, ScmConfig)
    if triplets and config.init_from != SCRATCH and wanted and wanted.source == "train":
        # The config only decides words or characters; the weights have the vocabulary.
        tokenizer = None
    start = find_start(
        config.init_from,
        config.init_revision,
        config.model,
        tokenizer,
        config.runtime.runs_dir,
        rows_of(config).training_texts,
    )
    if triplets and wanted is not None and start.tokenizer.words != wanted.words:
        raise InputError(
            f"tokenizer.words={wanted.words} is not how {config.init_from} was trained: set "
            f"tokenizer.words={start.tokenizer.words}, or choose a preset or weights that fit"
        )
    return start


def with_start(config: C, start: StoredModel) -> C:
    """Return the config of a run with the name and the model of its weights; its rules hold for these."""
    names = {"init_from": start.name, "init_revision": start.revision or config.init_revision}
    found: C = build(type(config), plain(config) | names | {"model": plain(start.model)})
    return found


def rows_of(config: FinetuneConfig | ScmConfig) -> LabelledRows:
    """Return the rows that a run is trained and scored on."""
    if isinstance(config, ScmConfig):
        return triplet_rows(config.data)
    return task_rows(config.task_name, config.task[config.task_name], config.data)


def prepare(config: FinetuneConfig | ScmConfig, tokenizer: WordPiece) -> PreparedExamples:
    """Return the tokenized rows of a run, cached or made now."""
    runtime = config.runtime
    progress = runtime.progress and first_process()
    return rows_of(config).prepare(tokenizer, runtime.cache_dir, progress=progress)
