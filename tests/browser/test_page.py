"""The written page in a browser: numbers are the records', controls work, no script or request gets in."""

import json
import statistics

import pytest

from roformer.report.runs import YOURS
from tests.browser.conftest import PLOT, SECTIONS, unfolded, until
from tests.browser.synthetic import HOSTILE

TRACES = f"{PLOT}.data.map(t => ({{run: t.meta, name: t.name, x: [...t.x], y: [...t.y]}}))"


def rows(page):
    """Return the folders of the runs that the table shows, in its order."""
    return page.eval_on_selector_all("#runs-table tbody tr", "rows => rows.map(r => r.dataset.run)")


def row_of(page, run):
    return page.locator(f"#runs-table tr[data-run={json.dumps(run.folder)}]")


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
    of_run = (found.study == run.study) & (found.run == run.run)
    return found[of_run & (found.metric == metric)]


# --- looked at -----------------------------------------------------------------------------------


def test_the_page_requests_nothing_and_lists_every_run_yours_first(opened, page_file, records):
    """What was requested and logged is checked when it is closed, too."""
    asked = [url for url in opened.seen.requests if not url.startswith("data:")]
    assert asked == [page_file.as_uri()] and opened.seen.complaints == []
    shown = rows(opened)
    assert sorted(shown) == sorted(run.folder for run in records)
    yours = {run.folder for run in records if run.study == YOURS}
    assert set(shown[: len(yours)]) == yours and len(yours) > 1


def test_the_numbers_of_the_table_are_those_of_the_summaries(opened, records):
    script = """rows => rows.map(row => [row.dataset.run,
        [...row.querySelectorAll('.number')].map(cell => [cell.innerText, cell.firstChild.title])])"""
    found = dict(opened.eval_on_selector_all("#runs-table tbody tr", script))
    ended = [run for run in records if run.status in ("done", "degenerate")]
    assert len(ended) > 90
    keys = ("seed", "steps", "tokens", "wall_seconds", "tokens_per_second", "parameters")
    for run in ended:
        seed, score, *numbers = found[run.folder]
        for key, (text, title) in zip(keys, (seed, *numbers), strict=True):
            assert float(title) == run.summary[key], (run.run, key)
            assert abs(float(text.replace(",", "")) - run.summary[key]) <= 0.5
        metric, value = score[0].split()
        assert metric == run.headline
        assert float(value) == pytest.approx(run.score, rel=1e-3, nan_ok=True)
        titles = dict(line.split(" = ") for line in score[1].split("\n"))
        assert float(titles[metric]) == pytest.approx(run.score, rel=1e-15, nan_ok=True)
        assert set(titles) == set(run.summary["metrics"])


def test_the_head_counts_your_runs_by_status_and_the_recorded_ones(opened, records):
    yours = study(records, YOURS)
    assert opened.inner_text("#counts").split("\n") == [
        f"{len(yours)} runs of yours",
        *("1 running", "1 damaged"),
        f"{len(records) - len(yours)} recorded",
    ]


def test_the_first_screen_is_your_runs_beside_the_record_and_the_paper(
    opened, records, reproduction
):
    """Its rows are those of the terminal; what of yours still runs is a curve below it."""
    shown = opened.eval_on_selector_all(
        "#results tbody tr", "rows => rows.map(row => [...row.cells].map(c => c.textContent))"
    )
    assert [cells[1:-1] for cells in shown] == [
        [r.metric, r.paper, r.record, r.here, r.holds, r.verdict, r.spread] for r in reproduction
    ]
    assert shown[0][4].startswith("running") and shown[0][6] == "RoFormer: running"
    first = opened.locator("#results tbody tr").first.bounding_box()
    assert first["y"] + first["height"] < 450
    tops = "['yours', 'curves', 'runs', 'sections'].map(id => byId(id).getBoundingClientRect().top)"
    assert opened.evaluate(tops) == sorted(opened.evaluate(tops))
    drawn = [trace["run"] for trace in opened.evaluate(TRACES)]
    assert drawn == [run.folder for run in study(records, YOURS) if run.status == "running"]


def test_recorded_studies_are_folded_until_they_are_linked_to(page):
    assert page.locator("#sections .report").first.is_hidden()
    page.click("#links a")
    assert page.locator("#sections .report").first.is_visible()


def test_the_reason_of_a_run_that_is_not_done_is_shown(opened, records):
    for run in records:
        if run.status in ("failed", "degenerate", "damaged", "running"):
            assert (
                run.reason and row_of(opened, run).locator(".reason").text_content() == run.reason
            )
            assert row_of(opened, run).locator(f".status.{run.status}").count() == 1


def test_hostile_names_are_text(page, frames, records):
    """In the table, its filters, the sections, the configs and the plot, whose names may have tags."""
    assert page.locator("#runs-table code", has_text="<img src=x").count() == 1
    assert page.locator("#runs-table .reason", has_text=HOSTILE).count() == 1
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


def test_the_policy_allows_no_other_script_handler_or_request(opened):
    content = opened.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert content.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in content.split(";")[1] and "connect-src 'none'" in content
    page = opened.context.browser.new_page()  # one in which complaints are meant
    page.goto(opened.url)
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.executed = true";
            const button = document.createElement("button");
            button.setAttribute("onclick", "window.executed = true");
            document.body.append(script, button);
            button.click();
        }"""
    )
    assert page.evaluate("window.executed") is None
    refused = "fetch('https://example.org').then(() => 'asked', () => 'refused')"
    assert page.evaluate(refused) == "refused"
    page.close()


# --- used ----------------------------------------------------------------------------------------


def test_filters_leave_the_rows_that_match(page, records):
    choose(page, "pipeline", "wmt")
    expected = [run.folder for run in records if run.pipeline == "wmt"]
    assert sorted(rows(page)) == sorted(expected) and 6 <= len(expected) < len(records)
    page.fill("#runs input[type=search]", "Multi30K shaw")
    expected = [run for run in expected if "multi30k" in run and "shaw" in run]
    assert rows(page) == expected != []
    assert page.inner_text(".dt-info") == f"{len(expected)} runs of {len(records)}"
    page.get_by_role("button", name="Reset filters").click()
    assert len(rows(page)) == len(records)
    choose(page, "status", "damaged")
    assert [run.split("/")[-1] for run in rows(page)] == ["damaged-s0"]


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
    page.click("#clear-curves")
    assert page.locator("#runs-table tbody input:checked").count() == 0
    assert "No run is selected" in page.inner_text("#curves-note")


@pytest.mark.slow
def test_the_band_is_mean_and_standard_deviation_over_the_seeds(page, records):
    page.fill("#runs input[type=search]", "mini-0000")
    page.get_by_role("button", name="Select all shown").click()
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

    def texts(run, part):
        found = run.environment | {"command": run.command} if part == "environment" else run.config
        return {k: v if isinstance(v, str) else json.dumps(v) for k, v in found.items()}

    def expected(*, differing):
        for part in ("config", "environment"):
            a, b = texts(one, part), texts(another, part)
            for key in sorted(a.keys() | b.keys()):
                if not differing or a.get(key) != b.get(key):
                    yield [part, key, a.get(key), b.get(key)]

    for differing in (True, False):
        shown = page.eval_on_selector_all("#compare-table tr[data-key]", script)
        assert shown == list(expected(differing=differing)) and len(shown) > 20
        page.check("#all-keys")


@pytest.mark.slow
def test_the_table_is_filtered_sorted_and_selected_by_the_keyboard_alone(page, records):
    page.keyboard.press("Tab")
    focused = "document.activeElement"
    assert page.evaluate(f"{focused}.className") == "skip"
    reached = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(f"{focused}.id || {focused}.ariaLabel || {focused}.textContent"))
        if page.evaluate(f"{focused}.ariaLabel?.startsWith('Steps')"):
            break
    assert {"theme", "metric", "Select all shown", "Filter by status", "Table of runs"} <= reached
    assert page.evaluate(f"getComputedStyle({focused}).outlineStyle") != "none"
    by_folder = {run.folder: run for run in records}
    for direction in ("ascending", "descending"):
        page.keyboard.press("Enter")
        assert page.locator(f"th[aria-sort={direction}]").count() == 1
        steps = [by_folder[run].steps for run in rows(page)]
        counted = [step for step in steps if step is not None]
        assert counted == sorted(counted, reverse=direction == "descending")
        assert len(set(counted)) > 3 and steps[-1] is None  # the one that was not counted
    page.locator("#runs-table tbody input").first.focus()
    page.keyboard.press("Space")
    assert page.inner_text("#curves-note") == "Selected runs: 1."


@pytest.mark.slow
def test_commands_are_copied(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    unfolded(page).click(".command button")
    until(page, "document.querySelector('.command button').textContent === 'Copied'")
    command = SECTIONS["Against the paper"][0].command
    assert page.evaluate("navigator.clipboard.readText()") == command


@pytest.mark.slow
def test_zoom_and_hidden_curves_stay_when_a_run_is_added(page, records):
    """The added one comes before the hidden one."""
    another, one = study(records, "pretraining_builtin")[:2]
    select(page, one)
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
    select(page, another)
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.range") == zoomed
    assert page.evaluate(f"{PLOT}._fullData.map(t => t.visible)") == [True, "legendonly"]
    page.select_option("#axis", "tokens")
    assert page.evaluate(f"{PLOT}._fullLayout.xaxis.range")[1] > 1e6
