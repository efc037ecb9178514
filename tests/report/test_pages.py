"""The report as a whole: the tables of runs, sections of them, and what `make report` writes."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from roformer.report.pages import HERE, comparable, facts_block, run_tables, sections_of
from roformer.report.runs import RecordError, read_runs
from scripts.report import report
from tests.recorded_runs import EXPERIMENTS, recorded, write_folder
from tests.report.records import call_script, curve, glue_run, record, translation_run


@pytest.fixture
def experiments(tmp_path):
    """Return a copy of two studies, of the paper's numbers and of an index page."""
    copy = tmp_path / "experiments"
    for study in ("pretraining_builtin", "wmt_builtin"):
        shutil.copytree(EXPERIMENTS / "appendix" / study, copy / "appendix" / study)
    for name in ("paper.yaml", "report.py"):
        shutil.copy(EXPERIMENTS / name, copy)
    page = copy / "appendix" / "README.md"
    page.write_text("<!-- report: ../report.py index -->\n\n<!-- /report -->\n")
    return copy


def tables_under(sections, beginning):
    (heading,) = [heading for heading in sections if heading.startswith(beginning)]
    return sections[heading]


def test_the_commits_of_a_study_are_those_at_which_its_runs_began(tmp_path):
    """Not the checkout's at the end, which older summaries have; a resumed run has several."""
    study = tmp_path / "wmt_builtin"
    shutil.copytree(EXPERIMENTS / "appendix" / "wmt_builtin", study)
    records = [json.loads(line) for line in (study / "runs.jsonl").read_text().splitlines()]
    for each in records:
        each["summary"]["commit"] = "c" * 40
        each["environment"] |= {"commit": "a" * 40, "resumed": [{"commit": "b" * 40}]}
    (study / "runs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    assert "Commits: `aaaaaaaa`, `bbbbbbbb`;" in facts_block(study, [])
    assert set(read_runs([study]).runs.commit) == {"a" * 40}


def test_sections_of_the_recorded_studies(experiments, tmp_path):
    """A damaged record spoils only its own section."""
    sections = sections_of(experiments, tmp_path / "none")
    assert [heading.partition(":")[0] for heading in sections] == [
        "Claims",
        "Paper",
        "pretraining_builtin",
        "wmt_builtin",
    ]
    (missing,) = tables_under(sections, "Paper")  # its studies were not copied
    assert missing.title == "Not made" and "wmt_multi30k_short" in missing.lines[1][0]
    *_, bleu = tables_under(sections, "wmt_builtin")
    assert "transformer (sinusoidal)" in bleu.title  # the study's baseline
    assert bleu.command == "make sweep STUDY=experiments/appendix/wmt_builtin"
    file = experiments / "appendix" / "wmt_builtin" / "runs.jsonl"
    file.write_text(file.read_text()[:-20])
    sections = sections_of(experiments, tmp_path / "none")
    (table,) = tables_under(sections, "wmt_builtin")
    assert table.title == "Not made" and "runs.jsonl is not" in table.lines[1][0]
    assert len(tables_under(sections, "pretraining_builtin")) == 3


def test_runs_of_this_machine_are_compared_with_their_like(tmp_path):
    for run in [*recorded("pretraining_builtin"), *recorded("pretraining_english")]:
        write_folder(run, tmp_path / "pretrain" / run.name)
    runs = read_runs([tmp_path])
    assert sorted(len(group) for group in comparable(runs.runs)) == [2, 3]
    titles = [table.title for table in run_tables(runs)]
    assert sorted(title for title in titles if " at equal steps" in title) == [
        f"valid/mlm_loss at equal steps (data.kind={kind})" for kind in ("builtin", "files")
    ]


def test_a_copy_of_a_run_is_no_other_seed(tmp_path):
    """Such as the one that `resume=false` sets aside: each pipeline's tables count the run once."""
    runs = [
        glue_run(tmp_path, 0, 2e-5, 0.9),
        translation_run(tmp_path / "w", 0, 27.0),
        record(tmp_path / "p", rows=curve((5.0, 4.0))),
    ]
    copies = [shutil.copytree(run, f"{run}.before-1") for run in runs]
    *same, excluded = run_tables(read_runs(map(Path, (*copies, *runs))))
    assert same == run_tables(read_runs(runs))
    assert [row[0] for row in excluded.lines[1:]] == copies
    assert excluded.lines[1][1] == f"same settings and seed as {runs[0]}"


def test_runs_on_other_text_are_not_compared(tmp_path):
    """The unigram entropy of the targets identifies a text, not the form in which it is stored."""
    for run in recorded("pretraining_builtin"):
        write_folder(run, tmp_path / run.name)
    (rotary,) = tmp_path.glob("*rotary*")
    environment = json.loads((rotary / "env.json").read_text())
    (rotary / "env.json").write_text(json.dumps(environment | {"data": "other"}))
    assert len(comparable(read_runs(tmp_path.glob("*")).runs)) == 1
    summary = json.loads((rotary / "summary.json").read_text())
    summary["metrics"]["valid/unigram_entropy"] += 1e-9
    (rotary / "summary.json").write_text(json.dumps(summary))
    assert len(comparable(read_runs(tmp_path.glob("*")).runs)) == 2


def test_a_report_is_made_once_and_ends_with_the_results(experiments, tmp_path, capsys):
    """The printed results are a file, too. With an error in one page no page or figure is written."""
    wmt, runs = experiments / "appendix" / "wmt_builtin", tmp_path / "runs"
    reproduce = experiments / "appendix" / "reproduce"
    shutil.copytree(EXPERIMENTS / "appendix" / "reproduce", reproduce)
    (reproduce / "REPORT.md").unlink()
    (rotary,) = recorded("wmt_builtin", "*rotary*")
    write_folder(rotary, runs / "wmt" / rotary.name)
    page = experiments / "appendix" / "pretraining_builtin" / "REPORT.md"
    (figure := page.parent / "plots" / "convergence.png").unlink()
    page.write_text((original := page.read_text()).replace("| 600 |", "| 601 |"))
    (study := experiments / "zebra").mkdir()  # the last page to be made
    shutil.copy(wmt / "study.yaml", study)
    (study / "REPORT.md").write_text("<!-- report: facts -->\n\n<!-- /report -->\n")
    with pytest.raises(RecordError, match=r"zebra/REPORT.md: facts: .* has no recorded runs"):
        report(experiments, runs)
    assert page.read_text() != original and not runs.joinpath("report").exists()
    (study / "REPORT.md").unlink()  # a study that is only planned is no error
    report(experiments, runs)
    assert page.read_text() == original
    assert figure.is_file()
    printed = capsys.readouterr().out.split("\n\n", 1)[1]
    assert printed == (runs / "report" / "results.txt").read_text()
    *table, dashboard, statistics = printed.splitlines()
    assert table[0].startswith("model / baseline")
    assert any(line.startswith("  BLEU") for line in table)
    assert dashboard.endswith("report/dashboard.html") and statistics.endswith("statistics.md")
    assert (runs / "report" / "dashboard.html").read_text().startswith("<!doctype html>")
    assert "sacreBLEU" in (runs / "report" / "statistics.md").read_text()
    assert next(iter(sections_of(experiments, runs))) == HERE


def test_runs_of_all_pipelines_have_tables(tmp_path):
    """Stages of a pre-training are listed below Table 4, and are not compared with each other.

    Settings with which all runs diverged are named below the others.
    """
    training = {"sequence_length": 128, "batch_size": 16}
    stages = [
        (f"s{n}", {"training": training, "init_from": before})
        for n, before in ((1, None), (2, "s1"))
    ]
    runs = [record(tmp_path / name, recipe="stages_mini", config=c) for name, c in stages]
    runs += [glue_run(tmp_path, 0, 2e-5, 0.9), translation_run(tmp_path / "w", 0, 27.0)]
    loss = {"valid/loss": 3.0, "valid/unigram_entropy": 6.0}
    runs.append(record(tmp_path / "l", pipeline="clm", rows=[{"step": 1} | loss]))
    about = {"status": "failed", "error": "Diverged: the loss of step 2 is nan"}
    config = {"optimizer": {"learning_rate": 1000.0}}
    runs.append(record(tmp_path / "wild-s0", rows=[{"step": 1}], config=config, **about))
    stages, *others, lost = run_tables(read_runs(runs))
    assert [*lost.lines[1]] == ["wild-s0", "Diverged: the loss of step 2 is nan"]
    assert stages.title.startswith("Table 4") and "after stage 2" in stages.markdown()
    assert [table.title for table in others] == [
        "GLUE, validation, in percent",
        "All learning rates",
        "Translation",
        "sacreBLEU: paired bootstrap against transformer (rotary)",
        "valid/loss at equal steps",
    ]


def test_scripts_print_tables_or_one_line(tmp_path, monkeypatch, capsys):
    """Unfinished runs are reported; a damaged record is named; a comparison has its baseline."""
    call = partial(call_script, monkeypatch, capsys)
    run, begun = glue_run(tmp_path, 0, 2e-5, 0.9), glue_run(tmp_path, 1, 2e-5, 0.9)
    (begun / "summary.json").unlink()
    printed, errors = call("tables", run, begun)
    assert "| roformer (rotary) | 90.0 (1) |" in printed
    assert errors == f"excluded: {begun} has no summary.json\n"
    (run / "metrics.jsonl").write_text("{")
    errors = call("tables", run).err
    assert errors.startswith("error: ") and "metrics.jsonl is not what a run wrote" in errors
    runs = [
        record(tmp_path / kind, rows=curve((5.0, 4.0)), position=kind)
        for kind in ("rotary", "learned")
    ]
    printed = call("compare", "--seeds", "--baseline", "lear", *runs).out
    assert "paired differences from roformer (learned)" in printed
