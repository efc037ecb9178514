"""The paper's numbers: all there, as printed, and never in one column with ours."""

import re

import numpy as np
import pytest

from roformer.report.paper import Ours, against_paper, others_table, paper_table, read_paper
from roformer.report.runs import RecordError
from tests.conftest import REPOSITORY

FILE = REPOSITORY / "experiments" / "paper.yaml"
TABLES = [f"table_{number}" for number in range(1, 6)] + ["shaw"]
BERT, ROFORMER = "BERT (learned), test, copied", "RoFormer (rotary), validation, reported"
PRINTED = {
    "table_1": {
        "Transformer-base (sinusoidal), test, copied": {"BLEU": "27.3"},
        "RoFormer (rotary), test, reported": {"BLEU": "27.5"},
    },
    "table_2": {
        BERT: {
            "MRPC F1": "88.9",
            "SST-2 accuracy": "93.5",
            "QNLI accuracy": "90.5",
            "STS-B Spearman": "85.8",
            "QQP F1": "71.2",
            "MNLI-m accuracy": "84.6",
            "MNLI-mm accuracy": "83.4",
        },
        ROFORMER: {
            "MRPC F1": "89.5",
            "SST-2 accuracy": "90.7",
            "QNLI accuracy": "88.0",
            "STS-B Spearman": "87.0",
            "QQP F1": "86.4",
            "MNLI-m accuracy": "80.2",
            "MNLI-mm accuracy": "79.8",
        },
    },
    "table_3": {},
    "table_4": {
        f"stage {stage} (rotary), not said, reported": {"loss": loss, "accuracy": accuracy}
        for stage, loss, accuracy in [
            (1, "1.73", "65.0"),
            (2, "1.61", "66.8"),
            (3, "1.75", "64.6"),
            (4, "1.83", "63.4"),
            (5, "1.58", "67.4"),
            (6, "1.66", "66.2"),
        ]
    },
    "table_5": {
        f"{model}, {split}, reported": {"accuracy": value}
        for model, *values in [
            ("BERT-512 (absolute)", "64.13", "67.77"),
            ("WoBERT-512 (absolute)", "64.07", "68.10"),
            ("RoFormer-512 (rotary)", "64.13", "68.29"),
            ("RoFormer-1024 (rotary)", "66.07", "69.79"),
        ]
        for split, value in zip(("validation", "test"), values, strict=True)
    },
    "shaw": {
        f"{model}, test, reported": {"EN-DE BLEU": german, "EN-FR BLEU": french}
        for model, german, french in [
            ("base (sinusoidal)", "26.5", "38.2"),
            ("base (relative)", "26.8", "38.7"),
            ("big (sinusoidal)", "27.9", "41.2"),
            ("big (relative)", "29.2", "41.5"),
        ]
    },
}
"""Table → row, split and origin → metric → number, as the papers print them."""
STAGES = [
    ("512", "256", "200,000"),
    ("1,536", "256", "12,500"),
    ("256", "256", "120,000"),
    ("128", "512", "80,000"),
    ("1,536", "256", "10,000"),
    ("512", "512", "30,000"),
]
"""Table 4: length, batch, steps."""
CAVEATS = {
    "table_1": ["P6"],
    "table_2": ["P1", "P4"],
    "table_3": [],
    "table_4": ["P7"],
    "table_5": ["P2", "P3", "P7"],
    "shaw": [],
    "figure_2": ["P8"],
    "figure_3_left": ["P4", "P5"],
    "figure_3_right": [],
}
OURS = {
    "table_1": [
        Ours("roformer (rotary)", {"BLEU": "11.11 (3)"}, "builtin, mini", "test, sacreBLEU", "s1"),
        Ours("roformer (rotary)", {"BLEU": "22.22 (3)"}, "builtin, mini", "test, compound BLEU"),
        Ours("roformer (rotary)", {"BLEU": "33.33 (1)"}, "news, mini", "test, sacreBLEU", "s1"),
    ],
    "table_2": [
        Ours(
            "bert (learned)", {"MRPC F1": "44.4 ± 0.1 (5)", "QQP F1": "55.5 (1)"}, "builtin, mini"
        ),
        Ours("roformer (rotary)", {"MRPC F1": "66.6 (5)"}, "builtin, mini", notes=["By seed."]),
    ],
    "table_5": [Ours("roformer (rotary)", {"accuracy": "77.77 (5)"}, "made up, mini", "test")],
    "figure_3_left": [Ours("bert (learned)", {"masked-LM loss": "8.888 (3)"}, "builtin, mini")],
}
"""Rows of ours, of numbers that no paper has."""


@pytest.fixture(scope="module")
def paper():
    return read_paper(FILE)


def text_and_numbers(table):
    """Return the header and rows of a table as (words, numbers by header)."""
    header, *rows = table.lines
    columns = header[table.text_columns :]
    return [
        (row[: table.text_columns], dict(zip(columns, row[table.text_columns :], strict=True)))
        for row in rows
    ]


@pytest.mark.parametrize("key", TABLES)
def test_every_number_is_there_and_no_other(paper, key):
    about = paper["tables"][key]
    found = {}
    for value in about["numbers"]:
        row = f"{value['model']} ({value['position']}), {value['split']}, {value['origin']}"
        shown = f"{value['value']:.{about['metrics'][value['metric']]}f}"
        found.setdefault(row, {})[value["metric"]] = shown
    assert found == PRINTED[key]


@pytest.mark.parametrize("key", TABLES)
def test_a_table_prints_every_number_under_its_split(paper, key):
    printed = {}
    who = "Shaw et al. 2018" if key == "shaw" else "paper"
    for words, numbers in text_and_numbers(paper_table(paper, key)):
        for header, cell in numbers.items():
            if cell:
                printed[words[0], words[1], header] = cell
    expected = {}
    for row, metrics in PRINTED[key].items():
        model, split, origin = row.split(", ")
        split = {"not said": "split not said"}.get(split, split)
        for metric, number in metrics.items():
            header = f"{who}, {split}{' (copied)' if origin == 'copied' else ''}"
            expected[metric, model, header] = number
    assert printed == expected


def test_words_of_tables_3_and_4(paper):
    tokens = {words[1]: words[2] for words, _ in text_and_numbers(paper_table(paper, "table_3"))}
    assert tokens == {
        "BERT (absolute)": "characters",
        "WoBERT (absolute)": "words",
        "NEZHA (relative)": "characters",
        "RoFormer (rotary)": "words",
    }
    rows = [tuple(words[2:5]) for words, _ in text_and_numbers(paper_table(paper, "table_4"))]
    assert rows == 2 * STAGES


def test_copied_numbers_name_their_source(paper):
    rows = text_and_numbers(paper_table(paper, "table_2"))
    assert {words[-1] for words, numbers in rows if numbers["paper, test (copied)"]} == {
        "Devlin et al. 2019 (BERT), Table 1"
    }


def test_the_bound_is_that_of_the_formula(paper):
    """Fig. 2 by Eq. 35 to 37, once more and by numpy."""
    for value in paper["figures"]["figure_2"]["numbers"]:
        size, distance = int(value["model"].split()[-1]), int(value["metric"].split()[-1])
        angles = distance * 10_000.0 ** (-2 * np.arange(size // 2) / size)
        bound = np.abs(np.cumsum(np.exp(1j * angles))).mean()
        assert value["value"] == round(float(bound), 2), value
        assert value["origin"] == "computed"


def test_figures_of_curves_have_no_invented_numbers(paper):
    for key in ("figure_3_left", "figure_3_right"):
        assert paper["figures"][key]["numbers"] == []
        for _, numbers in text_and_numbers(paper_table(paper, key)):
            assert numbers == {"paper, training (a curve)": "no number"}


@pytest.mark.parametrize("key", CAVEATS)
@pytest.mark.parametrize("with_ours", [False, True])
def test_caveats_are_always_printed(paper, key, with_ours):
    table = against_paper(paper, key, OURS.get(key, [])) if with_ours else paper_table(paper, key)
    found = [note.partition(".")[0] for note in table.notes if re.match(r"P\d\. ", note)]
    assert found == CAVEATS[key]
    for name in found:
        assert f"\n\n{name}. " in table.markdown() and " Here: " in table.markdown()


def test_all_caveats_have_a_table(paper):
    assert list(paper["caveats"]) == [f"P{number}" for number in range(1, 9)]
    assert {name for names in CAVEATS.values() for name in names} == set(paper["caveats"])
    named = {
        name
        for t in paper["tables"].values()
        for v in t["numbers"]
        for name in v.get("caveats", ())
    }
    assert named >= {"P1", "P2", "P3", "P6"}


@pytest.mark.parametrize("key", OURS)
def test_no_column_and_no_line_has_numbers_of_both(paper, key):
    table = against_paper(paper, key, OURS[key])
    theirs = paper_table(paper, key).lines[0][table.text_columns :]
    planted = sorted(value for row in OURS[key] for value in row.values.values())
    printed = []
    for _, numbers in text_and_numbers(table):
        assert list(numbers)[: len(theirs)] == list(theirs)
        filled = {header for header, cell in numbers.items() if cell and cell != "not run"}
        assert filled <= set(theirs) or filled.isdisjoint(theirs)
        printed += [numbers[header] for header in filled.difference(theirs)]
    assert sorted(printed) == planted
    assert all(
        re.match(r"paper, (validation|test|training)( \((copied|a curve)\))?$", h) for h in theirs
    )
    ours = table.lines[0][table.text_columns + len(theirs) :]
    assert ours == [f"ours, {column} (n)" for column in dict.fromkeys(r.column for r in OURS[key])]
    assert any("no difference between them is taken" in note for note in table.notes)


def test_every_row_of_ours_names_its_data_and_scale(paper):
    table = against_paper(paper, "table_1", OURS["table_1"])
    ours = [(words, numbers) for words, numbers in text_and_numbers(table) if words[1][0] == "r"]
    assert [words[-1] for words, _ in ours] == ["builtin, mini", "news, mini"]
    assert [list(numbers.values()) for _, numbers in ours] == [
        ["", "", "11.11 (3)", "22.22 (3)"],
        ["", "", "33.33 (1)", ""],
    ]
    assert "Ours, test, sacreBLEU: s1" in table.notes


def test_what_was_not_run_says_so(paper):
    for key in ("table_3", "table_4", "table_5", "figure_3_right"):
        table = against_paper(paper, key, [])
        assert table.lines[0][-1] == "ours" and {row[-1] for row in table.lines[1:]} == {"not run"}
    rows = text_and_numbers(against_paper(paper, "table_2", OURS["table_2"]))
    missing = {words[0] for words, numbers in rows if "not run" in numbers.values()}
    assert missing == set(paper["tables"]["table_2"]["metrics"]) - {"MRPC F1", "QQP F1"}


def test_table_5_has_both_gaps(paper):
    for table in (paper_table(paper, "table_5"), against_paper(paper, "table_5", OURS["table_5"])):
        gaps = [note for note in table.notes if note.startswith("Within the paper's test column")]
        assert "1.69 points above WoBERT-512" in gaps[0]
        assert "1.50 points above RoFormer-512" in gaps[1]
        assert all(
            "1,793 examples" in gap and "standard error of 1.1 points" in gap for gap in gaps
        )


def test_third_parties_stand_in_their_own_table_alone(paper):
    others = others_table(paper)
    assert len(others.lines) == 1 + len(paper["others"]) and len(paper["others"]) >= 9
    keys = [*paper["tables"], *paper["figures"]]
    rest = "".join(against_paper(paper, key, OURS.get(key, [])).markdown() for key in keys)
    for value in ("91.282", "87.171", "63.07", "28.85"):
        assert f"| {value} |" in others.markdown() and f"| {value} |" not in rest


def test_rows_that_would_mix_are_refused(paper):
    row = OURS["table_1"][0]
    with pytest.raises(RecordError, match="two values of"):
        against_paper(paper, "table_1", [row, row])
    with pytest.raises(RecordError, match="two signatures, s1 and s2"):
        against_paper(paper, "table_1", [row, row._replace(row="x", signature="s2")])
    with pytest.raises(RecordError, match="has no F1: its metrics are BLEU"):
        against_paper(paper, "table_1", [row._replace(values={"F1": "1 (1)"})])
    with pytest.raises(RecordError, match="no table_9: choose one of table_1"):
        against_paper(paper, "table_9", [])


def test_every_name_in_the_papers_numbers_is_there(paper):
    """Sources, caveats, metrics and models that are named; a cell has one number."""
    experiments = paper["tables"] | paper["figures"] | paper["beyond"]
    assert set(paper["claims"]) <= set(experiments) and paper["paper"] in paper["sources"]
    for caveat in paper["caveats"].values():
        assert set(caveat["tables"]) <= set(experiments)
    assert {other["about"] for other in paper["others"]} <= set(experiments)
    for key, about in experiments.items():
        rows = {(model["model"], model["position"]) for model in about["models"]}
        here = {name for name, caveat in paper["caveats"].items() if key in caveat["tables"]}
        cells = set()
        for value in about["numbers"]:
            assert (value["model"], value["position"]) in rows
            assert value["metric"] in about["metrics"] and value["source"] in paper["sources"]
            assert set(value.get("caveats", ())) <= here
            assert (value["origin"] == "copied") == (value["source"] != about["by"])
            assert (value["origin"] == "computed") == (value["split"] == "no data")
            cell = (value["model"], value["position"], value["metric"], value["split"])
            assert cell not in cells
            cells.add(cell)


@pytest.mark.parametrize("text", ["paper: {", "- 1", "paper: x", None])
def test_a_damaged_file_is_one_line(tmp_path, text):
    file = tmp_path / "paper.yaml"
    if text:
        file.write_text(text)
    with pytest.raises(
        RecordError, match=r"paper\.yaml (is not the paper's numbers|cannot be read)"
    ):
        read_paper(file)
