"""Sampling of a token: temperature, top-k, top-p, and values out of range."""

import pytest
import torch

from roformer.errors import InputError
from roformer.evaluation.sampling import Sampling, draw, probabilities

LOGITS = torch.tensor([0.5, 0.1, 0.3, 0.1]).log()


@pytest.mark.parametrize(
    ("sampling", "wanted"),
    [
        (Sampling(), [0.5, 0.1, 0.3, 0.1]),
        (Sampling(temperature=0), [1, 0, 0, 0]),
        (Sampling(temperature=1e-320), [1, 0, 0, 0]),
        (Sampling(temperature=0.5), [25 / 36, 1 / 36, 9 / 36, 1 / 36]),
        (Sampling(top_k=2), [5 / 8, 0, 3 / 8, 0]),
        (Sampling(top_p=0.5), [1, 0, 0, 0]),
        (Sampling(top_p=0.51), [5 / 8, 0, 3 / 8, 0]),
        (Sampling(top_p=0.85), [5 / 9, 1 / 9, 3 / 9, 0]),
        (Sampling(top_p=1.0), [0.5, 0.1, 0.3, 0.1]),
        (Sampling(top_k=3, top_p=0.6), [5 / 8, 0, 3 / 8, 0]),
    ],
    ids=str,
)
def test_the_distribution(sampling, wanted):
    """Catches a cut-off that is one token short or long, or that comes before the temperature."""
    found = probabilities(LOGITS, sampling)
    assert found.tolist() == pytest.approx(wanted)


def test_draws_follow_the_distribution_and_the_seed():
    generator = torch.Generator().manual_seed(0)
    drawn = [draw(LOGITS, Sampling(), generator) for _ in range(4000)]
    shares = torch.bincount(torch.tensor(drawn), minlength=4) / 4000
    assert shares.tolist() == pytest.approx([0.5, 0.1, 0.3, 0.1], abs=0.03)
    again = torch.Generator().manual_seed(0)
    assert [draw(LOGITS, Sampling(), again) for _ in range(50)] == drawn[:50]


@pytest.mark.parametrize(
    "given",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": float("nan")},
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused_in_one_line(given):
    with pytest.raises(InputError, match=f"{next(iter(given))}=.* must be"):
        Sampling(**given)
