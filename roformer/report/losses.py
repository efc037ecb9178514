"""What the curves of each pipeline are of: the metric, in records, in words and in units."""

from __future__ import annotations

from collections.abc import Iterable

from roformer.pipelines import registry
from roformer.pipelines.registry import Loss
from roformer.report.records import Folder, RecordError, read_summary

LOSSES = {name: one.loss for name, one in registry.pipelines().items() if one.loss is not None}
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
