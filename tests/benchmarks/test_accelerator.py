"""Steps on an accelerator are measured of all that is compared, and one that fails ends no other."""

import pytest

from benchmarks import accelerator, peers, training
from benchmarks.accelerator import LIMIT, OURS, PEERS, measure_accelerator


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(training, "LENGTH", 16)
    monkeypatch.setattr(training, "VOCABULARY", 100)
    monkeypatch.setattr(accelerator, "default_device", lambda: "cpu")


@pytest.mark.parametrize("task", PEERS)
def test_what_is_compared_steps(task):
    """Catches a peer without a builder."""
    names = [OURS, *PEERS[task]]
    found = measure_accelerator(task=task, names=names, compiled=False, rounds=2)
    assert set(found) == {*names, *(f"{name} bytes" for name in names)}
    assert all(len(found[name]) == 2 for name in names)


def test_a_step_that_fails_is_left_out(monkeypatch, capsys):
    def failing(size, half):
        raise MemoryError("no room\nfor it")

    monkeypatch.setattr(training, "products", failing)
    found = measure_accelerator(task="masked LM", names=[LIMIT, OURS], compiled=False, rounds=1)
    assert set(found) == {OURS, f"{OURS} bytes"}
    assert capsys.readouterr().err == "limit is left out: MemoryError: no room\n"


def test_bert_and_marian_have_torchs_attention():
    """With another one the report would say what is not so."""
    size = training.SIZES["trial"]
    built = [
        peers.bert(size, 100, 16),
        peers.marian(size, 100, 0.1),
        peers.masked_lm(size, 100, 16),
    ]
    assert [model.config._attn_implementation for model in built] == ["sdpa", "sdpa", "eager"]
