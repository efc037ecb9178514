"""What stands beside the paper's numbers: rows of ours, from records, and claims with studies."""

import json
import re
from pathlib import Path

import pytest

from roformer.report.paper import (
    against_paper,
    claims,
    glue_ours,
    loss_ours,
    read_paper,
    wmt_ours,
)
from roformer.report.runs import RecordError, read_runs
from roformer.report.studies import Study, read_studies
from tests.conftest import REPOSITORY
from tests.recorded_runs import EXPERIMENTS, recorded, write_folder

FILE = EXPERIMENTS / "paper.yaml"


@pytest.fixture(scope="module")
def paper():
    return read_paper(FILE)


def rows(*places):
    """Return the rows of studies, or of folders."""
    return read_runs([EXPERIMENTS / p if isinstance(p, str) else p for p in places]).runs


# --- ours, from records --------------------------------------------------------------------------


def copied(run, folder, name, **changes):
    """Copy a recorded run, with another summary."""
    target = write_folder(run, folder / name)
    summary = json.loads((target / "summary.json").read_text())
    (target / "summary.json").write_text(json.dumps(summary | changes))
    return target


@pytest.mark.parametrize("study", ["glue_builtin", "glue_real"])
def test_glue_rows_are_those_of_the_report(paper, study):
    """Numbers and n of the headline table, which a test holds to be the records'."""
    starts = rows("pretraining_builtin", "pretraining_english")
    ours = glue_ours(rows(study), dict(zip(starts.run, starts.tokens, strict=True)))
    report = (EXPERIMENTS / study / "REPORT.md").read_text().splitlines()
    header = next(line for line in report if line.startswith("| model | mrpc/f1"))
    for row in ours:
        line = next(
            line for line in report if line.startswith(f"| {row.row} | ") and "(" in line[30:]
        )
        reported = [cell.strip() for cell in line.split("|")[2:-1]]
        assert len(reported) == header.count("|") - 2
        assert [re.sub(r", \d constant", "", value) for value in row.values.values()] == reported
        assert re.search(r"(4\.9|24\.6) M tokens of pre-training, mini$", row.setting)
    assert len(ours) == (3 if study == "glue_builtin" else 2)
    assert against_paper(paper, "table_2", ours)


def test_a_constant_predictor_is_counted_in_its_cell():
    (row,) = [row for row in glue_ours(rows("glue_builtin"), {}) if row.row == "roformer (none)"]
    assert row.values["QQP F1"] == "0.0 (1, 1 constant)" and row.values["MRPC F1"] == "64.5 (1)"
    assert "pre-trained as roformer-none-mini-5ab83a7e-s0" in row.setting


def test_translation_rows_are_those_of_the_report(paper):
    ours = wmt_ours(rows("wmt_builtin", "wmt_multi30k"))
    for study in ("wmt_builtin", "wmt_multi30k"):
        report = (EXPERIMENTS / study / "REPORT.md").read_text()
        (scores,) = re.findall(
            r"\| model \| sacreBLEU \| sacreBLEU, last.*?\n\n", report, re.DOTALL
        )
        lines = scores.strip().splitlines()[2:]
        assert len(lines) == 3
        for line in lines:
            name, sacrebleu, _, _, compound = line.strip("| ").split(" | ")
            values = {(r.column, r.values["BLEU"]) for r in ours if r.row == name}
            assert {("test, sacreBLEU", sacrebleu), ("test, compound BLEU", compound)} <= values
    assert len(ours) == 12
    table = against_paper(paper, "table_1", ours)
    assert sum("tok:13a" in note for note in table.notes) == 1
    assert sum("tok:moses-de+atat" in note for note in table.notes) == 1


def test_pretraining_rows_tell_loss_and_updates():
    ours = loss_ours(rows("pretraining_builtin", "pretraining_english"))
    found = {(row.row, row.setting): row.values["masked-LM loss"] for row in ours}
    assert found == {
        ("roformer (rotary)", "builtin, 4.9 M tokens in 600 updates, mini"): "3.346 (1)",
        ("bert (learned)", "builtin, 4.9 M tokens in 600 updates, mini"): "4.816 (1)",
        ("roformer (none)", "builtin, 4.9 M tokens in 600 updates, mini"): "5.004 (1)",
        ("roformer (rotary)", "files, 24.6 M tokens in 3,000 updates, mini"): "3.720 (1)",
        ("bert (learned)", "files, 24.6 M tokens in 3,000 updates, mini"): "5.941 (1)",
    }


def test_seeds_of_a_configuration_are_one_row():
    ours = loss_ours(rows("precision_and_dropout"))
    assert (
        sorted(row.values["masked-LM loss"][-4:] for row in ours)
        == [" (1)", " (1)", " (1)", " (3)"][:4]
    )
    assert sum("± 0.029 (3)" in row.values["masked-LM loss"] for row in ours) == 1
    assert len(ours) == len({row.row for row in ours}) == 4


def test_unfinished_runs_are_named_not_counted(tmp_path):
    (run, *_) = recorded("pretraining_builtin")
    stopped = copied(run, tmp_path, "stopped", status="failed")
    (row,) = loss_ours(rows(run.path, stopped))
    assert (
        row.notes == ["Left out: stopped is failed."] and row.values["masked-LM loss"][-3:] == "(1)"
    )
    (run, *_) = recorded("wmt_builtin")
    failed = copied(run, tmp_path, "failed", status="failed", seed=1)
    found = wmt_ours(rows(run.path, failed))
    assert {row.values["BLEU"][-3:] for row in found} == {"(1)"}
    assert found[0].notes == ["Left out, without scores: failed is failed."]


def test_records_that_are_no_such_runs_are_refused(tmp_path):
    (run, *_) = recorded("pretraining_builtin")
    again = copied(run, tmp_path, "again")
    once_more = copied(run, tmp_path, "once_more")
    with pytest.raises(RecordError, match="same settings and seed"):
        loss_ours(rows(again, once_more))
    with pytest.raises(RecordError, match="tokens"):
        loss_ours(rows(copied(run, tmp_path, "damaged", tokens="many")))
    with pytest.raises(RecordError, match="only pretrain, charlm, clm have curves"):
        loss_ours(rows("wmt_builtin"))
    (run, *_) = recorded("glue_builtin")
    with pytest.raises(RecordError, match="init_from"):
        glue_ours(rows(copied(run, tmp_path, "tuned", init_from=5)), {})


# --- claims --------------------------------------------------------------------------------------


def study(claim, outcome="It does.", folder="some_study"):
    return Study(Path("experiments") / folder, "Title", claim, (), (), "mini, one seed", outcome)


def test_every_claim_has_a_row(paper):
    assert paper["claims"] == [
        "figure_2",
        "figure_3_left",
        "table_1",
        "table_2",
        "figure_3_right",
        "table_5",
        "clm",
    ]
    table = claims(paper, [study("table_1"), study("table_1", "", "planned"), study("none")])
    rows = {tuple(row[3:]) for row in table.lines[1:]}
    assert len(table.lines) == 1 + 7 + 1
    assert rows == {
        ("experiments/some_study", "It does.", "mini, one seed"),
        ("experiments/planned", "not run yet", "mini, one seed"),
        ("not run yet", "", ""),
    }


def test_a_study_of_an_unknown_claim_is_refused(paper):
    with pytest.raises(RecordError, match=r"is about table_7: choose one of figure_2, .* none"):
        claims(paper, [study("table_7")])


def test_the_recorded_studies_are_about_claims_of_the_paper(paper):
    table = claims(paper, read_studies(EXPERIMENTS))
    assert all((REPOSITORY / row[3]).is_dir() for row in table.lines[1:] if row[3] != "not run yet")
