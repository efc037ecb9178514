"""Several seeds of several arms: who is paired with whom, and which run may never be forgotten."""

import itertools
import json
import math
import runpy
import statistics
import sys

import numpy as np
import pytest
from scipy import stats

from roformer.report.convergence import convergence_tables, reach
from roformer.report.curves import read_curve
from tests.conftest import REPOSITORY

STEPS = (100, 200, 300, 400)


def record(
    folder, position, seed, losses, *, status="done", data="d", error=None, training=None, name=None
):
    """Write a run that was evaluated at `STEPS`."""
    path = folder / (name or f"{position}-s{seed}")
    path.mkdir(parents=True)
    rows = [
        {"step": step, "valid/mlm_loss": loss, "data/samples": 32 * step, "data/tokens": 512 * step}
        for step, loss in zip(STEPS, losses, strict=False)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"pipeline": "pretrain", "model": "roformer", "position": position}
    summary |= {"seed": seed, "status": status}
    (path / "summary.json").write_text(json.dumps(summary | ({"error": error} if error else {})))
    config = {
        "seed": seed,
        "model": {"position": {"kind": position}},
        "training": training or {"steps": 400},
        "runtime": {"threads": seed + 1},
    }
    (path / "config.yaml").write_text(json.dumps(config))
    (path / "env.json").write_text(json.dumps({"data": data}))
    return path


FAST = {0: (6.0, 5.0, 4.0, 3.0), 1: (6.2, 5.1, 4.3, 3.2), 2: (6.1, 5.4, 4.5, 3.1)}
SLOW = {0: (6.5, 5.9, 5.4, 4.4), 1: (6.6, 6.0, 5.2, 4.9), 2: (6.9, 6.1, 5.6, 4.5)}


@pytest.fixture
def study(tmp_path):
    """Folders of two arms; those of the slow one in another order of seeds."""
    slow = [record(tmp_path, "learned", seed, SLOW[seed]) for seed in (2, 0, 1)]
    return [record(tmp_path, "rotary", seed, FAST[seed]) for seed in (0, 1, 2)] + slow


def rows(table, *starts):
    """Return the rows that begin with these cells, without them."""
    found = [list(line) for line in table.lines if tuple(line[: len(starts)]) == starts]
    return [line[len(starts) :] for line in found]


def test_the_mean_of_each_arm_at_equal_updates(study):
    values = convergence_tables(study)[0]
    assert values.lines[0] == ["updates", "sequences", "tokens", *ARMS]
    ends = [[curves[seed][-1] for seed in (0, 1, 2)] for curves in (FAST, SLOW)]
    cells = [f"{np.mean(end):.3f} ± {statistics.stdev(end):.3f} (3)" for end in ends]
    assert rows(values, "400") == [["12,800", "204,800", *cells]]
    assert "All that the arms differ in: model.position.kind." in values.notes
    assert values.notes[-1] == "All 6 runs ended, and are counted."


ARMS = ("roformer (rotary)", "roformer (learned)")


def test_differences_are_of_the_same_seed(study):
    """The folders stand in another order of seeds: pairs by place would have another spread."""
    table = convergence_tables(study)[1]
    assert table.title == "valid/mlm_loss: paired differences from roformer (rotary)"
    ours, theirs = ([c[s][-1] for s in (0, 1, 2)] for c in (SLOW, FAST))
    test = stats.ttest_rel(ours, theirs)
    low, high = test.confidence_interval(0.95)
    spread = statistics.stdev(np.subtract(ours, theirs))
    assert rows(table, ARMS[1], "400") == [
        [
            f"+{np.mean(ours) - np.mean(theirs):.3f} ± {spread:.3f}",
            f"{low:+.3f} to {high:+.3f}",
            *[f"{test.pvalue:.3f}"] * 2,
            "0.250",
            "3",
        ]
    ]
    assert [line[1] for line in table.lines[1:]] == ["100", "200", "300", "400"]
    assert "With 3 seeds the sign-flip test gives no p below 0.250." in table.notes
    assert "the same text, order and masks" in table.notes[0]


def test_of_several_arms_the_p_values_are_adjusted(study, tmp_path):
    """The smaller of two p counts double, the larger is no less than that."""
    other = {seed: [loss + seed for loss in SLOW[seed]] for seed in SLOW}
    none = [record(tmp_path, "none", seed, other[seed]) for seed in other]
    table = convergence_tables([*study, *none])[1]
    ends = [[curves[seed][-1] for seed in (0, 1, 2)] for curves in (SLOW, other, FAST)]
    one, two = (stats.ttest_rel(ours, ends[2]).pvalue for ours in ends[:2])
    assert 2 * one < two < 0.5
    found = [rows(table, f"roformer ({arm})", "400")[0][2:4] for arm in ("learned", "none")]
    assert found == [[f"{one:.3f}", f"{2 * one:.3f}"], [f"{two:.3f}", f"{two:.3f}"]]


def updates_to(losses, target):
    """Return the updates to a loss on straight lines, by numpy: the curves here only fall."""
    if losses[-1] > target:
        return math.inf
    return float(np.interp(-target, [-loss for loss in losses], STEPS))


def by_hand(arm, other, step):
    """Return (updates, interval of the ratio) over all 27 draws of three seeds."""
    place = STEPS.index(step)

    def mean(draw):
        target = np.mean([other[s][place] for s in draw])
        return np.mean([updates_to(arm[s], target) for s in draw])

    ratios = sorted(mean(draw) / step for draw in itertools.product((0, 1, 2), repeat=3))
    return mean((0, 1, 2)), (ratios[0], ratios[26])


def test_updates_to_the_loss_of_another_arm(study):
    """The loss is drawn with the seeds, and sequences and tokens stand beside the updates."""
    table = convergence_tables(study)[2]
    updates, (low, high) = by_hand(FAST, SLOW, 400)
    assert rows(table, *ARMS, "400") == [
        [
            f"{np.mean([SLOW[s][-1] for s in SLOW]):.3f}",
            f"{updates:,.0f}",
            f"{32 * updates:,.0f}",
            f"{512 * updates:,.0f}",
            f"{updates / 400:.2f}",
            f"{low:.2f} to {high:.2f}",
            "0 of 3",
        ]
    ]
    assert [line[2] for line in table.lines[1:]] == ["100", "200", "300", "400", "400"]
    assert "With 3 seeds there are 10 different resamples" in table.notes[-1]


def test_an_arm_that_never_gets_there_has_bounds_alone(study):
    table = convergence_tables(study)[2]
    (line,) = rows(table, *ARMS[::-1], "400")
    assert line[1:5] == ["> 400", "> 12,800", "> 204,800", "> 1.00"]
    assert line[5:] == ["≥ 1.00", "3 of 3"]


def test_one_seed_of_three_that_never_gets_there(tmp_path):
    late = FAST | {1: (6.2, 6.1, 6.0, 5.9)}
    folders = [record(tmp_path, "rotary", seed, late[seed]) for seed in late]
    folders += [record(tmp_path, "learned", seed, SLOW[seed]) for seed in SLOW]
    (line,) = rows(convergence_tables(folders)[2], *ARMS, "400")
    target = np.mean([SLOW[s][-1] for s in SLOW])
    bound = np.mean([updates_to(late[0], target), 400, updates_to(late[2], target)])
    assert line[1] == f"> {bound:,.0f}" and line[4] == f"> {bound / 400:.2f}"
    assert line[5].startswith("≥ 0.") and line[6] == "1 of 3"


def test_who_is_there_at_the_first_evaluation_was_there_before(tmp_path):
    early = dict.fromkeys((0, 1, 2), (4.0, 3.5, 3.2, 3.0))
    folders = [record(tmp_path, "rotary", seed, early[seed]) for seed in early]
    folders += [record(tmp_path, "learned", seed, SLOW[seed]) for seed in SLOW]
    (line,) = rows(convergence_tables(folders)[2], *ARMS, "400")
    assert line[1:6] == ["≤ 100", "≤ 3,200", "≤ 51,200", "≤ 0.25", "≤ 0.25"]
    curve = read_curve(folders[0], "valid/mlm_loss")
    assert reach(curve, 4.0) == (0, 100) and reach(curve, 3.75) == (150, 150)
    assert reach(curve, 2.9) == (400, math.inf)


def test_a_loss_that_is_nan_is_no_mean(study, tmp_path):
    """The run counts: its arm has no mean, no difference and no updates there."""
    worse = record(tmp_path, "none", 0, (6.0, 5.9, None, None), status="degenerate")
    values, differences, updates, told = convergence_tables([*study, worse])
    assert rows(values, "400")[0][-1] == "NaN (1)"
    assert rows(differences, "roformer (none)", "400") == [["NaN", *["–"] * 4, "1"]]
    assert rows(updates, ARMS[0], "roformer (none)", "400") == [["NaN", *["–"] * 6]]
    assert rows(updates, "roformer (none)", ARMS[0], "400")[0][-1] == "1 of 1"
    assert ["none-s0", "roformer (none)", "counted, though degenerate"] in told.lines


def test_runs_without_an_end_are_told_and_their_seed_is_missed(study, tmp_path):
    (study[4] / "summary.json").unlink()  # learned, seed 0
    failed = record(tmp_path, "none", 0, (6.0,), status="failed", error="Diverged: loss is NaN")
    values, differences, updates, told = convergence_tables([*study, failed])
    assert told.lines[1:] == [
        ["learned-s0", "–", "left out: no summary.json, so it did not end"],
        ["none-s0", "–", "left out: failed (Diverged: loss is NaN)"],
        ["–", ARMS[1], "has no seed 0"],
    ]
    assert not any("All" in note and "ended" in note for note in values.notes)
    ours, theirs = ([c[s][-1] for s in (1, 2)] for c in (SLOW, FAST))
    (line,) = rows(differences, ARMS[1], "400")
    assert line[0].startswith(f"+{np.mean(ours) - np.mean(theirs):.3f}") and line[-1] == "2"
    assert rows(updates, *ARMS, "400")[0][-1] == "0 of 2"


def test_arms_without_a_seed_in_common_are_not_compared(tmp_path):
    folders = [record(tmp_path, "rotary", 0, FAST[0]), record(tmp_path, "learned", 1, SLOW[1])]
    _, differences, updates, told = convergence_tables(folders)
    assert rows(differences, ARMS[1], "400") == [[*["–"] * 5, "0"]]
    assert rows(updates, *ARMS, "400") == [["–"] * 7] and len(told.lines) == 3


def test_the_baseline_is_named_or_that_of_the_first_folder(study):
    tables = convergence_tables(study, baseline="learned")
    assert tables[1].title.endswith("from roformer (learned)")
    assert tables[0].lines[0][3:] == list(ARMS[::-1])
    with pytest.raises(ValueError, match=r"no arm has 'shaw' in the name: choose of roformer \("):
        convergence_tables(study, baseline="shaw")
    with pytest.raises(ValueError, match="2 arms have 'roformer' in the name"):
        convergence_tables(study, baseline="roformer")


def test_what_else_differs_than_the_model_is_told(study, tmp_path):
    other = [record(tmp_path, "none", s, SLOW[s], training={"steps": 9}) for s in (0, 1, 2)]
    notes = convergence_tables([*study[:3], *other])[1].notes
    assert "may as well" in notes[0] and "the same text" not in notes[0]


def test_what_cannot_be_compared_is_refused(study, tmp_path):
    again = record(tmp_path, "rotary", 0, FAST[0], name="again")
    with pytest.raises(ValueError, match="have the same settings and seed"):
        convergence_tables([*study, again])
    elsewhere = record(tmp_path, "none", 0, FAST[0], data="e" * 64)
    with pytest.raises(ValueError, match=r"read other data \(fingerprints d and eeeeeeee\)"):
        convergence_tables([*study, elsewhere])
    with pytest.raises(ValueError, match="none of these runs ended"):
        convergence_tables([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="has no valid/x: choose one of"):
        convergence_tables(study, "valid/x")


def test_of_what_is_no_loss_there_are_no_updates(study):
    assert len(convergence_tables(study, "data/tokens")) == 2
    assert len(convergence_tables(study[:3])) == 1


def test_the_script_prints_them_on_demand_alone(study, monkeypatch, capsys):
    def script(*arguments):
        monkeypatch.setattr(sys, "argv", ["compare.py", *map(str, arguments)])
        try:
            runpy.run_path(str(REPOSITORY / "scripts" / "compare.py"), run_name="__main__")
        except SystemExit as end:
            return end.code, *capsys.readouterr()
        return 0, *capsys.readouterr()

    tables = convergence_tables(study, baseline="learned")
    printed = "\n\n".join(table.markdown() for table in tables) + "\n"
    assert script("--seeds", "--baseline", "learned", *study) == (0, printed, "")
    code, out, _ = script(*study)
    assert code == 0 and "paired" not in out
    assert script("--baseline", "learned", *study)[0] == 2
    code, _, error = script("--seeds", "--baseline", "x", *study)
    assert code == 2 and error.startswith("error: no arm has 'x'")
