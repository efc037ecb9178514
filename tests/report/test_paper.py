"""The paper's numbers have sources, claims have verdicts, and stages are rows below Table 4."""

import re

import numpy as np
import pytest

from roformer.report.pages import run_tables, script_of
from roformer.report.runs import read_runs
from roformer.report.studies import read_study
from tests.recorded_runs import EXPERIMENTS
from tests.report.records import curve, record

PAPER, STAGES = script_of(""), script_of("stages")


@pytest.fixture(scope="module")
def paper():
    return PAPER["read_paper"]()


def test_the_bound_is_that_of_the_formula(paper):
    """Fig. 2 by Eq. 35 to 37, computed again with numpy."""
    for value in paper["experiments"]["figure_2"]["numbers"]:
        size, distance = int(value["model"].split()[-1]), int(value["metric"].split()[-1])
        angles = distance * 10_000.0 ** (-2 * np.arange(size // 2) / size)
        bound = np.abs(np.cumsum(np.exp(1j * angles))).mean()
        assert value["value"] == round(float(bound), 2), value


def test_the_numbers_name_known_sources_metrics_and_models_once(paper):
    for about in paper["experiments"].values():
        models = {(model["model"], model["position"]) for model in about["models"]}
        for value in about["numbers"]:
            assert (value["model"], value["position"]) in models
            assert value["metric"] in about["metrics"] and value["source"] in paper["sources"]
            assert (value["origin"] == "copied") == (value["source"] != about["by"])
        cells = {(v["model"], v["metric"], v["split"]) for v in about["numbers"]}
        assert len(cells) == len(about["numbers"])


def test_an_installed_package_says_that_it_has_no_numbers_of_the_paper(tmp_path, monkeypatch):
    """Only the table of stages needs them: other runs have their tables."""
    monkeypatch.setattr("roformer.report.pages.EXPERIMENTS", tmp_path)
    training = {"sequence_length": 128, "batch_size": 16}
    stage = record(tmp_path / "s", recipe="stages_mini", config={"training": training})
    missing, other = run_tables(read_runs([stage, record(tmp_path / "p", rows=curve((5.0,)))]))
    assert "is not part of an installed package" in missing.lines[1][0]
    assert other.title == "valid/mlm_loss at equal steps"


def test_every_claim_has_a_verdict_with_the_numbers_of_its_study(paper):
    table = PAPER["claims_table"](EXPERIMENTS)
    assert len(table.lines) == 1 + len(paper["claims"]) == 9
    for key, (*_, result, verdict, again) in zip(paper["claims"], table.lines[1:], strict=True):
        study = read_study(EXPERIMENTS / paper["experiments"][key]["ours"]["study"])
        assert study.folder.parent == EXPERIMENTS
        assert verdict in PAPER["VERDICTS"] and (study.path in again or not study.configurations)
        report = (study.folder / "REPORT.md").read_text()
        for number in re.findall(r"\d+\.\d+", result):
            assert number in report, number


def test_stages_stand_below_table_4_in_their_order(tmp_path):
    """A continuation names the run that it starts from; a training whose end failed is skipped."""

    def stage(name, length, loss, before=None, **more):
        training = {"sequence_length": length, "batch_size": 16}
        metrics = {"valid/mlm_loss": loss, "valid/mlm_accuracy": 0.318}
        config = {"training": training, "init_from": before}
        record(tmp_path / name, recipe="stages_mini", metrics=metrics, config=config, **more)

    stage("a", 128, 3.63)
    stage("b", 1024, 2.64, "a")
    stage("c", 128, 3.65, seed=1)
    stage("d", 1024, None, "c", seed=1, status="failed")
    frame = read_runs(tmp_path / name for name in "abcd").runs
    name = "ours: roformer (rotary): 20 of 16 × 128, then 20 of 16 × 1024; after stage"
    assert STAGES["stage_rows"](frame) == {
        f"{name} {number}": {"length": length, "loss": loss, "accuracy": "31.8 (1)"}
        for number, length, loss in ((1, "128", "3.63 (1)"), (2, "1,024", "2.64 (1)"))
    }
