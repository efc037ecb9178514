"""The paper's numbers: all there, as printed, and never in one column with ours."""

import re
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from roformer.report.pages import run_tables
from roformer.report.paper import (
    Ours,
    against_paper,
    claims,
    control_tables,
    others_table,
    paper_sections,
    read_paper,
    stages_table,
)
from roformer.report.runs import RecordError, read_runs, write_recorded
from roformer.report.studies import Study, read_studies
from tests.recorded_runs import EXPERIMENTS
from tests.report.records import curve, record

NUMBERS = {
    "table_1": [
        ("Transformer-base (sinusoidal)", "paper, test (copied)", "27.3"),
        ("RoFormer (rotary)", "paper, test", "27.5"),
    ],
    "table_2": [
        ("BERT (learned)", "paper, test (copied)", "88.9 93.5 90.5 85.8 71.2 84.6 83.4"),
        ("RoFormer (rotary)", "paper, validation", "89.5 90.7 88.0 87.0 86.4 80.2 79.8"),
    ],
    "table_3": [],
    "table_4": [
        ("stage 1 (rotary)", "paper, split not said", "1.73 65.0"),
        ("stage 2 (rotary)", "paper, split not said", "1.61 66.8"),
        ("stage 3 (rotary)", "paper, split not said", "1.75 64.6"),
        ("stage 4 (rotary)", "paper, split not said", "1.83 63.4"),
        ("stage 5 (rotary)", "paper, split not said", "1.58 67.4"),
        ("stage 6 (rotary)", "paper, split not said", "1.66 66.2"),
    ],
    "table_5": [
        ("BERT-512 (absolute)", "paper, validation", "64.13"),
        ("BERT-512 (absolute)", "paper, test", "67.77"),
        ("WoBERT-512 (absolute)", "paper, validation", "64.07"),
        ("WoBERT-512 (absolute)", "paper, test", "68.10"),
        ("RoFormer-512 (rotary)", "paper, validation", "64.13"),
        ("RoFormer-512 (rotary)", "paper, test", "68.29"),
        ("RoFormer-1024 (rotary)", "paper, validation", "66.07"),
        ("RoFormer-1024 (rotary)", "paper, test", "69.79"),
    ],
    "shaw": [
        ("base (sinusoidal)", "Shaw et al. 2018, test", "26.5 38.2"),
        ("base (relative)", "Shaw et al. 2018, test", "26.8 38.7"),
        ("big (sinusoidal)", "Shaw et al. 2018, test", "27.9 41.2"),
        ("big (relative)", "Shaw et al. 2018, test", "29.2 41.5"),
    ],
    "figure_3_left": [],
    "figure_3_right": [],
    "clm": [],
}
"""Table → row, column and its numbers as the papers print them, one a metric."""
CAVEATS = {
    "table_1": ["P6"],
    "table_2": ["P1", "P4"],
    "table_4": ["P7"],
    "table_5": ["P2", "P3", "P7"],
    "figure_2": ["P8"],
    "figure_3_left": ["P4", "P5"],
}
OURS = {
    "table_1": [
        Ours("BLEU", "roformer (rotary)", "builtin", "test, sacreBLEU", "11.11 (3)", "s1"),
        Ours("BLEU", "roformer (rotary)", "builtin", "test, compound BLEU", "22.22 (3)"),
        Ours("BLEU", "roformer (rotary)", "news", "test, sacreBLEU", "33.33 (1)", "s1"),
    ],
    "table_2": [
        Ours("MRPC F1", "bert (learned)", "builtin", "validation", "44.4 ± 0.1 (5)"),
        Ours("QQP F1", "roformer (rotary)", "builtin", "validation", "55.5 (1)"),
    ],
    "figure_3_left": [
        Ours("masked-LM loss", "bert (learned)", "builtin", "validation", "8.888 (3)")
    ],
}
"""Numbers of ours that no paper has."""


@pytest.fixture(scope="module")
def paper():
    return read_paper()


def printed(paper, key):
    """Return (metric, model, header) → number of the paper's table."""
    metrics = paper["experiments"][key]["metrics"]
    return {
        (metric, model, column): number
        for model, column, numbers in NUMBERS[key]
        for metric, number in zip(metrics, numbers.split(), strict=True)
    }


def cells(table):
    """Return (metric, model, header) → filled cells that are numbers."""
    header, *rows = table.lines
    found = {}
    for row in rows:
        for name, cell in list(zip(header, row, strict=True))[table.text_columns :]:
            if cell not in ("", "not run", "no number"):
                found[row[0], row[1], name] = cell
    return found


# --- the paper's numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("key", NUMBERS)
def test_a_table_prints_every_number_under_its_split_and_no_other(paper, key):
    assert cells(against_paper(paper, key)) == printed(paper, key)


def test_words_of_tables_3_and_4_and_the_sources_of_copied_numbers(paper):
    words = [row[1:3] for row in against_paper(paper, "table_3").lines[1:]]
    assert words == [
        ["BERT (absolute)", "characters"],
        ["WoBERT (absolute)", "words"],
        ["NEZHA (relative)", "characters"],
        ["RoFormer (rotary)", "words"],
    ]
    stages = ["512 256 200,000", "1,536 256 12,500", "256 256 120,000"]
    stages += ["128 512 80,000", "1,536 256 10,000", "512 512 30,000"]
    rows = [" ".join(row[2:5]) for row in against_paper(paper, "table_4").lines[1:]]
    assert rows == 2 * stages
    bert = [row for row in against_paper(paper, "table_2").lines if row[1] == "BERT (learned)"]
    assert {row[2] for row in bert} == {"Devlin et al. 2019 (BERT), Table 1"}


def test_the_bound_is_that_of_the_formula(paper):
    """Fig. 2 by Eq. 35 to 37, once more and by numpy."""
    for value in paper["experiments"]["figure_2"]["numbers"]:
        size, distance = int(value["model"].split()[-1]), int(value["metric"].split()[-1])
        angles = distance * 10_000.0 ** (-2 * np.arange(size // 2) / size)
        bound = np.abs(np.cumsum(np.exp(1j * angles))).mean()
        assert value["value"] == round(float(bound), 2), value


def test_the_gaps_of_table_5_are_those_of_its_numbers(paper):
    test = {n["model"]: n["value"] for n in paper["experiments"]["table_5"]["numbers"][4:]}
    gaps = [note for note in against_paper(paper, "table_5").notes if note.startswith("Within")]
    for model, note in zip(("WoBERT-512", "RoFormer-512"), gaps, strict=True):
        assert f"{test['RoFormer-1024'] - test[model]:.2f} points above {model}" in note
        error = 100 * np.sqrt(0.6979 * (1 - 0.6979) / 1536)
        assert f"1,536 examples; one accuracy has a standard error of {error:.1f} points" in note


@pytest.mark.parametrize("key", [*NUMBERS, "figure_2"])
def test_caveats_are_printed_with_and_without_ours(paper, key):
    for ours in ([], OURS.get(key, [])):
        table = against_paper(paper, key, ours)
        found = [note[:2] for note in table.notes if re.match(r"P\d\. ", note)]
        assert found == CAVEATS.get(key, [])
        assert " Here: " in table.markdown() or not found


def test_every_name_in_the_papers_numbers_is_there(paper):
    """Sources, caveats, metrics and models that are named; a cell has one number."""
    experiments = paper["experiments"]
    assert set(paper["claims"]) <= set(experiments) and paper["paper"] in paper["sources"]
    assert list(paper["caveats"]) == sorted({name for names in CAVEATS.values() for name in names})
    assert {other["about"] for other in paper["others"]} <= set(experiments)
    for key, about in experiments.items():
        rows = {(model["model"], model["position"]) for model in about["models"]}
        found = set()
        for value in about["numbers"]:
            assert (value["model"], value["position"]) in rows
            assert value["metric"] in about["metrics"] and value["source"] in paper["sources"]
            assert all(key in paper["caveats"][name]["tables"] for name in value.get("caveats", ()))
            assert (value["origin"] == "copied") == (value["source"] != about["by"])
            found.add((value["model"], value["position"], value["metric"], value["split"]))
        assert len(found) == len(about["numbers"])
        for metric, _ in about.get("ours", {}).get("metrics", {}).values():
            assert metric in about["metrics"]


@pytest.mark.parametrize("text", ["paper: {", "- 1", "paper: x", None])
def test_a_damaged_file_is_one_line(tmp_path, text):
    file = tmp_path / "paper.yaml"
    if text:
        file.write_text(text)
    with pytest.raises(
        RecordError, match=r"paper\.yaml (is not the paper's numbers|cannot be read)"
    ):
        read_paper(file)


# --- ours beside them ----------------------------------------------------------------------------


def test_an_installed_package_says_that_it_has_no_numbers_of_the_paper(tmp_path, monkeypatch):
    """Only the table of stages needs them: other runs have theirs."""
    monkeypatch.setattr("roformer.report.paper.PAPER", tmp_path / "paper.yaml")
    training = {"sequence_length": 128, "batch_size": 16}
    stage = record(tmp_path / "s", recipe="stages_mini", config={"training": training})
    missing, other = run_tables(read_runs([stage, record(tmp_path / "p", rows=curve((5.0,)))]))
    assert "is not part of an installed package" in missing.lines[1][0]
    assert other.title == "valid/mlm_loss at equal steps"


@pytest.mark.parametrize("key", OURS)
def test_no_column_and_no_line_has_numbers_of_both(paper, key):
    table = against_paper(paper, key, OURS[key])
    found = cells(table)
    theirs = printed(paper, key)
    assert {place: found.pop(place) for place in theirs} == theirs
    expected = {(o.metric, o.model, f"ours, {o.column} (n)") for o in OURS[key]}
    assert set(found) == expected and {place[1][0] for place in found} <= {"r", "b"}
    assert any("no difference between them is taken" in note for note in table.notes)


def test_each_setting_has_its_line_and_signatures_are_told(paper):
    table = against_paper(paper, "table_1", OURS["table_1"])
    ours = [row[2:] for row in table.lines if row[1] == "roformer (rotary)"]
    assert ours == [
        ["builtin", "", "", "11.11 (3)", "22.22 (3)"],
        ["news", "", "", "33.33 (1)", ""],
    ]
    assert "Ours, test, sacreBLEU: s1" in table.notes


def test_what_was_not_run_says_so(paper):
    for key in ("table_3", "table_4", "figure_3_right"):
        table = against_paper(paper, key)
        assert table.lines[0][-1] == "ours" and {row[-1] for row in table.lines[1:]} == {"not run"}
    rows = against_paper(paper, "table_2", OURS["table_2"]).lines
    assert {row[0] for row in rows if "not run" in row} == set(
        paper["experiments"]["table_2"]["metrics"]
    ) - {
        "MRPC F1",
        "QQP F1",
    }


def test_numbers_that_would_mix_are_refused(paper):
    one = OURS["table_1"][0]
    with pytest.raises(RecordError, match="two values of BLEU, roformer"):
        against_paper(paper, "table_1", [one, one._replace(text="12.00 (3)")])
    with pytest.raises(RecordError, match="two signatures, s1 and s2"):
        against_paper(paper, "table_1", [one, one._replace(model="x", signature="s2")])


def test_third_parties_stand_in_their_own_table_alone(paper):
    others = others_table(paper)
    assert len(others.lines) == 1 + len(paper["others"]) and len(paper["others"]) >= 9
    rest = "".join(against_paper(paper, key).markdown() for key in NUMBERS)
    for value in ("91.282", "87.171", "63.07", "28.85"):
        assert f"| {value} |" in others.markdown() and f"| {value} |" not in rest


def test_the_recorded_studies_stand_beside_what_they_are_about(paper):
    """Means over seeds, each kind of BLEU, both splits, the chosen rates, constant predictors."""
    tables = paper_sections(paper, read_studies(EXPERIMENTS))  # toys too, which pages leave out
    assert [table.title.partition(":")[0] for table in tables][-1] == "Numbers of third parties"
    found = defaultdict(set)
    for table in tables[:-1]:
        for row in table.lines[1:]:
            found[row[0], row[1]].update(filter(None, row[table.text_columns :]))
    assert "3.346 (1)" in found["masked-LM loss", "roformer (rotary)"]
    assert (
        "3.287 ± 0.024 (3)"
        in found["bits per byte", "performer (rotary), model.attention.rope_position=post"]
    )
    assert found["QQP F1", "roformer (none)"] == {"0.0 (1, 1 constant)"}
    assert len(found["accuracy", "roformer-1024 (rotary)"]) == 3  # two splits builtin, one real
    assert {"99.48 (1)", "39.48 ± 0.10 (3)", "39.53 ± 0.08 (3)"} <= found[
        "BLEU", "roformer (rotary)"
    ]
    settings = {row[2] for table in tables for row in table.lines}
    assert "builtin, 4.9 M tokens of pre-training, mini" in settings
    assert "builtin, 4.9 M tokens in 600 steps, mini" in settings
    (bleu,) = (table for table in tables if table.title.startswith("Table 1"))
    assert sum("tok:13a" in note for note in bleu.notes) == 1


def test_a_run_that_did_not_end_well_is_named(paper, tmp_path):
    """A degenerate one counts, as in the study's own tables: to leave it out is to choose by outcome."""
    folder = tmp_path / "some_study"
    losses = {"metrics": {"valid/mlm_loss": 3.0}}
    runs = [
        record(tmp_path / "sound", seed=0, **losses),
        record(tmp_path / "degenerate", seed=1, status="degenerate", **losses),
        record(tmp_path / "failed", seed=2, status="failed"),
    ]
    write_recorded(folder, runs)
    table = paper_sections(paper, [study("figure_3_left", folder=folder)])[6]
    assert cells(table) == {
        ("masked-LM loss", "roformer (rotary)", "ours, validation (n)"): "3.000 ± 0.000 (2)"
    }
    assert {
        "Left out, without scores: failed is failed.",
        "Counted, though degenerate: degenerate.",
    } <= {*table.notes}


def test_stages_stand_below_table_4_in_their_order(paper, tmp_path):
    def stage(name, length, first_epoch, loss, **more):
        training = {"sequence_length": length, "batch_size": 16, "steps": 300}
        return record(
            tmp_path / name,
            recipe="stages_mini",
            steps=300,
            metrics={"valid/mlm_loss": loss, "valid/mlm_accuracy": 0.318},
            config={"training": training | ({"first_epoch": first_epoch} if first_epoch else {})},
            **more,
        )

    runs = [
        stage("c", 128, 2000, 2.49, status="failed"),
        stage("a", 128, 0, 3.63),
        stage("b", 1024, 1000, 2.64),
    ]
    runs.append(stage("d", 128, 0, None, seed=1))
    rows = stages_table(paper, read_runs(runs).runs).lines
    assert [
        row[:-2] + row[-1:] for row in rows if row[1].startswith("our") and row[0] == "loss"
    ] == [
        ["loss", "our stage 1 (roformer, rotary)", "128", "16", "300", "builtin, a", "3.63"],
        ["loss", "our stage 2 (roformer, rotary)", "1,024", "16", "300", "builtin, b", "2.64"],
        [
            "loss",
            "our stage 3 (roformer, rotary)",
            "128",
            "16",
            "300",
            "builtin, c, failed",
            "2.49",
        ],
        ["loss", "our stage 1 (roformer, rotary)", "128", "16", "300", "builtin, d", "not finite"],
    ]
    assert rows[-1][-1] == "31.8" and len(rows) == 1 + 2 * (6 + 4)


def test_stages_are_compared_with_one_stage_that_ends_at_their_length(tmp_path):
    """The end of each training, in pairs of a seed, and of as many tokens."""

    def stage(name, seed, loss, steps, length, before=None, rate=1, status="done"):
        training = {"steps": steps, "batch_size": 2, "sequence_length": length}
        return record(
            tmp_path / f"{name}-s{seed}",
            recipe="stages_mini_1",
            seed=seed,
            steps=steps,
            status=status,
            metrics={"valid/mlm_loss": loss, "valid/mlm_accuracy": 0.3},
            config={
                "training": training,
                "init_from": before and f"{before}-s{seed}",
                "optimizer": {"learning_rate": rate},
            },
        )

    runs = []
    for seed, gain in enumerate((0.1, 0.3)):
        runs.append(stage("single", seed, 4.0, 300, 64))
        runs.append(stage("first", seed, 9.0, 200, 32))
        runs.append(stage("second", seed, 4.0 - gain, 200, 64, "first"))
        runs.append(stage("short", seed, 5.0, 600, 32))  # none in stages ends at 32 tokens
        runs.append(stage("less", seed, 5.0, 100, 64))
    means, differences, after = control_tables(read_runs(runs).runs)
    names = [
        f"roformer (rotary): {w}" for w in ("300 of 2 × 64", "200 of 2 × 32, then 200 of 2 × 64")
    ]
    assert "(38,400), validated on 64 tokens" in means.title
    assert means.lines[1:] == [
        [names[0], "4.000 ± 0.000 (2)", "0.300 ± 0.000 (2)"],
        [names[1], "3.800 ± 0.141 (2)", "0.300 ± 0.000 (2)"],
    ]
    assert differences.lines[1][:3] == [names[1], "valid/mlm_loss", "-0.200 ± 0.141"]
    assert [line[:2] for line in after.lines[1:]] == [
        [f"{names[1]}; after stage 1", "9.000 ± 0.000 (2)"],
        [f"{names[1]}; after stage 2", "3.800 ± 0.141 (2)"],
    ]
    assert control_tables(read_runs(runs[:1]).runs) == []
    # What did not end is told, and another learning rate is another configuration.
    shutil.rmtree(runs[2])
    runs[2] = stage("second", 0, None, 200, 64, "first", status="failed")
    faster = [
        stage("faster", 0, 4.5, 200, 32, rate=2),
        stage("fastest", 0, 3.0, 200, 64, "faster", rate=2),
    ]
    means, *_ = control_tables(read_runs([*runs, *faster]).runs)
    assert "Left out, without scores: second-s0 is failed." in means.notes
    assert [line[:2] for line in means.lines[1:]] == [
        [names[0], "4.000 ± 0.000 (2)"],
        [f"{names[1]}, optimizer.learning_rate=1", "3.700 (1)"],
        [f"{names[1]}, optimizer.learning_rate=2", "3.000 (1)"],
    ]


# --- claims --------------------------------------------------------------------------------------


def study(claim, outcome="It does.", folder=Path("experiments/some_study")):
    about = {"title": "Title", "claim": claim, "scale": "mini, one seed", "outcome": outcome}
    return Study(folder=folder, **about)


def test_every_claim_has_a_row(paper):
    planned = study("table_1", "", Path("experiments/planned"))
    table = claims(paper, [study("table_1"), planned, study("none")])
    assert len(table.lines) == 1 + 8
    assert {row[3] for row in table.lines[1:]} == {
        "some_study: It does. planned: not run yet.",
        "not run yet",
    }


def test_every_claim_of_the_records_has_its_studies(paper):
    studies = read_studies(EXPERIMENTS)
    for key, row in zip(paper["claims"], claims(paper, studies).lines[1:], strict=True):
        for about in studies:
            assert (f"{about.folder.name}: " in f" {row[3]}") == (about.claim == key)


def test_a_study_of_an_unknown_claim_is_refused(paper):
    with pytest.raises(RecordError, match=r"is about table_7: choose one of none, figure_2, .*"):
        claims(paper, [study("table_7")])
