"""The written page in a browser: numbers are the records', controls work, nothing is executed or asked."""

import json
import math
import statistics
from pathlib import Path

import pytest
from roformer.report.recorded import find_runs

from roformer.report.dashboard.records import YOURS, read_runs
from roformer.report.reproduction import read_reproduction
from tests.browser.conftest import PLOT, SECTIONS, unfolded, until
from tests.browser.synthetic import HOSTILE, HOSTILE_NAME
from tests.conftest import REPOSITORY

TRACES = f"{PLOT}.data.map(t => ({{run: t.meta, name: t.name, x: t.x, y: t.y}}))"


def rows(page):
    """Return the ids of the runs that the table shows, in its order."""
    return page.eval_on_selector_all("#runs-body tr", "rows => rows.map(row => row.dataset.run)")


def box(page, run):
    return page.locator(f"#runs-body tr[data-run={json.dumps(run.folder)}] input")


def study(records, name):
    return [run for run in records if run.study == name]


# --- looked at -----------------------------------------------------------------------------------


def test_it_opens_without_a_complaint_and_asks_nothing(opened, page_file, records):
    """What was asked and logged is checked when it is closed, too."""
    assert opened.seen.complaints == []
    assert [url for url in opened.seen.requests if not url.startswith("data:")] == [
        page_file.as_uri()
    ]
    assert sorted(rows(opened)) == sorted(run.folder for run in records)


def test_every_number_of_the_table_is_the_summarys(opened, records):
    """Read again from the files, not from what the page was made of."""
    script = """rows => rows.map(row => [row.dataset.run,
        Object.fromEntries([...row.querySelectorAll('[data-value]')].map(
            cell => [cell.dataset.column ?? cell.dataset.metric, JSON.parse(cell.dataset.value)])),
        Object.fromEntries([...row.querySelectorAll('[data-value]')].map(
            cell => [cell.dataset.column ?? cell.dataset.metric, cell.innerText]))])"""
    found = {
        run: (values, shown)
        for run, values, shown in opened.eval_on_selector_all("#runs-body tr", script)
    }
    names = {
        "steps": "steps",
        "tokens": "tokens",
        "seconds": "wall_seconds",
        "speed": "tokens_per_second",
        "parameters": "parameters",
        "seed": "seed",
    }
    ended = [run for run in records if run.status in ("done", "degenerate")]
    assert len(ended) > 90
    for run in ended:
        (kept,) = find_runs([Path(run.folder)])
        summary = kept.files["summary.json"]
        values, shown = found[run.folder]
        for column, key in names.items():
            assert values.pop(column) == summary[key], (run.name, column)
            assert abs(float(shown[column].replace(",", "")) - summary[key]) <= 0.5
        assert values and summary.get("headline", next(iter(values))) in values
        for metric, value in values.items():
            assert value == summary["metrics"][metric], (run.name, metric)
            text = shown[metric].split()[-1]
            if value is None:
                assert text == "NaN"
            else:
                assert math.isclose(float(text), value, rel_tol=1e-3, abs_tol=1e-4)


def test_headers_count_your_runs_and_the_recorded(opened, records):
    yours = [run for run in records if run.study == YOURS]
    shown = opened.inner_text("#counts").split()
    assert shown[:2] == [str(len(yours)), "runs"] and len(yours) > 1
    for status in ("running", "damaged"):
        count = sum(run.status == status for run in yours)
        assert shown[shown.index(status) - 1] == str(count) != "0"
    assert shown[-2:] == [str(len(records) - len(yours)), "recorded"]


def test_the_first_screen_is_your_runs_beside_the_record_and_the_paper(opened, records):
    """Its rows are those of the terminal; what of yours still runs is a curve below it."""
    expected = read_reproduction(REPOSITORY / "experiments", records)
    shown = opened.eval_on_selector_all(
        "#yours-table tr[data-metric]",
        "rows => rows.map(row => [...row.cells].map(c => c.textContent))",
    )
    assert shown == [
        [r.metric, r.paper, r.record, r.here, r.holds, r.verdict, r.spread] for r in expected
    ]
    assert expected[0].here.startswith("running") and expected[0].verdict == "RoFormer: running"
    first = opened.locator("#yours-table tr[data-metric]").first.bounding_box()
    assert first["y"] + first["height"] < 450
    tops = "['yours', 'curves', 'runs', 'sections'].map(id => byId(id).getBoundingClientRect().top)"
    assert opened.evaluate(tops) == sorted(opened.evaluate(tops))
    assert [trace["run"] for trace in opened.evaluate(TRACES)] == [
        run.folder for run in records if run.study == YOURS and run.curves
    ]


def test_recorded_studies_are_folded_until_they_are_asked_for(page):
    assert page.locator("#sections .report").first.is_hidden()
    page.click("#nav .made a")
    assert page.locator("#sections .report").first.is_visible()


def test_why_a_run_is_not_done_can_be_read(opened, records):
    for run in records:
        if run.status in ("failed", "degenerate", "damaged", "running"):
            row = opened.locator(f"#runs-body tr[data-run={json.dumps(run.folder)}]")
            assert run.reason and row.locator(".reason").text_content() == run.reason


def test_hostile_names_are_text(opened):
    """In the table, the filters, the sections, the configs and the plot."""
    assert opened.locator("#runs-body code", has_text="<img src=x").count() == 1
    assert opened.locator("#runs-body .reason", has_text=HOSTILE).count() == 1
    assert opened.locator(f"#filter-model option[value={json.dumps(HOSTILE)}]").count() == 1
    assert opened.locator("#sections h2").all_text_contents() == list(SECTIONS)
    assert opened.locator("#sections code").text_content() == 'make glue-table RUNS="runs/glue/*"'
    assert opened.locator("img, main script, #plot a, b b").count() == 0
    assert opened.evaluate("document.scripts.length") == 4


def test_the_policy_executes_nothing_else(opened):
    """Neither a script that found its way in, nor a handler, nor a request."""
    content = opened.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert content.startswith("default-src 'none'; script-src 'sha256-")
    script_sources = content.split(";")[1]
    assert "unsafe" not in script_sources and "connect-src 'none'" in content
    with watched_quietly(opened) as page:
        page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.executed = true";
                document.body.append(script);
                const button = document.createElement("button");
                button.setAttribute("onclick", "window.executed = true");
                document.body.append(button);
                button.click();
            }"""
        )
        assert page.evaluate("window.executed") is None
        refused = "fetch('https://example.org').then(() => 'asked', () => 'refused')"
        assert page.evaluate(refused) == "refused"


def watched_quietly(opened):
    """Return the same page in a context of its own, in which complaints are meant."""

    class Quiet:
        def __enter__(self):
            self.context = opened.context.browser.new_context()
            page = self.context.new_page()
            page.goto(opened.url)
            return page

        def __exit__(self, *_):
            self.context.close()

    return Quiet()


# --- used ----------------------------------------------------------------------------------------


def test_filters_leave_the_rows_that_match(page, records):
    page.select_option("#filter-pipeline", "wmt")
    expected = [run.folder for run in records if run.pipeline == "wmt"]
    assert sorted(rows(page)) == sorted(expected) and 6 <= len(expected) < len(records)
    page.fill("#filter-text", "Multi30K shaw")
    expected = [run for run in expected if "multi30k" in run and "shaw" in run]
    assert rows(page) == expected != []
    assert page.inner_text("#shown") == f"{len(expected)} of {len(records)} runs"
    page.click("#reset")
    assert len(rows(page)) == len(records)
    page.select_option("#filter-status", "damaged")
    assert [run.split("/")[-1] for run in rows(page)] == ["damaged-s0"]


def test_overlaid_runs_are_their_records_points(page, records):
    one, another = study(records, "pretraining_builtin")[:2]
    box(page, one).check()
    box(page, another).check()
    page.select_option("#metric", "train/loss")
    traces = {trace["run"]: trace for trace in page.evaluate(TRACES)}
    assert set(traces) == {one.folder, another.folder}
    for run in (one, another):
        (kept,) = find_runs([Path(run.folder)])
        lines = kept.files["metrics.jsonl"]
        points = [(line["step"], line["train/loss"]) for line in lines if "train/loss" in line]
        assert list(zip(traces[run.folder]["x"], traces[run.folder]["y"], strict=True)) == points
        page.select_option("#axis", "tokens")
        tokens = [line["data/tokens"] for line in lines if "train/loss" in line]
        (trace,) = [t for t in page.evaluate(TRACES) if t["run"] == run.folder]
        assert trace["x"] == tokens
        page.select_option("#axis", "updates")
    page.check("#log")
    assert page.evaluate(f"{PLOT}.layout.yaxis.type") == "log"
    page.click("#clear-curves")
    assert page.locator("#runs-body input:checked").count() == 0
    assert "No run is checked" in page.inner_text("#curves-note")


@pytest.mark.slow
def test_hostile_names_are_text_in_the_plot(page, records):
    """plotly.js reads tags in names: they are printed."""
    (hostile,) = [run for run in records if run.name.startswith("<img")]
    box(page, hostile).check()
    assert page.locator("#metric option").all_text_contents() == sorted(hostile.curves)
    for metric in hostile.curves:
        page.select_option("#metric", metric)
        assert page.evaluate(TRACES)[0]["y"] == [hostile.curves[metric][0].value]
        assert page.locator("#plot .ytitle").text_content() == metric
    assert page.locator("#plot .legendtext").text_content() == (
        f"{HOSTILE} ({HOSTILE}), {HOSTILE}, seed 0"
    )
    page.select_option("#one", hostile.folder)
    page.check("#all-keys")
    row = page.locator("#compare-table tr[data-key=commit] td").first
    assert row.text_content() == HOSTILE
    assert page.inner_text("#compare-one").startswith(HOSTILE_NAME[:10])
    assert page.locator("img, main script, #plot a").count() == 0


@pytest.mark.slow
def test_the_band_is_mean_and_standard_deviation_over_the_seeds(page, records):
    for run in study(records, "seeds"):
        box(page, run).check()
    page.check("#band")
    low, high, mean = page.evaluate(TRACES)
    curves = [[4.0, 3.0], [4.5, 3.25], [5.0, 3.75]]
    for at, values in enumerate(zip(*curves, strict=True)):
        middle, spread = statistics.fmean(values), statistics.stdev(values)
        assert mean["y"][at] == pytest.approx(middle, rel=1e-12)
        assert low["y"][at] == pytest.approx(middle - spread, rel=1e-12)
        assert high["y"][at] == pytest.approx(middle + spread, rel=1e-12)
    assert mean["x"] == [10, 20] and mean["name"] == "roformer (rotary), mean of 3 seeds"


@pytest.mark.slow
def test_two_configs_differ_where_they_do(page, records):
    one, another = study(records, "glue_builtin")[0], study(records, "wmt_multi30k")[1]
    page.select_option("#one", one.folder)
    page.select_option("#another", another.folder)
    script = """rows => rows.map(row => [row.dataset.part, row.dataset.key,
        ...[...row.querySelectorAll('td')].map(
            cell => cell.className === 'muted' ? null : cell.textContent)])"""

    def shown():
        return page.eval_on_selector_all("#compare-table tr[data-key]", script)

    def compared(differing):
        for part in ("config", "environment"):
            a, b = getattr(one, part), getattr(another, part)
            if part == "environment":
                a, b = a | {"command": one.command}, b | {"command": another.command}
            for key in sorted(a.keys() | b.keys()):
                if not differing or a.get(key) != b.get(key):
                    yield [part, key, a.get(key), b.get(key)]

    assert shown() == list(compared(True))
    page.check("#all-keys")
    assert shown() == list(compared(False))
    assert len(shown()) > len(list(compared(True))) > 20


@pytest.mark.slow
def test_the_table_is_sorted_by_the_keyboard_alone(page, records):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.ariaLabel"))
        if page.evaluate("document.activeElement.textContent") == "Updates":
            break
    assert {"theme", "filter-text", "filter-status", "reset", "Table of runs"} <= reached
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    by_name = {run.folder: run for run in records}
    for direction in ("ascending", "descending"):
        page.keyboard.press("Enter")
        assert page.locator("th[aria-sort=ascending], th[aria-sort=descending]").count() == 1
        sort = "document.activeElement.closest('th').getAttribute('aria-sort')"
        assert page.evaluate(sort) == direction
        steps = [by_name[run].steps for run in rows(page) if by_name[run].steps is not None]
        assert steps == sorted(steps, reverse=direction == "descending") and len(set(steps)) > 3
        assert by_name[rows(page)[-1]].steps is None  # the one that was not counted


@pytest.mark.slow
def test_commands_are_copied(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    unfolded(page).click(".command button")
    until(page, "document.querySelector('.command button').textContent !== 'Copy'")
    command = SECTIONS["Against the paper"][0].command
    assert page.evaluate("getSelection().toString()") == command
    assert page.inner_text(".command button") == "Copied"
    assert page.evaluate("navigator.clipboard.readText()") == command


@pytest.mark.slow
def test_zoom_and_hidden_curves_stay_when_a_run_is_added(page, records):
    """The added one comes before the hidden one."""
    another, one = study(records, "pretraining_builtin")[:2]
    box(page, one).check()
    before = page.evaluate(f"{PLOT}._fullLayout.xaxis.range")
    page.locator("#plot").scroll_into_view_if_needed()
    area = page.locator("#plot .nsewdrag").bounding_box()
    middle = area["y"] + area["height"] / 2
    page.mouse.move(area["x"] + area["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.75, middle, steps=5)
    page.mouse.up()
    until(page, f"{PLOT}._fullLayout.xaxis.range[0] > {before[0]} + 100")
    zoomed = page.evaluate(f"{PLOT}._fullLayout.xaxis.range")
    page.locator("#plot .legendtoggle").click()
    until(page, f"{PLOT}._fullData[0].visible === 'legendonly'")
    box(page, another).check()
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.range") == zoomed
    assert page.evaluate(f"{PLOT}._fullData.map(t => t.visible)") == [True, "legendonly"]
    page.select_option("#axis", "tokens")
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.range")[1] > 1e6


def test_the_roots_are_read_as_the_page_shows_them(roots, records):
    assert read_runs(roots) == records
