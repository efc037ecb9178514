"""The dashboard's data: what of the records it has, and that nothing in it is markup by accident."""

import base64
import gzip
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.report.dashboard.page import _asset, _cell, build_page, data_json, thinned
from roformer.report.runs import YOURS, read_runs, write_recorded
from roformer.report.tables import Table
from tests.property.hostile import fuzz
from tests.report.records import HOSTILE, write_hostile_run, write_run

LOSSES = {10: 5.0, 20: 4.5}


def shown(*roots, sections=None):
    """Return the page's data."""
    return json.loads(data_json(read_runs(roots, strict=False), sections or {}))


@given(st.randoms(use_true_random=True), st.integers(1, 1500), st.sampled_from([500, 50, 10]))
@fuzz(60)
def test_a_thinned_curve_keeps_ends_and_extremes(random, length, longest):
    values = [np.nan if random.random() < 0.01 else random.gauss(0, 1) for _ in range(length)]
    values = np.array(values)
    kept = thinned(values, longest)
    assert len(kept) <= longest or len(kept) == length <= longest
    assert list(kept) == sorted({*kept, 0, length - 1})
    if np.isfinite(values).any():
        assert np.nanmin(values[kept]) == np.nanmin(values)
        assert np.nanmax(values[kept]) == np.nanmax(values)
    assert np.isnan(values).any() == np.isnan(values[kept]).any()


def test_markup_in_records_is_escaped(tmp_path):
    write_hostile_run(tmp_path)
    sections = {HOSTILE: [Table(HOSTILE, [["\u2028", HOSTILE], ["a", HOSTILE]], notes=[HOSTILE])]}
    data = shown(tmp_path, sections=sections)
    (run,) = data["runs"]
    assert run["curves"].keys() == {HOSTILE, "__proto__", "constructor", "<b>bold</b>"}
    assert "<script" not in json.dumps(data["parts"]) and "&lt;script" in data["parts"]["sections"]
    page = build_page(data_json(read_runs([tmp_path]), sections))
    assert page.count("</script>") == page.count("<script") == 4 and "alert(1)" not in page
    packed = re.search(r'id="data">(.*?)</script>', page)[1]
    assert "alert(1)" in gzip.decompress(base64.b64decode(packed)).decode()


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.05 + np.dot(linear, [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_all_text_and_curves_stand_out_from_their_background(theme):
    """WCAG's 4.5 for text; 3 for the colours of curves."""
    found = re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\)", _asset("page.css"))
    colours = {name: luminance(both[theme]) for name, *both in found}
    curves = re.search(r"COLOURS = \[(.*?)\]", _asset("page.js"))[1]
    least = dict.fromkeys(("text", "muted", "accent", "good", "odd", "bad"), 4.5)
    least |= dict.fromkeys(re.findall(r"#\w{6}", curves), 3)
    assert len(least) == 6 + 8
    for background in (colours["page"], colours["raised"]):
        for name, ratio in least.items():
            darker, lighter = sorted([background, colours.get(name) or luminance(name)])
            assert lighter / darker >= ratio, name


def test_your_run_and_its_record_are_not_seeds_of_each_other(tmp_path):
    local = write_run(tmp_path / "runs/pretrain/same-s0", losses=LOSSES)
    write_run(tmp_path / "runs/pretrain/same-s1", losses=LOSSES, seed=1)
    write_recorded(tmp_path / "experiments/study", [local])
    first, second, record = shown(tmp_path / "experiments", tmp_path / "runs")["runs"]
    assert [run["study"] for run in (first, second, record)] == [YOURS, YOURS, "study"]
    assert first["configuration"] == second["configuration"] != record["configuration"]
    assert len({run["key"] for run in (first, second, record)}) == 3


def test_a_running_run_has_its_elapsed_time_and_last_values(tmp_path):
    folder = write_run(tmp_path / "runs/pretrain/a-s0", losses=LOSSES, status=None)
    environment = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_text(
        json.dumps(environment | {"started": "2026-01-01T00:00:00+00:00"})
    )
    data = shown(tmp_path / "runs")
    (run,) = data["runs"]
    assert (run["status"], run["steps"], run["score"]) == ("running", 20, 4.5)
    assert run["wall_seconds"] > 0 and data["first"] == YOURS
    assert "1</b> runs of yours" in data["parts"]["counts"]


def test_configurations_are_named_by_what_tells_them_apart(tmp_path):
    """Seeds have the same name."""
    for seed, rate in enumerate((0.001, 0.001, 0.002)):
        write_run(tmp_path / f"runs/pretrain/a-s{seed}", losses=LOSSES, rate=rate, seed=seed)
    names = [run["name"] for run in shown(tmp_path / "runs")["runs"]]
    name = "roformer (rotary), learning_rate="
    assert names == [f"{name}{rate}" for rate in (0.001, 0.001, 0.002)]


def test_only_what_is_claimed_is_good_or_bad():
    """In brackets the paper's own numbers have the model behind."""
    styles = {"yes": "good", "no": "bad", "off by 0.3": "odd"}
    assert all(f'class="{style}"' in _cell(text) for text, style in styles.items())
    assert "class" not in _cell("(no)") + _cell("(yes)")
