"""Resampling of test sets: seeds that both sides have, runs without statistics, records without runs.

Intervals and p-values of recorded studies are on their pages; `tests.evaluation.test_bleu` has the draws.
"""

import json
import random
import runpy

import pytest

from roformer.evaluation.bleu import sacrebleu
from roformer.report.resampling import STATISTICS, bleu_table, unpacked
from roformer.report.runs import RecordError, read_runs, write_recorded
from roformer.report.scores import scores
from roformer.tasks.translation import fingerprint, write_bleu_statistics
from tests.conftest import REPOSITORY
from tests.report.records import SIGNATURES, cells, change, record, translation_run

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


def run(folder, seed, texts, position):
    """Write a record with the scores that its translations have."""
    found = sacrebleu(texts, REFERENCES)
    path = translation_run(folder, seed, found.value, position=position)
    test_set = {"name": "test", "lines": len(REFERENCES), "fingerprint": fingerprint(REFERENCES)}
    change(path, test_set=test_set, signatures=SIGNATURES | {"sacrebleu": found.signature})
    systems = {"averaged": texts, "single": texts}
    write_bleu_statistics(path, systems, REFERENCES, test_set, found.signature)
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
        run(tmp_path / f"{position}-s{seed}", seed, lines, position)
        for (position, seed), lines in texts.items()
    ]


def scores_of(folders):
    return scores(read_runs(folders).runs)


def table_of(folders):
    """Return the table of the runs; the baseline is the first."""
    frame = scores_of(folders)
    return bleu_table(frame, frame.name.iloc[0])


def test_a_difference_is_of_the_seeds_that_both_have(study):
    """The baseline's third seed, which the other configuration lacks, changes no difference."""
    fewer, without = study[:5], [*study[:2], *study[3:5]]
    rows = [
        cells(table_of(runs), "transformer (sinusoidal)")[0] for runs in (fewer, without, study)
    ]
    assert rows[0][2:] == rows[1][2:] != rows[2][2:]


def test_runs_without_statistics_have_no_interval_and_are_told(study):
    (study[1] / STATISTICS).unlink()
    table = table_of(study)
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
    with pytest.raises(RecordError, match="these are no translations: give runs under runs/wmt/"):
        COMPARE([record(tmp_path / "p", metrics={"valid/mlm_loss": 5.0})], 10, 0)
