"""Tables of translation runs: what stands beside what, which lines are drawn, who is never left out."""

import json
import random
import runpy
import statistics
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from roformer.evaluation.bleu import bleu_statistics, sacrebleu
from roformer.report.runs import RecordError, read_runs
from roformer.report.statistics import two_sided_p
from roformer.report.wmt import (
    STATISTICS,
    bleu,
    bleu_intervals,
    bleu_table,
    draw_lines,
    paired_wmt_table,
    resampled_bleu,
    wmt_tables,
)
from roformer.tasks.translation import fingerprint, write_bleu_statistics
from tests.conftest import REPOSITORY
from tests.evaluation.test_bleu import sacrebleus_bootstrap
from tests.report.records import change, record

COMPARE = runpy.run_path(str(REPOSITORY / "scripts" / "wmt_compare.py"))["compare"]
SIGNATURES = {
    "sacrebleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
    "bleu_compound": "nrefs:1|case:mixed|eff:no|tok:moses-de+atat|smooth:exp|version:2.6.0",
}
REFERENCES = [f"Der Satz {i} steht hier vor dem Wort {i % 7} ." for i in range(60)]


def scored(folder, seed, score, *, position="rotary", status="done", alpha=0.6, **more):
    """Write a record with scores; `more` are the test set's lines and other signatures."""
    values = {"sacrebleu": score, "chrf": score + 30, "bleu_compound": score + 1}
    lines = more.get("lines", 3003)
    found = {
        "metrics": {f"test/{metric}": value for metric, value in values.items()}
        | {f"test/{metric}_single": value - 0.5 for metric, value in values.items()},
        "signatures": SIGNATURES | more.get("signatures", {}),
        "test_set": {"name": "newstest2014", "lines": lines, "fingerprint": f"{lines:064x}"},
    }
    return record(
        folder,
        pipeline="wmt",
        model="transformer",
        position=position,
        seed=seed,
        status=status,
        config={"search": {"alpha": alpha}},
        **({} if status == "failed" else found),
    )


def script(name, *arguments):
    return subprocess.run(
        [sys.executable, f"scripts/{name}.py", *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )


def tables(*folders):
    return wmt_tables(read_runs(folders))


def test_a_configuration_has_a_row_with_mean_and_spread(tmp_path):
    bleus = (27.1, 27.5, 27.9)
    folders = [scored(tmp_path / f"r{s}", s, b) for s, b in enumerate(bleus)]
    folders.append(scored(tmp_path / "sin", 0, 26.0, position="sinusoidal"))
    lines = tables(*folders).splitlines()
    assert lines[0] == "**newstest2014**, 3,003 lines (fingerprint 000000000000)"
    assert lines[2] == ("| model | sacreBLEU | sacreBLEU, last checkpoint | chrF | compound BLEU |")
    spread = f"{statistics.stdev(bleus):.2f} (3)"
    assert lines[4] == (
        f"| transformer (rotary) | 27.50 ± {spread} | 27.00 ± {spread} | 57.50 ± {spread} "
        f"| 28.50 ± {spread} |"
    )
    assert lines[5].startswith("| transformer (sinusoidal) | 26.00 (1) | 25.50 (1) |")
    assert f"- compound BLEU: `{SIGNATURES['bleu_compound']}`" in lines
    other = tables(folders[0], scored(tmp_path / "b", 1, 28.0, alpha=1.0))
    assert "| transformer (rotary), search.alpha=0.6 | 27.10 (1) |" in other
    assert "| transformer (rotary), search.alpha=1.0 | 28.00 (1) |" in other


@pytest.mark.parametrize(
    "other", [{"lines": 2737}, {"signatures": {"chrf": "nrefs:1|nc:6|nw:2|version:2.6.0"}}]
)
def test_other_test_sets_and_signatures_are_another_table(tmp_path, other):
    """Even where one signature of the three differs; each table has its own test set and lines."""
    text = tables(scored(tmp_path / "a", 0, 27.0), scored(tmp_path / "b", 1, 37.0, **other))
    assert text.count("| model |") == text.count("**newstest2014**") == 2
    first, second = text.split("**newstest2014**")[1:]
    assert "| 27.00 (1) |" in first and "3,003 lines" in first
    assert "| 37.00 (1) |" in second and "37.00" not in first and "±" not in text
    assert ("2,737 lines" in second) == ("lines" in other)
    assert ("nw:2" in second) == ("signatures" in other) and "nw:2" not in first


def test_failed_and_degenerate_runs_are_told_and_no_score_is_averaged_away(tmp_path):
    good = scored(tmp_path / "good", 0, 27.0)
    flat = scored(tmp_path / "flat", 1, 1.0, status="degenerate")
    text = tables(good, flat, scored(tmp_path / "broken", 2, 0.0, status="failed"))
    assert "| transformer (rotary) | 14.00 ± 18.38 (2) |" in text
    assert "Counted, though degenerate: `flat` (transformer (rotary))." in text
    assert "Left out, without scores: `broken` (transformer (rotary)) is failed." in text
    summary = json.loads((good / "summary.json").read_text())
    change(good, metrics=summary["metrics"] | {"test/chrf": None})
    assert "| NaN (2) |" in tables(good, flat)


def test_what_is_no_translation_or_a_seed_again_is_refused(tmp_path):
    folders = [scored(tmp_path / name, 0, 27.0) for name in ("a", "a.before-1")]
    with pytest.raises(RecordError, match="have the same settings and seed"):
        tables(*folders)
    with pytest.raises(RecordError, match=r"has no summary.json"):
        tables(tmp_path / "none")
    with pytest.raises(RecordError, match="is a run of pretrain, not of wmt"):
        tables(record(tmp_path / "other"))
    with pytest.raises(RecordError, match="none of these runs is finished"):
        tables()


def test_the_table_is_printed_and_the_unfinished_are_told(tmp_path):
    (tmp_path / "half").mkdir()
    done = script("wmt_table", scored(tmp_path / "a", 0, 27.0), tmp_path / "half")
    assert done.returncode == 0 and "| 27.00 (1) |" in done.stdout
    assert f"left out: {tmp_path / 'half'} has no summary.json" in done.stderr


BY_SEED = {
    "sinusoidal": {0: 38.1, 1: 38.0, 2: 38.6, 3: 30.0},
    "rotary": {2: 39.9, 0: 39.4, 1: 39.5},
    "shaw": {1: 38.4, 0: 38.6, 5: 50.0},
}


def test_translations_are_paired_by_seed(tmp_path):
    """Seeds that one configuration alone has are left out; the order of the folders does not matter."""
    folders = [
        scored(tmp_path / f"{kind}-s{seed}", seed, score, position=kind)
        for kind, scores in BY_SEED.items()
        for seed, score in scores.items()
    ]
    table = paired_wmt_table(read_runs(folders), "sinusoidal")
    rotary, base = (
        [BY_SEED[kind][seed] for seed in (0, 1, 2)] for kind in ("rotary", "sinusoidal")
    )
    test = stats.ttest_rel(rotary, base)
    low, high = test.confidence_interval(0.95)
    assert [list(line) for line in table.lines[1:]] == [
        [
            *("transformer (rotary)", "+1.37 ± 0.12", f"+{low:.2f} to +{high:.2f}"),
            *(f"{test.pvalue:.3f}", f"{2 * test.pvalue:.3f}", "0.250", "3"),
        ],
        ["transformer (shaw)", "+0.45 ± 0.07", "-0.19 to +1.09", "0.070", "0.070", "0.500", "2"],
    ]
    assert table.title == "sacreBLEU: paired differences from transformer (sinusoidal)"
    one_each = [folder for folder in folders if folder.name.endswith("-s0")]
    assert paired_wmt_table(read_runs(one_each)) is None
    lower = scored(tmp_path / "lower", 7, 41.0, signatures={"sacrebleu": "nrefs:1|case:lc"})
    with pytest.raises(RecordError, match="has another test set or signature"):
        paired_wmt_table(read_runs([*folders, lower]))


# --- resampled test lines ------------------------------------------------------------------------


def translated(share, seed):
    """Return the references with a share of the words wrong, more of them in later lines."""
    draw = random.Random(seed)
    return [
        " ".join("x" if draw.random() < share * (0.2 + i / 30) else w for w in text.split())
        for i, text in enumerate(REFERENCES)
    ]


def run(folder, seed, texts, *, position="rotary", statistics=True, references=REFERENCES):
    """Write a record with the scores that its translations have."""
    found = sacrebleu(texts, references)
    path = scored(folder, seed, 0.0, position=position)
    summary = json.loads((path / "summary.json").read_text())
    scores = {"test/sacrebleu": found.value, "test/sacrebleu_single": found.value}
    test_set = {"name": "test", "lines": len(references), "fingerprint": fingerprint(references)}
    signatures = SIGNATURES | {"sacrebleu": found.signature}
    about = {"run_id": folder.name, "best": {"step": 1, "metrics": {}}, "signatures": signatures}
    change(path, metrics=summary["metrics"] | scores, test_set=test_set, **about)
    if statistics:
        systems = {"averaged": texts, "single": texts}
        write_bleu_statistics(path, systems, references, test_set, found.signature)
    return path


SHARES = {"rotary": 0.2, "sinusoidal": 0.23}


@pytest.fixture(scope="module")
def texts():
    return {
        (position, seed): translated(share, f"{position}{seed}")
        for position, share in SHARES.items()
        for seed in (0, 1, 2)
    }


@pytest.fixture
def study(texts, tmp_path):
    """Three seeds of two configurations, without their translations."""
    return [
        run(tmp_path / f"{position}-s{seed}", seed, lines, position=position)
        for (position, seed), lines in texts.items()
    ]


def table_of(folders, *more, **options):
    return bleu_table(read_runs(folders), *more, **options)


def middle(values):
    """Return the ends of the 95 %: of a thousand the 25th and the 975th."""
    ordered = sorted(values)
    return ordered[24], ordered[974]


def ends(text):
    return tuple(map(float, text.split(" to ")))


def test_intervals_and_differences_are_on_the_same_lines(study, texts):
    """The mean of the seeds is taken on the same lines: other lines each would be too narrow."""
    numbers = np.random.default_rng(12345).choice(60, size=(1000, 60))
    counts = {key: np.array(bleu_statistics(lines, REFERENCES)) for key, lines in texts.items()}
    samples = {k: np.array([bleu(c[row].sum(0)) for row in numbers]) for k, c in counts.items()}
    means = {p: np.mean([samples[p, s] for s in (0, 1, 2)], axis=0) for p in SHARES}
    found = bleu_intervals(read_runs(study))
    for position in SHARES:
        assert found[f"transformer ({position})"] == pytest.approx(middle(means[position]))
    table = table_of(study, "sinusoidal")
    scores = {key: sacrebleu(lines, REFERENCES).value for key, lines in texts.items()}
    by_seed = {p: [scores[p, s] for s in (0, 1, 2)] for p in SHARES}
    difference = np.mean(by_seed["rotary"]) - np.mean(by_seed["sinusoidal"])
    drawn = means["rotary"] - means["sinusoidal"]
    p = (np.sum(np.abs(drawn - drawn.mean()) >= abs(difference)) + 1) / 1001
    lines = [list(line) for line in table.lines]
    (row,) = (line for line in lines if line[0] == "transformer (rotary)")
    spread = statistics.stdev(by_seed["rotary"])
    assert row[1] == f"{np.mean(by_seed['rotary']):.2f} ± {spread:.2f} (3)"
    shown = " to ".join(f"{end:+.2f}" for end in middle(drawn))
    assert row[3:6] == [f"{difference:+.2f}", shown, f"{p:.3f}"]
    assert [line[0] for line in lines[1:6]] == [
        *("transformer (sinusoidal)", "sinusoidal-s0", "sinusoidal-s1", "sinusoidal-s2"),
        "transformer (rotary)",
    ]
    assert ends(lines[2][2]) == pytest.approx(middle(samples["sinusoidal", 0]), abs=0.006)
    assert lines[1][3:] == [""] * 5 and lines[2][1] == f"{scores['sinusoidal', 0]:.2f}"
    assert table.notes[0].endswith(SIGNATURES["sacrebleu"])
    assert "10 different resamples" in table.notes[2] and len(table.notes) == 3


def test_seeds_besides_lines_widen_the_interval_in_pairs(tmp_path):
    """Seeds that move both alike move no difference; the same seeds in other pairs do."""
    same = {seed: translated(0.1 * (1 + seed), f"same{seed}") for seed in (0, 1, 2)}
    worse = {
        seed: [t.replace("vor", "y") if i % 4 == 0 else t for i, t in enumerate(lines)]
        for seed, lines in same.items()
    }
    paired = [run(tmp_path / f"r{s}", s, same[s]) for s in same]
    paired += [run(tmp_path / f"s{s}", s, worse[s], position="sinusoidal") for s in same]
    apart = [*paired[:3]]
    apart += [run(tmp_path / f"b{s}", s + 3, worse[s], position="sinusoidal") for s in same]
    widths = []
    for folders in (paired, apart):
        (row,) = (line for line in table_of(folders).lines if "(sinusoidal)" in line[0])
        lines, both = ends(row[4]), ends(row[6])
        widths.append((lines[1] - lines[0], both[1] - both[0], float(row[7])))
    assert widths[0][0] == widths[1][0]
    assert widths[0][1] > widths[0][0] and widths[1][1] > 2.5 * widths[0][1]
    assert widths[1][2] > 10 * widths[0][2]


def test_one_seed_has_no_interval_over_seeds_and_sacrebleus_own_over_lines(tmp_path, texts):
    folders = [run(tmp_path / p, 0, texts[p, 0], position=p) for p in SHARES]
    base, row = table_of(folders).lines[1:]
    systems = {position: texts[position, 0] for position in SHARES}
    expected = sacrebleus_bootstrap(systems, REFERENCES)
    for line, (score, half_width, _) in zip((base, row), expected, strict=True):
        low, high = ends(line[2])
        assert (high - low) / 2 == pytest.approx(half_width, abs=0.15)
        assert line[1] == f"{score:.2f} (1)"
    assert list(row[6:]) == ["–", "–"]
    same = [run(tmp_path / p, 0, texts["rotary", 0], position=p) for p in ("a", "b")]
    assert list(table_of(same).lines[2][3:6]) == ["0.00", "0.00 to 0.00", "1.000"]


def test_runs_are_compared_one_by_one_or_as_seeds(study):
    """One by one seeds of one configuration have lines of their own, the first the baseline."""
    alone = table_of(study, samples=100, each_run=True)
    assert [line[0] for line in alone.lines[1:]] == [path.name for path in study]
    assert alone.title.endswith("against rotary-s0")
    better = table_of([study[3], study[0]], samples=100, each_run=True).lines[2]
    assert better[0] == "rotary-s0" and better[3].startswith("+")


def test_systems_that_differ_by_chance_are_seldom_significant(tmp_path):
    p_values = []
    for seed in range(20):
        systems = [translated(0.2, f"{name}{seed}") for name in "ab"]
        counts = [np.array(bleu_statistics(lines, REFERENCES)) for lines in systems]
        draws = draw_lines(60, 100, seed + 1)
        one, two = (resampled_bleu(each, draws) for each in counts)
        found = bleu(counts[0].sum(0)) - bleu(counts[1].sum(0))
        p_values.append(two_sided_p(one - two, found))
    assert sum(p_value < 0.05 for p_value in p_values) <= 4 and max(p_values) > 0.5


def test_a_comparison_is_printed_or_refused_in_one_line(study, tmp_path):
    done = script("wmt_compare", study[0], study[3], "--samples", 50)
    assert done.returncode == 0 and "sacreBLEU: paired bootstrap against rotary-s0" in done.stdout
    refused = script("wmt_compare", study[0], tmp_path / "gone")
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.startswith("error: ") and len(refused.stderr.splitlines()) == 1


def test_runs_without_statistics_failed_or_degenerate_are_told(study, tmp_path):
    (study[1] / STATISTICS).unlink()
    change(study[3], status="degenerate")
    failed = scored(tmp_path / "broken", 3, 0.0, status="failed")
    table = table_of([*study, failed])
    found = bleu_intervals(read_runs(study))
    assert found["transformer (rotary)"] is None and found["transformer (sinusoidal)"]
    assert list(table.lines[1][2:]) == ["–", *[""] * 5] and "–" in table.lines[5][4:]
    assert table.notes[3:] == [
        f"Counted, without an interval: rotary-s1 has no {STATISTICS}.",
        "Counted, though degenerate: sinusoidal-s0.",
        "Left out, without scores: broken is failed.",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda found: found["systems"]["averaged"].pop(),
        lambda found: found["systems"]["averaged"][0].__setitem__(2, 0),
        lambda found: found["systems"].pop("single"),
        lambda found: found["columns"].reverse(),
        lambda found: found.update(signature="tok:none"),
        lambda found: found["test_set"].update(name="another"),
        lambda found: found["systems"]["averaged"][0].append(0),
        lambda found: found["systems"]["averaged"][0].__setitem__(2, -1),
    ],
)
def test_statistics_that_are_not_the_runs_are_refused(study, damage):
    file = study[0] / STATISTICS
    found = json.loads(file.read_text())
    damage(found)
    file.write_text(json.dumps(found))
    with pytest.raises(RecordError, match=f"rotary-s0/{STATISTICS} is not"):
        bleu_intervals(read_runs(study))


def test_records_without_texts_give_the_same_table(tmp_path, texts):
    """The study's copies have the counts, and no translations."""
    runs = [run(tmp_path / "runs" / p, 0, texts[p, 0], position=p) for p in SHARES]
    (study := tmp_path / "study").mkdir()
    (study / "PLAN.md").write_text("A plan.\n")
    done = script("record", study, *runs)
    assert done.returncode == 0, done.stderr
    copies = read_runs([study])
    assert all(list(files) == [STATISTICS] for files in copies.runs.files)
    table = COMPARE(runs, 100, 1, seeds=True)
    assert table == bleu_table(copies, samples=100, seed=1).markdown()
    assert table == COMPARE([study / "runs" / p for p in SHARES], 100, 1, seeds=True)
