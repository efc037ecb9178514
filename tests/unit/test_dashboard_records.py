"""Run records as the dashboard reads them: every folder is one, whatever is in it."""

import json
import math
import os
import shutil
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.report.dashboard.page import build_page, data_json, policy, thinned
from roformer.report.dashboard.records import (
    FILES,
    STATUSES,
    YOURS,
    Point,
    RunReader,
    flattened,
    read_runs,
)
from roformer.report.recorded import write_recorded
from roformer.report.tables import Table, run_label
from tests.browser.synthetic import HOSTILE, append_row, write_hostile_run, write_run
from tests.conftest import REPOSITORY
from tests.property.hostile import fuzz, mangled
from tests.recorded_runs import all_recorded

LOSSES = {10: 5.0, 20: 4.5}


def read_one(folder):
    (record,) = read_runs([folder.parents[1]])
    return record


def test_a_finished_run_is_its_summary_config_and_metrics(tmp_path):
    folder = write_run(tmp_path / "run-s3", losses=LOSSES, seed=3)
    write_recorded(tmp_path / "study", [folder])
    shutil.rmtree(folder)
    (record,) = read_runs([tmp_path])
    summary = record.summary
    assert summary["run_id"] == "run-s3"
    assert (record.name, record.study, record.status) == ("run-s3", "study", "done")
    assert (record.pipeline, record.label, record.seed) == ("pretrain", "roformer (rotary)", 3)
    assert record.headline == {"valid/mlm_loss": 4.5} and record.reason == ""
    assert record.curves["valid/mlm_loss"] == [Point(10, 20, 2000, 5.0), Point(20, 40, 4000, 4.5)]
    assert record.config["model.position.kind"] == "rotary"
    assert record.environment["commit"] == "0" * 40 and record.environment["dirty"] == "false"
    for key in ("steps", "tokens", "wall_seconds", "tokens_per_second", "parameters"):
        assert getattr(record, key) == summary[key]


def test_all_recorded_runs_are_read():
    records = read_runs([REPOSITORY / "experiments"])
    assert len(records) == len(all_recorded()) > 90
    for record in records:
        assert record.status == record.summary["status"], record.reason
        assert record.config and record.environment and record.command
        assert record.status == "failed" or (record.headline and record.curves)
        assert record.label == run_label(record.summary)  # from the config, and from the summary


def test_headlines_are_the_named_metric_and_that_of_other_parts(tmp_path):
    metrics = {
        "valid/loss": 1.0,
        "mnli/accuracy_mismatched": 0.6,
        "mnli/accuracy_matched": 0.7,
        "mnli/constant": 0.0,
    }
    summary = {"pipeline": "glue", "metrics": metrics, "headline": "mnli/accuracy_matched"}
    write_run(tmp_path / "runs/glue/a", losses=LOSSES, summary=summary)
    record = read_one(tmp_path / "runs/glue/a")
    assert list(record.headline.items()) == [
        ("mnli/accuracy_matched", 0.7),
        ("mnli/accuracy_mismatched", 0.6),
    ]


def test_a_record_is_its_studys_and_a_local_run_of_the_same_id_is_yours(tmp_path):
    """Neither hides the other, and they are no two seeds of one configuration in the plot."""
    local = write_run(tmp_path / "runs/pretrain/same-s0", losses=LOSSES)
    write_recorded(tmp_path / "experiments/study", [local])
    write_run(tmp_path / "runs/pretrain/local-s0", losses=LOSSES)
    write_run(tmp_path / "runs/pretrain/local-s0.before-1", losses=LOSSES)
    (tmp_path / "runs/.locks/x").mkdir(parents=True)
    (tmp_path / "experiments/study/plots").mkdir()
    (tmp_path / "experiments/unrecorded").mkdir()
    found = read_runs([tmp_path / "experiments", tmp_path / "runs", tmp_path / "absent"])
    assert [(r.name, r.study) for r in found] == [
        ("same-s0", "study"),
        ("local-s0", YOURS),
        ("same-s0", YOURS),
    ]
    shown = json.loads(data_json(found, {}))["runs"]
    assert [run["study"] for run in shown] == [YOURS, YOURS, "study"]
    _, yours, record = shown
    assert yours["arm"] != record["arm"] and yours["id"] != record["id"]


def test_a_run_that_still_trains_has_its_own_status_and_time_beside_its_record(tmp_path):
    folder = write_run(tmp_path / "runs/pretrain/same-s0", losses=LOSSES)
    write_recorded(tmp_path / "experiments/study", [folder])
    (folder / "summary.json").unlink()
    environment = json.loads((folder / "env.json").read_text())
    environment["started"] = "2026-01-01T00:00:00+00:00"
    (folder / "env.json").write_text(json.dumps(environment))
    for name in FILES:
        if (folder / name).exists():
            os.utime(folder / name, (0, datetime.fromisoformat("2026-01-01T00:01:40Z").timestamp()))
    recorded, yours = read_runs([tmp_path / "experiments", tmp_path / "runs"])
    assert (recorded.status, recorded.wall_seconds) == ("done", 12.3456789)
    assert (yours.status, yours.wall_seconds) == ("running", 100.0)


def test_seeds_are_one_arm_and_settings_are_not(tmp_path):
    for name, more in {"a": {}, "b": {"seed": 1}, "c": {"rate": 0.002}}.items():
        write_run(tmp_path / "runs/pretrain" / name, losses=LOSSES, **more)
    arms = {record.name: record.arm for record in read_runs([tmp_path / "runs"])}
    assert arms["a"] == arms["b"] != arms["c"]


@pytest.mark.parametrize("cut", range(1, 70, 7))
def test_a_running_run_is_its_metrics_without_half_a_line(tmp_path, cut):
    folder = write_run(tmp_path / "runs/pretrain/a", losses=LOSSES, status=None)
    before = (folder / "metrics.jsonl").read_bytes()
    append_row(folder, 30, 4.0)
    content = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(content[: len(before) + cut])
    record = read_one(folder)
    assert record.status == "running" and record.reason.startswith("no summary yet")
    assert (record.steps, record.tokens, record.pipeline) == (20, 4000, "pretrain")
    assert record.headline == {"valid/mlm_loss": 4.5} and record.label == "roformer (rotary)"
    assert len(record.curves["valid/mlm_loss"]) == 2


def test_a_run_that_has_only_begun_or_failed_at_once_is_not_damaged(tmp_path):
    begun = write_run(tmp_path / "runs/pretrain/begun", losses=LOSSES, status=None)
    (begun / "metrics.jsonl").unlink()
    failure = {"error": "Diverged: at step 1\nof 2", "metrics": {}}
    failed = write_run(
        tmp_path / "runs/pretrain/failed", losses=LOSSES, status="failed", summary=failure
    )
    (failed / "metrics.jsonl").write_text("")
    found = {record.name: record for record in read_runs([tmp_path / "runs"])}
    assert found["begun"].status == "running" and found["begun"].steps is None
    assert found["failed"].status == "failed"
    assert found["failed"].reason == "Diverged: at step 1\\nof 2"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", b"{"),
        ("summary.json", b'{"pipeline": "pretrain"}'),
        ("metrics.jsonl", b'{"step": 1}\n{"step": 2, "x": "y"}\n'),
        ("metrics.jsonl", b'{"step": 1}\n{"st'),
        ("config.yaml", b"a: ["),
        ("env.json", b"[]"),
        ("metrics.jsonl", None),
        ("config.yaml", None),
        ("env.json", None),
    ],
)
def test_a_damaged_record_is_listed_with_its_reason_beside_the_others(tmp_path, name, content):
    folder = write_run(tmp_path / "pretrain/bad-s0", losses=LOSSES)
    write_run(tmp_path / "pretrain/good-s0", losses=LOSSES)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    bad, good = read_runs([tmp_path])
    assert (bad.status, good.status) == ("damaged", "done")
    assert str(folder / name) in bad.reason and "\n" not in bad.reason
    if name != "summary.json":
        assert bad.steps == 20 and bad.headline


def test_a_status_that_no_run_writes_is_damage(tmp_path):
    record = read_one(write_run(tmp_path / "runs/pretrain/a", losses=LOSSES, status="splendid"))
    assert record.status == "damaged" and "'splendid' is none of done" in record.reason


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@fuzz(25)
def test_no_file_of_any_content_stops_the_page(tmp_path_factory, name, data):
    root = tmp_path_factory.getbasetemp() / f"hostile-{name}"
    shutil.rmtree(root, ignore_errors=True)
    folder = write_run(root / "pretrain/a", losses=LOSSES)
    content = data.draw(mangled((folder / name).read_bytes()))
    (folder / name).write_bytes(content)
    (record,) = read_runs([root])
    assert record.status in STATUSES and record.reason.isprintable()
    assert (record.status == "damaged") == (str(folder) in record.reason)
    (shown,) = json.loads(data_json([record], {}))["runs"]
    assert shown["status"] == record.status
    for at, values in shown["curves"].values():
        assert {len(column) for column in shown["axes"][at].values()} == {len(values)}


def test_a_reader_reads_again_what_was_written_since(tmp_path, monkeypatch):
    for name in ("a", "b"):
        write_run(tmp_path / "runs/pretrain" / name, losses=LOSSES, status=None)
    reader = RunReader([tmp_path / "runs"])
    a, b = reader.read()
    append_row(tmp_path / "runs/pretrain/b", 30, 4.0)
    write_run(tmp_path / "runs/pretrain/c", losses=LOSSES)
    again = reader.read()
    assert again[0] is a and again[1] is not b and len(again) == 3
    assert again[1].steps == 30
    shutil.rmtree(tmp_path / "runs/pretrain/b")
    assert [record.name for record in reader.read()] == ["a", "c"]


def test_a_config_is_flattened_to_texts():
    content = {"a": {"b": None, "c": [0.9, 0.98]}, "d": True, "e": "x", "f": {}}
    assert flattened(content) == {"a.b": "null", "a.c": "[0.9, 0.98]", "d": "true", "e": "x"}


# --- the page's data -----------------------------------------------------------------------------


@given(st.randoms(use_true_random=True), st.integers(1, 1500), st.sampled_from([500, 50, 10]))
@fuzz(60)
def test_a_thinned_curve_keeps_ends_and_extremes(random, length, longest):
    values = [math.nan if random.random() < 0.01 else random.gauss(0, 1) for _ in range(length)]
    points = [Point(step, None, None, value) for step, value in enumerate(values)]
    kept = thinned(points, longest)
    assert len(kept) <= longest or len(kept) == len(points) <= longest
    steps = [point.step for point in kept]
    assert steps == sorted(set(steps)) and all(points[point.step] is point for point in kept)
    assert kept[0] is points[0] and kept[-1] is points[-1]
    finite = [value for value in values if not math.isnan(value)]
    if finite:
        shown = [point.value for point in kept if not math.isnan(point.value)]
        assert (min(shown), max(shown)) == (min(finite), max(finite))
    assert any(math.isnan(v) for v in values) == any(math.isnan(p.value) for p in kept)


def test_data_has_no_character_that_could_end_it(tmp_path):
    write_hostile_run(tmp_path)
    text = data_json(read_runs([tmp_path]), {HOSTILE: [Table(HOSTILE, [["\u2028", HOSTILE]])]})
    assert text.isascii() and not set("<>&\n") & set(text)
    content = json.loads(text)
    assert content["runs"][0]["curves"].keys() == {
        HOSTILE,
        "__proto__",
        "constructor",
        "<b>bold</b>",
    }
    assert content["sections"][0]["tables"][0]["lines"] == [["\\u2028", HOSTILE]]
    page = build_page(read_runs([tmp_path]), {})
    assert page.count("</script>") == 4 and page.count("<script") == 4 + page.count("<script>alert")


def test_a_page_without_runs_or_sections_is_one():
    assert json.loads(data_json([], {}))["runs"] == []
    assert "default-src 'none'" in policy(["x"], live=False)
