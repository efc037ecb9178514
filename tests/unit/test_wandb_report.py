"""The wandb report: panels of metrics that runs have, and one line where it cannot be saved."""

import json
import os
import runpy
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from roformer.report.runs import read_runs
from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "wandb_report.py"
REPORT = runpy.run_path(str(SCRIPT))
PIPELINES = ["pretrain", "glue", "wmt", "charlm", "clm", "scm"]


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


def test_each_pipeline_has_curves_and_bars_of_what_its_recorded_runs_logged():
    """The name of a metric that nothing logs is an empty panel."""
    spec = REPORT["spec"]("me", "roformer")
    runs, metrics = read_runs([REPOSITORY / "experiments"])
    for where in panels_of(spec):
        assert list(where) == [*PIPELINES, "throughput"]
        for title, panels in where.items():
            studies = runs[runs.pipeline == title].study if title in PIPELINES else runs.study
            logged = set(metrics[metrics.study.isin(studies)].metric)
            shown = {
                (*panel["config"]["metrics"], panel["config"].get("xAxis")) for panel in panels
            }
            assert {metric for metric, _ in shown} <= logged
            for headline in runs[runs.pipeline == title].headline:
                assert {(headline, None), (headline, "global_step")} & shown
            places = {(panel["layout"]["x"], panel["layout"]["y"]) for panel in panels}
            assert len(places) == len(panels) == len(shown)
            assert {panel["config"]["groupAgg"] for panel in panels} == {"mean"}
            assert {panel["config"]["groupArea"] for panel in panels} == {"stddev"}
            if title == "pretrain":
                assert {
                    ("valid/mlm_loss", axis) for axis in ("global_step", "data/tokens")
                } <= shown
            if title == "wmt":
                assert {("test/sacrebleu", None), ("test/bleu_compound", None)} <= shown


def test_runs_are_those_of_the_pipeline_averaged_over_seeds():
    """The tracker writes the pipeline as the job type of a run."""
    spec = REPORT["spec"]("me", "roformer")
    sets = [b["metadata"]["runSets"][0] for b in spec["report"]["blocks"] if "metadata" in b]
    filters = [
        [(one["key"]["name"], one["op"], one["value"]) for one in runset["filters"]["filters"]]
        for runset in sets
    ]
    assert filters == [[("jobType", "=", name)] for name in PIPELINES] + [[]]
    configs = read_runs([REPOSITORY / "experiments"]).runs.config
    for key in REPORT["GROUPS"]:
        assert any(config.get(key) is not None for config in configs)
    for runset in [*sets, *spec["workspace"]["section"]["runSets"]]:
        grouped = [key["name"].replace(".value", "", 1) for key in runset["grouping"]]
        assert grouped == list(REPORT["GROUPS"]) and "seed" not in grouped


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
    assert [list(where) for where in panels_of(printed)] == 2 * [[*PIPELINES, "throughput"]]


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
        assert ours.keys() == theirs.keys()
        for title in ours:
            configs = [[panel["config"] for panel in where[title]] for where in (ours, theirs)]
            assert configs[0] == configs[1]
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
