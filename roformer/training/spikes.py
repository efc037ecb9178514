"""Loss spikes: steps whose loss is far above the usual loss.

The mean loss of a step is compared with the running mean m of about 10 steps before it and with the
noise s of about 50 steps. The noise is the difference between neighbours, so that a falling loss does not
count as noise. A spike is a loss above m + max(6·s, m/5, 0.1), once 25 steps are known. It enters the
running values as the threshold that it exceeded, so that one spike does not hide the next.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MEAN_WEIGHT, NOISE_WEIGHT = 0.1, 0.02
"""Weight of the newest step in the running values."""
STEPS_TO_KNOW = 25
DEVIATIONS = 6.0
SHARE, LEAST = 0.2, 0.1
"""Smallest distance above the mean, as a share of the mean and in nats."""


class Spike(NamedTuple):
    """A step with a loss spike on a process."""

    step: int
    rank: int
    loss: float
    """Mean over that process's targets; NaN where the run diverged."""
    usual: float
    """The running mean before it."""


class SpikeWatch:
    """The running loss of one process; `known` is the state of an earlier start."""

    def __init__(self, known: list[float] | None):
        self.known = known or [0.0] * 4
        """(steps seen, mean, variance of the noise, last loss)."""

    def see(self, loss: float) -> bool:
        """Take the mean loss of the next step; return whether it is a (finite) spike."""
        count, mean, variance, last = self.known
        threshold = mean + max(DEVIATIONS * math.sqrt(variance), SHARE * mean, LEAST)
        spike = count >= STEPS_TO_KNOW and loss > threshold
        taken = threshold if spike else loss
        if math.isfinite(taken):
            # The first losses count fully, so that the start is not taken for zero.
            first = 1 / (count + 1)
            mean += max(first, MEAN_WEIGHT) * (taken - mean)
            step_squared = (taken - last) * (taken - last) / 2 if count else 0.0
            variance += max(first, NOISE_WEIGHT) * (step_squared - variance)
            self.known = [count + 1, mean, variance, taken]
        return spike and math.isfinite(loss)
