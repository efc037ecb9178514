"""The wandb report: panels of metrics that runs have, and one line where it cannot be saved."""

import json
import sys

import pytest
import wandb

from roformer.report.runs import read_runs
from scripts import wandb_report
from tests.conftest import REPOSITORY

PIPELINES = ["pretrain", "glue", "wmt", "charlm", "clm", "scm"]


@pytest.fixture(scope="module")
def printed():
    return wandb_report.spec("me", "roformer")


@pytest.fixture(scope="module")
def recorded():
    return read_runs([REPOSITORY / "experiments"])


def run_sets(spec):
    """Return the run set of each section of a report, and its panels."""
    grids = [block["metadata"] for block in spec["blocks"] if block["type"] == "panel-grid"]
    return [(grid["runSets"][0], grid["panelBankSectionConfig"]["panels"]) for grid in grids]


def test_each_pipeline_has_curves_and_bars_of_what_its_recorded_runs_logged(printed, recorded):
    """The name of a metric that nothing logs is an empty panel."""
    bank = printed["workspace"]["section"]["panelBankConfig"]["sections"]
    report = {runs["name"]: panels for runs, panels in run_sets(printed["report"])}
    for where in ({section["name"]: section["panels"] for section in bank}, report):
        assert list(where) == [*PIPELINES, "throughput"]
        for title, panels in where.items():
            runs, metrics = recorded
            if title in PIPELINES:
                runs, metrics = recorded.where(runs.pipeline == title)
            configs = [panel["config"] for panel in panels]
            shown = {(*config["metrics"], config.get("xAxis")) for config in configs}
            assert {metric for metric, _ in shown} <= set(metrics.metric)
            if title in PIPELINES:
                assert set(runs.headline) <= {metric for metric, _ in shown}
            places = {(panel["layout"]["x"], panel["layout"]["y"]) for panel in panels}
            assert len(places) == len(panels) == len(shown)
            assert {(one["groupAgg"], one["groupArea"]) for one in configs} == {("mean", "stddev")}


def test_runs_are_those_of_the_pipeline_averaged_over_seeds(printed, recorded):
    """The tracker writes the pipeline as the job type of a run."""
    sets = [runs for runs, _ in run_sets(printed["report"])]
    filters = [
        [(one["key"]["name"], one["op"], one["value"]) for one in runs["filters"]["filters"]]
        for runs in sets
    ]
    assert filters == [[("jobType", "=", name)] for name in PIPELINES] + [[]]
    for runs in [*sets, *printed["workspace"]["section"]["runSets"]]:
        grouped = [key["name"].replace(".value", "", 1) for key in runs["grouping"]]
        assert grouped == list(wandb_report.GROUPS) and "seed" not in grouped
    for key in wandb_report.GROUPS:
        assert any(config.get(key) is not None for config in recorded.runs.config)


# --- the script ----------------------------------------------------------------------------------


@pytest.fixture
def call(monkeypatch, capsys):
    """A function that calls the script; without `fails` wandb saves what it returns as `saved`."""

    def called(*arguments, fails=None, login=True):
        saved = []

        def save(one, **options):
            if fails is not None:
                raise fails
            saved.append((one, options))

        monkeypatch.setattr(wandb, "login", lambda prompt: login)
        for cls in (wandb_report.reports.Report, wandb_report.workspaces.Workspace):
            monkeypatch.setattr(cls, "save", save)
            monkeypatch.setattr(cls, "url", "https://wandb.ai/x")
        monkeypatch.setattr(wandb_report.os, "_exit", sys.exit)
        monkeypatch.setattr(sys, "argv", ["wandb_report.py", *arguments])
        code = 0
        try:
            wandb_report.main()
        except SystemExit as leaving:
            code = leaving.code
        return code, *capsys.readouterr(), saved

    return called


def test_the_spec_is_printed_without_network_or_account(call, printed):
    code, output, _, saved = call("me/roformer", "--print", login=False)
    assert (code, saved) == (0, []) and json.loads(output).keys() == printed.keys()
    assert json.loads(output)["project"] == "me/roformer"


@pytest.mark.parametrize("option", ["--draft", "--publish"])
def test_both_are_saved_to_the_project_that_was_named(call, option):
    code, output, _, saved = call("me/roformer", option)
    assert code == 0 and [options for _, options in saved] == [{"draft": option == "--draft"}, {}]
    assert {(one.entity, one.project) for one, _ in saved} == {("me", "roformer")}
    grids = [block for block in saved[0][0].blocks if hasattr(block, "runsets")]
    assert {(grid.runsets[0].entity, grid.runsets[0].project) for grid in grids} == {
        ("me", "roformer")
    }
    assert "wandb sync runs/*/*/wandb/offline-run-*" in output and output.count("http") == 2


@pytest.mark.parametrize(
    ("project", "wandb_does", "told"),
    [
        ("roformer", {}, "is no ENTITY/PROJECT"),
        ("a/b/c", {}, "is no ENTITY/PROJECT"),
        ("me/roformer", {"login": False}, "run wandb login, then this again"),
        ("me/missing", {"fails": ValueError("project not found")}, "no project me/missing"),
        (
            "me/roformer",
            {"fails": OSError("no\nroute")},
            "could not be reached or refused (OSError",
        ),
    ],
)
def test_what_goes_wrong_is_one_line_with_advice(call, project, wandb_does, told):
    code, _, errors, saved = call(project, **wandb_does)
    assert (code, saved) == (2, []) and errors.count("\n") == 1
    assert errors.startswith("error: ") and told in errors
