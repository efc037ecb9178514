"""Triplets of long documents: is A closer to B or to C? (RoFormer, section 4.5: CAIL2019-SCM)

weights   ← init_from; `auto`: the pre-training run of this model and tokenizer, made first if need be
triplets  tokenised once
train     both pairs of a triplet in one batch; validation accuracy at the end of every epoch
test      once, with the weights of the best validation
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from roformer.config.build import build, plain
from roformer.config.schema import LoopConfig, PretrainConfig
from roformer.config.scm import ScmConfig
from roformer.data.classification import TripletInputs, evaluation_batches
from roformer.data.examples import (
    ExampleSplit,
    PreparedExamples,
    prepare_triplets,
    training_texts,
)
from roformer.data.sources.triplets import LABELS, PLACES
from roformer.errors import InputError, naming
from roformer.evaluation.ranking import is_chance, ranking_accuracy
from roformer.inference.start import SCRATCH, Start, find_start, load_start
from roformer.models.cost import flops_per_token
from roformer.models.scorer import PairScorer
from roformer.pipelines.epochs import Epochs, Scores, checked
from roformer.pipelines.pretrain import pretrain, pretraining_of
from roformer.pipelines.run import Opened, Run, first_process, resolve, say
from roformer.training import checkpoint
from roformer.training.task import Batch

AUTO = "auto"
EVALUATION_BATCH = 16
"""Triplets of a forward pass that is only read."""
LOGS_AN_EPOCH = 20
MOST_UPDATES_UNSAVED = 500


def open_task(config: ScmConfig) -> Opened:
    """Return the parts of a run, see `Opened`."""
    start = start_of(config)
    data = prepare(config, start)
    task = TripletTask(config, data, start)
    return Opened(config, task, task.training(), begun_on(data, start))


def scm(config: ScmConfig) -> dict[str, Any]:
    """Fine-tune on triplets, unless that is done; return the summary.

    Raises:
        InputError: a mistake in the input; see `Run`, `find_start`, `prepare_triplets`.
    """
    config = resolve(config)
    if config.init_from == AUTO:
        made = pretrain(tokenized_alike(pretraining_of(config), config))
        config = changed(config, init_from=made["run_id"])
    start = start_of(config)
    begun = {"init_from": start.name, "init_revision": start.revision or config.init_revision}
    # Here the length is checked against the table of the weights, in place of the config's.
    config = changed(config, **begun, model=plain(start.model))
    data = prepare(config, start)
    run = Run("scm", config, begun_on(data, start))
    if run.summary is not None:
        return run.summary
    task = TripletTask(config, data, start)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if (smallest := len(task.batches) // task.epochs.updates) < processes:
        raise InputError(
            f"batches of {smallest} triplets are less than the {processes} processes: raise "
            "training.batch_size or start fewer"
        )
    say(f"{run.id}: {task.loaded}")
    facts = task.facts()
    tell(facts, config.training.max_length)

    def conclude() -> dict[str, Any]:
        best = run.folder.path / "checkpoints" / "best"
        if best.exists():
            checkpoint.load_model(best.resolve(), task.model, task.description)
        return {"metrics": task.conclude(run.folder.path / "predictions")}

    summary = run.train(task, task.training(), start.tokenizer, facts, conclude)
    tell_result(summary, run)
    return summary


def tokenized_alike(pretraining: PretrainConfig, config: ScmConfig) -> PretrainConfig:
    """Return the pre-training with the tokenizer that this run asks for, if it asks for one."""
    content = plain(pretraining)
    if config.tokenizer is not None:
        content["data"]["tokenizer"] = plain(config)["tokenizer"]
    return build(PretrainConfig, content)


def tell_result(summary: dict[str, Any], run: Run) -> None:
    """Say what came out."""
    metrics = summary["best"]["metrics"] | {
        name: value for name, value in summary["metrics"].items() if name.startswith("test/")
    }
    told = [f"{name} {value:.1%}" for name, value in metrics.items() if "/accuracy" in name]
    say(
        f"{', '.join(told)} after {summary['steps']:,} updates, {summary['tokens']:,} tokens, "
        f"{summary['wall_seconds']:.0f} s [{summary['status']}]"
    )
    say(f"run: {run.folder.path}")


def start_of(config: ScmConfig) -> Start:
    """Read the weights that the run begins with.

    Raises:
        InputError: see `find_start`; or the weights read words where characters are wanted, or the
            other way round.
    """
    wanted = config.tokenizer
    # Of weights that are read it says the level of the tokens; which ones they are is the weights'.
    level_alone = config.init_from != SCRATCH and wanted is not None and wanted.source == "train"
    start = find_start(
        config.init_from,
        config.init_revision,
        config.model,
        None if level_alone else wanted,
        config.runtime.runs_dir,
        lambda: training_texts(config.data),
    )
    if wanted is not None and start.tokenizer.words != wanted.words:
        raise InputError(
            f"tokenizer.words={wanted.words} is not how {config.init_from} was trained: set "
            f"tokenizer.words={start.tokenizer.words}, or choose a preset or weights that fit"
        )
    return start


def prepare(config: ScmConfig, start: Start) -> PreparedExamples:
    """Tokenise the triplets as the start reads them, unless that is done; return them."""
    runtime = config.runtime
    shown = runtime.progress and first_process()
    return prepare_triplets(config.data, start.tokenizer, runtime.cache_dir, progress=shown)


def begun_on(data: PreparedExamples, start: Start) -> str:
    """Return the fingerprint of what a result depends on besides its config."""
    return hashlib.sha256(f"{data.fingerprint} {start.fingerprint}".encode()).hexdigest()


def changed(config: ScmConfig, **values: Any) -> ScmConfig:
    """Return a config with some keys replaced."""
    return build(ScmConfig, plain(config) | values)


def tell(facts: dict[str, Any], max_length: int) -> None:
    """Say what each split is: triplets, label balance, pairs that are cut, documents of the training."""
    for split, labels in facts["labels"].items():
        balance = ", ".join(f"{label} {count:,}" for label, count in labels.items())
        say(
            f"{split}: {facts['triplets'][split]:,} triplets (closer: {balance}), "
            f"{facts['cut'][split]:.0%} of the pairs cut to {max_length} tokens"
        )
    for split, count in facts["shared"].items():
        if count:
            say(
                f"{split}: {count:,} of {facts['triplets'][split]:,} triplets have a document of the "
                "training triplets, which a model can know without comparing"
            )


class HeldOut:
    """Triplets that are read and not learnt from; `name` is what its metrics begin with."""

    def __init__(self, name: str, split: ExampleSplit, inputs: TripletInputs):
        self.name, self.split, self.inputs = name, split, inputs
        self.batches = evaluation_batches(inputs.lengths, EVALUATION_BATCH)


class TripletTask:
    """Score both pairs of a triplet; the loss is summed over triplets, or over pairs (`bce`).

    Args:
        config: of the run.
        data: prepared with the start's tokenizer.
        start: gives the weights; the rest is drawn from the seed.
    """

    higher_is_better = True
    monitor = "valid/accuracy"

    def __init__(self, config: ScmConfig, data: PreparedExamples, start: Start):
        self.config, self.data, self.tokenizer = config, data, start.tokenizer
        training = config.training
        self.batches = self._inputs(data.split("train"))
        self.valid = self._held_out("valid", "validation")
        self.test = self._held_out("test", "test") if "test" in data.splits else None
        self.epochs = Epochs(self.batches.lengths, training.batch_size, config.seed, training.order)
        torch.manual_seed(config.seed)
        self.model: nn.Module = PairScorer(
            config.model,
            start.vocab_size,
            config.pair,
            dropout=training.head_dropout,
            gradient_checkpointing=config.runtime.gradient_checkpointing,
        )
        self.loaded = load_start(start, self.model)
        self.description = {
            "kind": "scorer",
            "model": plain(config.model),
            "vocab_size": start.vocab_size,
            "tokenizer": start.tokenizer.fingerprint,
            "pair": plain(config.pair),
            "max_length": training.max_length,
            "head_dropout": training.head_dropout,
        }
        mean = float(self.batches.lengths.mean())
        self.flops_per_token = flops_per_token(config.model, 0, round(mean), 0.0)

    def _inputs(self, split: ExampleSplit) -> TripletInputs:
        config = self.config
        return TripletInputs(split, self.tokenizer, config.training.max_length, config.pair)

    def _held_out(self, name: str, split: str) -> HeldOut:
        triplets = self.data.split(split)
        return HeldOut(name, triplets, self._inputs(triplets))

    def facts(self) -> dict[str, Any]:
        """Return what the summary says of the data besides the metrics."""
        inputs = {"train": self.batches, "validation": self.valid.inputs}
        if self.test is not None:
            inputs["test"] = self.test.inputs
        manifest = self.data.manifest
        return {
            "headline": self.monitor,
            "init_from": self.config.init_from,
            "max_length": self.config.training.max_length,
            "triplets": manifest["rows"],
            "labels": manifest["labels"],
            "shared": manifest["shared"],
            "cut": {split: float(one.too_long.mean()) for split, one in inputs.items()},
            "source": manifest["source"],
        }

    def training(self) -> LoopConfig:
        """Return how long the loop runs; it evaluates at the end of every epoch, nowhere else."""
        training = self.config.training
        return self.epochs.loop(
            training.epochs,
            training.precision,
            logs=LOGS_AN_EPOCH,
            most_unsaved=MOST_UPDATES_UNSAVED,
        )

    def keys(self, update: int, rank: int, world_size: int) -> list[Any]:
        share = self.epochs.share(update, rank, world_size)
        # A triplet is two sequences, and is not divided.
        micro = max(1, (self.config.runtime.micro_batch_size or 2 * len(share)) // 2)
        return [share[i : i + micro] for i in range(0, len(share), micro)]

    def samples(self, key: Any) -> list[int]:
        return [int(number) for number in key]

    def texts(self, batch: Batch) -> list[str]:
        ids = batch["input_ids"]
        ends = batch.get("attention_mask", torch.ones_like(ids)).sum(-1)
        return [
            " | ".join(
                self.tokenizer.decode(row[:end]) for row, end in zip(pairs, lengths, strict=True)
            )
            for pairs, lengths in zip(ids.tolist(), ends.tolist(), strict=True)
        ]

    def targets(self, batch: Batch) -> int:
        return len(batch["labels"]) * (2 if self.config.training.loss == "bce" else 1)

    def tokens(self, batch: Batch) -> int:
        return int(batch.get("attention_mask", torch.ones_like(batch["input_ids"])).sum())

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self._loss(scores_of(model, batch), batch["labels"])

    def _loss(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss summed over its targets.

        Args:
            scores: (n, 2): of the pair with B, of the pair with C.
            labels: (n,).
        """
        if self.config.training.loss == "ranking":
            return functional.cross_entropy(scores, labels, reduction="sum")
        closer = functional.one_hot(labels, 2).to(scores)
        return functional.binary_cross_entropy_with_logits(scores, closer, reduction="sum")

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return loss and accuracy on the validation triplets; of builtin ones early and late too."""
        outputs = self._outputs(
            model, self.valid, accelerator.process_index, accelerator.num_processes
        )
        if accelerator.num_processes > 1:
            outputs = accelerator.reduce(outputs, "sum")
        return self._metrics(self.valid, checked(outputs, len(self.valid.split)))

    def _metrics(self, part: HeldOut, scores: Scores) -> dict[str, float]:
        split = part.split
        labels = split.labels.astype(np.int64)
        loss = float(self._loss(torch.from_numpy(scores), torch.from_numpy(labels)))
        targets = len(labels) * (2 if self.config.training.loss == "bce" else 1)
        metrics = {
            f"{part.name}/loss": loss / targets,
            f"{part.name}/accuracy": ranking_accuracy(scores, labels),
        }
        for number, place in enumerate(PLACES):
            if (here := split.places == number).any():
                accuracy = ranking_accuracy(scores[here], labels[here])
                metrics[f"{part.name}/accuracy_{place}"] = accuracy
        return metrics

    def _outputs(self, model: nn.Module, part: HeldOut, rank: int, world_size: int) -> Tensor:
        """Return this rank's scores in their rows and how often each was made, (N, 3)."""
        device = next(model.parameters()).device
        outputs = torch.zeros(len(part.split), 3, device=device)
        for numbers in part.batches[rank::world_size]:
            batch = {name: t.to(device) for name, t in part.inputs[numbers].items()}
            scores = functional.pad(scores_of(model, batch), (0, 1), value=1.0)
            outputs[torch.from_numpy(numbers).to(device)] += scores
        return outputs

    def degenerate(self, metrics: dict[str, float]) -> bool:
        """Whether the validation accuracy is not above a coin's by two standard errors."""
        return is_chance(metrics[self.monitor], len(self.valid.split))

    @torch.no_grad()
    def conclude(self, folder: Path) -> dict[str, float]:
        """Write `<folder>/<split>.tsv` and return the test metrics, {} without test triplets."""
        folder.mkdir(parents=True, exist_ok=True)
        self.model.eval()
        metrics: dict[str, float] = {}
        for part in (self.valid, self.test):
            if part is None:
                continue
            scores = checked(self._outputs(self.model, part, 0, 1), len(part.split))
            lines = ["\t".join(["index", "label", "score_b", "score_c"])]
            for index, label, row in zip(part.split.index, part.split.labels, scores, strict=True):
                lines.append("\t".join([str(index), LABELS[label], *(f"{x:.9g}" for x in row)]))
            file = folder / f"{'validation' if part is self.valid else 'test'}.tsv"
            with naming(file):
                file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            if part is self.test:
                metrics = self._metrics(part, scores)
        return metrics


def scores_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return the scores of n triplets, (n, 2) fp32: of the pair with B, of the pair with C."""
    flat = {name: tensor.flatten(0, 1) for name, tensor in batch.items() if name != "labels"}
    scores: Tensor = model(**flat).float()
    return scores.unflatten(0, (-1, 2))
