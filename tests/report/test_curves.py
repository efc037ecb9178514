"""Curves of losses: what shares a table, what is missing, and steps to equal losses.

Means, differences and ratios of recorded studies are on their pages: tests.repo.test_documentation.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.report.curves import curve_tables, loss_of, losses_of, reach
from roformer.report.runs import RecordError, read_runs, write_recorded
from tests.report.records import cells, curve, record, rows_of

STEPS = (100, 200, 300, 400)
FAST = {0: (6.0, 5.0, 4.0, 3.0), 1: (6.2, 5.1, 4.3, 3.2), 2: (6.1, 5.4, 4.5, 3.1)}
SLOW = {0: (6.5, 5.9, 5.4, 4.4), 1: (6.6, 6.0, 5.2, 4.9), 2: (6.9, 6.1, 5.6, 4.5)}
ENTROPY = {"valid/unigram_entropy": 7.0}
"""The plateau is left at 6.5."""


# --- side by side --------------------------------------------------------------------------------


def loss_run(folder, losses, *, length=128, **more):
    config = {"training": {"sequence_length": length}}
    rows = curve(losses, samples=1, tokens=10, **ENTROPY)
    return record(folder, rows=rows, config=config, **more)


def compared(*folders, metric="valid/mlm_loss"):
    return curve_tables(read_runs(folders), metric, each_run=True)


def test_a_recorded_run_stands_beside_the_same_one_made_here(tmp_path):
    """They have one id, and each is identified by its folder."""
    here = loss_run(tmp_path / "runs/pretrain/a", (5.0, 4.0))
    write_recorded(tmp_path / "study", [loss_run(tmp_path / "other/pretrain/a", (5.1, 4.1))])
    values, _ = compared(tmp_path / "study", here)
    assert values.lines[0][3:] == [str(tmp_path / "study/runs/a"), str(here)]
    assert values.lines[2][3:] == ["4.100", "4.000"]


def test_a_run_without_the_metric_is_excluded_and_without_any_an_error(tmp_path):
    own, other = (loss_run(tmp_path / name, (5.0,), model=name) for name in "ab")
    (other / "metrics.jsonl").write_text('{"step": 100, "valid/nsp_loss": 1.0}\n')
    (table,) = compared(own, other, metric="valid/nsp_loss")
    assert table.lines[0][3:] == ["b (rotary), seed 0"]
    assert table.notes[0] == "Left out: a: it has no valid/nsp_loss."
    with pytest.raises(RecordError, match=r"has no valid/loss: choose one of data/samples, data/t"):
        compared(own, metric="valid/loss")


def test_losses_on_other_targets_have_separate_tables(tmp_path):
    """The text is the same, and so is its unigram entropy."""
    a, b = loss_run(tmp_path / "a", (5.0,)), loss_run(tmp_path / "b", (6.0,), model="bert")
    c = loss_run(tmp_path / "c", (3.0,), length=64)
    found = compared(a, c, b)
    assert [table.lines for table in found] == [t.lines for t in (*compared(a, b), *compared(c))]
    assert found[0].title.endswith(" (training.sequence_length=128)")


def test_runs_of_several_lengths_a_diverged_one_and_a_copy_are_compared(tmp_path):
    """As in runs/pretrain after a few trials: a table per length, and a line per excluded run."""
    mini = [loss_run(tmp_path / f"m{n}", (5.0, 4.0), model=f"m{n}", steps=200) for n in (0, 1)]
    longer = loss_run(tmp_path / "longer", (6.0, 5.0, 4.0, 3.0), steps=400)
    smoke = record(tmp_path / "smoke", rows=curve((9.0, 8.0), every=15, **ENTROPY), steps=30)
    copy = loss_run(tmp_path / "m0.before-1", (5.5, 4.5), model="m0", steps=200)
    diverged = record(tmp_path / "wild", rows=[{"step": 2}], status="failed", error="Diverged")
    runs = [copy, *mini, longer, smoke, diverged]
    for found in (compared(*runs), tables(runs)):
        means = [table for table in found if " at equal steps" in table.title]
        assert [table.title.partition(" steps")[2] for table in means] == [
            f" (training.steps={steps})" for steps in (200, 400, 30)
        ]
        assert [table.lines[-1][0] for table in means] == ["200", "400", "30"]
        assert all("Left out: wild: Diverged." in table.notes for table in means)
    same = f"same settings and seed as {tmp_path / 'm0'}."
    assert f"Left out: {copy}: {same}" in means[0].notes and len(means[0].lines[0]) == 5
    with pytest.raises(RecordError, match="none of these runs ended: Left out: wild: Diverged"):
        compared(diverged)


def test_what_was_read_until_a_step_stands_beside_it(tmp_path):
    """About as much where one run had the text's last block; nothing where a run did not note it."""
    rows = [
        {"step": step, "valid/mlm_loss": 5.0, "data/samples": samples, "data/tokens": tokens}
        for step, samples, tokens in ((100, 100, 996), (200, 200, 1_000))
    ]
    first = record(tmp_path / "a", rows=curve((6, 5, 4), samples=1, tokens=10))
    other = record(tmp_path / "b", rows=[*rows, {"step": 300, "valid/mlm_loss": 4.0}], seed=1)
    (table,) = tables([first, other])
    found = [list(line[:3]) for line in table.lines[1:]]
    assert found == [["100", "100", "≈ 998"], ["200", "200", ""], ["300", "", ""]]


def test_a_translation_has_no_curves(tmp_path):
    with pytest.raises(RecordError, match="only pretrain, convert, charlm, clm have curves"):
        loss_of(rows_of(record(tmp_path / "wmt", pipeline="wmt")))


# --- configurations over seeds -------------------------------------------------------------------


def seed_run(folder, position, seed, losses, **more):
    rows, path = curve(losses, **ENTROPY), folder / f"{position}-s{seed}"
    return record(path, rows=rows, position=position, seed=seed, **more)


@pytest.fixture
def study(tmp_path):
    """Folders of two configurations; the slow one's folders are in another order of seeds."""
    slow = [seed_run(tmp_path, "learned", seed, SLOW[seed]) for seed in (2, 0, 1)]
    return [seed_run(tmp_path, "rotary", seed, FAST[seed]) for seed in (0, 1, 2)] + slow


def tables(folders, **more):
    return curve_tables(read_runs(folders), "valid/mlm_loss", **more)


# --- steps to equal losses, and learning rates ---------------------------------------------------


def test_without_a_common_loss_there_are_words_instead_of_a_ratio(study, tmp_path):
    """A seed that stays on the plateau is named, and the others are compared."""
    mixed = [seed_run(tmp_path, "t5", seed, SLOW[seed]) for seed in (0, 2)]
    mixed += [seed_run(tmp_path, "t5", 1, (6.9, 6.4, 6.3, 6.7))]  # a dip does not count
    other = [seed_run(tmp_path, "none", 7, SLOW[0])]
    table = tables([*study, *mixed, *other])[2]
    stays, *lines = cells(table, "roformer (t5)")
    assert stays[3] == "does not get below 6.500 with seed 1: ends at 6.700"
    assert lines and all(line[-1].count(",") == 1 for line in lines)
    assert cells(table, "roformer (none)")[0][3] == "no seed that both have"
    assert len(tables([*mixed[2:], *study], baseline="t5")[2].lines) == 2


def test_without_the_entropy_there_is_no_plateau(tmp_path):
    rows = [curve(losses) for losses in (FAST[0], SLOW[0])]
    runs = [record(tmp_path / str(n), rows=r, model=f"m{n}") for n, r in enumerate(rows)]
    assert len(tables(runs)) == 2


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 9))
def test_a_run_stays_where_it_is_said_to_be(values, target):
    """Not the first time below: an evaluation above it later counts."""
    points = {10 * (place + 1): float(value) for place, value in enumerate(values)}
    found = reach(points, target + 0.5)
    assert all(value < target + 0.5 for step, value in points.items() if step >= found)
    if math.isfinite(found) and found > 0:
        assert np.interp(found, [*points], [*points.values()]) == pytest.approx(target + 0.5)
        assert max(value for step, value in points.items() if step < found) > target
    else:
        assert found == (0 if max(values) <= target else math.inf)


@given(
    st.lists(st.lists(st.floats(0.1, 9), min_size=2, max_size=4), min_size=2, max_size=6),
    st.floats(0.1, 9),
)
def test_losses_at_which_runs_are_compared_are_passed_by_all(curves, plateau):
    runs = [dict(zip(STEPS, values, strict=False)) for values in curves]
    losses = losses_of(runs, plateau)
    assert losses == sorted(losses, reverse=True) and len(losses) <= 8
    assert all(100 < reach(points, loss) < math.inf for points in runs for loss in losses)
    assert all(loss < plateau for loss in losses)


# --- what is missing -----------------------------------------------------------------------------


def test_a_loss_that_is_nan_is_no_mean(study, tmp_path):
    """The run counts: its configuration has no mean, no difference and no steps there."""
    worse = seed_run(tmp_path, "none", 0, (6.0, 5.9, None, None), status="degenerate")
    means, differences, steps = tables([*study, worse])
    assert cells(means, "400")[0][-1] == "NaN (1)"
    assert cells(differences, "roformer (none)", "400") == [["NaN", *["–"] * 3, "1"]]
    assert cells(steps, "roformer (none)")[0][3] == "does not get below 6.500: ends at nan"
    assert "Counted, though degenerate: none-s0." in means.notes


def test_the_baseline_is_named_by_a_unique_part(study):
    found = tables(study, baseline="learned")
    assert found[1].title.endswith("from roformer (learned)")
    assert found[0].lines[0][3:] == ["roformer (learned)", "roformer (rotary)"]
    with pytest.raises(RecordError, match="2 configurations have 'roformer' in the name"):
        tables(study, baseline="roformer")
