"""Schedules against values worked out by hand; groups of weight decay."""

import itertools

import pytest
import torch
from torch import nn

from roformer.config.schema import OptimizerConfig, ScheduleConfig
from roformer.training.optim import build_optimizer, learning_rate


def rates(steps=100, **schedule):
    rate = learning_rate(ScheduleConfig(**schedule), 1.0, steps)
    return [rate(u) for u in range(1, steps + 1)]


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ({"kind": "constant"}, {1: 1.0, 50: 1.0, 100: 1.0}),
        (
            {"kind": "linear", "warmup_fraction": 0.1, "final_ratio": 0.02},
            {1: 0.1, 10: 1.0, 55: 1 - 0.98 / 2, 100: 0.02},
        ),
        ({"kind": "cosine", "warmup_steps": 20}, {20: 1.0, 60: 0.5, 100: 0.0}),
    ],
)
def test_a_schedule_has_the_values_worked_out_by_hand(schedule, values):
    found = rates(**schedule)
    assert {step: found[step - 1] for step in values} == pytest.approx(values, abs=1e-12)


def test_inverse_square_root_is_the_transformers():
    """1e-7 to 5e-4 over 4,000 steps, then 5e-4·√(4000/s) (paper, section 4.1)."""
    schedule = ScheduleConfig(kind="inverse_sqrt", warmup_steps=4000, initial_ratio=1e-7 / 5e-4)
    rate = learning_rate(schedule, 5e-4, 100_000)
    assert rate(0) == pytest.approx(1e-7)
    assert rate(4000) == pytest.approx(5e-4)
    assert rate(16_000) == pytest.approx(2.5e-4)
    assert rate(2000) == pytest.approx((1e-7 + 5e-4) / 2)


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "inverse_sqrt"])
@pytest.mark.parametrize("warmup", [{"warmup_steps": 30}, {"warmup_fraction": 0.3}])
def test_stages_of_one_schedule_are_that_schedule(kind, warmup):
    """A border within the warm-up and one after it; the warm-up is a share of all steps."""
    whole = rates(steps=100, kind=kind, **warmup)
    stages = [
        rates(steps=steps, kind=kind, **warmup, total_steps=100, first_update=before)
        for before, steps in [(0, 20), (20, 30), (50, 50)]
    ]
    assert list(itertools.chain.from_iterable(stages)) == whole


def test_only_matrices_decay():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.1, weight_decay=0.5), model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
        parameter.data.fill_(1.0)
    optimizer.step()
    for parameter in model.parameters():
        expected = 1 - 0.1 * 0.5 if parameter.ndim >= 2 else 1.0
        assert torch.allclose(parameter, torch.full_like(parameter, expected))
