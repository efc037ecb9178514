"""Tables of triplets: accuracies of the chosen weights, and two kinds of chance in a difference."""

import numpy as np
import pytest

from roformer.data.toy import cases
from roformer.report.figures import draw_triplets
from roformer.report.paper import scm_ours
from roformer.report.runs import RecordError, read_runs
from roformer.report.scm import GROUP, scm_tables
from tests.report.records import record

TRIPLETS = 40


def run(root, length, seed, rights, *, data="scm_builtin", **summary):
    """Write a run's record; `rights` are the test triplets that it gets right."""
    accuracy = len(rights) / TRIPLETS
    early = len([i for i in rights if i < TRIPLETS // 2]) / (TRIPLETS // 2)
    rows = ["index\tlabel\tscore_b\tscore_c"]
    for i in range(TRIPLETS):
        label, closer = ("B", 0) if i % 2 else ("C", 1)
        scores = [0.1, 0.2] if (i in rights) == (closer == 1) else [0.2, 0.1]
        rows.append(f"{i}\t{label}\t{scores[0]}\t{scores[1]}")
    text = "\n".join(rows) + "\n"
    content = {
        "pipeline": "scm",
        "seed": seed,
        "data": data,
        "max_length": length,
        "metrics": {"valid/accuracy": 0.5, "test/accuracy": accuracy, "test/accuracy_early": early},
        "best": {"metrics": {"valid/accuracy": accuracy, "valid/accuracy_early": early}},
    }
    return record(
        root / f"roformer-rotary-{length}-s{seed}",
        config={"training": {"max_length": length}},
        files={"predictions/validation.tsv": text, "predictions/test.tsv": text},
        **(content | {"status": "done"} | summary),
    )


def tables(folders, baseline=None):
    return scm_tables(read_runs(folders), baseline)


def test_a_group_is_that_of_the_grammar():
    assert GROUP == {"scm_builtin": cases.GROUP}


@pytest.fixture
def study(tmp_path):
    short = [run(tmp_path, 512, seed, range(20 + seed)) for seed in range(3)]
    return [*short, *(run(tmp_path, 1024, seed, range(32 + seed)) for seed in range(3))]


def test_accuracies_are_those_of_the_best_weights(study):
    """Validation is the best epoch's (here 52.5), not the last one's (50)."""
    assert [list(line[:4]) for line in tables(study)[0].lines[1:]] == [
        ["roformer-512 (rotary)", "validation", "52.5 ± 2.5 (3)", "100.0 ± 0.0 (3)"],
        ["roformer-512 (rotary)", "test", "52.5 ± 2.5 (3)", "100.0 ± 0.0 (3)"],
        ["roformer-1024 (rotary)", "validation", "82.5 ± 2.5 (3)", "100.0 ± 0.0 (3)"],
        ["roformer-1024 (rotary)", "test", "82.5 ± 2.5 (3)", "100.0 ± 0.0 (3)"],
    ]
    rows = scm_ours(read_runs(study), data="builtin")
    assert {(row.row, row.column, row.values["accuracy"]) for row in rows} == {
        (f"roformer-{length} (rotary)", split, f"{mean} ± 2.50 (3)")
        for length, mean in ((512, "52.50"), (1024, "82.50"))
        for split in ("validation", "test")
    }
    assert "chosen on the set they are of" in rows[0].notes[-1]


def test_a_difference_is_tested_over_seeds_and_over_groups_of_triplets(study):
    """Every seed differs by the same 12 of 40; of ten groups of four, three or so are the longer's."""
    table = tables(study, "512")[1]
    assert table.title.endswith("roformer-512 (rotary)")
    _, test = table.lines[1:]
    assert list(test[:3]) == ["roformer-1024 (rotary)", "test", "+30.0 ± 0.0"]
    assert list(test[3:6]) == ["–", "0.250", "3"]
    low, high = map(float, test[6].split(" to "))
    groups = np.array([0.0] * 5 + [11 / 12, 1, 1, 1 / 12, 0]) * 100
    spread = 1.96 * groups.std() / np.sqrt(10)
    assert low == pytest.approx(30 - spread, abs=4) and high == pytest.approx(30 + spread, abs=4)
    (study[0] / "predictions" / "test.tsv").unlink()
    _, test = tables(study)[1].lines[1:]
    assert test[6] == "not recorded" and test[2] == "+30.0 ± 0.0"


def test_triplets_that_are_not_drawn_together_are_resampled_one_by_one(tmp_path):
    wholes = ((512, range(20)), (1024, range(32)))
    runs = [run(tmp_path, n, 0, rights, data="scm_files") for n, rights in wholes]
    (_, test) = tables(runs)[1].lines[1:]
    low, high = map(float, test[6].split(" to "))
    assert low == pytest.approx(30 - 14.2, abs=2.6) and high == pytest.approx(30 + 14.2, abs=2.6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("\tB\t", "\tC\t", 9), "is not of the run whose summary"),
        (lambda text: text.replace("\tB\t", "\tA\t", 1), "test.tsv:3 is not what a run wrote"),
        (lambda text: text.replace("0.1", "x", 1), "test.tsv:2 is not what a run wrote"),
        (lambda text: text.replace("label", "labels"), "its columns are not"),
    ],
)
def test_predictions_of_something_else_are_refused(study, change, message):
    file = study[0] / "predictions" / "test.tsv"
    file.write_text(change(file.read_text()))
    with pytest.raises(RecordError, match=message):
        tables(study)


def test_failed_runs_are_left_out_chance_is_counted_and_a_seed_counts_once(tmp_path):
    runs = [
        run(tmp_path, 512, 0, range(20), status="degenerate"),
        run(tmp_path, 512, 1, range(20), status="failed"),
    ]
    (table,) = tables(runs)
    assert table.lines[1][-1] == "1" and table.lines[1][2] == "50.0 (1)"
    assert "Left out: roformer-rotary-512-s1 failed." in table.notes
    with pytest.raises(RecordError, match="same settings and seed"):
        tables([*runs, run(tmp_path / "again", 512, 0, range(20))])
    with pytest.raises(RecordError, match="is a run of wmt, not of scm"):
        tables([record(tmp_path / "other", pipeline="wmt")])


def test_the_figure_is_of_the_test_triplets(study, tmp_path):
    caption = draw_triplets(read_runs(study), tmp_path / "triplets.png")
    assert (tmp_path / "triplets.png").is_file()
    assert caption.startswith("Ranking accuracy on the test triplets") and "(3 a conf" in caption
