"""Differences paired by the seed, on GLUE and of translation: which runs make a pair, and which none."""

import statistics

import pytest
from scipy import stats

from roformer.report.paired import paired_glue_table, paired_wmt_table
from roformer.report.records import RecordError
from tests.unit import test_wmt_report
from tests.unit.test_glue_report import record

ROTARY = {0: 0.80, 1: 0.84, 2: 0.79, 3: 0.90, 4: 0.83}
LEARNED = {0: 0.78, 1: 0.80, 2: 0.78, 3: 0.85, 4: 0.80}


@pytest.fixture
def study(tmp_path):
    """Two arms of five seeds, bert's in another order; each has a rate that is not chosen."""
    ours = [record(tmp_path, seed, 2e-5, ROTARY[seed]) for seed in ROTARY]
    ours += [record(tmp_path, seed, 5e-5, 0.1) for seed in ROTARY]
    theirs = [record(tmp_path, seed, 5e-5, LEARNED[seed], model="bert") for seed in (3, 1, 4, 0, 2)]
    return [*ours, *theirs, *(record(tmp_path, s, 2e-5, 0.2, model="bert") for s in LEARNED)]


def lines(table):
    return [list(line) for line in table.lines[1:]]


def test_pairs_are_of_a_seed_at_each_arms_own_rate(study):
    table = paired_glue_table(study)
    ours, theirs = ([100 * arm[seed] for seed in range(5)] for arm in (LEARNED, ROTARY))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    means = [f"{statistics.mean(v):.1f} ± {statistics.stdev(v):.1f} (5)" for v in (theirs, ours)]
    assert lines(table) == [
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
    for part in ("another pre-training", "do not say how many", "chosen on the same validation"):
        assert part in " ".join(table.notes)


def test_the_other_way_round_the_sign_is_the_other(study):
    (line,) = lines(paired_glue_table(study, "bert"))
    assert line[0] == "roformer (rotary)" and line[2] == "2e-05 / 5e-05" and line[5] == "+3.0"


def test_p_values_are_adjusted_over_the_tasks_that_were_tested(study, tmp_path):
    """One seed is no test: sst2 does not count, so two tasks double 1/16."""
    for seed in ROTARY:
        study.append(record(tmp_path, seed, 2e-5, ROTARY[seed], task="qqp"))
        other = ROTARY[seed] + (0.001 if seed % 2 else -0.002)
        study.append(record(tmp_path, seed, 2e-5, other, task="qqp", model="bert"))
    study += [record(tmp_path, 0, 2e-5, 0.5, task="sst2", model=m) for m in ("roformer", "bert")]
    found = {line[1]: line[7:10] for line in lines(paired_glue_table(study))}
    assert list(found) == ["mrpc/f1", "sst2/f1", "qqp/f1"]
    assert found["mrpc/f1"] == ["0.062", "0.125", "5"]
    assert found["sst2/f1"] == ["–", "–", "1"]
    p = float(found["qqp/f1"][0])
    assert p > 0.125 and found["qqp/f1"][1] == f"{p:.3f}"


def test_constant_and_failed_runs_are_told(tmp_path):
    """A constant predictor counts; a failed run takes the pair with it, and is named."""
    folders = [record(tmp_path, seed, 2e-5, ROTARY[seed]) for seed in (0, 1, 2)]
    folders += [
        record(tmp_path, 0, 2e-5, 0.7, model="bert", status="degenerate"),
        record(tmp_path, 1, 2e-5, 0.0, model="bert", status="failed"),
        record(tmp_path, 2, 2e-5, 0.6, model="bert"),
    ]
    table = paired_glue_table(folders)
    (line,) = lines(table)
    difference = statistics.mean([-10, -19])
    assert line[5] == f"{difference:.1f}" and line[9:] == ["2", "1 / 0"]
    assert table.notes[-1] == ("bert (rotary), mrpc: without a pair, failed or not run: seed 1.")


def test_a_metric_that_is_not_defined_is_not_averaged_away(tmp_path):
    folders = [record(tmp_path, seed, 2e-5, ROTARY[seed]) for seed in (0, 1)]
    folders += [
        record(tmp_path, 0, 2e-5, None, model="bert", status="degenerate"),
        record(tmp_path, 1, 2e-5, 0.6, model="bert"),
    ]
    (line,) = lines(paired_glue_table(folders))
    assert line[4:] == ["NaN (2)", "NaN", "–", "–", "–", "2", "1 / 0"]


def test_tasks_of_one_arm_alone_are_told(study, tmp_path):
    study.append(record(tmp_path, 0, 2e-5, 0.5, task="sst2"))
    table = paired_glue_table(study)
    assert len(lines(table)) == 1
    assert table.notes[-1] == "bert (rotary), sst2: no seed that ended in both arms."


def test_what_cannot_be_paired_is_refused(study, tmp_path):
    with pytest.raises(ValueError, match="1 arms: give the runs of at least two"):
        paired_glue_table(study[:10])
    with pytest.raises(ValueError, match="no arm has 'shaw' in the name"):
        paired_glue_table(study, "shaw")
    with pytest.raises(ValueError, match="mrpc at 2e-05 has a seed twice"):
        paired_glue_table([*study, record(tmp_path / "again", 0, 2e-5, 0.9)])


# --- translation ---------------------------------------------------------------------------------

BLEU = {
    "sinusoidal": {0: 38.1, 1: 38.0, 2: 38.6, 3: 30.0},
    "rotary": {2: 39.9, 0: 39.4, 1: 39.5},
    "shaw": {1: 38.4, 0: 38.6, 5: 50.0},
}


def translations(folder, arms=BLEU):
    return [
        test_wmt_report.record(folder, f"{arm}-s{seed}", seed, score, position=arm)
        for arm, scores in arms.items()
        for seed, score in scores.items()
    ]


def test_translations_are_paired_by_seed(tmp_path):
    """Seeds that one arm alone has are left out; the order of the folders does not matter."""
    table = paired_wmt_table(translations(tmp_path), "sinusoidal")
    rotary, base = ([BLEU[arm][seed] for seed in (0, 1, 2)] for arm in ("rotary", "sinusoidal"))
    test = stats.ttest_rel(rotary, base)
    low, high = test.confidence_interval(0.95)
    assert lines(table) == [
        [
            *("transformer (rotary)", "+1.37 ± 0.12", f"+{low:.2f} to +{high:.2f}"),
            *(f"{test.pvalue:.3f}", f"{2 * test.pvalue:.3f}", "0.250", "3"),
        ],
        ["transformer (shaw)", "+0.45 ± 0.07", "-0.19 to +1.09", "0.070", "0.070", "0.500", "2"],
    ]
    assert table.title == "sacreBLEU: paired differences from transformer (sinusoidal)"


def test_translations_of_one_seed_have_no_test_over_seeds(tmp_path):
    one_each = {arm: {0: scores[0]} for arm, scores in BLEU.items()}
    assert paired_wmt_table(translations(tmp_path, one_each)) is None


def test_translations_of_other_test_sets_are_not_paired(tmp_path):
    runs = translations(tmp_path)
    signatures = {"sacrebleu": "nrefs:1|case:lc"}
    runs.append(test_wmt_report.record(tmp_path, "lower", 7, 41.0, signatures=signatures))
    with pytest.raises(RecordError, match="has another test set or signature"):
        paired_wmt_table(runs)
