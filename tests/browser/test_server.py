"""The served page: only this machine is answered, and an open page shows what a run wrote since."""

import http.client
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from functools import partial

import pytest

from roformer.report.dashboard import page as page_module
from roformer.report.dashboard.page import build_page, data_json
from roformer.report.dashboard.server import DashboardServer
from roformer.report.runs import read_runs
from tests.browser.conftest import until, watched
from tests.conftest import REPOSITORY
from tests.report.records import append_row, call_script, write_run


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs/pretrain/running-s0", losses={10: 5.0, 20: 4.5}, status=None)
    write_run(tmp_path / "runs/pretrain/ended-s0", losses={10: 4.5, 20: 4.25}, model="bert")
    return tmp_path / "runs"


@pytest.fixture
def server(runs):
    def data():
        return data_json(read_runs([runs], strict=False), {})

    with DashboardServer(8600, lambda: build_page(data(), live=True), data) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server, path="/", *, method="GET", hosts=None):
    """Return the response to a request, whose Host may be another, and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    for name in [f"127.0.0.1:{server.server_port}"] if hosts is None else hosts:
        connection.putheader("Host", name)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def test_the_page_and_its_data_are_all_there_is(server):
    response, body = ask(server, "/records.json")
    assert response.status == 200 and b"running-s0" in body
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
    response, body = ask(server)
    assert response.status == 200 and b"connect-src 'self'" in body
    for path in ("/x", "/../README.md", "/?x", "http://x/"):
        assert ask(server, path)[0].status == 404, path
    assert ask(server, method="POST")[0].status == 501


def test_another_host_is_refused(server):
    """A name that points to 127.0.0.1 makes a browser ask for a site of somebody else's."""
    port = server.server_port
    assert ask(server, hosts=[f"localhost:{port}"])[0].status == 200
    for hosts in ([], [f"example.org:{port}"], ["127.0.0.1"], [f"127.0.0.1:{port}", "example.org"]):
        response, body = ask(server, "/records.json", hosts=hosts)
        assert response.status == 403 and b"running" not in body, hosts


def test_only_this_machine_is_listened_to_and_a_taken_port_is_passed_over(server):
    assert server.server_address[0] == "127.0.0.1"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with DashboardServer(port, str, str) as other:
            assert port < other.server_port < port + 20


@pytest.mark.slow
def test_what_a_run_writes_appears_in_an_open_page(browser, server, runs):
    """Without a reload: filters, selection and order stay. The page reports a server that ended."""
    drawn = "document.getElementById('plot').data[0]"
    with watched(browser, server.address) as page:
        page.evaluate("window.notReloaded = true")
        page.fill("#runs input[type=search]", "running")
        page.check("#runs-table tbody input")
        page.click("th:has-text('Steps')")
        until(page, "document.querySelectorAll('th[aria-sort=ascending]').length === 1")
        steps = page.locator("#runs-table tbody tr td:nth-child(11)")
        assert steps.all_text_contents() == ["20"]
        append_row(runs / "pretrain/running-s0", 30, 4.125)
        with (runs / "pretrain/running-s0/metrics.jsonl").open("a") as file:
            file.write('{"step": 40, "valid/mlm_')
        page.evaluate("poll()")
        until(page, f"{drawn}.x.length === 3")
        assert steps.all_text_contents() == ["30"]
        assert page.evaluate(f"[...{drawn}.y]") == [5.0, 4.5, 4.125]
        assert page.locator("#runs-table tbody input:checked").count() == 1
        assert page.locator("th[aria-sort=ascending]").count() == 1
        assert page.evaluate("window.notReloaded") is True
        server.answers.clear()
        page.evaluate("poll()")
        until(page, "document.getElementById('live').textContent.includes('not answer')")
        assert page.locator("#runs-table tbody tr").count() == 1
        page.seen.complaints.clear()  # the browser's own, of an answer that is an error


@pytest.mark.slow
def test_an_open_page_asks_by_itself_unless_it_is_hidden(browser, server, runs, monkeypatch):
    monkeypatch.setattr(page_module, "POLL_SECONDS", 1)
    with watched(browser, server.address) as page:
        hide = "Object.defineProperty(document, 'hidden', {get: () => %s, configurable: true})"
        page.evaluate(hide % "true")
        write_run(runs / "pretrain/new-s0", losses={10: 4.0})
        asked = len(page.seen.requests)
        page.wait_for_timeout(2_000)
        assert len(page.seen.requests) == asked
        page.evaluate(hide % "false")
        page.wait_for_selector("#runs-table code:has-text('new-s0')", timeout=15_000)


@pytest.mark.slow
def test_the_script_serves_until_it_is_interrupted_or_writes_a_file(
    runs, tmp_path, monkeypatch, capsys
):
    command = [sys.executable, str(REPOSITORY / "scripts" / "dashboard.py"), str(runs)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as run:
        line = run.stdout.readline()
        with urllib.request.urlopen(f"{line.split()[0]}records.json") as response:
            assert b"running-s0" in response.read()
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=30)
    assert (output.strip(), errors, run.returncode) == ("stopped", "", 0)
    call = partial(call_script, monkeypatch, capsys, "dashboard", runs)
    file = tmp_path / "page.html"
    assert "opens without a network" in call("--output", file).out
    assert "connect-src 'none'" in file.read_text()
    for wrong in (["--output", f"{tmp_path}/none/x.html"], ["--port", 70000], [tmp_path / "no"]):
        errors = call(*wrong).err
        assert errors.startswith("error: ") and errors.count("\n") == 1
