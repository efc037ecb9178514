"""Curves read back from records."""

import json

import pytest

from roformer.report.curves import amounts_read, compare, compare_runs, read_curve, steps_to


def record(folder, losses, model="roformer", *, data="d" * 64, vocabulary=8192, length=128):
    folder.mkdir()
    rows = [
        {"step": step, "valid/mlm_loss": loss, "data/samples": step, "data/tokens": step * 10}
        for step, loss in losses.items()
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"model": model, "position": "rotary", "seed": 0, "status": "done"}
    (folder / "env.json").write_text(json.dumps({"data": data}))
    config = {
        "data": {"kind": "builtin", "tokenizer": {"vocab_size": vocabulary}},
        "training": {"sequence_length": length},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
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


def failed(folder, error):
    """Write the record of a run that has no validation loss."""
    record(folder, {100: 9.0})
    (folder / "metrics.jsonl").write_text('{"step": 20, "train/loss": null}\n')
    summary = {"model": "bert", "position": "rotary", "seed": 0, "status": "failed", "error": error}
    (folder / "summary.json").write_text(json.dumps(summary))


def test_a_diverged_run_is_listed_and_left_out(tmp_path):
    curve = record(tmp_path / "sound", {100: 5.0, 200: 4.0})
    failed(tmp_path / "wild", "Diverged: the loss of step 21 is nan")
    failed(tmp_path / "full", "OSError: no space")
    folders = [tmp_path / name for name in ("wild", "sound", "full")]
    table, left_out = compare_runs(folders, "valid/mlm_loss").split("\n\n**Left out**\n\n")
    assert table == compare([curve], "valid/mlm_loss")
    assert left_out.splitlines() == [
        "- `wild` diverged: the loss of step 21 is nan",
        "- `full` failed: OSError: no space",
    ]
    with pytest.raises(ValueError, match="all of these runs failed: `wild` diverged"):
        compare_runs([tmp_path / "wild"], "valid/mlm_loss")


@pytest.mark.parametrize("other", [{"data": "e" * 64, "vocabulary": 1024}, {"length": 64}])
def test_losses_on_other_validation_sets_stand_in_tables_of_their_own(tmp_path, other):
    """Another vocabulary has another fingerprint of the data; a length changes the targets alone."""
    mini = [record(tmp_path / "a", {100: 5.0}), record(tmp_path / "b", {100: 6.0}, model="bert")]
    smoke = record(tmp_path / "c", {100: 3.0}, **other)
    text = compare_runs([tmp_path / name for name in "acb"], "valid/mlm_loss")
    assert text.startswith("Runs on 2 different validation sets: a loss depends on the vocabulary")
    assert compare(mini, "valid/mlm_loss") in text and compare([smoke], "valid/mlm_loss") in text
    assert "### 1 of 2: data builtin, vocabulary 8,192, sequence length 128" in text
    together = compare_runs([tmp_path / name for name in "ab"], "valid/mlm_loss")
    assert together == compare(mini, "valid/mlm_loss")


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
