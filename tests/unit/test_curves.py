"""Curves read back from records."""

import json

import pytest

from roformer.report.curves import amounts_read, compare, read_curve, steps_to


def record(folder, losses, model="roformer"):
    folder.mkdir()
    rows = [
        {"step": step, "valid/mlm_loss": loss, "data/samples": step, "data/tokens": step * 10}
        for step, loss in losses.items()
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"model": model, "position": "rotary", "seed": 0}
    (folder / "summary.json").write_text(json.dumps(summary))
    return read_curve(folder, "valid/mlm_loss")


def test_steps_to_a_loss_between_evaluations(tmp_path):
    curve = record(tmp_path / "a", {100: 6.0, 200: 5.0, 300: 4.0})
    assert steps_to(curve, 4.5) == 250
    assert steps_to(curve, 7.0) == 100
    assert steps_to(curve, 3.9) is None


def test_comparison(tmp_path):
    fast = record(tmp_path / "fast", {100: 5.0, 200: 4.0})
    slow = record(tmp_path / "slow", {100: 6.0, 200: 5.0}, model="bert")
    text = compare([fast, slow], "valid/mlm_loss")
    assert "| 100 | 100 | 1,000 | 5.000 | 6.000 |" in text
    assert "| 4.000 | roformer (rotary), seed 0 | 200 | not reached |" in text
    assert "| 5.000 | bert (rotary), seed 0 | 100 | 200 |" in text


def test_amounts_that_differ_by_a_last_short_block_are_about_a_mean(tmp_path):
    one = record(tmp_path / "one", {100: 5.0, 200: 4.0})
    shorter = one._replace(read={100: (100, 996), 200: (200, 1_000)})
    assert amounts_read([one, shorter], 100) == ["100", "≈ 998"]
    assert amounts_read([one, shorter], 200) == ["200", ""]
    assert amounts_read([one, one._replace(read={})], 100) == ["", ""]


def test_what_is_missing_is_named(tmp_path):
    record(tmp_path / "run", {1: 1.0})
    with pytest.raises(
        ValueError,
        match=r"has no valid/loss: choose one of data/samples, data/tokens, valid/mlm_loss",
    ):
        read_curve(tmp_path / "run", "valid/loss")
    with pytest.raises(ValueError, match=r"metrics.jsonl is missing"):
        read_curve(tmp_path / "nowhere", "valid/mlm_loss")
