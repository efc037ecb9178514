"""A spike of the loss is noticed; a loss that falls, wobbles or jumps for good is not."""

import numpy as np
import pytest

from roformer.training.spikes import SpikeWatch


def watch(losses, known=None):
    """Return the spikes as (step, loss, usual loss), and the watch."""
    watching, spikes = SpikeWatch(known), []
    for step, loss in enumerate(losses, start=1):
        usual = watching.known[1]
        if watching.see(float(loss)):
            spikes.append((step, loss, usual))
    return spikes, watching


def curve(count=400, seed=0):
    """A loss that falls from 6 to 2 as trainings do, with noise."""
    noise = np.random.default_rng(seed).normal(0, 0.05, count)
    return 2 + 4 * np.exp(-np.arange(count) / 80) + noise


@pytest.mark.parametrize("seed", range(3))
def test_a_calm_training_has_none(seed):
    assert watch(curve(seed=seed))[0] == []


@pytest.mark.parametrize("step", [40, 200, 399])
def test_a_spike_is_found_where_it_is(step):
    losses = curve()
    losses[step] += 3
    ((number, loss, usual),) = watch(losses)[0]
    assert number == step + 1 and loss == losses[step]
    assert abs(usual - losses[step - 1]) < 1


def test_a_loss_that_is_not_finite_spoils_nothing():
    losses = curve()
    losses[100], losses[150], losses[300], losses[305] = np.nan, np.inf, 20.0, 20.0
    assert [step for step, *_ in watch(losses)[0]] == [301, 306]  # one spike does not hide the next


def test_nothing_is_said_before_enough_is_known():
    assert watch([5.0] * 10 + [9.0])[0] == []
    assert watch([0.0001] * 50 + [0.01])[0] == []  # a hundred times nothing


def test_it_resumes_from_its_state():
    losses = curve()
    losses[350] = 6.0
    whole, at_the_end = watch(losses)
    _, first = watch(losses[:300])
    rest, resumed = watch(losses[300:], first.known)
    assert [step + 300 for step, *_ in rest] == [step for step, *_ in whole] == [351]
    assert resumed.known == at_the_end.known
