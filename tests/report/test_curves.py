"""Curves of losses: side by side, configurations over seeds, and by position."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from roformer.report.curves import curve_tables, loss_of, losses_of, reach
from roformer.report.runs import RecordError, read_runs, write_recorded
from tests.report.records import curve, record, rows_of

STEPS = (100, 200, 300, 400)
FAST = {0: (6.0, 5.0, 4.0, 3.0), 1: (6.2, 5.1, 4.3, 3.2), 2: (6.1, 5.4, 4.5, 3.1)}
SLOW = {0: (6.5, 5.9, 5.4, 4.4), 1: (6.6, 6.0, 5.2, 4.9), 2: (6.9, 6.1, 5.6, 4.5)}
NAMES = ("roformer (rotary)", "roformer (learned)")
ENTROPY = {"valid/unigram_entropy": 7.0}
"""The plateau is left at 6.5."""


# --- side by side --------------------------------------------------------------------------------


def loss_run(folder, losses, *, length=128, vocabulary=8192, **more):
    data = {"kind": "builtin", "tokenizer": {"vocab_size": vocabulary}}
    config = {"data": data, "training": {"sequence_length": length}}
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


def test_a_run_that_failed_is_told_and_left_out(tmp_path):
    sound = loss_run(tmp_path / "sound", (5.0, 4.0))
    errors = {"wild": "Diverged: the loss of step 21 is nan", "full": "OSError: no space"}
    for name, error in errors.items():
        record(tmp_path / name, rows=[{"step": 20}], status="failed", error=error)
    (table,) = compared(tmp_path / "wild", sound, tmp_path / "full")
    assert table.lines == compared(sound)[0].lines
    assert table.notes[:2] == [f"Left out: {name}: {error}." for name, error in errors.items()]
    with pytest.raises(RecordError, match="none of these runs ended: Left out: wild: Diverged"):
        compared(tmp_path / "wild")


def test_a_run_without_the_metric_is_excluded_and_without_any_an_error(tmp_path):
    own, other = (loss_run(tmp_path / name, (5.0,), model=name) for name in "ab")
    (other / "metrics.jsonl").write_text('{"step": 100, "valid/nsp_loss": 1.0}\n')
    (table,) = compared(own, other, metric="valid/nsp_loss")
    assert table.lines[0][3:] == ["b (rotary), seed 0"]
    assert table.notes[0] == "Left out: a: it has no valid/nsp_loss."
    with pytest.raises(RecordError, match=r"has no valid/loss: choose one of data/samples, data/t"):
        compared(own, metric="valid/loss")


@pytest.mark.parametrize(
    ("other", "settings"),
    [
        ({"text": "e" * 64}, "fingerprint=d"),
        ({"length": 64}, "training.sequence_length=128"),
    ],
)
def test_losses_on_other_validation_sets_have_separate_tables(tmp_path, other, settings):
    """Another vocabulary has another fingerprint of the data; a length changes only the targets."""
    a, b = loss_run(tmp_path / "a", (5.0,)), loss_run(tmp_path / "b", (6.0,), model="bert")
    c = loss_run(tmp_path / "c", (3.0,), **other)
    found = compared(a, c, b)
    assert [table.lines for table in found] == [t.lines for t in (*compared(a, b), *compared(c))]
    assert found[0].title.endswith(f" ({settings})")


def test_runs_of_several_lengths_a_diverged_one_and_a_copy_are_compared(tmp_path):
    """As in runs/pretrain after a few trials: a table per length, and a line per excluded run."""
    mini = [loss_run(tmp_path / f"m{n}", (5.0, 4.0), model=f"m{n}", steps=200) for n in (0, 1)]
    longer = loss_run(tmp_path / "longer", (6.0, 5.0, 4.0, 3.0), steps=400)
    smoke = record(tmp_path / "smoke", rows=curve((9.0, 8.0), every=15, **ENTROPY), steps=30)
    copy = loss_run(tmp_path / "m0.before-1", (5.5, 4.5), model="m0", steps=200)
    diverged = record(tmp_path / "wild", rows=[{"step": 2}], status="failed", error="Diverged")
    runs = read_runs([copy, *mini, longer, smoke, diverged])
    for each_run in (True, False):
        found = curve_tables(runs, "valid/mlm_loss", each_run=each_run)
        means = [table for table in found if " at equal steps" in table.title]
        assert [table.title.partition(" steps")[2] for table in means] == [
            f" (training.steps={steps})" for steps in (200, 400, 30)
        ]
        assert [table.lines[-1][0] for table in means] == ["200", "400", "30"]
        assert all("Left out: wild: Diverged." in table.notes for table in means)
    same = f"same settings and seed as {tmp_path / 'm0'}."
    assert f"Left out: {copy}: {same}" in means[0].notes and len(means[0].lines[0]) == 5


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


def test_runs_of_several_pipelines_have_no_common_loss(tmp_path):
    runs = [record(tmp_path / name, pipeline=name) for name in ("clm", "charlm", "wmt")]
    with pytest.raises(RecordError, match=r"is a run of clm, .* of charlm: give runs of one"):
        loss_of(rows_of(*runs[:2]))
    with pytest.raises(RecordError, match="only pretrain, charlm, clm have curves"):
        loss_of(rows_of(runs[2]))


# --- configurations over seeds -------------------------------------------------------------------


def seed_run(folder, position, seed, losses, *, name=None, training=None, **more):
    path = folder / (name or f"{position}-s{seed}")
    config = {"training": training or {"steps": 400}}
    rows = curve(losses, **ENTROPY)
    return record(path, rows=rows, position=position, seed=seed, config=config, **more)


@pytest.fixture
def study(tmp_path):
    """Folders of two configurations; the slow one's folders are in another order of seeds."""
    slow = [seed_run(tmp_path, "learned", seed, SLOW[seed]) for seed in (2, 0, 1)]
    return [seed_run(tmp_path, "rotary", seed, FAST[seed]) for seed in (0, 1, 2)] + slow


def tables(folders, **more):
    return curve_tables(read_runs(folders), "valid/mlm_loss", **more)


def cells(table, *starts):
    """Return the rows that begin with these cells, without them."""
    found = [list(line) for line in table.lines if tuple(line[: len(starts)]) == starts]
    return [line[len(starts) :] for line in found]


def test_means_at_equal_steps_and_differences_of_the_same_seed(study, tmp_path):
    """The folders are in another order of seeds: pairs by place would have another spread."""
    means, table, _ = tables(study)
    assert means.lines[0] == ["steps", "sequences", "tokens", *NAMES]
    ends = [[curves[seed][-1] for seed in (0, 1, 2)] for curves in (FAST, SLOW)]
    shown = [f"{np.mean(end):.3f} ± {statistics.stdev(end):.3f} (3)" for end in ends]
    assert cells(means, "400") == [["12,800", "204,800", *shown]]
    assert "All that the configurations differ in: model.position.kind." in means.notes
    assert means.notes[0] == "Every run ended and is counted (6)."
    assert table.title == "valid/mlm_loss: paired differences from roformer (rotary)"
    ours, theirs = ([c[s][-1] for s in (0, 1, 2)] for c in (SLOW, FAST))
    test = stats.ttest_rel(ours, theirs)
    low, high = test.confidence_interval(0.95)
    spread = statistics.stdev(np.subtract(ours, theirs))
    mean = f"+{np.mean(ours) - np.mean(theirs):.3f} ± {spread:.3f}"
    assert cells(table, NAMES[1], "400") == [
        [mean, f"{low:+.3f} to {high:+.3f}", "0.250", "0.250", "3"]
    ]
    assert [line[1] for line in table.lines[1:]] == ["100", "200", "300", "400"]
    assert "With 3 seeds the sign-flip test gives no p below 0.250." in table.notes
    assert "The text, order and masks are the same" in table.notes[0]
    other = [seed_run(tmp_path / "o", "none", s, SLOW[s], training={"steps": 9}) for s in (0, 1, 2)]
    assert "may differ too" in tables([*study[3:], *other])[1].notes[0]


# --- steps to equal losses, and learning rates ---------------------------------------------------


def by_numpy(losses, target):
    """Return the steps to a loss on straight lines: the curves here only fall."""
    return float(np.interp(-target, [-loss for loss in losses], STEPS))


def test_steps_to_equal_losses_below_the_plateau(study):
    """All round losses from the first that some run had not passed to the worst end, and that one."""
    table = tables(study)[2]
    assert table.title == "Steps to equal valid/mlm_loss off the plateau"
    lines = cells(table, NAMES[1])
    assert [line[0] for line in lines] == ["5.800", "5.600", "5.400", "5.200", "5.000", "4.900"]
    for line, loss in zip(lines, (5.8, 5.6, 5.4, 5.2, 5.0, 4.9), strict=True):
        theirs, ours = ([by_numpy(c[s], loss) for s in (0, 1, 2)] for c in (SLOW, FAST))
        test = stats.ttest_rel(np.log(ours), np.log(theirs))
        low, high = np.exp(test.confidence_interval(0.95))
        ratios = np.divide(ours, theirs)
        assert line[1:] == [
            *(f"{np.mean(steps):,.0f}" for steps in (theirs, ours)),
            f"{stats.gmean(ratios):.2f}",
            f"{low:.2f} to {high:.2f}",
            ", ".join(f"{ratio:.2f}" for ratio in ratios),
        ]
    assert "they end at 6.500 or below" in table.notes[0]


def test_who_never_leaves_the_plateau_has_no_ratio_but_words(study, tmp_path):
    """A seed that stays is named, the others are compared; a dip below does not count."""
    flat = [seed_run(tmp_path, "none", seed, (6.8, 6.4, 6.3, 6.6)) for seed in (0, 1)]
    mixed = [seed_run(tmp_path, "t5", seed, SLOW[seed]) for seed in (0, 2)]
    mixed += [seed_run(tmp_path, "t5", 1, (6.9, 6.8, 6.7, 6.7))]
    table = tables([*study, *flat, *mixed])[2]
    words = "never leaves the plateau"
    assert cells(table, "roformer (none)") == [["–", "", "", f"{words}: ends at 6.600", "", ""]]
    stays, *lines = cells(table, "roformer (t5)")
    assert stays[3] == f"{words} with seed 1: ends at 6.700"
    assert lines and all(line[-1].count(",") == 1 for line in lines)
    table = tables([*flat, *study], baseline="none")[2]
    assert len(table.lines) == 2 and table.lines[1][4].startswith(words)


def test_runs_that_have_passed_each_other_are_told_so(study, tmp_path):
    """One begins below where the other ends, or they have no seed in common."""
    early = [seed_run(tmp_path, "none", seed, (3.1, 3.0, 2.9, 2.8)) for seed in (0, 1, 2)]
    other = [seed_run(tmp_path, "t5", 7, SLOW[0])]
    table = tables([*study, *early, *other])[2]
    assert cells(table, "roformer (none)")[0][3] == "no loss that both pass"
    assert cells(table, "roformer (t5)")[0][3] == "no seed that both have"


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
    assert cells(steps, "roformer (none)")[0][3] == "never leaves the plateau: ends at nan"
    assert "Counted, though degenerate: none-s0." in means.notes


def test_runs_without_an_end_are_told_and_their_seed_is_missed(study, tmp_path):
    (study[4] / "summary.json").unlink()  # learned, seed 0
    failed = seed_run(tmp_path, "none", 0, (6.0,), status="failed", error="Diverged: NaN")
    means, differences, steps = tables([*study, failed])
    assert means.notes[0].startswith("Left out: learned-s0: no summary yet")
    assert means.notes[1] == "Left out: none-s0: Diverged: NaN."
    assert not any("All 6" in note for note in means.notes)
    assert differences.notes[-1] == f"{NAMES[1]}: without a pair: seed 0."
    assert cells(differences, NAMES[1], "400")[0][-1] == "2"
    assert cells(steps, NAMES[1])[0][-1].count(",") == 1


def test_the_baseline_is_named_or_that_of_the_first_folder(study):
    found = tables(study, baseline="learned")
    assert found[1].title.endswith("from roformer (learned)")
    assert found[0].lines[0][3:] == list(NAMES[::-1])
    with pytest.raises(
        RecordError, match="no configuration has 'shaw' in the name: choose one of rof"
    ):
        tables(study, baseline="shaw")
    with pytest.raises(RecordError, match="2 configurations have 'roformer' in the name"):
        tables(study, baseline="roformer")
