"""Scores of runs: what is chosen, what shares a table, what is paired, who is never excluded.

The tables of recorded fine-tunings, translations and triplets are on their pages, with names, corrected
p-values and unpaired seeds: tests.repo.test_documentation.
"""

import json
import runpy
import shlex
import statistics

import pytest
from scipy import stats

from roformer.report.runs import RecordError, read_runs
from roformer.report.scores import score_tables, scores
from roformer.report.studies import read_study
from tests.conftest import REPOSITORY
from tests.report.records import cells, glue_run, record, translation_run

ROTARY = {0: 0.80, 1: 0.84, 2: 0.79, 3: 0.90, 4: 0.83}
LEARNED = {0: 0.78, 1: 0.80, 2: 0.78, 3: 0.85, 4: 0.80}


def tables(folders, baseline=None):
    return score_tables(read_runs(folders).runs, baseline)


def test_a_record_has_the_planned_name_of_its_configuration(tmp_path):
    """Of the configurations whose overrides are in its command, the one with the most."""
    overrides = {"pairs": ["init_from=a-s0"], "longer": ["init_from=a-s0", "training.epochs=8"]}
    plan = {"title": "t", "pipeline": "glue", "scale": "", "seeds": [0], "common": ["task=[mrpc]"]}
    plan["configurations"] = {name: {"overrides": words} for name, words in overrides.items()}
    (tmp_path / "study.yaml").write_text(json.dumps(plan))
    script = runpy.run_path(str(REPOSITORY / "scripts" / "record.py"))
    complete = script["completing"](read_study(tmp_path))
    for name, words in (*overrides.items(), (None, ["init_from=b-s0"])):
        command = shlex.join(["python", "scripts/glue.py", *words, "task=[mrpc]", "seed=[0]"])
        summary = {"pipeline": "glue", "baselines": {}}
        record = {"summary": summary, "config": {}, "command": command}
        assert complete(record).get("planned") == name


# --- fine-tuning: the learning rate that is chosen ------------------------------------------------


def test_the_rate_with_the_best_mean_is_chosen_not_the_best_seed(tmp_path):
    lucky = [glue_run(tmp_path, s, 5e-5, v) for s, v in enumerate((0.5, 0.95, 0.6))]
    steady = [glue_run(tmp_path, s, 2e-5, v) for s, v in enumerate((0.8, 0.8, 0.83))]
    frame = scores(read_runs([*lucky, *steady]).runs)
    assert set(frame[frame.chosen].rate) == {2e-5} and len(frame) == 12


@pytest.mark.parametrize(
    ("value", "status", "line"),
    [
        (0.8, "degenerate", ["85.0 ± 7.1", "85.0", "90.0", "2", "86.0", "1", "0"]),
        (0.0, "failed", ["90.0", "90.0", "90.0", "1", "91.0", "0", "1"]),
        (None, "degenerate", ["NaN", "NaN", "NaN", "2", "NaN", "1", "0"]),
    ],
)
def test_constant_predictors_count_and_failed_runs_are_told(tmp_path, value, status, line):
    folders = [glue_run(tmp_path, 0, 2e-5, 0.9), glue_run(tmp_path, 1, 2e-5, value, status=status)]
    means, rates = tables(folders)
    assert cells(rates, "roformer (rotary)", "mrpc/f1", "2e-05 ←") == [line]
    how = "Left out: " if status == "failed" else "Counted, though degenerate: "
    assert any(note.startswith(how) and folders[1].name in note for note in means.notes)


@pytest.mark.parametrize(
    "others",
    [
        [(0, None, "degenerate")],
        [(0, 0.9, "done"), (1, 0.0, "failed"), (2, 0.0, "failed")],
        [(0, 0.9, "done")],
    ],
    ids=["no mean", "seeds failed", "one lucky seed"],
)
def test_a_rate_is_chosen_by_all_its_seeds(tmp_path, others):
    """Not for those that did not fail, nor in the middle of a grid, whose last rate has one seed."""
    runs = [glue_run(tmp_path, seed, 9e-5, value, status=how) for seed, value, how in others]
    runs += [glue_run(tmp_path, seed, 2e-5, 0.8) for seed in (0, 1, 2)]
    frame = scores(read_runs(runs).runs)
    assert set(frame[frame.chosen].rate) == {2e-5}


@pytest.mark.parametrize("baseline", [None, "bert"])
def test_scores_on_other_examples_are_other_tables(tmp_path, baseline):
    """The builtin task and the real one of the same name, where one has no run of the baseline."""
    cases = [("files", "bert", 0.7), ("files", "roformer", 0.7), ("builtin", "roformer", 0.9)]
    folders = [
        glue_run(tmp_path / kind, 0, 2e-5, value, model=model, data={"kind": kind, "path": "x"})
        for kind, model, value in cases
    ]
    means = [t for t in tables(folders, baseline) if " in percent (data.kind=" in t.title]
    firsts = [[line[-1] for line in table.lines[3:]] for table in means]
    assert firsts == [["70.0 (1)", "70.0 (1)"], ["90.0 (1)"]]
    with pytest.raises(RecordError, match="no configuration has 'brt'"):
        tables(folders, "brt")


# --- differences in pairs of a seed ---------------------------------------------------------------


def test_pairs_are_of_a_seed_at_each_configurations_own_rate(tmp_path):
    """The folders of the two are in other orders of seeds; each has a rate that is not chosen."""
    grid = [glue_run(tmp_path, seed, 2e-5, ROTARY[seed]) for seed in ROTARY]
    grid += [glue_run(tmp_path, seed, 5e-5, 0.1) for seed in ROTARY]
    grid += [glue_run(tmp_path, s, 5e-5, LEARNED[s], model="bert") for s in (3, 1, 4, 0, 2)]
    grid += [glue_run(tmp_path, seed, 2e-5, 0.2, model="bert") for seed in LEARNED]
    ours, theirs = ([100 * values[seed] for seed in range(5)] for values in (LEARNED, ROTARY))
    test = stats.ttest_rel(ours, theirs)
    low, high = test.confidence_interval(0.95)
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    table = tables(grid, "roformer")[1]
    mean, spread = statistics.mean(differences), statistics.stdev(differences)
    texts = [f"{mean:.1f} ± {spread:.1f}", f"{low:.1f} to {high:.1f}", "0.062", "0.062", "5"]
    assert cells(table, "bert (rotary)", "mrpc/f1") == [texts]
    assert table.title.endswith("paired differences from roformer (rotary)")
    assert "no p below 0.062" in table.notes[-1]
    assert cells(tables(grid, "bert")[1], "roformer (rotary)")[0][1].startswith("+3.0")


def test_a_seed_that_failed_takes_its_pair_with_it_and_nan_is_no_difference(tmp_path):
    folders = [glue_run(tmp_path, seed, 2e-5, ROTARY[seed]) for seed in (0, 1, 2)]
    folders += [
        glue_run(tmp_path, 0, 2e-5, 0.7, model="bert", status="degenerate"),
        glue_run(tmp_path, 1, 2e-5, 0.0, model="bert", status="failed"),
        glue_run(tmp_path, 2, 2e-5, 0.6, model="bert"),
    ]
    table = tables(folders)[1]
    assert table.lines[1][2].startswith("-14.5") and table.lines[1][-1] == "2"
    assert table.notes[-1] == "bert (rotary): without a pair: seed 1."
    folders.append(glue_run(tmp_path, 3, 2e-5, None, model="bert", status="degenerate"))
    folders.append(glue_run(tmp_path, 3, 2e-5, 0.8))
    means, differences, _ = tables(folders)
    assert cells(means, "bert (rotary)") == [["NaN (3)"]]
    assert cells(differences, "bert (rotary)") == [["mrpc/f1", "NaN", *["–"] * 3, "3"]]


# --- what shares a table --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", [{"lines": 2737}, {"signatures": {"chrf": "nrefs:1|nc:6|nw:2|version:2.6.0"}}]
)
def test_other_test_sets_and_signatures_are_other_tables(tmp_path, other):
    """Even where one signature of the three differs; each table has its own test set and lines."""
    first, second = (
        table
        for table in tables(
            [
                translation_run(tmp_path / "a", 0, 27.0),
                translation_run(tmp_path / "b", 1, 37.0, **other),
            ]
        )
        if table.title.startswith("Translation (")
    )
    assert first.lines[1][1] == "27.00 (1)" and second.lines[1][1] == "37.00 (1)"
    assert "3,003 lines" in first.markdown() and "nw:2" not in first.markdown()
    assert ("2,737 lines" in second.markdown()) == ("lines" in other)
    assert ("nw:2" in second.markdown()) == ("signatures" in other)
    assert first.title != second.title


def test_runs_of_two_pipelines_or_without_an_end_are_errors(tmp_path):
    folders = [translation_run(tmp_path / "a", 0, 27.0)]
    with pytest.raises(RecordError, match=r"is a run of wmt, .* of pretrain: give runs of one"):
        tables([folders[0], record(tmp_path / "other")])
    begun = translation_run(tmp_path / "wmt" / "begun", 1, 2.0)
    (begun / "summary.json").unlink()
    for unfinished in ([folders[0], begun], [tmp_path / "wmt"]):
        with pytest.raises(RecordError, match=r"has no summary.json"):
            tables(unfinished)
    with pytest.raises(RecordError, match="none of these runs is finished"):
        tables([])
    with pytest.raises(RecordError, match=r"has scores: Left out: f: its summary does not"):
        tables([translation_run(tmp_path / "f", 0, 0.0, status="failed")])
    with pytest.raises(RecordError, match="no configuration has 'shaw' in the name"):
        tables(folders[:1], "shaw")
