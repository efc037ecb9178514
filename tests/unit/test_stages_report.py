"""Runs of stages are told as Table 4 has them, and not compared as arms."""

import json

from roformer.report.sections import run_tables


def record(root, name, length, first_epoch, loss, *, seed=0, recipe="stages_mini"):
    folder = root / name
    folder.mkdir()
    summary = {
        "pipeline": "pretrain",
        "model": "roformer",
        "position": "rotary",
        "recipe": recipe,
        "data": "chinese_builtin",
        "seed": seed,
        "status": "done",
        "steps": 300,
        "metrics": {"valid/mlm_loss": loss, "valid/mlm_accuracy": 0.318},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    training = {"sequence_length": length, "batch_size": 16, "steps": 300}
    if first_epoch:
        training["first_epoch"] = first_epoch
    config = {"seed": seed, "model": {"name": "roformer"}, "training": training}
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder


def test_stages_stand_in_their_order_with_what_each_had(tmp_path):
    runs = [
        record(tmp_path, "c", 128, 2000, 2.49),
        record(tmp_path, "a", 128, 0, 3.63),
        record(tmp_path, "b", 1024, 1000, 2.64),
        record(tmp_path, "other", 128, 0, 3.7, seed=1),
    ]
    (table,) = run_tables(runs)
    assert table.title == "Pre-training in stages"
    assert [list(line) for line in table.lines[1:]] == [
        ["a", "1", "128", "16", "300", "3.63", "31.8", "done"],
        ["b", "2", "1,024", "16", "300", "2.64", "31.8", "done"],
        ["c", "3", "128", "16", "300", "2.49", "31.8", "done"],
        ["other", "1", "128", "16", "300", "3.70", "31.8", "done"],
    ]
    assert "change together" in table.notes[0]
