"""Tables of fine-tuning runs: which rate is chosen, what the numbers are, what is paired and told."""

import statistics

import pytest
from scipy import stats

from roformer.report.glue import (
    chosen,
    glue_tables,
    grid_tables,
    headline_table,
    paired_glue_table,
    rows_of,
)
from roformer.report.runs import RecordError, read_runs
from tests.report.records import record

ROTARY = {0: 0.80, 1: 0.84, 2: 0.79, 3: 0.90, 4: 0.83}
LEARNED = {0: 0.78, 1: 0.80, 2: 0.78, 3: 0.85, 4: 0.80}


def cell(
    folder, seed, rate, value, *, status="done", model="roformer", task="mrpc", epochs=3, **more
):
    metrics = {} if status == "failed" else {f"{task}/f1": value, f"{task}/accuracy": 0.5}
    best = {name: None if v is None else v + 0.01 for name, v in metrics.items()}
    config = {
        "task": {task: {}},
        "optimizer": {"learning_rate": rate},
        "training": {"epochs": epochs},
        **more,
    }
    return record(
        folder / f"{model}-{task}-{rate}-{epochs}-{seed}",
        pipeline="glue",
        model=model,
        seed=seed,
        task=task,
        learning_rate=rate,
        headline=f"{task}/f1",
        status=status,
        metrics=metrics,
        best={"step": 1, "metrics": best},
        majority={f"{task}/f1": 0.8122, f"{task}/accuracy": 0.6838},
        config=config,
    )


def test_the_rate_with_the_best_mean_is_chosen_not_the_best_seed(tmp_path):
    lucky = [cell(tmp_path, s, 5e-5, v) for s, v in enumerate((0.5, 0.95, 0.6))]
    steady = [cell(tmp_path, s, 2e-5, v) for s, v in enumerate((0.8, 0.8, 0.83))]
    rows = rows_of(read_runs([*lucky, *steady]).runs)
    ((_, row),) = chosen(rows).items()
    assert row.learning_rate == 2e-5
    spread = statistics.stdev((80, 80, 83))
    assert f"| roformer (rotary) | 81.0 ± {spread:.1f} (3) |" in headline_table(rows).markdown()
    tables = grid_tables([*lucky, *steady])
    best = "| 2e-05 ← | 81.0 ± 1.7 | 80.0 | 83.0 | 3 | 82.0 | 0 | 0 |"
    assert f"| roformer (rotary) | mrpc/f1 {best}" in tables
    assert "| roformer (rotary) | mrpc/f1 | 5e-05 | 68.3 ± 23.6 | 60.0 | 95.0 | 3 |" in tables
    assert "| majority | 81.2 |" in tables


@pytest.mark.parametrize(
    ("value", "status", "line"),
    [
        (0.8, "degenerate", "| 85.0 ± 7.1 | 85.0 | 90.0 | 2 | 86.0 | 1 | 0 |"),  # stays in the mean
        (0.0, "failed", "| mrpc/f1 | 2e-05 ← | 90.0 | 90.0 | 90.0 | 1 | 91.0 | 0 | 1 |"),
    ],
)
def test_constant_predictors_and_failed_runs_are_counted(tmp_path, value, status, line):
    folders = [cell(tmp_path, 0, 2e-5, 0.9), cell(tmp_path, 1, 2e-5, value, status=status)]
    assert line in glue_tables(read_runs(folders))


def test_nan_is_shown_and_never_chosen(tmp_path):
    folders = [cell(tmp_path, 0, 2e-5, 0.1), cell(tmp_path, 0, 9e-5, None, status="degenerate")]
    tables = glue_tables(read_runs(folders))
    assert "| mrpc/f1 | 2e-05 ← |" in tables
    assert "| mrpc/f1 | 9e-05 | NaN | NaN | NaN | 1 | NaN | 1 | 0 |" in tables


def test_configurations_are_named_by_what_differs(tmp_path):
    """24 epochs are no seed of the configuration with 3; the number of threads is no setting."""
    folders = [
        cell(tmp_path, 0, 2e-5, 0.9),
        cell(tmp_path, 1, 2e-5, 0.8, runtime={"threads": 7}),
        cell(tmp_path, 0, 2e-5, 0.6, epochs=24),
        cell(tmp_path, 0, 2e-5, 0.7, model="bert", task="qqp"),
    ]
    lines = headline_table(rows_of(read_runs(folders).runs)).markdown().splitlines()[2:]
    assert lines[0] == "| model | mrpc/f1 | qqp/f1 |"
    assert "| roformer (rotary), training.epochs=3 | 85.0 ± 7.1 (2) |  |" in lines
    assert "| roformer (rotary), training.epochs=24 | 60.0 (1) |  |" in lines
    assert "| bert (rotary) |  | 70.0 (1) |" in lines


def test_other_runs_are_refused(tmp_path):
    with pytest.raises(RecordError, match=r"has no summary.json"):
        grid_tables([tmp_path])
    with pytest.raises(RecordError, match="is a run of pretrain, not of glue"):
        grid_tables([record(tmp_path / "other")])


# --- paired by the seed --------------------------------------------------------------------------


@pytest.fixture
def study(tmp_path):
    """Two configurations of five seeds, bert's in another order; each has a rate that is not chosen."""
    ours = [cell(tmp_path, seed, 2e-5, ROTARY[seed]) for seed in ROTARY]
    ours += [cell(tmp_path, seed, 5e-5, 0.1) for seed in ROTARY]
    theirs = [cell(tmp_path, seed, 5e-5, LEARNED[seed], model="bert") for seed in (3, 1, 4, 0, 2)]
    return [*ours, *theirs, *(cell(tmp_path, s, 2e-5, 0.2, model="bert") for s in LEARNED)]


def paired(folders, baseline=None):
    table = paired_glue_table(read_runs(folders), baseline)
    return table, [list(line) for line in table.lines[1:]]


def test_pairs_are_of_a_seed_at_each_configurations_own_rate(study):
    table, lines = paired(study)
    ours, theirs = ([100 * values[seed] for seed in range(5)] for values in (LEARNED, ROTARY))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    means = [f"{statistics.mean(v):.1f} ± {statistics.stdev(v):.1f} (5)" for v in (theirs, ours)]
    assert lines == [
        [
            *("bert (rotary)", "mrpc/f1", "5e-05 / 2e-05"),
            *means,
            f"{statistics.mean(ours) - statistics.mean(theirs):.1f}",
            f"{low:.1f} to {high:.1f}",
            *("0.062", "0.062", "5", "0 / 0"),
        ]
    ]
    assert table.title == "GLUE: paired differences from roformer (rotary)"
    assert len(table.notes) == 3 and "no p below 0.062" in table.notes[2]
    _, (line,) = paired(study, "bert")
    assert line[0] == "roformer (rotary)" and line[2] == "2e-05 / 5e-05" and line[5] == "+3.0"


def test_p_values_are_adjusted_over_the_tasks_that_were_tested(study, tmp_path):
    """One seed is no test: sst2 does not count, so two tasks double 1/16."""
    for seed in ROTARY:
        study.append(cell(tmp_path, seed, 2e-5, ROTARY[seed], task="qqp"))
        other = ROTARY[seed] + (0.001 if seed % 2 else -0.002)
        study.append(cell(tmp_path, seed, 2e-5, other, task="qqp", model="bert"))
    study += [cell(tmp_path, 0, 2e-5, 0.5, task="sst2", model=m) for m in ("roformer", "bert")]
    study.append(cell(tmp_path, 0, 2e-5, 0.5, task="rte"))
    table, lines = paired(study)
    found = {line[1]: line[7:10] for line in lines}
    assert list(found) == ["mrpc/f1", "sst2/f1", "qqp/f1"]
    assert found["mrpc/f1"] == ["0.062", "0.125", "5"]
    assert found["sst2/f1"] == ["–", "–", "1"]
    p = float(found["qqp/f1"][0])
    assert p > 0.125 and found["qqp/f1"][1] == f"{p:.3f}"
    assert table.notes[-1] == "bert (rotary), rte: no seed that ended in both configurations."


def test_constant_and_failed_runs_are_told(tmp_path):
    """A constant predictor counts; a failed run takes the pair with it, and is named."""
    folders = [cell(tmp_path, seed, 2e-5, ROTARY[seed]) for seed in (0, 1, 2)]
    folders += [
        cell(tmp_path, 0, 2e-5, 0.7, model="bert", status="degenerate"),
        cell(tmp_path, 1, 2e-5, 0.0, model="bert", status="failed"),
        cell(tmp_path, 2, 2e-5, 0.6, model="bert"),
    ]
    table, (line,) = paired(folders)
    difference = statistics.mean([-10, -19])
    assert line[5] == f"{difference:.1f}" and line[9:] == ["2", "1 / 0"]
    assert table.notes[-1] == ("bert (rotary), mrpc: without a pair, failed or not run: seed 1.")


def test_a_metric_that_is_not_defined_is_not_averaged_away(tmp_path):
    folders = [cell(tmp_path, seed, 2e-5, ROTARY[seed]) for seed in (0, 1)]
    folders += [
        cell(tmp_path, 0, 2e-5, None, model="bert", status="degenerate"),
        cell(tmp_path, 1, 2e-5, 0.6, model="bert"),
    ]
    _, (line,) = paired(folders)
    assert line[4:] == ["NaN (2)", "NaN", "–", "–", "–", "2", "1 / 0"]


def test_what_cannot_be_paired_is_refused(study, tmp_path):
    with pytest.raises(RecordError, match="1 configurations: give the runs of at least two"):
        paired(study[:10])
    with pytest.raises(RecordError, match="no configuration has 'shaw' in the name"):
        paired(study, "shaw")
    with pytest.raises(RecordError, match="mrpc at 2e-05 has a seed twice"):
        paired([*study, cell(tmp_path / "again", 0, 2e-5, 0.9)])
