"""Model-free baselines of a run, scored with the run's own metrics.

Each function takes the config of a run and returns name → metric → value. It reads only data, so that
`scripts/record.py` can add baselines to an older record.
"""

from __future__ import annotations

import math

import numpy as np

from roformer.config.glue import FinetuneConfig, TaskConfig
from roformer.config.lm import CausalLMConfig, CharLMConfig, LanguageModelConfig
from roformer.config.scm import ScmConfig
from roformer.data.causal import validation_sample
from roformer.data.examples import task_rows
from roformer.data.files import Example
from roformer.data.store import TokenStream
from roformer.data.triplets import triplet_rows
from roformer.evaluation.counting import (
    Floats,
    bag_of_words,
    document_overlap,
    known_documents,
    ngram_losses,
)
from roformer.tasks.causal import prepare_text_of_bytes
from roformer.tasks.classification import Labels, accuracies, task_scores
from roformer.tasks.mlm import prepare

Baselines = dict[str, dict[str, float]]
ORDERS = {"unigram": 1, "bigram": 2, "trigram": 3}
MOST_COUNTED = 10_000_000
"""Most tokens whose n-grams are counted; more would take minutes and gigabytes."""


# --- classification ------------------------------------------------------------------------------


def of_task(config: FinetuneConfig) -> Baselines:
    """Return the metrics of the majority class, or the mean score, and of a bag of words on a task."""
    name, task = config.task_name, config.task[config.task_name]
    rows = task_rows(name, task, config.data)
    splits = {split: rows.read(split) for split in rows.source.splits}
    train, *held_out = splits.values()
    constant = constant_prediction(task, labels_of(train))
    bags = bag_of_words(
        [row.texts for row in train],
        labels_of(train),
        [[row.texts for row in part] for part in held_out],
        metric=task.metrics[0],
        constant=constant,
    )
    metrics: Baselines = {"majority": {}, "bag of words": {}}
    for split, part, bag in zip([*splits][1:], held_out, bags, strict=True):
        labels = labels_of(part)
        same = np.full_like(labels, constant)
        metrics["majority"] |= task_scores(name, task, split, same, labels)
        metrics["bag of words"] |= task_scores(name, task, split, bag, labels)
    return metrics


def labels_of(rows: list[Example]) -> Labels:
    """Return class numbers, int64, or scores, float64: (N,)."""
    return np.array([row.label for row in rows])


def constant_prediction(task: TaskConfig, labels: Labels) -> float:
    """Return the best prediction without input: the most frequent class, or the mean score.

    A tie gives the last class, because F1 is computed for it.
    """
    if task.labels is None:
        return float(labels.mean())
    counts = np.bincount(labels, minlength=len(task.labels))
    return float(np.flatnonzero(counts == counts.max())[-1])


def of_triplets(config: ScmConfig) -> Baselines:
    """Return the accuracy of the overlap of documents, and of knowing the training documents."""
    rows = triplet_rows(config.data)
    splits = {split: rows.read(split) for split in rows.source.splits}
    train = splits.pop("train")
    known = [row.texts for row in train], [row.label for row in train]
    metrics: Baselines = {"overlap": {}, "known documents": {}}
    for split, part in splits.items():
        texts, places = [row.texts for row in part], np.array([row.place for row in part])
        counted = {
            "overlap": document_overlap(texts),
            "known documents": known_documents(*known, texts),
        }
        for name, scores in counted.items():
            metrics[name] |= accuracies(split, scores, labels_of(part), places)
    return metrics


# --- language models -----------------------------------------------------------------------------


def of_tokens(config: CausalLMConfig) -> Baselines:
    """Return the losses of n-grams on the validation sample, in nats per token; see `gram_losses`."""
    text = prepare(config)
    metrics: Baselines = {}
    for name, order in ORDERS.items():
        losses = gram_losses(config, text.train, text.valid, text.tokenizer.size, order)
        metrics[name] = {"valid/loss": _sampled(config, text.valid, losses)}
    return metrics


def of_bytes(config: CharLMConfig) -> Baselines:
    """Return the losses of n-grams on the validation and test texts, in bits per byte; see `gram_losses`."""
    text = prepare_text_of_bytes(config)
    metrics: Baselines = {}
    for name, order in ORDERS.items():
        valid, test = (
            gram_losses(config, text.train, stream, text.vocabulary.size, order) / math.log(2)
            for stream in (text.valid, text.test)
        )
        metrics[name] = {
            "valid/bits_per_byte": _sampled(config, text.valid, valid),
            "valid/bits_per_byte_whole": float(valid.mean()),
            "test/bits_per_byte": float(test.mean()),
        }
    return metrics


def gram_losses(
    config: LanguageModelConfig, train: TokenStream, held_out: TokenStream, size: int, order: int
) -> Floats:
    """Return the losses in nats of all ids of a stream except the first, (N - 1,), by n-grams.

    The n-grams are counted in as much of the training text as the run reads, at most `MOST_COUNTED` ids.
    """
    training = config.training
    read = training.steps * training.batch_size * training.sequence_length
    counted = train[: min(read, MOST_COUNTED)]
    text = np.concatenate((counted[-1:], held_out[:]))
    grams = np.lib.stride_tricks.sliding_window_view(text, order)[1 - len(held_out) :]
    return ngram_losses(counted, grams, size)


def _sampled(config: LanguageModelConfig, stream: TokenStream, losses: Floats) -> float:
    """Return the mean of the losses of the ids that the validation sample's blocks predict."""
    training = config.training
    length = training.sequence_length
    blocks = validation_sample(stream, length, training.valid_sequences, training.longest)
    return float(np.mean([losses[length * block : length * (block + 1)] for block in blocks]))
