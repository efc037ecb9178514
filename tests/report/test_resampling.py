"""Resampling of test sets: the lines and triplets that are drawn, their pairs and their runs."""

import json
import random
import runpy
import statistics

import numpy as np
import pytest

from roformer.evaluation.bleu import bleu_statistics, sacrebleu
from roformer.report.resampling import STATISTICS, bleu, bleu_intervals, bleu_table, unpacked
from roformer.report.runs import RecordError, read_runs, write_recorded
from roformer.report.scores import scores
from roformer.tasks.translation import fingerprint, write_bleu_statistics
from tests.conftest import REPOSITORY
from tests.report.records import SIGNATURES, change, record, translation_run

COMPLETED = runpy.run_path(str(REPOSITORY / "scripts" / "record.py"))["completing"]()
COMPARE = runpy.run_path(str(REPOSITORY / "scripts" / "wmt_compare.py"))["compare"]
REFERENCES = [f"Der Satz {i} steht hier vor dem Wort {i % 7} ." for i in range(60)]


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
    path = translation_run(folder, seed, 0.0, position=position)
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


def scores_of(folders):
    return scores(read_runs(folders).runs)


def table_of(folders, base=None, **options):
    frame = scores_of(folders)
    names = dict.fromkeys(frame.name)
    first = next((name for name in names if base and base in name), next(iter(names)))
    frame = frame.sort_values("name", key=lambda names: names != first, kind="stable")
    return bleu_table(frame, first, **options)


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
    found = bleu_intervals(scores_of(study))
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
    assert lines[1][3:] == [""] * 3 and lines[2][1] == f"{scores['sinusoidal', 0]:.2f}"


def test_a_difference_is_of_the_seeds_that_both_have(study):
    """The baseline's third seed, which the other lacks, changes nothing of the comparison."""
    without = [folder for folder in study if folder.name != "rotary-s2"]
    fewer = [folder for folder in without if folder.name != "sinusoidal-s2"]
    rows = [
        next(line for line in table_of(folders, "sinusoidal").lines if line[0].endswith("(rotary)"))
        for folders in (without, fewer, study)
    ]
    assert rows[0] == rows[1] and rows[0][3] != rows[2][3]


def test_runs_without_statistics_have_no_interval_and_are_told(study):
    (study[1] / STATISTICS).unlink()
    table = table_of(study)
    found = bleu_intervals(scores_of(study))
    assert found["transformer (rotary)"] is None and found["transformer (sinusoidal)"]
    assert list(table.lines[1][2:]) == ["–", *[""] * 3] and "–" in table.lines[5][4:]
    assert table.notes[-1] == f"Counted, without an interval: no {STATISTICS} in rotary-s1."


def test_a_comparison_needs_the_records_alone(tmp_path, texts, study):
    """Separate seeds of a configuration have their own lines; the first is the baseline."""
    write_recorded(tmp_path / "study", study, COMPLETED)
    (line, *_) = (tmp_path / "study" / "runs.jsonl").read_text().splitlines()
    packed_systems = json.loads(line)["files"][STATISTICS]["systems"]
    written = json.loads((study[0] / STATISTICS).read_text())["systems"]
    for name, counts in written.items():
        assert 3 * len(packed_systems[name]) < len(json.dumps(counts))
        assert unpacked(packed_systems[name]).tolist() == counts
    table = COMPARE([tmp_path / "study"], 100, 1)
    assert "paired bootstrap against rotary-s0" in table and f"| {study[-1].name} |" in table
    assert table == COMPARE(study, 100, 1)
    by_seed = COMPARE(
        [tmp_path / "study/runs/*-s0", tmp_path / "study/runs/*-s1"], 100, 1, seeds=True
    )
    assert by_seed == COMPARE([study[0], study[3], study[1], study[4]], 100, 1, seeds=True)
    assert "test, 60 lines (fingerprint" in by_seed and SIGNATURES["chrf"].split("|")[2] in by_seed
    other = translation_run(tmp_path / "other", 7, 41.0)
    with pytest.raises(RecordError, match="not all of one test set"):
        COMPARE([study[0], other], 100, 1)


def test_runs_without_translations_are_refused(tmp_path):
    runs = [
        record(
            tmp_path / f"{seed}",
            seed=seed,
            metrics={"valid/mlm_loss": 5.0},
            headline="valid/mlm_loss",
        )
        for seed in (0, 1)
    ]
    with pytest.raises(RecordError, match="these are no translations: give runs under runs/wmt/"):
        COMPARE(runs, 10, 0)
