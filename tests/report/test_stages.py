"""Runs of stages are told as Table 4 has them, and not compared with each other."""

from roformer.report.runs import read_runs
from roformer.report.sections import run_tables
from tests.report.records import record


def stage(root, name, length, first_epoch, loss, *, seed=0):
    training = {"sequence_length": length, "batch_size": 16, "steps": 300}
    return record(
        root / name,
        seed=seed,
        recipe="stages_mini",
        steps=300,
        metrics={"valid/mlm_loss": loss, "valid/mlm_accuracy": 0.318},
        config={"training": training | ({"first_epoch": first_epoch} if first_epoch else {})},
    )


def test_stages_stand_in_their_order_with_what_each_had(tmp_path):
    runs = [
        stage(tmp_path, "c", 128, 2000, 2.49),
        stage(tmp_path, "a", 128, 0, 3.63),
        stage(tmp_path, "b", 1024, 1000, 2.64),
        stage(tmp_path, "other", 128, 0, 3.7, seed=1),
    ]
    (table,) = run_tables(read_runs(runs))
    assert table.title == "Pre-training in stages"
    assert [list(line) for line in table.lines[1:]] == [
        ["a", "1", "128", "16", "300", "3.63", "31.8", "done"],
        ["b", "2", "1,024", "16", "300", "2.64", "31.8", "done"],
        ["c", "3", "128", "16", "300", "2.49", "31.8", "done"],
        ["other", "1", "128", "16", "300", "3.70", "31.8", "done"],
    ]
    assert "change together" in table.notes[0]
