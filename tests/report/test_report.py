"""The report as a whole: sections of tables, and what `make report` writes."""

import json
import shutil

import pytest

from roformer.report.runs import read_runs
from roformer.report.sections import HERE, comparable, run_tables, sections_of
from scripts.report import report
from tests.recorded_runs import EXPERIMENTS, change_recorded, recorded, write_folder


@pytest.fixture
def experiments(tmp_path):
    """Return a copy of two studies, of the paper's numbers and of an index page."""
    copy = tmp_path / "experiments"
    for study in ("pretraining_builtin", "wmt_builtin"):
        shutil.copytree(EXPERIMENTS / study, copy / study)
    shutil.copy(EXPERIMENTS / "paper.yaml", copy)
    shutil.copy(EXPERIMENTS / "README.md", copy)
    return copy


def tables_under(sections, beginning):
    (heading,) = [heading for heading in sections if heading.startswith(beginning)]
    return sections[heading]


def test_sections_of_the_recorded_studies(experiments, tmp_path):
    sections = sections_of(experiments, tmp_path / "none")
    assert [heading.partition(":")[0] for heading in sections] == [
        "Claims",
        "Paper",
        "pretraining_builtin",
        "wmt_builtin",
    ]
    assert len(tables_under(sections, "Paper")) == 10
    (bleu,) = tables_under(sections, "wmt_builtin")
    assert "transformer (sinusoidal)" in bleu.title  # the study's baseline
    assert bleu.command == "python scripts/sweep.py experiments/wmt_builtin"


def test_a_damaged_record_spoils_its_own_section_alone(experiments, tmp_path):
    file = experiments / "wmt_builtin" / "runs.jsonl"
    file.write_text(file.read_text()[:-20])
    sections = sections_of(experiments, tmp_path / "none")
    (table,) = tables_under(sections, "wmt_builtin")
    assert table.title == "Not made" and "runs.jsonl:3" in table.lines[1][0]
    assert len(tables_under(sections, "pretraining_builtin")) == 3


def test_runs_of_this_machine_are_compared_with_their_like(tmp_path):
    """Another recipe or an attempt that was set aside is no part of the same comparison."""
    for run in [*recorded("pretraining_builtin"), *recorded("pretraining_english")]:
        write_folder(run, tmp_path / "pretrain" / run.name)
    (rotary,) = recorded("pretraining_builtin", "*rotary*")
    write_folder(rotary, tmp_path / "pretrain" / f"{rotary.name}.before-1")
    runs = read_runs([tmp_path])
    assert sorted(len(group.runs) for group in comparable(runs)) == [2, 3]
    titles = [table.title for table in run_tables(runs)]
    assert titles.count("valid/mlm_loss at equal updates") == 2


def test_scores_of_different_test_sets_have_tables_of_their_own(tmp_path):
    """A run that failed is told of below each; one on other text is not beside the others."""
    for study in ("wmt_builtin", "wmt_multi30k", "pretraining_builtin"):
        for run in recorded(study):
            write_folder(run, tmp_path / study / run.name)
    builtin, *multi30k = run_tables(read_runs(sorted(tmp_path.glob("wmt*/*"))))
    lines, seeds = multi30k  # the builtin runs have one seed, so no table over seeds
    assert "500 lines" in builtin.notes[0] and "1,000 lines" in lines.notes[0]
    assert seeds.title.startswith("sacreBLEU: paired differences") and len(seeds.lines) == 3
    (rotary,) = tmp_path.glob("pretraining_builtin/*rotary*")
    environment = json.loads((rotary / "env.json").read_text())
    (rotary / "env.json").write_text(json.dumps(environment | {"data": "other"}))
    assert len(comparable(read_runs(tmp_path.glob("pretraining_builtin/*")))) == 2


def test_a_report_is_made_once(experiments, tmp_path, capsys):
    """A second one changes no file; a changed record is seen."""
    (experiments / "wmt_builtin" / "plots" / "bleu.png").unlink()
    report(experiments, tmp_path / "runs")
    assert (experiments / "wmt_builtin" / "plots" / "bleu.png").is_file()
    page = tmp_path / "runs" / "report" / "dashboard.html"
    assert page.read_text().startswith("<!doctype html>")
    before = {path: path.stat().st_mtime_ns for path in experiments.rglob("*")}
    capsys.readouterr()
    report(experiments, tmp_path / "runs")
    assert {path: path.stat().st_mtime_ns for path in experiments.rglob("*")} == before
    assert "written anew" not in capsys.readouterr().out
    change_recorded(
        experiments / "wmt_builtin",
        "sinusoidal",
        lambda line: (
            line["summary"]["metrics"].update({"test/sacrebleu": 12.34}),
            line["files"].pop("bleu_statistics.json"),  # of another score
        ),
    )
    report(experiments, tmp_path / "runs")
    assert "12.34" in (experiments / "wmt_builtin" / "REPORT.md").read_text()


def test_a_report_ends_with_the_results_and_where_the_rest_is(experiments, tmp_path, capsys):
    """What is printed is a file too; the statistics of this machine's runs are another."""
    shutil.copytree(EXPERIMENTS / "reproduce", experiments / "reproduce")
    runs = tmp_path / "runs"
    (rotary,) = recorded("wmt_builtin", "*rotary*")
    write_folder(rotary, runs / "wmt" / rotary.name)
    report(experiments, runs)
    printed = capsys.readouterr().out.split("\n\n", 1)[1]
    assert printed == (runs / "report" / "results.txt").read_text()
    *table, dashboard, statistics = printed.splitlines()
    assert table[0].startswith("model / baseline") and any(
        line.startswith("  BLEU") for line in table
    )
    assert dashboard.endswith("report/dashboard.html") and statistics.endswith("statistics.md")
    assert "sacreBLEU" in (runs / "report" / "statistics.md").read_text()


def test_the_statistics_of_this_machine_come_before_the_recorded_studies(experiments, tmp_path):
    (rotary,) = recorded("wmt_builtin", "*rotary*")
    write_folder(rotary, tmp_path / "wmt" / rotary.name)
    assert next(iter(sections_of(experiments, tmp_path))) == HERE


def test_a_diverged_run_of_its_own_settings_spoils_no_table(tmp_path):
    """Nothing is told of it but in the list of runs."""
    for run in recorded("pretraining_builtin"):
        write_folder(run, tmp_path / "pretrain" / run.name)
    before = [table.title for table in run_tables(read_runs([tmp_path]))]
    (rotary,) = recorded("pretraining_builtin", "*rotary*")
    diverged = write_folder(rotary, tmp_path / "pretrain" / "diverged-s0")
    config = json.loads((diverged / "config.yaml").read_text())
    config["optimizer"]["learning_rate"] = 1000.0
    (diverged / "config.yaml").write_text(json.dumps(config))
    summary = json.loads((diverged / "summary.json").read_text()) | {"metrics": {}, "best": None}
    summary |= {"status": "failed", "error": "Diverged: the loss of step 2 is nan"}
    (diverged / "summary.json").write_text(json.dumps(summary))
    (diverged / "metrics.jsonl").write_text('{"step": 1, "train/loss": 9.0}\n')
    assert [table.title for table in run_tables(read_runs([tmp_path]))] == before
