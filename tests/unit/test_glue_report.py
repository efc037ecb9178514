"""Tables of fine-tuning runs: which rate is chosen, what the numbers are, what is flagged."""

import json
import statistics

import pytest

from roformer.report.glue import chosen, glue_tables, headline_table, read_cells, rows_of


def record(
    folder, seed, rate, value, *, status="done", model="roformer", task="mrpc", epochs=3, threads=1
):
    metrics = {} if status == "failed" else {f"{task}/f1": value, f"{task}/accuracy": 0.5}
    best = {name: None if v is None else v + 0.01 for name, v in metrics.items()}
    summary = {
        "pipeline": "glue",
        "model": model,
        "position": "rotary",
        "recipe": "glue_paper",
        "data": "files",
        "init_from": "x",
        "seed": seed,
        "task": task,
        "learning_rate": rate,
        "headline": f"{task}/f1",
        "status": status,
        "metrics": metrics,
        "best": {"step": 1, "metrics": best},
        "majority": {f"{task}/f1": 0.8122, f"{task}/accuracy": 0.6838},
    }
    path = folder / f"{model}-{task}-{rate}-{epochs}-{threads}-{seed}"
    path.mkdir(parents=True)
    config = {
        "task": {task: {}},
        "seed": seed,
        "model": {"name": model},
        "optimizer": {"learning_rate": rate},
        "training": {"epochs": epochs},
        "runtime": {"threads": threads},
    }
    (path / "config.yaml").write_text(json.dumps(config))
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def test_the_rate_with_the_best_mean_is_chosen_not_the_best_seed(tmp_path):
    lucky = [record(tmp_path, s, 5e-5, v) for s, v in enumerate((0.5, 0.95, 0.6))]
    steady = [record(tmp_path, s, 2e-5, v) for s, v in enumerate((0.8, 0.8, 0.83))]
    rows = rows_of(read_cells([*lucky, *steady]))
    ((_, row),) = chosen(rows).items()
    assert row.learning_rate == 2e-5
    spread = statistics.stdev((80, 80, 83))
    assert f"| roformer (rotary) | 81.0 ± {spread:.1f} (3) |" in headline_table(rows).markdown()
    tables = glue_tables([*lucky, *steady])
    assert (
        "| roformer (rotary) | mrpc/f1 | 2e-05 ← | 81.0 ± 1.7 | 80.0 | 83.0 | 3 | 82.0 | 0 | 0 |"
        in tables
    )
    assert "| roformer (rotary) | mrpc/f1 | 5e-05 | 68.3 ± 23.6 | 60.0 | 95.0 | 3 |" in tables
    assert "| majority | 81.2 |" in tables


def test_constant_predictors_are_counted_and_stay_in_the_mean(tmp_path):
    folders = [record(tmp_path, 0, 2e-5, 0.9), record(tmp_path, 1, 2e-5, 0.8, status="degenerate")]
    assert "| 85.0 ± 7.1 | 85.0 | 90.0 | 2 | 86.0 | 1 | 0 |" in glue_tables(folders)


def test_a_failed_run_is_counted_and_not_averaged(tmp_path):
    folders = [record(tmp_path, 0, 2e-5, 0.9), record(tmp_path, 1, 2e-5, 0.0, status="failed")]
    assert "| mrpc/f1 | 2e-05 ← | 90.0 | 90.0 | 90.0 | 1 | 91.0 | 0 | 1 |" in glue_tables(folders)


def test_nan_is_shown_and_never_chosen(tmp_path):
    folders = [record(tmp_path, 0, 2e-5, 0.1), record(tmp_path, 0, 9e-5, None, status="degenerate")]
    tables = glue_tables(folders)
    assert "| mrpc/f1 | 2e-05 ← |" in tables
    assert "| mrpc/f1 | 9e-05 | NaN | NaN | NaN | 1 | NaN | 1 | 0 |" in tables


def test_arms_and_tasks_stand_side_by_side(tmp_path):
    folders = [
        record(tmp_path, 0, 2e-5, 0.9),
        record(tmp_path, 0, 2e-5, 0.7, model="bert"),
        record(tmp_path, 0, 2e-5, 0.6, task="qqp"),
    ]
    lines = headline_table(rows_of(read_cells(folders))).markdown().splitlines()[2:]
    assert lines[0] == "| model | mrpc/f1 | qqp/f1 |"
    assert "| bert (rotary) | 70.0 (1) |  |" in lines
    assert "| roformer (rotary) | 90.0 (1) | 60.0 (1) |" in lines


def test_runs_of_other_settings_are_another_arm_named_by_what_differs(tmp_path):
    """24 epochs are no seed of the arm with 3; the number of threads is no setting."""
    folders = [
        record(tmp_path, 0, 2e-5, 0.9),
        record(tmp_path, 1, 2e-5, 0.8, threads=2),
        record(tmp_path, 0, 2e-5, 0.6, epochs=24),
    ]
    lines = headline_table(rows_of(read_cells(folders))).markdown().splitlines()[2:]
    assert "| roformer (rotary), training.epochs=3 | 85.0 ± 7.1 (2) |" in lines
    assert "| roformer (rotary), training.epochs=24 | 60.0 (1) |" in lines


def test_other_runs_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no summary.json"):
        read_cells([tmp_path])
    (tmp_path / "summary.json").write_text('{"pipeline": "pretrain"}')
    (tmp_path / "config.yaml").write_text("{}")
    with pytest.raises(ValueError, match="is a run of pretrain"):
        read_cells([tmp_path])
