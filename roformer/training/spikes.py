"""Steps whose loss stands out, noticed without waiting for the device.

The mean loss of a step is compared with the running mean m of about 10 steps before it and with the
noise s of about 50, taken from the differences of neighbours, so that a falling loss does not count as
noise. A spike is a loss above m + max(6·s, m/5, 0.1), once 25 steps are known. It enters the running
values as the threshold that it passed, so that one does not hide the next.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

MEAN_WEIGHT, NOISE_WEIGHT = 0.1, 0.02
"""Weight of the newest step in the running values."""
UPDATES_TO_KNOW = 25
DEVIATIONS = 6.0
SHARE, LEAST = 0.2, 0.1
"""Least distance above the mean, over the mean and in nats."""


class Spike(NamedTuple):
    """A step whose loss stood out on a process."""

    step: int
    rank: int
    loss: float
    """Mean over that process's targets; not finite where the run diverged."""
    usual: float
    """The running mean before it."""


class SpikeWatch:
    """The running loss of one process; tensors stay on the device until `found` is read.

    Args:
        device: of the losses.
        dtype: float64 where the device has it.
        known: `known` of an earlier start.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, known: list[float] | None):
        self.known = torch.tensor(known or [0.0] * 4, dtype=dtype, device=device)
        """(steps seen, mean, variance of the noise, last loss)."""
        self.found = torch.zeros(3, dtype=dtype, device=device)
        """(step, loss, usual) of the highest spike since `clear`; step 0 for none."""

    def see(self, step: int, loss: Tensor) -> None:
        """Take the mean loss of a step, a scalar; one that is not finite changes nothing."""
        count, mean, variance, last = self.known
        margin = torch.maximum(DEVIATIONS * variance.sqrt(), SHARE * mean).clamp(min=LEAST)
        spike = (loss > mean + margin) & (count >= UPDATES_TO_KNOW)
        row = torch.stack([torch.full_like(loss, step), loss, mean])
        higher = spike & loss.isfinite() & (loss - mean > self.found[1] - self.found[2])
        self.found = torch.where(higher, row, self.found)
        taken = torch.where(spike, mean + margin, loss)
        # The first losses count fully, so that the start is not taken for zero.
        first = 1 / (count + 1)
        mean = mean + first.clamp(min=MEAN_WEIGHT) * (taken - mean)
        step_squared = torch.where(count > 0, (taken - last).square() / 2, 0.0)
        variance = variance + first.clamp(min=NOISE_WEIGHT) * (step_squared - variance)
        known = torch.stack([count + 1, mean, variance, taken])
        self.known = torch.where(taken.isfinite(), known, self.known)

    def clear(self) -> None:
        """Forget what was found; the running values stay."""
        self.found = torch.zeros_like(self.found)


def found_by_ranks(rows: list[list[float]], usual: float) -> list[Spike]:
    """Return the spikes of all ranks; a step that is not finite is a spike of NaN.

    Args:
        rows: of each rank (first step that is not finite, step of its spike, loss, usual); 0 for none.
        usual: the running loss, for steps that are not finite.
    """
    bad = min((row[0] for row in rows if row[0]), default=math.inf)
    spikes = []
    for rank, (broken, step, loss, mean) in enumerate(rows):
        if broken and broken == bad:
            spikes.append(Spike(int(bad), rank, math.nan, usual))
        elif 0 < step < bad:
            spikes.append(Spike(int(step), rank, loss, mean))
    return spikes
