"""Classify or score texts and pairs of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from roformer.data.classification import Inputs

Text = str | tuple[str, str]
BATCH = 32


class Prediction(NamedTuple):
    """Prediction for one text or pair."""

    label: str | None
    """None of a regression."""
    score: float
    """Probability of the label, or the score of a regression."""
    cut: bool
    """Whether the text was longer than the model reads, and its end was left out."""


@torch.no_grad()
def outputs(model: nn.Module, inputs: Inputs) -> Tensor:
    """Return logits or scores of all examples, (N, C), fp32, on the CPU."""
    device = next(model.parameters()).device
    rows = []
    for first in range(0, len(inputs), BATCH):
        batch = inputs[range(first, min(first + BATCH, len(inputs)))]
        rows.append(model(**{name: t.to(device) for name, t in batch.items()}))
    return torch.cat(rows).float().cpu()


def predictions(
    logits: Tensor, labels: Sequence[str] | None, cut: Iterable[bool]
) -> list[Prediction]:
    """Return the most probable label of each row of `logits`, (N, C), or its score without labels."""
    if labels is None:
        return [Prediction(None, float(row[0]), c) for row, c in zip(logits, cut, strict=True)]
    probabilities, classes = logits.softmax(-1).max(-1)
    return [
        Prediction(labels[int(number)], float(probability), c)
        for number, probability, c in zip(classes, probabilities, cut, strict=True)
    ]
