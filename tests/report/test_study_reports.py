"""Functions of report.py in the folders of studies: speed, decay, learning rates, stages."""

import json

import pandas as pd
import pytest

from roformer.report.pages import script_of
from roformer.report.runs import begun_from, read_runs, tokens_before
from tests.report.records import record

decay, rates, speed = map(script_of, ("decay", "appendix/stability", "speed"))
RATIOS = {
    ("bidirectional", "elu+1"): {1024: 4.0, 512: 2.0},
    ("bidirectional", "FAVOR+"): {2048: 1.5, 1024: 0.9, 512: 1.2},
    ("causal", "FAVOR+"): {512: 0.2, 1024: 1.0},
}


def test_faster_means_faster_at_all_lengths_from_there():
    """1.2 at 512 does not count where 0.9 follows, nor does 1.0."""
    rows = [(*key, n, ratio) for key, found in RATIOS.items() for n, ratio in found.items()]
    found = speed["crossovers"](pd.DataFrame(rows, columns=["form", "method", "length", "ratio"]))
    assert list(found.values()) == [2048, 512, None] and found["causal", "FAVOR+"] is None


def test_a_trend_is_a_rank_correlation_if_a_curve_is_not_constant():
    curve = pd.DataFrame({"distance": range(4), "value": [0.0, -1.0, -2.0, -4.0]})
    assert decay["trend"](curve) == pytest.approx(-1)
    assert pd.isna(decay["trend"](curve.assign(value=1.0)))


def rate_run(folder, position, rate, seed, loss, *, spikes=(), **more):
    config = {"optimizer": {"learning_rate": rate}, "training": {"steps": 200}}
    lines = [
        {"step": step, "rank": 0, "loss": high, "usual": 5.0, "samples": [[1]]}
        for step, high in spikes
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    files = {"spikes.jsonl": text} if lines else {}
    metrics = {"valid/loss": loss, "valid/unigram_entropy": 7.6}
    about = {"metrics": metrics, "pipeline": "clm", "position": position}
    if loss is None:
        about |= {"metrics": {}, "status": "failed", "error": "Diverged: step 9 is not finite"}
    name = f"{position}-{rate}-{seed}"
    return record(folder / name, seed=seed, config=config, files=files, **about, **more)


def test_each_rate_has_its_losses_spikes_and_divergences(tmp_path):
    """The lowest mean is of a rate at which a run diverged; learned was run with one rate."""
    rated = [
        rate_run(tmp_path, "rotary", 1e-3, 0, 3.0),
        rate_run(tmp_path, "rotary", 1e-3, 1, 3.2, spikes=[(30, 6.0), (90, 7.0)]),
        rate_run(tmp_path, "rotary", 4e-3, 0, 2.5, spikes=[(30, 6.0)]),
        rate_run(tmp_path, "rotary", 4e-3, 1, None, spikes=[(30, 6.0), (40, None)]),
        rate_run(tmp_path, "rotary", 8e-3, 0, 7.5, status="degenerate"),
        rate_run(tmp_path, "learned", 1e-3, 0, 3.5),
    ]
    (table,) = rates["rate_tables"](read_runs(rated))
    assert [list(line) for line in table.lines[1:]] == [
        ["roformer (rotary)", "0.001 ←", "2", "0", "0", "2", "3.100 ± 0.141 (2)"],
        ["roformer (rotary)", "0.004", "2", "1", "0", "2", "2.500 (1)"],
        ["roformer (rotary)", "0.008", "1", "0", "1", "0", "7.500 (1)"],
    ]
    assert rates["rate_tables"](read_runs(rated[3:])) == []
    runs = read_runs(rated)
    runs.runs["files"] = [{} for _ in rated]  # recorded before spikes were
    (table,) = rates["rate_tables"](runs)
    assert [line[5] for line in table.lines[1:]] == ["–"] * 3


@pytest.mark.parametrize(
    ("given", "begun"),
    [
        ("scratch", ("", "")),
        ("run-s0", ("run-s0", "")),
        ("runs/pretrain/run-s0@50", ("run-s0", "50")),
        ("runs/pretrain/run-s0/checkpoints", ("run-s0", "")),
        ("runs/pretrain/run-s0/checkpoints/step_00000050", ("run-s0", "50")),
    ],
)
def test_what_a_run_began_with_is_a_run_and_a_step(given, begun):
    assert begun_from({"init_from": given}) == begun


def test_tokens_of_a_pre_training_in_stages_are_those_of_all(tmp_path):
    first, second = (
        record(tmp_path / name, config={"init_from": before}, tokens=tokens, steps=100)
        for name, before, tokens in (("first-s0", None, 1000), ("second-s0", "first-s0@50", 4000))
    )
    runs = read_runs([first, second]).runs
    assert tokens_before({"init_from": "second-s0"}, runs) == 4500
    assert tokens_before({"init_from": "second-s0@25"}, runs) == 1500
    assert tokens_before({"init_from": "second-s0"}, read_runs([second]).runs) is None
