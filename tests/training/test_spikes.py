"""A loss that stands out is noticed; what falls, wobbles or jumps for good is not."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from roformer.training.spikes import SpikeWatch

ALONE = SimpleNamespace(gather=lambda rows: rows)


def watch(losses, known=None, take_every=1):
    watching = SpikeWatch(torch.device("cpu"), torch.float64, known)
    found = []
    for step, loss in enumerate(losses, start=1):
        watching.see(step, torch.tensor(loss, dtype=torch.float64))
        if step % take_every == 0:
            found += watching.take(ALONE)
    return found, watching


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
    ((found, _, loss, usual),) = watch(losses)[0]
    assert found == step + 1 and loss == losses[step]
    assert abs(usual - losses[step - 1]) < 1


def test_one_spike_does_not_hide_the_next():
    losses = curve()
    losses[300] = losses[305] = 50.0
    assert [spike.step for spike in watch(losses)[0]] == [301, 306]


def test_a_loss_that_is_not_finite_spoils_nothing():
    losses = curve()
    losses[100], losses[150], losses[300] = np.nan, np.inf, 20.0
    assert [spike.step for spike in watch(losses)[0]] == [301]


def test_nothing_is_said_before_enough_is_known():
    assert watch([5.0] * 10 + [9.0])[0] == []
    assert watch([0.0001] * 50 + [0.01])[0] == []  # a hundred times nothing


def test_the_highest_of_several_is_kept_until_it_is_taken():
    losses = curve()
    losses[200], losses[210], losses[220] = 6.0, 9.0, 7.0
    assert [spike.step for spike in watch(losses, take_every=400)[0]] == [211]


def test_the_first_step_that_is_not_finite_is_a_spike_of_nan_on_its_rank():
    """Later spikes are of weights that are lost; earlier ones of other ranks count."""
    ranks = [[0.0, 5.0, 9.0, 2.0], [7.0, 6.0, 8.0, 2.0], [7.0, 8.0, 9.0, 2.0], [9.0, 0.0, 0.0, 0.0]]
    watching = SpikeWatch(torch.device("cpu"), torch.float64, None)
    for step in (7, 8):
        watching.see_bad(step, torch.tensor(True))
    assert watching.first_bad == 7
    found = watching.take(SimpleNamespace(gather=lambda rows: torch.tensor(ranks)))
    assert [(step, rank, loss == loss) for step, rank, loss, _ in found] == [
        (5, 0, True),
        (7, 1, False),
        (7, 2, False),
    ]


def test_it_goes_on_from_its_state():
    losses = curve()
    losses[350] = 6.0
    whole, at_the_end = watch(losses)
    _, first = watch(losses[:300])
    rest, resumed = watch(losses[300:], first.known.tolist())
    assert [spike.step + 300 for spike in rest] == [spike.step for spike in whole] == [351]
    assert torch.equal(resumed.known, at_the_end.known)
