"""Steps whose loss stands out or is not finite, noticed without waiting for the device.

The mean loss of a step is compared with the running mean m of about 10 steps before it and with the
noise s of about 50, taken from the differences of neighbours, so that a falling loss does not count as
noise. A spike is a loss above m + max(6·s, m/5, 0.1), once 25 steps are known. It enters the running
values as the threshold that it passed, so that one does not hide the next.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor

MEAN_WEIGHT, NOISE_WEIGHT = 0.1, 0.02
"""Weight of the newest step in the running values."""
STEPS_TO_KNOW = 25
DEVIATIONS = 6.0
SHARE, LEAST = 0.2, 0.1
"""Least distance above the mean, over the mean and in nats."""


class Spike(NamedTuple):
    """A step whose loss stood out on a process."""

    step: int
    rank: int
    loss: float
    """Mean over that process's targets; NaN where the run diverged."""
    usual: float
    """The running mean before it."""


class SpikeWatch:
    """The running loss of one process, going on from what an earlier start has `known`.

    Tensors stay on the device until `take`.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, known: list[float] | None):
        self.known = torch.tensor(known or [0.0] * 4, dtype=dtype, device=device)
        """(steps seen, mean, variance of the noise, last loss)."""
        self.highest = torch.zeros(3, dtype=dtype, device=device)
        """(step, loss, usual) of the highest spike since `take`; step 0 for none."""
        self.first_bad = torch.zeros(1, dtype=dtype, device=device)
        """The first step that was not finite; 0 for none."""

    def see(self, step: int, loss: Tensor) -> None:
        """Take the mean loss of a step, a scalar; one that is not finite changes nothing."""
        count, mean, variance, last = self.known
        margin = torch.maximum(DEVIATIONS * variance.sqrt(), SHARE * mean).clamp(min=LEAST)
        spike = (loss > mean + margin) & (count >= STEPS_TO_KNOW)
        row = torch.stack([torch.full_like(loss, step), loss, mean])
        higher = spike & loss.isfinite() & (loss - mean > self.highest[1] - self.highest[2])
        self.highest = torch.where(higher, row, self.highest)
        taken = torch.where(spike, mean + margin, loss)
        # The first losses count fully, so that the start is not taken for zero.
        first = 1 / (count + 1)
        mean = mean + first.clamp(min=MEAN_WEIGHT) * (taken - mean)
        step_squared = torch.where(count > 0, (taken - last).square() / 2, 0.0)
        variance = variance + first.clamp(min=NOISE_WEIGHT) * (step_squared - variance)
        known = torch.stack([count + 1, mean, variance, taken])
        self.known = torch.where(taken.isfinite(), known, self.known)

    def see_bad(self, step: int, bad: Tensor | bool) -> None:
        """Take whether a step was not finite."""
        self.first_bad += step * (bad & (self.first_bad == 0))

    def take(self, accelerator: Accelerator) -> list[Spike]:
        """Return the spikes of all ranks since the last call, in order, and forget them.

        The first step that was not finite is a spike of NaN on each rank where it was, and the last.
        """
        rows = accelerator.gather(torch.cat([self.first_bad, self.highest])[None])
        if not rows.any():
            return []
        self.highest = torch.zeros_like(self.highest)
        found = rows.tolist()
        first_bad = min((row[0] for row in found if row[0]), default=math.inf)
        spikes = []
        for rank, (bad, step, loss, usual) in enumerate(found):
            if bad and bad == first_bad:
                spikes.append(Spike(int(bad), rank, math.nan, float(self.known[1])))
            elif 0 < step < first_bad:
                spikes.append(Spike(int(step), rank, loss, usual))
        return sorted(spikes, key=lambda spike: spike.step)
