"""The wandb report: panels of metrics that runs have, and one line where it cannot be saved."""

import json
import os
import runpy
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from roformer.training.tracking import WandbTracker
from tests.conftest import REPOSITORY
from tests.recorded_runs import all_recorded

SCRIPT = REPOSITORY / "scripts" / "wandb_report.py"
REPORT = runpy.run_path(str(SCRIPT))
PIPELINES = {
    "Pre-training": "pretrain",
    "GLUE, validation": "glue",
    "Translation": "wmt",
    "Byte-level language models": "charlm",
    "Causal language models": "clm",
    "Triplets of long documents": "scm",
}
"""Section → the pipeline whose runs it shows."""


@pytest.fixture(scope="module")
def records():
    """Return (config, names of metrics) of the recorded runs, by pipeline."""
    found = {}
    for run in all_recorded():
        config = OmegaConf.create(run.files["config.yaml"])
        names = {name for row in run.files["metrics.jsonl"] for name in row}
        found.setdefault(run.files["summary.json"]["pipeline"], []).append((config, names))
    return found


def value(config, key):
    return OmegaConf.select(config, key)


def panels_of(spec):
    """Return section → panels of the workspace, and of the report."""
    bank = spec["workspace"]["section"]["panelBankConfig"]
    workspace = {section["name"]: section["panels"] for section in bank["sections"]}
    report = {
        grid["metadata"]["runSets"][0]["name"]: grid["metadata"]["panelBankSectionConfig"]["panels"]
        for grid in spec["report"]["blocks"]
        if grid["type"] == "panel-grid"
    }
    return workspace, report


def test_panels_show_metrics_that_recorded_runs_have(records):
    """Of the section's pipeline: the name of a metric that nothing logs is an empty panel."""
    for where in panels_of(REPORT["spec"]("me", "roformer")):
        assert list(where) == [*PIPELINES, "Throughput"]
        for title, panels in where.items():
            for pipeline in [PIPELINES[title]] if title in PIPELINES else PIPELINES.values():
                names = {name for _, found in records[pipeline] for name in found}
                for panel in panels:
                    (metric,) = panel["config"]["metrics"]
                    assert metric in names, (title, metric)
                    axis = panel["config"].get("xAxis", "global_step")
                    assert axis == "global_step" or axis in names


def test_the_axis_is_what_the_tracker_logs():
    rows = []
    tracker = WandbTracker.__new__(WandbTracker)
    tracker.tracker, tracker._dropped = SimpleNamespace(log=rows.append), False
    tracker.log({"step": 3, "data/tokens": 30})
    assert set(rows[0]) == {REPORT["UPDATES"], REPORT["TOKENS"]}


def test_curves_and_bars_are_where_the_dashboard_has_them():
    workspace, report = panels_of(REPORT["spec"]("me", "roformer"))
    for where in (workspace, report):
        shown = {
            title: [(p["config"]["metrics"][0], p["config"].get("xAxis", "bars")) for p in panels]
            for title, panels in where.items()
        }
        assert shown["Pre-training"][:2] == [
            ("valid/mlm_loss", "global_step"),
            ("valid/mlm_loss", "data/tokens"),
        ]
        assert {axis for _, axis in shown["GLUE, validation"]} == {"bars"}
        assert len(shown["GLUE, validation"]) == 7
        assert ("test/sacrebleu", "bars") in shown["Translation"]
        assert ("test/bleu_compound", "bars") in shown["Translation"]
        assert shown["Throughput"][0] == ("perf/tokens_per_second", "global_step")
        for panels in where.values():
            places = [(p["layout"]["x"], p["layout"]["y"]) for p in panels]
            assert len(set(places)) == len(places)
            assert {p["config"]["groupAgg"] for p in panels} == {"mean"}
            assert {p["config"]["groupArea"] for p in panels} == {"stddev"}


def test_runs_are_grouped_by_keys_that_configs_have_and_not_by_seed(records):
    for key in REPORT["GROUPS"]:  # null in a pipeline without it, where it tells no arms apart
        assert any(
            value(config, key) is not None for runs in records.values() for config, _ in runs
        )
    spec = REPORT["spec"]("me", "roformer")
    runsets = [b["metadata"]["runSets"][0] for b in spec["report"]["blocks"] if "metadata" in b]
    for runset in [*runsets, *spec["workspace"]["section"]["runSets"]]:
        grouped = [key["name"].replace(".value", "", 1) for key in runset["grouping"]]
        assert grouped == list(REPORT["GROUPS"]) and "seed" not in grouped


def test_a_section_has_the_runs_of_its_pipeline_alone(records):
    for part in REPORT["PARTS"]:
        for pipeline, runs in records.items():
            if part.having:
                expected = PIPELINES[part.title] == pipeline
                assert {value(c, part.having) is not None for c, _ in runs} == {expected}, (
                    part.title
                )
    blocks = REPORT["spec"]("me", "roformer")["report"]["blocks"]
    filters = [b["metadata"]["runSets"][0]["filters"]["filters"] for b in blocks if "metadata" in b]
    keys = [[found["key"]["name"] for found in some] for some in filters]
    assert keys == [
        ["masking.value.probability"],
        ["training.value.small_task_examples"],
        ["search.value.beam"],
        ["data.value.test_fraction"],
        [],
        [],
        [],
    ]


# --- the script ----------------------------------------------------------------------------------


class Stand(BaseHTTPRequestHandler):
    """What wandb's server answers the calls of the script; keeps the mutations."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = json.loads(body) if self.path == "/graphql" else {"query": ""}
        answer = json.dumps(self.answer(content["query"], content.get("variables"))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def answer(self, query, sent):
        if "ProjectInternalId" in query:
            there = sent["projectName"] != "missing"
            return {"data": {"project": {"id": "x", "internalId": "7"} if there else None}}
        if "upsertView" in query:
            if sent["projectName"] == "forbidden":
                return {"data": None, "errors": [{"message": "permission denied"}]}
            self.server.saved.append(sent)
            own = {"id": "x", "name": "roformer", "entityName": "me"}
            view = {"id": "Vmlldzox", "name": sent["name"], "type": sent["type"], "project": own}
            view |= {"displayName": "d", "description": "", "spec": sent["spec"]}
            return {"data": {"upsertView": {"view": view | {"updatedAt": None}, "inserted": True}}}
        if "GetProjects" in query:
            page = {"__typename": "PageInfo", "endCursor": "c", "hasNextPage": False}
            nodes = [
                {"__typename": "Project", "id": "x", "name": name, "entityName": "me"}
                | {"createdAt": "2026-01-01", "isBenchmark": False, "user": None}
                for name in ("roformer", "forbidden")
            ]
            return {"data": {"models": {"pageInfo": page, "edges": [{"node": n} for n in nodes]}}}
        viewer = {"id": "1", "username": "me", "entity": "me", "email": "", "flags": "{}"}
        return {"data": {"viewer": viewer | {"teams": {"edges": []}}}}

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Stand) as server:
        server.saved = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def run(tmp_path, *arguments, base="http://127.0.0.1:9", key="a" * 40):
    """Run the script as somebody without files of wandb's; port 9 refuses."""
    environment = {name: text for name, text in os.environ.items() if "WANDB" not in name}
    environment |= {
        "HOME": str(tmp_path),
        "WANDB_CONFIG_DIR": str(tmp_path),
        "WANDB_BASE_URL": base,
    }
    environment |= {"NETRC": str(tmp_path / "netrc")} | ({"WANDB_API_KEY": key} if key else {})
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )


def errors_of(done):
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("wandb: ")]
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize("option", ["--print", pytest.param("--dry-run", marks=pytest.mark.slow)])
def test_the_spec_is_printed_without_network_or_account(tmp_path, option):
    done = run(tmp_path, "me/roformer", option, key="")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["project"] == "me/roformer"
    assert [list(where) for where in panels_of(printed)] == 2 * [[*PIPELINES, "Throughput"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["roformer", "me/", "/roformer", "a/b/c"])
def test_a_name_that_is_no_project_is_one_line(tmp_path, name):
    assert "is no ENTITY/PROJECT" in errors_of(run(tmp_path, name, "--print"))


@pytest.mark.slow
def test_without_a_login_it_says_what_to_do(tmp_path):
    assert "run wandb login, then this again" in errors_of(run(tmp_path, "me/roformer", key=""))


@pytest.mark.slow
def test_without_a_network_it_says_what_to_do(tmp_path):
    line = errors_of(run(tmp_path, "me/roformer"))
    assert "could not be reached" in line and "--print needs neither" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "option, kind", [([], "runs/draft"), (["--publish"], "runs")], ids=["draft", "publish"]
)
def test_both_are_saved(tmp_path, server, option, kind):
    """What a server gets is the printed spec, of runs of the project that was named."""
    base = f"http://127.0.0.1:{server.server_port}"
    done = run(tmp_path, "me/roformer", *option, base=base)
    assert done.returncode == 0, done.stderr
    report, workspace = server.saved
    assert (report["type"], workspace["type"]) == (kind, "project-view")
    assert {sent["entityName"] for sent in server.saved} == {"me"}
    assert {sent["projectName"] for sent in server.saved} == {"roformer"}
    sent = {"report": json.loads(report["spec"]), "workspace": json.loads(workspace["spec"])}
    printed = REPORT["spec"]("me", "roformer")
    for ours, theirs in zip(panels_of(sent), panels_of(printed), strict=True):
        shown = [
            [panel["config"] for panels in where.values() for panel in panels]
            for where in (ours, theirs)
        ]
        assert shown[0] == shown[1]
    grids = [block["metadata"] for block in sent["report"]["blocks"] if "metadata" in block]
    assert {grid["runSets"][0]["project"]["name"] for grid in grids} == {"roformer"}
    assert "wandb sync runs/*/*/wandb/offline-run-*" in done.stdout
    assert done.stdout.count("http") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, told", [("missing", "no project me/missing"), ("forbidden", "refused")]
)
def test_a_project_that_cannot_be_written_is_one_line(tmp_path, server, name, told):
    base = f"http://127.0.0.1:{server.server_port}"
    assert told in errors_of(run(tmp_path, f"me/{name}", base=base))
    assert server.saved == []


@pytest.mark.slow
def test_help_says_how_offline_runs_are_uploaded(tmp_path):
    assert "wandb sync runs/*/*/wandb/offline-run-*" in run(tmp_path, "--help").stdout
