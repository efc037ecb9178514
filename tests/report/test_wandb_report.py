"""The wandb report: panels of metrics that runs have, and one line where it cannot be saved."""

import json
import sys

import pytest
import wandb

from roformer.report.runs import read_runs
from scripts import wandb_report
from tests.recorded_runs import EXPERIMENTS

PIPELINES = ["pretrain", "convert", "glue", "wmt", "charlm", "clm", "scm"]


@pytest.fixture(scope="module")
def printed():
    return wandb_report.spec("me", "roformer")


def run_sets(report):
    """Return the run set of each section of a report, and its panels."""
    grids = [block["metadata"] for block in report["blocks"] if block["type"] == "panel-grid"]
    return [(grid["runSets"][0], grid["panelBankSectionConfig"]["panels"]) for grid in grids]


def test_each_pipeline_has_curves_and_bars_of_metrics_that_its_recorded_runs_logged(printed):
    """The name of a metric that nothing logs is an empty panel; runs are averaged over seeds."""
    runs, metrics = read_runs([EXPERIMENTS])
    recorded = metrics.merge(runs.reset_index(drop=True), on=["study", "run"])
    bank = printed["workspace"]["section"]["panelBankConfig"]["sections"]
    sets = run_sets(printed["report"])
    report = {one["name"]: panels for one, panels in sets}
    for where in ({section["name"]: section["panels"] for section in bank}, report):
        assert list(where) == [*PIPELINES, "throughput"]
        for title, panels in where.items():
            logged = recorded[recorded.pipeline == title] if title in PIPELINES else recorded
            configs = [panel["config"] for panel in panels]
            shown = {(*config["metrics"], config.get("xAxis")) for config in configs}
            assert {metric for metric, _ in shown} <= set(logged.metric)
            if title in PIPELINES:
                assert set(logged.headline) <= {metric for metric, _ in shown}
            places = {(panel["layout"]["x"], panel["layout"]["y"]) for panel in panels}
            assert len(places) == len(panels) == len(shown)
            assert {(one["groupAgg"], one["groupArea"]) for one in configs} == {("mean", "stddev")}
    filters = [[f["value"] for f in one["filters"]["filters"]] for one, _ in sets]
    assert filters == [*([name] for name in PIPELINES), []]
    for one in [*(one for one, _ in sets), *printed["workspace"]["section"]["runSets"]]:
        grouped = [key["name"].replace(".value", "", 1) for key in one["grouping"]]
        assert grouped == list(wandb_report.GROUPS)


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


@pytest.mark.parametrize("option", ["--draft", "--publish"])
def test_both_are_saved_to_the_given_project(call, option):
    code, output, _, saved = call("me/roformer", option)
    assert code == 0 and [options for _, options in saved] == [{"draft": option == "--draft"}, {}]
    assert {(one.entity, one.project) for one, _ in saved} == {("me", "roformer")}
    assert "wandb sync runs/*/*/wandb/offline-run-*" in output and output.count("http") == 2


@pytest.mark.parametrize(
    ("project", "wandb_does", "message"),
    [
        ("a/b/c", {}, "is no ENTITY/PROJECT"),
        ("me/roformer", {"login": False}, "UsageError: no key"),
        ("me/roformer", {"fails": OSError("no\nroute")}, "wandb did not save it (OSError: no"),
    ],
)
def test_errors_are_one_line_with_advice(call, project, wandb_does, message):
    code, _, errors, saved = call(project, **wandb_does)
    assert (code, saved) == (2, []) and errors.count("\n") == 1
    assert errors.startswith("error: ") and message in errors
