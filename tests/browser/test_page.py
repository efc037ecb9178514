"""The written page in a browser: numbers are the records', controls work, no script or request gets in."""

import json
import statistics

import pytest

from roformer.report.runs import YOURS
from tests.browser.conftest import SECTIONS, SEEDS, until, watched
from tests.report.records import HOSTILE

pytestmark = pytest.mark.slow

PLOT = "document.getElementById('plot')"
TRACES = f"{PLOT}.data.map(t => ({{run: t.meta, name: t.name, x: [...t.x], y: [...t.y]}}))"
UNFOLD = "for (const part of document.querySelectorAll('details')) part.open = true"


def rows(page):
    """Return the folders of the runs that the table shows, in its order."""
    return page.eval_on_selector_all("#runs-table tbody tr", "rows => rows.map(r => r.dataset.run)")


def row_of(page, run):
    return page.locator(f"#runs-table tr[data-run={json.dumps(run.folder, ensure_ascii=False)}]")


def select(page, *runs):
    for run in runs:
        row_of(page, run).locator("input").click()


def choose(page, column, value):
    """Filter by a value of a column, from its header."""
    page.click(f"[aria-label='Filter by {column}']")
    page.locator(".dtcc-list-buttons").get_by_text(value, exact=True).click()
    page.keyboard.press("Escape")


def study(records, name):
    return [run for run in records if run.study == name]


def curve(frames, run, metric):
    """Return the logged points of a run's metric."""
    found = frames.metrics
    return found[(found.study == run.study) & (found.run == run.run) & (found.metric == metric)]


# --- what it shows -------------------------------------------------------------------------------


def test_it_lists_every_run_yours_first(opened, records):
    yours, shown = [run.folder for run in study(records, YOURS)], rows(opened)
    assert sorted(shown) == sorted(run.folder for run in records)
    assert set(shown[: len(yours)]) == set(yours) and len(yours) == 2
    counts = [f"{len(yours)} runs of yours", "1 running", "1 damaged"]
    counts.append(f"{len(records) - len(yours)} recorded")
    assert opened.inner_text("#counts").split("\n") == counts
    for table in opened.locator("table").all():  # marked up for screen readers
        assert table.locator("caption").count() == 1
        assert table.locator("th:not([scope])").count() == 0
    unnamed = "all => all.filter(one => !one.labels?.length && !one.ariaLabel).map(one => one.id)"
    assert opened.eval_on_selector_all("input, select", unnamed) == []


def test_numbers_and_reasons_are_those_of_the_records(opened, records):
    script = """rows => rows.map(row => [row.dataset.run,
        [...row.querySelectorAll('.number')].map(cell => [cell.innerText, cell.firstChild.title])])"""
    found = dict(opened.eval_on_selector_all("#runs-table tbody tr", script))
    keys = ("seed", "steps", "tokens", "wall_seconds", "tokens_per_second", "parameters")
    for run in records:
        if run.status not in ("done", "degenerate"):
            assert run.reason == row_of(opened, run).locator(".reason").text_content() != ""
            continue
        seed, (score, scores), *numbers = found[run.folder]
        for key, (text, title) in zip(keys, (seed, *numbers), strict=True):
            assert float(title) == run.summary[key], (run.run, key)
            assert abs(float(text.replace(",", "")) - run.summary[key]) <= 0.5
        metric, value = score.split()
        titles = dict(line.split(" = ") for line in scores.split("\n"))
        assert metric == run.headline and set(titles) == set(run.summary["metrics"])
        assert float(value) == pytest.approx(run.score, rel=1e-3, nan_ok=True)
        assert float(titles[metric]) == pytest.approx(run.score, rel=1e-15, nan_ok=True)


def test_the_first_screen_is_your_runs_beside_the_record_and_the_paper(
    opened, records, reproduction
):
    """Its rows are the terminal's rows; your runs that are still running are curves below it."""
    shown = opened.eval_on_selector_all(
        "#results tbody tr", "rows => rows.map(row => [...row.cells].map(c => c.textContent))"
    )
    assert shown == [list(line) for line in reproduction.lines[1:]]
    first = opened.locator("#results tbody tr").first.bounding_box()
    assert first["y"] + first["height"] < 450
    tops = "['yours', 'curves', 'runs', 'sections'].map(id => byId(id).getBoundingClientRect().top)"
    assert opened.evaluate(tops) == sorted(opened.evaluate(tops))
    drawn = [trace["run"] for trace in opened.evaluate(TRACES)]
    assert drawn == [run.folder for run in study(records, YOURS) if run.status == "running"]


def test_hostile_names_are_text(page, frames, records):
    """In the table, its filters, the sections, the configs and the plot, whose names may have tags."""
    assert page.locator("#sections h2").all_text_contents() == list(SECTIONS)
    (hostile,) = (run for run in records if run.run.startswith("<img"))
    choose(page, "model", HOSTILE)
    assert rows(page) == [hostile.folder]
    select(page, hostile)
    metrics = sorted(set(frames.metrics[frames.metrics.run == hostile.run].metric))
    assert page.locator("#metric option").all_text_contents() == metrics
    for metric in metrics:
        page.select_option("#metric", metric)
        assert page.evaluate(TRACES)[0]["y"] == list(curve(frames, hostile, metric).value)
        assert page.locator("#plot .ytitle").text_content() == metric
    legend = page.locator("#plot .legendtext").text_content()
    assert legend == f"{HOSTILE} ({HOSTILE}), {HOSTILE}, seed 0"
    page.select_option("#one", hostile.folder)
    page.check("#all-keys")
    row = page.locator("#compare-table tr[data-key=commit] td").first
    assert row.text_content() == HOSTILE
    assert page.locator("img, main script, #plot a, b b").count() == 0


# --- what it does --------------------------------------------------------------------------------


def test_filters_leave_the_rows_that_match(page, records):
    choose(page, "pipeline", "wmt")
    expected = [run.folder for run in records if run.pipeline == "wmt"]
    assert sorted(rows(page)) == sorted(expected) and 6 <= len(expected) < len(records)
    page.fill("#runs input[type=search]", "Multi30K shaw")
    expected = [run for run in expected if "multi30k" in run and "shaw" in run]
    assert sorted(rows(page)) == sorted(expected) != []
    assert page.inner_text(".dt-info") == f"{len(expected)} runs of {len(records)}"
    page.get_by_role("button", name="Reset filters").click()
    assert len(rows(page)) == len(records)


def test_curves_of_selected_runs_are_the_points_of_their_records(page, frames, records):
    chosen = study(records, "pretraining_builtin")[:2]
    select(page, *chosen)
    page.select_option("#metric", "train/loss")
    for axis, key in (("tokens", "tokens"), ("sequences", "samples"), ("steps", "step")):
        page.select_option("#axis", axis)
        traces = {trace["run"]: trace for trace in page.evaluate(TRACES)}
        assert set(traces) == {run.folder for run in chosen}
        for run in chosen:
            points = curve(frames, run, "train/loss")
            assert traces[run.folder]["x"] == list(points[key]) and len(points) > 10
            assert traces[run.folder]["y"] == pytest.approx(list(points.value), rel=1e-6)
    page.check("#log")
    assert page.evaluate(f"{PLOT}.layout.yaxis.type") == "log"
    page.get_by_role("button", name="Select none").click()
    assert page.locator("#runs-table tbody input:checked").count() == 0
    assert "No run is selected" in page.inner_text("#curves-note")


def test_the_band_is_mean_and_standard_deviation_over_the_seeds(page):
    page.fill("#runs input[type=search]", "mini-0000")
    page.get_by_role("button", name="Select all shown").click()
    page.check("#band")
    low, high, mean = page.evaluate(TRACES)
    points = [*zip(*SEEDS.values(), strict=True)]
    means, spreads = (list(map(of, points)) for of in (statistics.fmean, statistics.stdev))
    assert mean["y"] == pytest.approx(means, rel=1e-12)
    for edge, sign in ((low, -1), (high, 1)):
        expected = [m + sign * s for m, s in zip(means, spreads, strict=True)]
        assert edge["y"] == pytest.approx(expected, rel=1e-12)
    assert mean["x"] == [10, 20] and mean["name"] == "roformer (rotary), mean of 3 seeds"


def test_two_configs_differ_where_they_do(page, records):
    one, another = study(records, "glue_builtin")[0], study(records, "wmt_multi30k")[1]
    page.select_option("#one", one.folder)
    page.select_option("#another", another.folder)
    script = """rows => rows.map(row => [row.dataset.key, ...[...row.querySelectorAll('td')].map(
        cell => cell.className === 'muted' ? null : cell.textContent)])"""

    def texts(run):
        for part in (run.config, run.environment | {"command": run.command}):
            yield {k: v if isinstance(v, str) else json.dumps(v) for k, v in part.items()}

    pairs = zip(texts(one), texts(another), strict=True)
    expected = [[k, a.get(k), b.get(k)] for a, b in pairs for k in sorted(a.keys() | b.keys())]
    shown = page.eval_on_selector_all("#compare-table tr[data-key]", script)
    assert shown == [row for row in expected if row[1] != row[2]] and len(shown) > 20
    page.check("#all-keys")
    assert page.eval_on_selector_all("#compare-table tr[data-key]", script) == expected


def test_the_table_is_filtered_sorted_and_selected_by_the_keyboard_alone(page, records):
    page.keyboard.press("Tab")
    focused = "document.activeElement"
    assert page.evaluate(f"{focused}.className") == "skip"
    reached = set()
    while not page.evaluate(f"{focused}.ariaLabel?.startsWith('Steps')"):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(f"{focused}.id || {focused}.ariaLabel || {focused}.textContent"))
    assert {"theme", "metric", "Select all shown", "Filter by status", "Table of runs"} <= reached
    assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") != "none"
    by_folder = {run.folder: run.steps for run in records}
    for direction in ("ascending", "descending"):
        page.keyboard.press("Enter")
        until(page, f"document.querySelectorAll('th[aria-sort={direction}]').length === 1")
        *counted, missing = [by_folder[run] for run in rows(page)]
        assert counted == sorted(counted, reverse=direction == "descending") and missing is None
    page.locator("#runs-table tbody input").first.focus()
    page.keyboard.press("Space")
    assert page.inner_text("#curves-note") == "Selected runs: 1."


def test_recorded_studies_unfold_where_they_are_linked_to_and_commands_are_copied(page):
    assert page.locator("#sections .report").first.is_hidden()
    page.click("#links a")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click(".command button")
    until(page, "document.querySelector('.command button').textContent === 'Copied'")
    command = SECTIONS["Against the paper"][0].command
    assert page.evaluate("navigator.clipboard.readText()") == command


# --- what it looks like --------------------------------------------------------------------------


def test_the_theme_is_the_systems_until_another_is_chosen_and_is_remembered(browser, address):
    colours = """[getComputedStyle(document.body).backgroundColor,
        getComputedStyle(document.querySelector('#plot .xtick text')).fill]"""
    with watched(browser, address, color_scheme="dark") as page:
        dark = page.evaluate(colours)
        assert page.get_attribute("#theme", "aria-pressed") == "true"
        page.emulate_media(color_scheme="light")
        until(page, "!document.documentElement.classList.contains('dark')")
        light = page.evaluate(colours)
        assert dark[0] != light[0] and dark[1] != light[1]
        page.click("#theme")
        assert page.evaluate(colours) == dark
        page.reload()
        page.wait_for_selector("#plot .main-svg")
        assert page.evaluate(colours) == dark


@pytest.mark.parametrize("width", [360, 1440])
def test_the_page_does_not_scroll_sideways_but_its_tables_do(browser, address, width):
    with watched(browser, address, viewport={"width": width, "height": 740}) as page:
        page.check("#all-keys")
        page.evaluate(UNFOLD)
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
        regions = page.locator("[role=region]").all()
        assert len(regions) == 4 + sum(map(len, SECTIONS.values()))
        for region in regions:
            assert region.get_attribute("tabindex") == "0" and region.get_attribute("aria-label")
            assert region.bounding_box()["width"] <= width
        if width == 360:
            page.locator("#runs [role=region]").focus()
            page.keyboard.press("ArrowRight")
            until(page, "document.activeElement.scrollLeft > 0")
