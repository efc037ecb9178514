"""What the curves of each pipeline are of: the metric, in records, in words and in units."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from roformer.report.records import Folder, RecordError, read_summary


class Loss(NamedTuple):
    """The metric that a pipeline is judged by while it trains; lower is better."""

    metric: str
    """As in metrics.jsonl."""
    words: str
    """As axes and the tables of paper.yaml call it."""
    unit: str
    entropy: str
    """The metric that says what knowing the frequencies alone is worth."""
    read: str = "tokens"
    """What a model reads."""
    whole: str = ""
    """The metric of the whole validation text after the last update, where there is one: what the
    others are of is a sample."""

    @property
    def axis(self) -> str:
        """As an axis is labelled."""
        return self.words if self.unit in self.words else f"{self.words} ({self.unit})"


LOSSES = {
    "pretrain": Loss("valid/mlm_loss", "masked-LM loss", "nats", "valid/unigram_entropy"),
    "charlm": Loss(
        "valid/bits_per_byte",
        "bits per byte",
        "bits",
        "valid/unigram_bits_per_byte",
        "bytes",
        "valid/bits_per_byte_whole",
    ),
    "clm": Loss("valid/loss", "causal-LM loss", "nats", "valid/unigram_entropy"),
}
"""Pipeline → what its curves are of."""


def read_by(metric: str) -> str:
    """Return what the models read whose metric this is: tokens, or bytes."""
    return next((loss.read for loss in LOSSES.values() if loss.metric == metric), "tokens")


def loss_of(folders: Iterable[Folder]) -> Loss:
    """Return what the curves of these runs are of.

    Raises:
        RecordError: they are of several pipelines, or of one without such a metric.
    """
    found = {read_summary(folder, "pipeline")["pipeline"]: folder for folder in folders}
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise RecordError(
            f"{first} is a run of {one}, {second} of {other}: give those of one pipeline"
        )
    for pipeline, folder in found.items():
        if pipeline not in LOSSES:
            known = ", ".join(LOSSES)
            raise RecordError(
                f"{folder} is a run of {pipeline}: only {known} have curves of a loss"
            )
        return LOSSES[pipeline]
    raise RecordError("none of these runs is finished: give folders like runs/pretrain/*")
