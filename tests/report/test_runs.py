"""The two frames of records: what a run wrote is in them, and one line names what is damaged."""

import json
import math
import shutil
from unittest.mock import Mock

import pytest

from roformer.report.runs import (
    METRICS,
    RUNS,
    YOURS,
    RecordError,
    read_folder,
    read_recorded,
    read_runs,
    settings_of,
    write_recorded,
)
from tests.recorded_runs import EXPERIMENTS
from tests.report.records import append_row, write_run

LOSSES = {10: 5.0, 20: 4.5}


def values(runs, run, metric="valid/mlm_loss"):
    """Return step → value of a run's metric."""
    rows = runs.metrics[(runs.metrics.run == run) & (runs.metrics.metric == metric)]
    return dict(zip(rows.step, rows.value, strict=True))


def test_a_recorded_run_reads_like_its_folder(tmp_path):
    folder = write_run(tmp_path / "runs/pretrain/run-s3", losses=LOSSES, seed=3)
    write_recorded(tmp_path / "experiments/study", [folder])
    found = read_runs(
        [tmp_path / "experiments", tmp_path / "runs", tmp_path / "absent"], strict=False
    )
    assert list(found.runs.index) == [("study", "run-s3"), (YOURS, "run-s3")]
    with pytest.raises(RecordError, match=r"no run is .*absent: give folders"):
        read_runs([tmp_path / "absent"])
    recorded, yours = (found.runs.loc[key] for key in found.runs.index)
    differing = {key for key in recorded.index if recorded[key] != yours[key]}
    assert differing == {"study", "folder", "written"}
    assert (yours.pipeline, yours.label, yours.seed) == ("pretrain", "roformer (rotary)", 3)
    assert (yours.headline, yours.score, yours.steps) == ("valid/mlm_loss", 4.5, 20)
    assert yours.config["model.position.kind"] == "rotary" and yours.environment["dirty"] is False
    losses = found.metrics[found.metrics.metric == "valid/mlm_loss"]
    for _, rows in losses.groupby("study"):
        points = rows[["step", "samples", "tokens", "value"]].to_numpy().tolist()
        assert points == [[10, 20, 2000, 5.0], [20, 40, 4000, 4.5]]


def test_what_is_recorded_comes_back_to_the_last_digit(tmp_path):
    """Not finite and not logged stay distinct, and a run recorded again replaces itself."""
    folder = write_run(tmp_path / "run-s0", losses=LOSSES)
    rows = [
        {"step": 1, "train/loss": 0.1 + 0.2, "data/tokens": 10**12, "x,\n": -1e-05},
        {"step": 2, "train/loss": None},
        {"step": 3, "other": 5.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert write_recorded(tmp_path / "study", [folder]) == ["run-s0"]
    record, found = read_recorded(tmp_path / "study")["run-s0"]
    assert json.dumps(found) == json.dumps(rows)
    assert record["summary"] == json.loads((folder / "summary.json").read_text())
    loss = values(read_runs([tmp_path / "study"]), "run-s0", "train/loss")
    assert loss[1] == 0.1 + 0.2 and math.isnan(loss[2]) and 3 not in loss
    before = [(tmp_path / "study" / name).read_bytes() for name in (RUNS, METRICS)]
    write_recorded(tmp_path / "study", [folder])
    assert [(tmp_path / "study" / name).read_bytes() for name in (RUNS, METRICS)] == before


def test_spikes_are_recorded_without_their_samples_and_their_absence_as_none(tmp_path):
    """Twice recorded they are the same; a run without the file had no spike, an early record says nothing."""
    spike = {"step": 30, "rank": 0, "loss": 9.0, "usual": 5.0}
    noisy, calm = (write_run(tmp_path / name, losses=LOSSES) for name in ("noisy-s0", "calm-s0"))
    (noisy / "spikes.jsonl").write_text(json.dumps(spike | {"samples": [[1, 2]]}) + "\n")
    write_recorded(tmp_path / "study", [noisy, calm])
    found = {run: record["files"] for run, (record, _) in read_recorded(tmp_path / "study").items()}
    line = json.dumps(spike) + "\n"
    assert found == {"noisy-s0": {"spikes.jsonl": line}, "calm-s0": {"spikes.jsonl": ""}}


def test_places_are_runs_studies_patterns_and_roots(tmp_path):
    study = EXPERIMENTS / "appendix" / "wmt_builtin"
    runs = read_runs([study]).runs
    assert len(runs) == 3 and read_runs([study / "runs" / "*"]).runs.equals(runs)
    rotary = read_runs([study / "runs" / "*rotary*"]).runs
    assert list(rotary.run) == [run for run in runs.run if "rotary" in run]
    (tmp_path / "runs" / "pretrain").mkdir(parents=True)
    (begun,) = read_runs([tmp_path / "runs" / "pretrain"]).runs.itertuples()  # of no study
    assert (begun.status, begun.reason) == ("running", "no summary yet; nothing is written")
    with pytest.raises(RecordError, match=r"no run is .*wmt_builtin/runs/\*-s9"):
        read_runs([study / "runs" / "*-s9"])
    (tmp_path / "study.yaml").touch()  # planned, and nothing recorded
    with pytest.raises(RecordError, match=r"has no recorded runs: run scripts/sweep\.py"):
        read_runs([tmp_path])
    (tmp_path / "study.yaml").unlink()
    for name in ("pretrain/a-s0", "pretrain/a-s0.before-1", "export/a-s0"):
        write_run(tmp_path / "runs" / name, losses=LOSSES)
    (tmp_path / "runs/.locks/x").mkdir(parents=True)
    assert list(read_runs([tmp_path / "runs"]).runs.run) == ["a-s0"]


def test_a_configuration_is_what_changes_the_result_but_the_seed(tmp_path):
    for name, more in {"a": {}, "b": {"seed": 1}, "c": {"rate": 0.002}}.items():
        write_run(tmp_path / "runs/pretrain" / name, losses=LOSSES, **more)
    runs = read_runs([tmp_path / "runs"]).runs.set_index("run")
    a, b, c = (runs.loc[name] for name in "abc")
    assert a.configuration == b.configuration != c.configuration
    assert "runtime.threads" in a.config and "runtime.threads" not in settings_of(a)


def test_a_running_run_is_its_metrics_without_half_a_line(tmp_path):
    folder = write_run(tmp_path / "runs/pretrain/a", losses=LOSSES, status=None)
    append_row(folder, 30, 4.0)
    content = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(content[:-30])
    found = read_runs([tmp_path / "runs"])
    (run,) = found.runs.to_dict("records")
    assert run["status"] == "running" and run["reason"].startswith("no summary yet")
    assert (run["steps"], run["tokens"], run["pipeline"]) == (20, 4000, "pretrain")
    assert (run["headline"], run["score"]) == ("valid/mlm_loss", 4.5)
    assert run["label"] == "roformer (rotary)" and values(found, "a") == LOSSES


def test_a_run_that_has_only_begun_or_failed_at_once_is_not_damaged(tmp_path):
    begun = write_run(tmp_path / "runs/pretrain/begun", losses=LOSSES, status=None)
    (begun / "metrics.jsonl").unlink()
    failure = {"status": "failed", "error": "Diverged: at step 1\nof 2"}
    failed = write_run(tmp_path / "runs/pretrain/failed", losses=LOSSES, **failure)
    (failed / "metrics.jsonl").write_text("")
    one, other = read_runs([tmp_path / "runs"]).runs.to_dict("records")
    assert one["status"] == "running" and one["steps"] is None
    assert (other["status"], other["reason"]) == ("failed", "Diverged: at step 1\\nof 2")


DAMAGE = [
    ("metrics.jsonl", b'{"step": 1}\n{"st', "metrics.jsonl is not what a run wrote: line 2, "),
    ("config.yaml", b"a: [", "config.yaml is not what a run wrote"),
    ("env.json", None, "env.json cannot be read: No such file"),
]


@pytest.mark.parametrize(("name", "content", "place"), DAMAGE)
def test_a_damaged_record_is_one_line_or_a_row_with_its_reason(tmp_path, name, content, place):
    folder = write_run(tmp_path / "pretrain/bad-s0", losses=LOSSES)
    good = write_run(tmp_path / "pretrain/good-s0", losses=LOSSES)
    write_recorded(tmp_path / "study", [good])
    before = (tmp_path / "study" / RUNS).read_bytes()
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(RecordError, match=place):
        read_runs([folder])
    with pytest.raises(RecordError, match=place):
        write_recorded(tmp_path / "study", [good, folder])
    assert (tmp_path / "study" / RUNS).read_bytes() == before
    bad, _ = read_runs(
        [tmp_path / "pretrain" / name for name in ("bad-s0", "good-s0")], strict=False
    )[0].to_dict("records")
    assert bad["status"] == "damaged" and str(folder) in bad["reason"]
    assert "\n" not in bad["reason"]


def test_only_what_was_written_since_is_read_again(tmp_path, monkeypatch):
    for name in ("a", "b"):
        write_run(tmp_path / "runs/pretrain" / name, losses=LOSSES, status=None)
    read_runs([tmp_path / "runs"])
    append_row(tmp_path / "runs/pretrain/b", 30, 4.0)
    reader = Mock(wraps=read_folder)
    monkeypatch.setattr("roformer.report.runs.read_folder", reader)
    runs = read_runs([tmp_path / "runs"]).runs
    assert [call.args[0].name for call in reader.mock_calls] == ["b"]
    assert list(runs.steps) == [20, 30]
    shutil.rmtree(tmp_path / "runs/pretrain/b")
    assert list(read_runs([tmp_path / "runs"]).runs.run) == ["a"]
