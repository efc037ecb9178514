"""The share of the machine's rate: both sides count the same operations."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import training
from benchmarks.peers import Size


def test_operations_of_a_step_and_of_its_limit(monkeypatch):
    """Catches a product that is counted and not made, and a limit that makes fewer than it says."""
    monkeypatch.setattr(training, "SIZES", {"mini": Size(2, 64, 2, 128)})
    monkeypatch.setattr(training, "VOCABULARY", 500)
    monkeypatch.setattr(training, "LENGTH", 64)
    made = []
    steps = training.our_step("mini", "fp32, dropout 0.1"), training.products("mini", half=True)
    for step in steps:
        with FlopCounterMode(display=False) as counter:
            step()
        made.append(counter.get_total_flops())
    assert made[0] == training.step_flops("mini")
    assert made[1] == pytest.approx(training.PART * made[0], rel=0.01)
