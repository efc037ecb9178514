"""Intervals of BLEU from records: which lines are drawn for whom, and who is never left out."""

import json
import random
import runpy
import shutil
import statistics
import subprocess
import sys

import numpy as np
import pytest

from roformer.evaluation.bleu import bleu_statistics, sacrebleu
from roformer.report.bleu import NAME, bleu, draw_lines, resampled_bleu
from roformer.report.recorded import read_recorded
from roformer.report.statistics import two_sided_p
from roformer.report.wmt_bootstrap import bleu_intervals, bleu_table
from roformer.tasks.translation import fingerprint, write_bleu_statistics
from tests.conftest import REPOSITORY
from tests.unit.test_bleu import sacrebleus_bootstrap
from tests.unit.test_wmt_report import SIGNATURES, record, script

COMPARE = runpy.run_path(str(REPOSITORY / "scripts" / "wmt_compare.py"))["compare"]
COUNTS = {
    "run_id": "x",
    "steps": 1,
    "tokens": 1,
    "wall_seconds": 1.0,
    "best": {"step": 1, "metrics": {}},
}
REFERENCES = [f"Der Satz {i} steht hier vor dem Wort {i % 7} ." for i in range(60)]


def translated(share, seed):
    """Return the references with a share of the words wrong, more of them in later lines."""
    draw = random.Random(seed)
    return [
        " ".join("x" if draw.random() < share * (0.2 + i / 30) else w for w in text.split())
        for i, text in enumerate(REFERENCES)
    ]


def run(folder, name, seed, texts, *, position="rotary", statistics=True, references=REFERENCES):
    """Write a record with the scores that its translations have."""
    signature = sacrebleu(texts, references).signature
    path = record(
        folder,
        name,
        seed,
        0.0,
        position=position,
        lines=len(references),
        translations=texts,
        references=references,
        signatures={"sacrebleu": signature},
    )
    (path / "translations" / "test.single.txt").write_text("".join(f"{t}\n" for t in texts))
    score = sacrebleu(texts, references).value
    scores = {"test/sacrebleu": score, "test/sacrebleu_single": score}
    summary = json.loads((path / "summary.json").read_text())
    summary["metrics"] |= scores
    summary |= COUNTS
    summary["test_set"] |= {"fingerprint": fingerprint(references), "name": "test"}
    (path / "summary.json").write_text(json.dumps(summary))
    if statistics:
        systems = {"averaged": texts, "single": texts}
        write_bleu_statistics(path, systems, references, summary["test_set"], signature)
        shutil.rmtree(path / "translations")
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
    """Three seeds of two arms, without their translations."""
    return [
        run(tmp_path, f"{position}-s{seed}", seed, lines, position=position)
        for (position, seed), lines in texts.items()
    ]


def by_hand(texts, samples=1000, seed=12345):
    """Return {(position, seed): BLEU of every sample}, of the texts and without the module."""
    numbers = np.random.default_rng(seed).choice(60, size=(samples, 60))
    counts = {key: np.array(bleu_statistics(lines, REFERENCES)) for key, lines in texts.items()}
    return {key: np.array([bleu(c[row].sum(0)) for row in numbers]) for key, c in counts.items()}


def middle(values):
    """Return the ends of the 95 %: of a thousand the 25th and the 975th."""
    ordered = sorted(values)
    return ordered[24], ordered[974]


def signed(ends):
    return " to ".join(f"{end:+.2f}" for end in ends)


def test_intervals_of_runs_and_of_the_mean_of_an_arm(study, texts):
    """The mean of the seeds is taken on the same lines: other lines each would be too narrow."""
    samples = by_hand(texts)
    found = bleu_intervals(study)
    for (position, seed), scores in samples.items():
        assert found.runs[f"{position}-s{seed}"] == pytest.approx(middle(scores))
    for position in SHARES:
        mean = np.mean([samples[position, seed] for seed in (0, 1, 2)], axis=0)
        assert found.arms[f"transformer ({position})"] == pytest.approx(middle(mean))


def test_the_difference_of_arms_is_on_the_same_lines(study, texts):
    table = bleu_table(study, "sinusoidal")
    samples = by_hand(texts)
    scores = {key: sacrebleu(lines, REFERENCES).value for key, lines in texts.items()}
    arms = {p: [scores[p, s] for s in (0, 1, 2)] for p in SHARES}
    means = {p: np.mean([samples[p, s] for s in (0, 1, 2)], axis=0) for p in SHARES}
    difference = np.mean(arms["rotary"]) - np.mean(arms["sinusoidal"])
    drawn = means["rotary"] - means["sinusoidal"]
    p = (np.sum(np.abs(drawn - drawn.mean()) >= abs(difference)) + 1) / 1001
    lines = [list(line) for line in table.lines]
    (row,) = (line for line in lines if line[0] == "transformer (rotary)")
    spread = statistics.stdev(arms["rotary"])
    assert row[1] == f"{np.mean(arms['rotary']):.2f} ± {spread:.2f} (3)"
    assert row[3:6] == [f"{difference:+.2f}", signed(middle(drawn)), f"{p:.3f}"]
    assert [line[0] for line in lines[1:6]] == [
        *("transformer (sinusoidal)", "sinusoidal-s0", "sinusoidal-s1", "sinusoidal-s2"),
        "transformer (rotary)",
    ]
    assert lines[1][3:] == [""] * 5 and lines[2][1] == f"{scores['sinusoidal', 0]:.2f}"
    assert table.notes[0].endswith(SIGNATURES["sacrebleu"])
    assert "10 different resamples" in table.notes[2] and len(table.notes) == 3


def ends(text):
    return tuple(map(float, text.split(" to ")))


def test_seeds_besides_lines_widen_the_interval_in_pairs(tmp_path):
    """Seeds that move both arms alike move no difference; the same seeds in other pairs do."""
    same = {seed: translated(0.1 * (1 + seed), f"same{seed}") for seed in (0, 1, 2)}
    worse = {
        seed: [t.replace("vor", "y") if i % 4 == 0 else t for i, t in enumerate(lines)]
        for seed, lines in same.items()
    }
    paired = [run(tmp_path / "a", f"r{s}", s, same[s]) for s in same]
    paired += [run(tmp_path / "a", f"s{s}", s, worse[s], position="sinusoidal") for s in same]
    apart = [*paired[:3]]
    apart += [run(tmp_path / "b", f"s{s}", s + 3, worse[s], position="sinusoidal") for s in same]
    widths = []
    for folders in (paired, apart):
        (row,) = (line for line in bleu_table(folders).lines if "(sinusoidal)" in line[0])
        lines, both = ends(row[4]), ends(row[6])
        widths.append((lines[1] - lines[0], both[1] - both[0], float(row[7])))
    assert widths[0][0] == widths[1][0]
    assert widths[0][1] > widths[0][0] and widths[1][1] > 2.5 * widths[0][1]
    assert widths[1][2] > 10 * widths[0][2]


def test_one_seed_has_no_interval_over_seeds_and_sacrebleus_own_over_lines(tmp_path, texts):
    folders = [
        run(tmp_path, position, 0, texts[position, 0], position=position) for position in SHARES
    ]
    base, row = bleu_table(folders).lines[1:]
    systems = {position: texts[position, 0] for position in SHARES}
    expected = sacrebleus_bootstrap(systems, REFERENCES)
    for line, (score, half_width, _) in zip((base, row), expected, strict=True):
        low, high = ends(line[2])
        assert (high - low) / 2 == pytest.approx(half_width, abs=0.15)
        assert line[1] == f"{score:.2f} (1)"
    assert list(row[6:]) == ["–", "–"]


def test_runs_are_compared_one_by_one_or_as_seeds(study):
    """One by one seeds of one configuration have lines of their own, the first the baseline."""
    alone = bleu_table(study, samples=100, each_run=True)
    assert [line[0] for line in alone.lines[1:]] == [path.name for path in study]
    assert alone.title.endswith("against rotary-s0")
    better = bleu_table([study[3], study[0]], samples=100, each_run=True).lines[2]
    assert better[0] == "rotary-s0" and better[3].startswith("+")


def test_systems_that_differ_by_chance_are_seldom_significant(tmp_path):
    p_values = []
    for seed in range(20):
        systems = [translated(0.2, f"{name}{seed}") for name in "ab"]
        statistics = [np.array(bleu_statistics(lines, REFERENCES)) for lines in systems]
        draws = draw_lines(60, 100, seed + 1)
        one, two = (resampled_bleu(counts, draws) for counts in statistics)
        found = bleu(statistics[0].sum(0)) - bleu(statistics[1].sum(0))
        p_values.append(two_sided_p(one - two, found))
    assert sum(p_value < 0.05 for p_value in p_values) <= 4 and max(p_values) > 0.5


def test_a_comparison_is_printed_or_refused_in_one_line(study, tmp_path):
    done = script("wmt_compare", study[0], study[3], "--samples", 50)
    assert done.returncode == 0 and "sacreBLEU: paired bootstrap against rotary-s0" in done.stdout
    refused = script("wmt_compare", study[0], tmp_path / "gone")
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr.startswith("error: ") and len(refused.stderr.splitlines()) == 1


def test_an_arm_of_the_same_translations_differs_by_nothing(tmp_path, texts):
    lines = texts["rotary", 0]
    folders = [run(tmp_path, "a", 0, lines), run(tmp_path, "b", 0, lines, position="none")]
    assert list(bleu_table(folders).lines[2][3:6]) == ["0.00", "0.00 to 0.00", "1.000"]


def test_a_run_without_statistics_counts_and_is_named(study, texts, tmp_path):
    (study[1] / NAME).unlink()
    table = bleu_table(study)
    found = bleu_intervals(study)
    assert found.runs["rotary-s1"] is None and found.runs["rotary-s0"] is not None
    assert found.arms["transformer (rotary)"] is None
    assert found.arms["transformer (sinusoidal)"] is not None
    scores = [sacrebleu(texts["rotary", seed], REFERENCES).value for seed in (0, 1, 2)]
    mean = f"{np.mean(scores):.2f} ± {statistics.stdev(scores):.2f} (3)"
    assert table.lines[1] == ["transformer (rotary)", mean, "–", *[""] * 5]
    assert "–" in table.lines[5][4:]
    assert table.notes[-1] == f"Counted, without an interval: rotary-s1 has no {NAME}."


def test_failed_and_degenerate_runs_are_told(study, tmp_path):
    change(study[0] / "summary.json", status="degenerate")
    failed = record(tmp_path, "broken", 3, 0.0, status="failed")
    notes = bleu_table([*study, failed]).notes
    assert notes[-2:] == [
        "Counted, though degenerate: rotary-s0.",
        "Left out, without scores: broken is failed.",
    ]


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_other_test_sets_and_signatures_are_refused(study, tmp_path):
    other = run(tmp_path, "other", 4, REFERENCES[:50], references=REFERENCES[:50])
    with pytest.raises(ValueError, match="has another test set or signature than"):
        bleu_table([*study, other])
    change(study[3] / "summary.json", signatures=SIGNATURES | {"sacrebleu": "tok:none"})
    with pytest.raises(ValueError, match="has another test set or signature than"):
        bleu_intervals(study)
    with pytest.raises(ValueError, match="none of these runs has scores"):
        bleu_intervals([])


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
    file = study[0] / NAME
    found = json.loads(file.read_text())
    damage(found)
    file.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=f"rotary-s0/{NAME} is not"):
        bleu_intervals(study)


def test_records_without_texts_give_the_same_table(tmp_path, texts):
    """The study's copies have the counts, and no translations."""
    runs = [
        run(tmp_path / "runs", position, 0, texts[position, 0], position=position)
        for position in SHARES
    ]
    for path in runs:
        (path / "env.json").write_text('{"data": "d", "resumed": []}')
        (path / "command.txt").write_text("make wmt\n")
        (path / "metrics.jsonl").write_text('{"step": 1}\n')
    (study := tmp_path / "study").mkdir()
    (study / "PLAN.md").write_text("A plan.\n")
    command = [sys.executable, "scripts/record.py", str(study), *map(str, runs)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    copies = read_recorded(study)
    for copy in copies:
        assert (copy / NAME).is_file() and "translations" not in str(copy.files.keys())
    table = COMPARE(runs, 100, 1, seeds=True)
    assert (
        table
        == COMPARE([run.path for run in copies], 100, 1, seeds=True)
        == bleu_table(copies, samples=100, seed=1).markdown()
    )
