"""What wandb is told: whose run it is, its group and tags, its curves' axis, and tables of outputs."""

import json

import pytest

from roformer.config.schema import TrackerConfig
from roformer.training import tracking
from roformer.training.tracking import NoTracker, WandbTracker, open_tracker

NAME = "roformer-rotary-smoke-0123abcd-s7"
CONTENT = {
    "seed": 7,
    "recipe": "smoke",
    "model": {"name": "roformer", "position": {"kind": "rotary"}},
    "data": {"kind": "builtin"},
}
VARIABLES = ("PROJECT", "ENTITY", "MODE", "NAME", "RUN_GROUP", "JOB_TYPE", "TAGS", "DIR")


class Table:
    """Stands for wandb's."""

    def __init__(self, columns, data):
        self.columns, self.data = columns, data


class Run:
    """Stands for a run of wandb's, and keeps what it is told."""

    def __init__(self, folder):
        self.id, self.dir = "some-id", str(folder / "wandb" / "offline-run-1" / "files")
        self.metrics, self.rows, self.summary, self.code = {}, [], {}, None

    def define_metric(self, name, step_metric=None, hidden=None):
        self.metrics[name] = step_metric

    def log(self, row):
        self.rows.append(row)

    def finish(self, exit_code):
        self.code = exit_code


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """Return a function that opens a tracker with a stand-in, and what wandb.init was given."""
    import wandb

    for variable in VARIABLES:
        monkeypatch.delenv(f"WANDB_{variable}", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "pretrain" / NAME
    folder.mkdir(parents=True)
    monkeypatch.setattr(wandb, "login", lambda prompt: False)
    monkeypatch.setattr(wandb, "Table", Table)

    def begin(**config):
        given = {}
        monkeypatch.setattr(wandb, "init", lambda **all: given.update(all) or Run(folder))
        tracker = open_tracker(TrackerConfig(kind="wandb", **config), folder, NAME, CONTENT, None)
        assert isinstance(tracker, WandbTracker)
        return tracker, given

    return begin


def test_seeds_of_a_configuration_are_one_group(begun):
    _, given = begun()
    assert given["group"] == "roformer-rotary-smoke-0123abcd" and given["name"] == NAME
    assert given["job_type"] == "pretrain" and given["project"] == "roformer"
    assert given["tags"] == ["roformer", "rotary", "smoke", "builtin"]


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("PROJECT", "project"),
        ("ENTITY", "entity"),
        ("NAME", "name"),
        ("RUN_GROUP", "group"),
        ("JOB_TYPE", "job_type"),
        ("DIR", "dir"),
        ("MODE", "mode"),
    ],
)
def test_the_environment_wins_over_the_defaults(begun, monkeypatch, variable, key):
    monkeypatch.setenv(f"WANDB_{variable}", "mine")
    assert begun()[1][key] == "mine"
    monkeypatch.setenv(f"WANDB_{variable}", "")
    assert begun()[1][key] != ""


@pytest.mark.parametrize(
    ("variable", "key", "value"),
    [("PROJECT", "project", "ours"), ("ENTITY", "entity", "us"), ("MODE", "mode", "offline")],
)
def test_the_command_line_wins_over_the_environment(begun, monkeypatch, variable, key, value):
    monkeypatch.setenv(f"WANDB_{variable}", "online" if key == "mode" else "mine")
    assert begun(**{key: value})[1][key] == value


def test_tags_of_the_environment_are_added(begun, monkeypatch):
    monkeypatch.setenv("WANDB_TAGS", f"mine, rotary,,{'x' * 80}")
    assert begun()[1]["tags"] == ["roformer", "rotary", "smoke", "builtin", "mine", "x" * 64]


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
    metrics = begun()[0].run.metrics
    assert metrics.pop("global_step") is None
    assert {"train/loss", "valid/mlm_loss", "train/learning_rate", "*"} <= metrics.keys()
    assert set(metrics.values()) == {"global_step"}


def test_predictions_are_a_table_of_at_most_100_rows(begun):
    tracker, _ = begun()
    (tracker.folder / "predictions").mkdir()
    lines = ["index\tlabel\tprediction\tno\tyes"]
    lines += [f"{number}\tno\tyes\t-0.5\t1.5" for number in range(150)]
    (tracker.folder / "predictions" / "validation.tsv").write_text("\n".join(lines) + "\n")
    tracker.finish("done", {"steps": 30, "metrics": {"mrpc/f1": 0.5}})
    (row,) = tracker.run.rows
    table = row["predictions/validation"]
    assert row["global_step"] == 30 and table.columns == lines[0].split("\t")
    assert len(table.data) == 100 and table.data[99] == ["99", "no", "yes", -0.5, 1.5]
    assert tracker.run.summary == {"status": "done", "mrpc/f1": 0.5} and tracker.run.code == 0


def test_translations_are_a_table_too(begun):
    tracker, _ = begun()
    (tracker.folder / "translations").mkdir()
    for name in ("source", "reference", "single", "averaged"):
        text = "".join(f"{name}\u2028 {number}\n" for number in range(120))
        (tracker.folder / "translations" / f"test.{name}.txt").write_text(text)
    tracker.finish("degenerate", {"steps": 30})
    (row,) = tracker.run.rows
    table = row["translations/test"]
    assert table.columns == ["source", "reference", "translation"] and len(table.data) == 100
    assert table.data[1] == ["source\u2028 1", "reference\u2028 1", "averaged\u2028 1"]


def test_a_run_that_was_stopped_has_no_tables(begun):
    tracker, _ = begun()
    (tracker.folder / "predictions").mkdir()
    (tracker.folder / "predictions" / "validation.tsv").write_text("index\tlabel\n0\tno\n")
    tracker.finish("stopped", {"steps": 30})
    assert tracker.run.rows == [] and tracker.run.code == 1


def test_a_wandb_that_cannot_begin_stops_nothing(begun, monkeypatch, capsys, tmp_path):
    import wandb

    monkeypatch.setattr(wandb, "init", lambda **given: {}["nothing"])
    assert isinstance(
        open_tracker(TrackerConfig(kind="wandb", mode="offline"), tmp_path, NAME, {}, None),
        NoTracker,
    )
    assert "could not start (KeyError)" in capsys.readouterr().err


def test_real_wandb_takes_all_of_it_offline(monkeypatch, tmp_path):
    """Its own files say so: the name of the group, the tags and the table."""
    for variable in VARIABLES:
        monkeypatch.delenv(f"WANDB_{variable}", raising=False)
    folder = tmp_path / "runs" / "glue" / NAME
    (folder / "predictions").mkdir(parents=True)
    lines = "index\tlabel\tprediction\tno\tyes\n0\tno\tyes\t-0.5\t1.5\n"
    (folder / "predictions" / "validation.tsv").write_text(lines)
    tracker = open_tracker(TrackerConfig(kind="wandb", mode="offline"), folder, NAME, CONTENT, None)
    assert isinstance(tracker, WandbTracker), tracking
    assert tracker.run.group == "roformer-rotary-smoke-0123abcd"
    assert tracker.run.job_type == "glue" and "rotary" in tracker.run.tags
    tracker.log({"step": 1, "train/loss": 2.0})
    tracker.finish("done", {"steps": 1, "metrics": {}})
    (table,) = folder.glob("wandb/offline-run-*/files/media/table/predictions/*.table.json")
    assert json.loads(table.read_text())["data"] == [["0", "no", "yes", -0.5, 1.5]]
