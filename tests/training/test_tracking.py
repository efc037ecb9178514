"""Data for trackers: a run's name, its curves' axis, output tables; no tracker stops a training."""

import json
import re
import sys

import pytest
import torch.utils

from roformer.config.schema import TrackerConfig
from roformer.training.tracking import (
    NoTracker,
    Progress,
    TensorboardTracker,
    TrackioTracker,
    WandbTracker,
    open_tracker,
)
from tests.terminal import terminal

NAME = "roformer-rotary-smoke-0123abcd-s7"
CONTENT = {
    "seed": 7,
    "recipe": "smoke",
    "model": {"name": "roformer", "position": {"kind": "rotary"}},
    "data": {"kind": "builtin"},
}
VARIABLES = ("PROJECT", "ENTITY", "MODE", "NAME", "RUN_GROUP", "JOB_TYPE", "TAGS", "DIR")


class Run:
    """Fake of a wandb run that keeps what is logged; `fault` is what its second row does."""

    def __init__(self, folder, fault=None):
        self.id, self.dir = "some-id", str(folder / "wandb" / "offline-run-1" / "files")
        self.metrics, self.rows, self.summary, self.code, self.fault = {}, [], {}, None, fault

    def define_metric(self, name, step_metric=None, hidden=None):
        self.metrics[name] = step_metric

    def log(self, row):
        if self.fault and self.rows:
            self.fault()
        self.rows.append(row)

    def finish(self, exit_code):
        self.code = exit_code


@pytest.fixture
def folder(monkeypatch, tmp_path):
    for variable in VARIABLES:
        monkeypatch.delenv(f"WANDB_{variable}", raising=False)
    monkeypatch.chdir(tmp_path)
    (folder := tmp_path / "runs" / "pretrain" / NAME).mkdir(parents=True)
    return folder


@pytest.fixture
def begun(monkeypatch, folder):
    """Return a function that opens a tracker with a fake run, and the arguments of wandb.init."""
    import wandb

    monkeypatch.setattr(wandb, "login", lambda prompt: False)

    def begin(fault=None, **config):
        given = {}
        monkeypatch.setattr(wandb, "init", lambda **all: given.update(all) or Run(folder, fault))
        tracker = open_tracker(TrackerConfig(kind="wandb", **config), folder, NAME, CONTENT, None)
        assert isinstance(tracker, WandbTracker)
        return tracker, given

    return begin


# --- the terminal --------------------------------------------------------------------------------


def test_a_terminal_has_one_live_line_with_the_time_left_and_the_metric_first(monkeypatch):
    """Catches a bar that is not drawn in place, and a monitored metric that `LINE` does not have."""
    rows = [
        {"step": 5, "train/loss": 2.5},
        {"step": 9, "valid/accuracy": 0.625, "train/loss": 2.25},
    ]
    with terminal(monkeypatch) as shown:
        progress = Progress(10, 0, True, True, "valid/accuracy")
        for row in rows:
            for _ in range(5):
                progress.step()
            progress.report(row, 60)
        progress.say("a spike")
        progress.close()
    spike, bar, end = shown().split("\r\n")
    assert spike.endswith("\ra spike") and not end
    last = bar.rpartition("\r")[2]
    assert re.search(r" 10/10 \[\d\d:\d\d<00:00, valid/accuracy=0.625, loss=2.25\]$", last)


def test_elsewhere_it_is_plain_lines_or_nothing(capsys):
    for shown in (True, False):
        progress = Progress(10, 0, shown, True, "valid/loss")
        progress.step()
        progress.report({"step": 5, "train/loss": 2.5, "valid/loss": 3.0, "perf/mfu": 0.5}, 75)
        progress.say("a spike")
        progress.close()
    printed = capsys.readouterr()
    assert printed.out == "step 5/10  loss 2.5  valid 3  left 1:15\na spike\n"
    assert printed.err == "a spike\n"


# --- wandb ---------------------------------------------------------------------------------------


def test_the_environment_wins_over_the_defaults_and_adds_tags(begun, monkeypatch):
    named = {name: name.lower().removeprefix("run_") for name in VARIABLES if name != "TAGS"}
    for value in ("mine", ""):
        for variable in named:
            monkeypatch.setenv(f"WANDB_{variable}", value)
        _, given = begun()
        assert all((given[key] == "mine") == bool(value) for key in named.values())
    assert given["group"] == "roformer-rotary-smoke-0123abcd" and given["name"] == NAME
    assert given["job_type"] == "pretrain" and given["project"] == "roformer"
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_MODE", "online")
    chosen = begun(project="ours", mode="offline")[1]  # the command line wins over both
    assert chosen["project"] == "ours" and chosen["mode"] == "offline"
    monkeypatch.setenv("WANDB_TAGS", "mine, rotary,,")
    assert begun()[1]["tags"] == ["roformer", "rotary", "smoke", "builtin", "mine"]


def test_one_line_says_that_it_is_offline_and_how_to_sync(begun, capsys):
    begun()
    (line,) = capsys.readouterr().out.splitlines()
    assert line == (
        "wandb is offline (not logged in): wandb sync "
        f"runs/pretrain/{NAME}/wandb/offline-run-1 sends this run later"
    )
    begun(mode="online")
    assert capsys.readouterr().out == ""


def test_every_curve_is_over_the_global_step(begun):
    tracker, _ = begun()
    assert tracker.run.metrics.pop("global_step") is None
    assert {"train/loss", "valid/mlm_loss", "train/learning_rate", "*"} <= set(tracker.run.metrics)
    assert set(tracker.run.metrics.values()) == {"global_step"}
    tracker.log({"step": 3, "train/loss": 2.0})
    tracker.finish("stopped", {"metrics": {"mrpc/f1": 0.5}})
    assert tracker.run.rows == [{"global_step": 3, "train/loss": 2.0}]
    assert tracker.run.summary == {"status": "stopped", "mrpc/f1": 0.5} and tracker.run.code == 1


def test_real_wandb_takes_all_of_it_offline(folder):
    """Its own files have the group, the tags and at most 100 rows of predictions and translations."""
    (folder / "predictions").mkdir()
    lines = ["index\tlabel\tprediction\tno\tyes"]
    lines += [f'{number}\t"no\tNA\t-0.5\t1.5' for number in range(150)]
    (folder / "predictions" / "validation.tsv").write_text("\n".join(lines) + "\n")
    (folder / "translations").mkdir()
    for name in ("source", "reference", "single", "averaged"):
        text = "".join(f"{name}\u2028 {number}\n" for number in range(120))
        (folder / "translations" / f"test.{name}.txt").write_text(text)
    tracker = open_tracker(TrackerConfig(kind="wandb", mode="offline"), folder, NAME, CONTENT, None)
    assert isinstance(tracker, WandbTracker)
    assert tracker.run.group == "roformer-rotary-smoke-0123abcd"
    assert tracker.run.job_type == "pretrain" and "rotary" in tracker.run.tags
    tracker.log({"step": 1, "train/loss": 2.0})
    tracker.finish("done", {"steps": 1, "metrics": {"mrpc/f1": 0.5}})
    files = folder.glob("wandb/offline-run-*/files/media/table/*/*.table.json")
    tables = {file.parent.name: json.loads(file.read_text()) for file in files}
    predicted, translated = tables["predictions"], tables["translations"]
    assert len(predicted["data"]) == len(translated["data"]) == 100
    assert predicted["columns"] == lines[0].split("\t")
    assert predicted["data"][99] == [99, '"no', "NA", -0.5, 1.5]
    assert translated["columns"] == ["source", "reference", "translation"]
    assert translated["data"][1] == ["source\u2028 1", "reference\u2028 1", "averaged\u2028 1"]


# --- the other two, where they are installed -----------------------------------------------------


def test_tensorboard_has_every_metric_at_its_step_after_a_resume_too(folder):
    """Rows after the checkpoint are logged again; without a checkpoint, all are."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for kept, steps in (((), (10, 20, 30)), ((), (10, 20, 30)), ((10, 20), (30, 40))):
        rows = "".join(f'{{"step": {step}}}\n' for step in kept)
        (folder / "metrics.jsonl").write_text(rows)
        config = TrackerConfig(kind="tensorboard")
        tracker = open_tracker(config, folder, NAME, CONTENT, None)
        assert isinstance(tracker, TensorboardTracker)
        for step in steps:
            tracker.log({"step": step, "train/loss": step / 8 + len(kept)})
        tracker.finish("stopped", {})
    shown = EventAccumulator(str(folder / "tensorboard")).Reload()
    found = [(event.step, event.value) for event in shown.Scalars("train/loss")]
    assert found == [(10, 1.25), (20, 2.5), (30, 5.75), (40, 7.0)]
    assert "config/text_summary" in shown.Tags()["tensors"]


def test_trackio_has_every_metric_at_its_step(folder, monkeypatch, tmp_path):
    pytest.importorskip("trackio")
    from trackio import utils
    from trackio.sqlite_storage import SQLiteStorage

    for module in ("trackio.utils", "trackio.sqlite_storage"):
        monkeypatch.setattr(f"{module}.TRACKIO_DIR", tmp_path / "trackio")
    assert tmp_path / "trackio" == utils.TRACKIO_DIR
    tracker = open_tracker(TrackerConfig(kind="trackio"), folder, NAME, CONTENT, None)
    assert isinstance(tracker, TrackioTracker) and tracker.run_id == NAME
    for step in (10, 20):
        tracker.log({"step": step, "train/loss": step / 10})
    tracker.finish("done", {"metrics": {}})
    rows = SQLiteStorage.get_logs("roformer", NAME)
    assert [(row["step"], row["train/loss"]) for row in rows] == [(10, 1.0), (20, 2.0)]


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wandb", "tensorboard", "trackio"])
def test_a_tracker_that_is_not_installed_is_one_line_with_the_remedy(
    folder, monkeypatch, capsys, kind
):
    for module in (kind, f"torch.utils.{kind}"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr(torch.utils, "tensorboard", raising=False)
    tracker = open_tracker(TrackerConfig(kind=kind), folder, NAME, {}, None)
    assert type(tracker) is NoTracker
    assert capsys.readouterr().err == (
        f"{kind} is not installed: pip install {kind}, or leave it out with tracker=none; "
        "metrics.jsonl has everything\n"
    )


def test_a_tracker_that_cannot_begin_stops_nothing(folder, monkeypatch, capsys):
    import wandb

    monkeypatch.setattr(wandb, "init", lambda **given: {}["nothing"])
    config = TrackerConfig(kind="wandb", mode="offline")
    assert type(open_tracker(config, folder, NAME, {}, None)) is NoTracker
    assert "could not start (KeyError)" in capsys.readouterr().err


def refuse():
    raise TypeError("not a number")


def test_a_call_that_fails_is_the_last_one(begun, capsys):
    tracker, _ = begun(refuse)
    for step in (1, 2, 3):
        tracker.log({"step": step})
    tracker.finish("done", {"metrics": {"x": 1.0}})
    assert tracker.run.rows == [{"global_step": 1}]
    assert tracker.run.summary == {} and tracker.run.code is None
    assert capsys.readouterr().err == (
        "wandb failed (TypeError) and is off from here; metrics.jsonl has everything\n"
    )
