"""What another test set would give: which lines and triplets are drawn, in which pairs, of which runs."""

import json
import random
import runpy
import statistics

import numpy as np
import pytest

from roformer.data.toy import cases
from roformer.evaluation.bleu import bleu_statistics, sacrebleu
from roformer.report.resampling import (
    GROUP,
    STATISTICS,
    bleu,
    bleu_intervals,
    bleu_table,
    draw_lines,
    over_triplets,
    resampled_bleu,
    unpacked,
)
from roformer.report.runs import RecordError, read_runs, write_recorded
from roformer.report.scores import scores
from roformer.report.statistics import two_sided_p
from roformer.tasks.translation import fingerprint, write_bleu_statistics
from tests.conftest import REPOSITORY
from tests.evaluation.test_bleu import sacrebleus_bootstrap
from tests.report.records import SIGNATURES, change, record, translation_run

COMPLETED = runpy.run_path(str(REPOSITORY / "scripts" / "record.py"))["Completed"]()
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
    assert lines[1][3:] == [""] * 5 and lines[2][1] == f"{scores['sinusoidal', 0]:.2f}"
    assert "10 different resamples" in table.notes[-1]


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


def test_a_difference_is_of_the_seeds_that_both_have(study):
    """The baseline's third seed, which the other lacks, changes nothing of the comparison."""
    without = [folder for folder in study if folder.name != "rotary-s2"]
    fewer = [folder for folder in without if folder.name != "sinusoidal-s2"]
    rows = [
        next(line for line in table_of(folders, "sinusoidal").lines if line[0].endswith("(rotary)"))
        for folders in (without, fewer, study)
    ]
    assert rows[0] == rows[1] and rows[0][3] != rows[2][3]


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


def test_runs_without_statistics_have_no_interval_and_are_told(study):
    (study[1] / STATISTICS).unlink()
    table = table_of(study)
    found = bleu_intervals(scores_of(study))
    assert found["transformer (rotary)"] is None and found["transformer (sinusoidal)"]
    assert list(table.lines[1][2:]) == ["–", *[""] * 5] and "–" in table.lines[5][4:]
    assert table.notes[-1] == f"Counted, without an interval: no {STATISTICS} in rotary-s1."


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
        bleu_intervals(scores_of(study))


def test_a_comparison_needs_the_records_alone(tmp_path, texts, study):
    """One by one seeds of a configuration have lines of their own, the first the baseline."""
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


# --- triplets ------------------------------------------------------------------------------------

TRIPLETS = 40


def triplet_run(root, length, seed, rights, *, data="scm_builtin", **summary):
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


def over(folders, split="test"):
    """Return the ends of the interval of the longer against the shorter, or what stands there instead."""
    names = ("roformer-1024 (rotary)", "roformer-512 (rotary)")
    text = over_triplets(scores_of(folders), *names, f"{split}/accuracy")
    return tuple(map(float, text.split(" to "))) if " to " in text else text


def test_a_group_is_that_of_the_grammar():
    assert GROUP == {"scm_builtin": cases.GROUP}


@pytest.fixture
def triplets(tmp_path):
    short = [triplet_run(tmp_path, 512, seed, range(20 + seed)) for seed in range(3)]
    return [*short, *(triplet_run(tmp_path, 1024, seed, range(32 + seed)) for seed in range(3))]


def test_triplets_that_are_drawn_together_are_resampled_together(triplets):
    """Every seed differs by the same 12 of 40; of ten groups of four, three or so are the longer's."""
    groups = np.array([0.0] * 5 + [11 / 12, 1, 1, 1 / 12, 0]) * 100
    spread = 1.96 * groups.std() / np.sqrt(10)
    assert over(triplets) == pytest.approx((30 - spread, 30 + spread), abs=4)
    (triplets[0] / "predictions" / "test.tsv").unlink()
    assert over(triplets) == "not recorded" and len(over(triplets, "valid")) == 2


def test_triplets_of_files_are_resampled_one_by_one(tmp_path):
    wholes = ((512, range(20)), (1024, range(32)))
    runs = [triplet_run(tmp_path, n, 0, rights, data="scm_files") for n, rights in wholes]
    assert over(runs) == pytest.approx((30 - 14.2, 30 + 14.2), abs=2.6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("\tB\t", "\tC\t", 9), "is not of the run whose summary"),
        (lambda text: text.replace("\tB\t", "\tA\t", 1), "test.tsv:3 is not what a run wrote"),
        (lambda text: text.replace("0.1", "x", 1), "test.tsv:2 is not what a run wrote"),
        (lambda text: text.replace("label", "labels"), "its columns are not"),
    ],
)
def test_predictions_of_something_else_are_refused(triplets, change, message):
    file = triplets[0] / "predictions" / "test.tsv"
    file.write_text(change(file.read_text()))
    with pytest.raises(RecordError, match=message):
        over(triplets)


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
