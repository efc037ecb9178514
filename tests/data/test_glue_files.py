"""The official GLUE folder: what is read, against an independent reader, and each mistake's line."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas
import pytest

from roformer.config.glue import FilesGlue
from roformer.data import examples as glue
from roformer.data.examples import read_examples, task_texts
from roformer.errors import InputError
from tests.data.glue_tasks import GOOD, MNLI, MRPC, RTE, STSB, TASKS, prepare, rows, write

# --- the official folder -------------------------------------------------------------------------


def test_quotes_are_text_and_do_not_hold_tabs_and_newlines_together(tmp_path):
    texts = [('" he said', 'she "said'), ('"a"', '""'), ('"x', "it 's"), ('y"', "\\t\u2028")]
    body = "".join(f"{i}\t{a}\t{b}\tentailment\n" for i, (a, b) in enumerate(texts))
    read = rows("rte", write(tmp_path, "rte", train=RTE + body))
    assert [(a, b) for _, a, b, _ in read] == texts


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_lines_may_end_in_crlf_and_the_file_in_blank_ones(tmp_path, end, last):
    content = RTE + "7\ta \tb\tentailment\n9\tc\t d\tnot_entailment" + last
    data = write(tmp_path, "rte", train=content.replace("\n", end))
    assert rows("rte", data) == [(0, "a ", "b", 0), (1, "c", " d", 1)]


def test_numbered_columns_say_that_the_first_line_is_a_row(tmp_path):
    content = "gj04\t1\t\tfirst .\ngj04\t0\t*\tsecond .\n"
    data = write(tmp_path, "cola", train=content, test="index\tsentence\n0\tthird .\n")
    assert rows("cola", data) == [(0, "first .", None, 1), (1, "second .", None, 0)]
    assert glue.test_rows("cola", TASKS["cola"], data, None) == [(0, "third .", None)]


def test_labels_are_numbers_or_names_in_the_order_of_the_task(tmp_path):
    body = "".join(f"0\ta\tb\t{label}\n" for label in ("entailment", "not_entailment", "1", "0"))
    data = write(tmp_path, "rte", train=RTE + body)
    assert [label for *_, label in rows("rte", data)] == [0, 1, 1, 0]
    swapped = replace(TASKS["rte"], labels=["not_entailment", "entailment"])
    assert [row.label for row in read_examples("rte", swapped, data, "train")] == [1, 0, 1, 0]


def test_parts_are_files_and_splits_of_their_own(tmp_path):
    def body(text, label):
        return f"{MNLI}0\t{text}\tb\tneutral\t{label}\n"

    data = write(
        tmp_path,
        "mnli",
        train=body("train", "entailment"),
        dev_matched=body("m", "neutral"),
        dev_mismatched=body("mm", "contradiction"),
        test_matched="index\tsentence1\tsentence2\n0\tx\ty\n",
    )
    prepared = prepare("mnli", data, tmp_path / "cache")
    assert prepared.splits == ["train", "validation_matched", "validation_mismatched"]
    assert [prepared.split(split).labels.tolist() for split in prepared.splits] == [[0], [1], [2]]
    assert glue.test_rows("mnli", TASKS["mnli"], data, "matched") == [(0, "x", "y")]


def test_training_texts_are_those_of_train_alone(tmp_path):
    write(tmp_path, "rte", train=RTE + "0\ta\tb\t0\n1\tc\t\t0\n", dev=RTE + GOOD)
    data = write(tmp_path, "cola", train="x\t1\t\ta b\n", dev="x\t0\t\tc\n")
    assert sorted(task_texts("rte", TASKS["rte"], data)) == ["", "a", "b", "c"]
    assert list(task_texts("cola", TASKS["cola"], data)) == ["a b"]


def test_a_subset_of_train_is_drawn_once_and_kept_in_order(tmp_path):
    body = "".join(f"{i}\ttext {i}\tb\tentailment\n" for i in range(100))
    data = write(tmp_path, "rte", train=RTE + body, dev=RTE + body)
    few = replace(data, max_train_examples=20)
    drawn = [index for index, *_ in rows("rte", few)]
    assert len(set(drawn)) == 20 and drawn == sorted(drawn) and drawn != list(range(20))
    assert rows("rte", few) == [rows("rte", data)[index] for index in drawn]
    assert len(rows("rte", few, "validation")) == 100
    assert len(rows("rte", replace(data, max_train_examples=101))) == 100
    prepared = prepare("rte", few, tmp_path / "cache")
    assert prepared.split("train").index.tolist() == drawn
    assert prepared.manifest["rows"] == {"train": 20, "validation": 100}
    assert prepared.manifest["source"]["files"][0]["rows"] == 100


# --- the real folder -----------------------------------------------------------------------------

REAL = {
    "mrpc": {"train": ("train", 3667), "validation": ("dev", 408)},
    "sst2": {"train": ("train", 67349), "validation": ("dev", 872)},
    "stsb": {"train": ("train", 5749), "validation": ("dev", 1500)},
    "qnli": {"train": ("train", 4000), "validation": ("dev", 732)},
    "mnli": {
        "train": ("train", 1399),
        "validation_matched": ("dev_matched", 300),
        "validation_mismatched": ("dev_mismatched", 300),
    },
}


@pytest.fixture
def real_glue(real_data):
    if not (real_data / "glue").is_dir():
        pytest.skip("needs the GLUE folder: glue below ROFORMER_TEST_DATA or data/")
    return real_data / "glue"


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_read_as_an_independent_reader_reads_them(real_glue, name):
    task, data = TASKS[name], FilesGlue(path=str(real_glue))
    for split, (file, count) in REAL[name].items():
        found = rows(name, data, split)
        other = pandas.read_csv(
            real_glue / task.files.folder / f"{file}.tsv",
            sep="\t",
            quoting=3,
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
        )
        assert len(found) == len(other) == count
        assert [row[0] for row in found] == list(range(count))
        for place, theirs in enumerate(task.files.texts, 1):
            assert [row[place] for row in found] == other[theirs].to_list()
        labels = [row[-1] for row in found]
        if task.scores:
            assert np.float32(labels).tolist() == other[task.files.label].astype("f4").to_list()
            continue
        expected = Counter(other[task.files.label])
        spelt = [label if label in expected else str(i) for i, label in enumerate(task.labels)]
        assert Counter(spelt[number] for number in labels) == expected


# --- what is wrong in a folder -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "line", "problem"),
    [
        ("rte", RTE + GOOD + "1\ta\tentailment\n", 3, "3 tab-separated fields, not 4 as in line 1"),
        ("rte", RTE + GOOD + "1\ta\tb\tc\tentailment\n", 3, "5 tab-separated fields, not 4"),
        ("cola", "x\t1\t\ta\nx\t1\ta\n", 2, "3 tab-separated fields, not 4 as in line 1"),
        (
            "rte",
            RTE + GOOD + "\n1\ta\tb\tyes\n",
            4,
            "label 'yes' is none of entailment, not_entail",
        ),
        (
            "rte",
            RTE + "1\ta\tb\t2\n",
            2,
            "label '2' is none of entailment, not_entailment (or 0 to",
        ),
        ("rte", RTE + "1\ta\tb\ta//./b\n", 2, "label 'a//./b' is none of"),
        ("rte", RTE + "1\ta\tb\tlabel\n", 2, "label 'label' is none of"),
        (
            "mnli",
            MNLI + "0\ta\tb\tneutral\t-\n",
            2,
            "label '-' is none of entailment, neutral, con",
        ),
        (
            "cola",
            "source\tlabel\tmark\tsentence\n",
            1,
            "label 'label' is none of unacceptable, acc",
        ),
        ("rte", RTE + "1\t\t \tentailment\n", 2, "no text"),
        ("cola", "x\t1\t\t\n", 1, "no text"),
        ("stsb", STSB + "1\ta\tb\thigh\n", 2, "score 'high' is no number from 0 to 5"),
        ("stsb", STSB + "1\ta\tb\t\n", 2, "score '' is no number from 0 to 5"),
        ("stsb", STSB + "1\ta\tb\t5.001\n", 2, "score '5.001' is no number from 0 to 5"),
        ("stsb", STSB + "1\ta\tb\t-0.1\n", 2, "score '-0.1' is no number"),
        *(
            ("stsb", STSB + f"1\ta\tb\t{score}\n", 2, f"score {score!r} is no number")
            for score in ("nan", "inf", "1e999", "0_4", "0x1")
        ),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path, name, content, line, problem):
    data = write(tmp_path, name, train=content)
    with pytest.raises(InputError) as caught:
        rows(name, data)
    message = str(caught.value)
    file = tmp_path / TASKS[name].files.folder / "train.tsv"
    assert message.startswith(f"{file}:{line}: {problem}")
    assert "data.max_bad_rows (now 0)" in message and "\n" not in message


def test_bad_rows_are_skipped_up_to_the_limit_counted_and_told(tmp_path, capsys):
    bad = "1\ta\tb\n2\ta\tb\tmaybe\n"
    data = write(tmp_path, "rte", train=RTE + GOOD + bad + GOOD, dev=RTE + GOOD)
    prepared = prepare("rte", replace(data, max_bad_rows=2), tmp_path / "cache")
    assert prepared.split("train").index.tolist() == [0, 3]
    train, dev = prepared.manifest["source"]["files"]
    first = "RTE/train.tsv:3: 3 tab-separated fields, not 4 as in line 1"
    assert (train["rows"], train["bad_rows"], train["first_bad_row"]) == (2, 2, first)
    assert (dev["rows"], dev["bad_rows"], dev["first_bad_row"]) == (1, 0, None)
    assert capsys.readouterr().err == f"rte: 2 bad rows skipped (the first: {first})\n"
    with pytest.raises(InputError, match=r"train.tsv:3: 3 tab.*bad rows so far: 2.*\(now 1\)$"):
        rows("rte", replace(data, max_bad_rows=1))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rte", "", "{file} has no rows: fetch it again"),
        ("rte", RTE, "{file} has no rows: fetch it again"),
        ("rte", RTE + "\n\n", "{file} has no rows: fetch it again"),
        (
            "rte",
            RTE.replace("sentence2", "hypothesis") + GOOD,
            "{file}:1: no column 'sentence2' among index, sentence1, hypothesis, label: set the "
            "columns in task.rte.files",
        ),
        (
            "rte",
            "label\t" + RTE + GOOD,
            "{file}:1: 2 columns 'label' among label, index, sentence1",
        ),
        ("rte", GOOD + GOOD, "{file}:1: no column 'sentence1' among 0, a, b, entailment: set"),
        ("mrpc", MRPC.replace("Quality", "Label"), "{file}:1: no column 'Quality' among Label, #1"),
        (
            "cola",
            "x\t1\ta\n",
            "{file}:1: 3 fields, no column 3 (from 0): set the columns in task.co",
        ),
        (
            "rte",
            (RTE + GOOD).encode() + b"1\tcaf\xe9\tb\tentailment\n",
            "{file}:3: not UTF-8 (byte 6 of the line is 0xe9): convert the file",
        ),
    ],
)
def test_a_file_that_is_not_a_task_is_named(tmp_path, name, content, message):
    data = replace(write(tmp_path, name, train=content), max_bad_rows=9)
    file = tmp_path / TASKS[name].files.folder / "train.tsv"
    with pytest.raises(InputError, match="^" + re.escape(message.format(file=file))) as caught:
        rows(name, data)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named_with_what_is_there(tmp_path):
    data = write(tmp_path / "glue", "rte", train=RTE + GOOD, test=RTE)
    write(tmp_path / "glue", "qnli")
    for name, path, message in (
        (
            "rte",
            tmp_path / "nowhere",
            "data.path={} is no folder: give the GLUE folder, which holds",
        ),
        ("rte", tmp_path / "glue/RTE/train.tsv", "data.path={} is no folder"),
        (
            "mrpc",
            tmp_path / "glue",
            "data.path={} has no folder MRPC, but QNLI, RTE: put mrpc there",
        ),
        ("qnli", tmp_path / "glue", "{}/QNLI has no train.tsv, but nothing: put the file there"),
    ):
        with pytest.raises(InputError, match="^" + re.escape(message.format(path))):
            rows(name, FilesGlue(path=str(path)))
    with pytest.raises(InputError, match=r"RTE has no dev\.tsv, but test\.tsv, train\.tsv"):
        prepare("rte", data, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


# --- the test split -------------------------------------------------------------------------------


def test_labels_of_a_test_file_are_never_read(tmp_path):
    content = MRPC + "secret\t10\t11\tone\ttwo\n0\t12\t13\t\t\n"
    data = write(tmp_path, "mrpc", test=content)
    assert glue.test_rows("mrpc", TASKS["mrpc"], data, None) == [(0, "one", "two"), (1, "", "")]
    without = "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tone\ttwo\n"
    write(tmp_path, "mrpc", test=without)
    assert glue.test_rows("mrpc", TASKS["mrpc"], data, None) == [(0, "one", "two")]


def test_a_submission_needs_every_row_and_the_right_part(tmp_path):
    data = write(tmp_path, "rte", test="index\tsentence1\tsentence2\n0\ta\tb\n1\ta\n")
    with pytest.raises(InputError, match=r"test.tsv:3: 2 tab.* mend it; a submission needs every"):
        glue.test_rows("rte", TASKS["rte"], replace(data, max_bad_rows=5), None)
    with pytest.raises(InputError, match="rte has no test parts: asked for 'matched'"):
        glue.test_rows("rte", TASKS["rte"], data, "matched")
    for part in (None, "other"):
        with pytest.raises(InputError, match="mnli has the test parts matched, mismatched: asked"):
            glue.test_rows("mnli", TASKS["mnli"], data, part)
