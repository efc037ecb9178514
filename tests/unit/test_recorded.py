"""A study's two files: what a run left comes back out of them as it was, or one line names the place."""

import json

import pytest

from roformer.report.recorded import METRICS, RUNS, find_runs, read_recorded, write_recorded
from roformer.report.records import RecordError, read_config, read_metrics, read_summary
from tests.browser.synthetic import write_run
from tests.recorded_runs import EXPERIMENTS, write_folder

LOSSES = {10: 5.0, 20: 4.5}


def test_a_recorded_run_is_what_its_folder_was(tmp_path):
    """Numbers to the last digit, whole ones as such; not finite and not logged are told apart."""
    folder = write_run(tmp_path / "run-s0", losses=LOSSES)
    rows = [
        {"step": 1, "train/loss": 0.1 + 0.2, "data/tokens": 10**12, "x,\n": -1e-05},
        {"step": 2, "train/loss": None},
        {"step": 3, "other": 5.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert write_recorded(tmp_path / "study", [folder]) == ["run-s0"]
    (run,) = read_recorded(tmp_path / "study")
    assert json.dumps(read_metrics(run / "metrics.jsonl")) == json.dumps(rows)
    assert read_config(run) == read_config(folder)
    assert read_summary(run) == json.loads((folder / "summary.json").read_text())
    again = write_folder(run, tmp_path / "again")
    assert (again / "metrics.jsonl").read_text() == (folder / "metrics.jsonl").read_text()


def test_a_run_recorded_again_replaces_itself_and_leaves_the_others(tmp_path):
    for name, loss in (("b", 1.0), ("a", 2.0), ("b", 3.0)):
        folder = write_run(tmp_path / str(loss) / name, losses={10: loss})
        write_recorded(tmp_path, [folder])
    found = {run.name: run.files["summary.json"]["metrics"] for run in read_recorded(tmp_path)}
    assert found == {"a": {"valid/mlm_loss": 2.0}, "b": {"valid/mlm_loss": 3.0}}
    assert list(found) == ["a", "b"]
    before = [(tmp_path / name).read_bytes() for name in (RUNS, METRICS)]
    write_recorded(tmp_path, [folder])
    assert [(tmp_path / name).read_bytes() for name in (RUNS, METRICS)] == before


def test_a_damaged_folder_changes_no_record(tmp_path):
    good = write_run(tmp_path / "good", losses=LOSSES)
    bad = write_run(tmp_path / "bad", losses=LOSSES)
    write_recorded(tmp_path / "study", [good])
    before = (tmp_path / "study" / RUNS).read_bytes()
    (bad / "metrics.jsonl").write_text('{"step": 1, "x": "y"}\n')
    with pytest.raises(RecordError, match=r"metrics.jsonl:1 is not what a run wrote"):
        write_recorded(tmp_path / "study", [good, bad])
    assert (tmp_path / "study" / RUNS).read_bytes() == before


def test_a_study_or_a_pattern_stands_for_its_runs(tmp_path):
    study = EXPERIMENTS / "wmt_builtin"
    runs = find_runs([study])
    assert len(runs) == 3 and find_runs([study / "runs" / "*"]) == runs
    assert [run.name for run in find_runs([study / "runs" / "*rotary*"])] == [
        run.name for run in runs if "rotary" in run.name
    ]
    assert find_runs([tmp_path, *[run.path for run in runs]]) == [tmp_path, *runs]
    missing = tmp_path / "runs" / "pretrain"  # of this machine: not a study's
    assert find_runs([missing]) == [missing]
    with pytest.raises(RecordError, match=r"no run is .*wmt_builtin/runs/\*-s9"):
        find_runs([study / "runs" / "*-s9"])


@pytest.mark.parametrize(
    ("file", "change", "place"),
    [
        (RUNS, lambda text: text[:-20], "runs.jsonl:2 is no recorded run"),
        (RUNS, lambda text: text * 2, "runs.jsonl:3 is no recorded run: id: a is there twice"),
        (RUNS, lambda text: text.replace('"summary"', '"sum"'), "runs.jsonl:1 .*: summary"),
        (RUNS, lambda text: "[]\n" + text, "runs.jsonl:1 is no recorded run"),
        (RUNS, lambda text: text.splitlines()[0], "metrics.csv has lines of b, which runs.jsonl"),
        (METRICS, lambda text: text.replace("4.5", "x"), "metrics.csv:3 .*'x'"),
        (METRICS, lambda text: text.replace("b,10", "b,"), "metrics.csv:4 .*: step"),
        (METRICS, lambda text: text.replace("b,10", "b,10,10"), "metrics.csv:4 is no line"),
    ],
)
def test_damage_is_one_line_that_names_the_place(tmp_path, file, change, place):
    folders = [write_run(tmp_path / "runs" / name, losses=LOSSES) for name in "ab"]
    write_recorded(tmp_path, folders)
    (tmp_path / file).write_text(change((tmp_path / file).read_text()))
    with pytest.raises(RecordError, match=place) as raised:
        read_recorded(tmp_path)
    assert "\n" not in str(raised.value)
