"""The system's browser, and a page of recorded and synthetic runs in it."""

import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from roformer.report.dashboard.page import build_page, data_json
from roformer.report.pages import script_of
from roformer.report.runs import read_runs, write_recorded
from roformer.report.tables import Table
from tests.conftest import REPOSITORY
from tests.report.records import HOSTILE, write_hostile_run, write_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SEEDS = {0: [4.0, 3.0], 1: [4.5, 3.25], 2: [5.0, 3.75]}
"""Losses of a recorded configuration by seed."""
SECTIONS = {
    "Against the paper": [
        Table(
            "Headlines",
            [["model", "mrpc/f1"], ["roformer (rotary)", "86.4 ± 0.5 (5)"], [HOSTILE, "NaN"]],
            notes=["In percent.", HOSTILE, "nrefs:1|case:mixed|eff:no|" * 9],
            command='make tables RUNS="runs/glue/*"',
        )
    ],
    HOSTILE: [Table(HOSTILE, [[f"{name} {HOSTILE}" * 8 for name in "abcdef"]] * 2)],
}


@pytest.fixture(scope="session")
def browser():
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(f"needs a browser: one of {', '.join(BROWSERS)}")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def frames(tmp_path_factory):
    """The repository's recorded runs, and runs of every other kind."""
    made = tmp_path_factory.mktemp("roots")
    experiments, runs = made / "experiments", made / "runs"
    folders = [
        write_run(
            made / f"mini-0000-s{seed}", losses=dict(zip((10, 20), losses, strict=True)), seed=seed
        )
        for seed, losses in SEEDS.items()
    ]
    write_recorded(experiments / "seeds", folders)
    write_run(runs / "pretrain" / "still-running-s0", losses={10: 4.5, 20: 4.25}, status=None)
    damaged = write_run(runs / "pretrain" / "damaged-s0", losses={10: 4.5})
    (damaged / "summary.json").write_text("{")
    write_hostile_run(experiments)
    return read_runs([REPOSITORY / "experiments", experiments, runs], strict=False)


@pytest.fixture(scope="session")
def records(frames):
    """The runs as rows."""
    return [SimpleNamespace(**row) for row in frames.runs.to_dict("records")]


@pytest.fixture(scope="session")
def reproduction(frames):
    """The first table: your runs, the record and the paper."""
    script = script_of("appendix/reproduce")
    rows = script["read_reproduction"](REPOSITORY / "experiments", frames)
    return script["result_table"](rows, frames.runs)


@pytest.fixture(scope="session")
def address(frames, reproduction, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "dashboard.html"
    file.write_text(build_page(data_json(frames, SECTIONS, reproduction)))
    return file.as_uri()


@contextmanager
def watched(browser, address, **settings):
    """Yield a page; at the end it must have executed, logged and requested nothing unexpected."""
    context = browser.new_context(**{"color_scheme": "light", **settings})
    page = context.new_page()
    page.seen = seen = SimpleNamespace(requests=[], complaints=[])
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (seen.complaints.append(dialog.message), dialog.dismiss()))
    page.goto(address)
    page.wait_for_selector("#plot .main-svg")
    try:
        yield page
    finally:
        context.close()
    asked = {url for url in seen.requests if not url.startswith(("data:", "blob:"))}
    assert seen.complaints == [] and asked <= {address, f"{address}records.json"}


def until(page, condition):
    """Wait for a condition in the page; the driver's own way of waiting is what the policy forbids."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"it never came true: {condition}")


@pytest.fixture
def page(browser, address):
    """The page, just opened."""
    with watched(browser, address, viewport={"width": 1440, "height": 900}) as opened:
        yield opened


@pytest.fixture(scope="module")
def opened(browser, address):
    """The page, opened once for tests that only look."""
    with watched(browser, address, viewport={"width": 1440, "height": 900}) as opened:
        yield opened
