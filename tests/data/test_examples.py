"""Labelled examples from the Hub, the templates and files: the same rows, prepared in the same way."""

import json
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import datasets
import numpy as np
import pytest

from roformer.config.glue import BuiltinGlue, FilesGlue
from roformer.config.scm import BuiltinTriplets, FilesTriplets, PairConfig
from roformer.data import examples
from roformer.data.classification import TripletInputs
from roformer.data.examples import task_rows
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from roformer.data.toy.cases import case_triplets
from roformer.data.toy.glue import builtin_examples
from roformer.data.triplets import open_triplets, triplet_rows
from roformer.errors import InputError
from tests.data.glue_tasks import (
    COMMIT,
    GOOD,
    HUB,
    LETTERS,
    MNLI,
    MRPC,
    PAIRS,
    RTE,
    STSB,
    TASKS,
    TOKENIZER,
    as_files,
    prepare,
    rows,
    write,
)


def unlabelled(name, data, part=None):
    return examples.test_rows(name, TASKS[name], data, part)


def refusal(call, *arguments, **options):
    with pytest.raises(InputError) as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# --- the official GLUE folder --------------------------------------------------------------------


def test_a_tsv_is_its_cells_as_they_are(tmp_path):
    """Quotes hold no tabs and newlines together; lines may end in CRLF and the file in blank ones."""
    texts = [('" he said', 'she "said'), ('"a"', '""'), ('"x ', "it 's"), ('y"', " \\t\u2028")]
    body = "".join(f"{i}\t{a}\t{b}\tentailment\n" for i, (a, b) in enumerate(texts))
    read = rows("rte", write(tmp_path, "rte", train=f"{RTE}{body}\n".replace("\n", "\r\n")))
    assert [(a, b) for _, a, b, _ in read] == texts


def test_numbered_columns_say_that_the_first_line_is_a_row(tmp_path):
    content = "gj04\t1\t\tfirst .\ngj04\t0\t*\tsecond .\n"
    data = write(tmp_path, "cola", train=content, test="index\tsentence\n0\tthird .\n")
    assert rows("cola", data) == [(0, "first .", None, 1), (1, "second .", None, 0)]
    assert unlabelled("cola", data) == [(0, "third .")]


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
    assert unlabelled("mnli", data, "matched") == [(0, ("x", "y"))]


def test_a_subset_of_train_is_drawn_once_and_kept_in_order(tmp_path):
    body = "".join(f"{i}\ttext {i}\tb\tentailment\n" for i in range(100))
    data = write(tmp_path, "rte", train=RTE + body, dev=RTE + body)
    few = replace(data, max_train_examples=20)
    drawn = [index for index, *_ in rows("rte", few)]
    assert len(set(drawn)) == 20 and drawn == sorted(drawn) and drawn != list(range(20))
    assert rows("rte", few) == [rows("rte", data)[index] for index in drawn]
    prepared = prepare("rte", few, tmp_path / "cache")
    assert prepared.split("train").index.tolist() == drawn
    assert prepared.manifest["rows"] == {"train": 20, "validation": 100}
    assert prepared.manifest["source"]["rows"] == {"train": 100, "validation": 100}
    assert len(list(task_rows("rte", TASKS["rte"], few).training_texts())) == 2 * 20


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rte", RTE + GOOD + "1\ta\tentailment\n", ":3: 3 tab-separated fields, not 4 as in line"),
        ("rte", RTE + GOOD + "\n1\ta\tb\tyes\n", ":4: label 'yes' is none of entailment, not_ent"),
        ("stsb", STSB + "1\ta\tb\t5.001\n", ":2: score '5.001' is no number from 0 to 5"),
        ("stsb", STSB + "1\ta\tb\tnan\n", ":2: score 'nan' is no number"),
        (
            *("rte", RTE.replace("sentence2", "hypothesis") + GOOD),
            ":1 has no column 'sentence2', but index, sentence1, hypothesis, label: set the columns "
            "in task.rte.files",
        ),
        ("rte", "label\t" + RTE + GOOD, ":1 has 2 columns 'label', but label, index, sentence1"),
        ("cola", "x\t1\ta\n", ":1 has no column 3, but 0, 1, 2: set the columns in task.cola"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_that_names_it(tmp_path, name, content, problem):
    data = write(tmp_path, name, train=content)
    file = tmp_path / TASKS[name].files.folder / "train.tsv"
    assert refusal(rows, name, data).startswith(f"{file}{problem}")


def test_bad_rows_are_skipped_up_to_the_limit_counted_and_told(tmp_path, capsys):
    bad = "1\ta\tb\n2\ta\tb\tmaybe\n"
    data = write(tmp_path, "rte", train=RTE + GOOD + bad + GOOD, dev=RTE + GOOD)
    prepared = prepare("rte", replace(data, max_bad_rows=2), tmp_path / "cache")
    assert prepared.split("train").index.tolist() == [0, 3]
    account = prepared.manifest["source"]
    first = "RTE/train.tsv:3: 3 tab-separated fields, not 4 as in line 1"
    assert account["rows"] == {"train": 4, "validation": 1}
    assert (account["rows_skipped"], account["first_skipped"]) == (2, first)
    assert capsys.readouterr().err == f"rte: 2 bad rows skipped (the first: {first})\n"
    message = refusal(rows, "rte", replace(data, max_bad_rows=1))
    assert re.search(r"train.tsv:3: 3 tab.*bad rows so far: 2.*\(now 1\)$", message)


def test_labels_of_a_test_file_are_never_read_and_it_needs_every_row(tmp_path):
    content = MRPC + "secret\t10\t11\tone\ttwo\n0\t12\t13\t\t\n"
    data = write(tmp_path, "mrpc", test=content)
    assert unlabelled("mrpc", data) == [(0, ("one", "two")), (1, ("", ""))]
    write(tmp_path, "mrpc", test=content.replace("Quality", "index") + "2\t14\n")
    message = refusal(unlabelled, "mrpc", replace(data, max_bad_rows=5))
    assert re.search(r"test.tsv:4: 2 tab.* fix it; a submission needs every row$", message)
    assert "mrpc has no test parts: asked for 'matched'" in refusal(
        unlabelled, "mrpc", data, "matched"
    )
    for part in (None, "other"):
        message = refusal(unlabelled, "mnli", data, part)
        assert "mnli has the test parts matched, mismatched: asked" in message


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        ("a b", "b a", [1, 0]),
        ("a b c", "2 1", [2, 1]),
        ("1 2", "1 2", [0, 1]),
        ("0 1", "1 0", [1, 0]),
        ("0.0 1.0", "1.0 0.0", [1, 0]),
        ("a b", "a 1.0", ":3: label '1.0' is none of a, b, 0, 1"),
        ("1 2", "1 0", ":3: label '0' is none of 1, 2: "),
    ],
)
def test_labels_are_names_or_numbers_where_no_name_is_a_number(tmp_path, names, labels, expected):
    """A guess whether 1 is a name or a number would be a silent wrong result."""
    body = "".join(f"0\ta\tb\t{label}\n" for label in labels.split())
    data = write(tmp_path, "rte", train=RTE + body)
    read = task_rows("rte", replace(TASKS["rte"], labels=names.split()), data).read
    if isinstance(expected, str):
        assert refusal(read, "train").startswith(f"{tmp_path}/RTE/train.tsv{expected}")
    else:
        assert [row.label for row in read("train")] == expected


def test_what_is_missing_is_named_with_what_is_there(tmp_path):
    data = write(tmp_path / "glue", "rte", train=RTE + GOOD, test=RTE)
    for name, path, message in (
        ("rte", tmp_path / "nowhere", "data.path: {} is no folder: give the GLUE folder"),
        ("mrpc", tmp_path / "glue", "{} has no folder MRPC, but RTE: "),
    ):
        assert refusal(rows, name, FilesGlue(path=str(path))).startswith(message.format(path))
    message = refusal(prepare, "rte", data, tmp_path / "cache")
    assert "RTE has no dev.tsv or dev.csv, but test.tsv, train.tsv" in message


# --- CSV -----------------------------------------------------------------------------------------


def csv_file(root, content):
    (folder := root / TASKS["sst2"].files.folder).mkdir()
    (folder / "train.csv").write_bytes(content.encode())
    return FilesGlue(path=str(root))


def test_a_csv_is_read_as_text(tmp_path):
    texts = ["01", "None", "N/A", 'a, "b"', "c\nd", " e ", "x" * 200_000, "é\u2028"]
    lines = "".join('"{}",1\n'.format(text.replace('"', '""')) for text in texts)
    content = f"\ufeffsentence,label\n{lines}plain,0\n\n".replace("\n", "\r\n")
    data = csv_file(tmp_path, content)
    assert [text for _, text, _, _ in rows("sst2", data)] == [*texts, "plain"]
    write(tmp_path, "sst2", train="sentence\tlabel\na\t1\n")
    assert "has train.csv and train.tsv: keep one" in refusal(rows, "sst2", data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sentence,label\na,b,1\n", ":2: 3 comma-separated fields, not 2 as in line 1"),
        ('sentence,label\n"a\nb",1\n"c,0\n', ":4: not CSV, unexpected end of data"),
        ("sentence,label\ra,1\r", ":1: not CSV, new-line character"),
    ],
)
def test_a_bad_csv_is_one_line(tmp_path, content, message):
    data = csv_file(tmp_path, content)
    assert refusal(rows, "sst2", data).startswith(f"{tmp_path}/SST-2/train.csv{message}")


# --- the Hub -------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """Replace the Hub's RTE with a fake; return its table and the calls that were made."""
    names = ["entailment", "not_entailment"]
    text = datasets.Value("string")
    stand_in = SimpleNamespace(
        tables={
            split: dict(
                zip(("sentence1", "sentence2", "label"), zip(*pairs, strict=True), strict=True)
            )
            | {"idx": list(range(len(pairs)))}
            for split, pairs in PAIRS.items()
        },
        features=datasets.Features(
            sentence1=text,
            sentence2=text,
            label=datasets.ClassLabel(names=names),
            idx=datasets.Value("int32"),
        ),
        calls=[],
    )

    def load_dataset(path, name=None, *, revision=None, split=None, streaming=False):
        stand_in.calls.append((path, name, revision, split))
        return datasets.Dataset.from_dict(stand_in.tables[split], features=stand_in.features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return stand_in


def test_the_hub_is_read_by_name_revision_and_split(hub, tmp_path):
    hub.tables["train"] |= {"idx": [5, 6, 9]}
    prepared = prepare("rte", HUB, tmp_path)
    assert hub.calls == [
        ("nyu-mll/glue", "rte", COMMIT, "train"),
        ("nyu-mll/glue", "rte", COMMIT, "validation"),
    ]
    account = prepared.manifest["source"]
    assert (account["path"], account["revision"]) == ("nyu-mll/glue", COMMIT)
    assert account["rows"] == {"train": 3, "validation": 1}
    expected = zip((5, 6, 9), PAIRS["train"], strict=True)
    assert rows("rte", HUB) == [(index, *row) for index, row in expected]


@pytest.mark.parametrize(
    ("task", "labels", "problem"),
    [
        ("rte", [1, 0, -1], "nyu-mll/glue (rte, train):3: label -1 is none of 0, 1: "),
        ("qnli", [1, 0, 1], "nyu-mll/glue (qnli, train) has no column 'question', but sentence1, "),
    ],
)
def test_what_is_wrong_on_the_hub_is_named(hub, task, labels, problem):
    hub.tables["train"] |= {"label": labels}
    assert refusal(rows, task, HUB).startswith(problem)


def test_class_numbers_of_the_hub_are_those_of_its_names(hub):
    task = replace(TASKS["rte"], labels=["not_entailment", "entailment"])
    message = refusal(lambda: task_rows("rte", task, HUB).read("train"))
    assert "numbers its labels ['entailment', 'not_entailment'], but task.rte.labels=" in message
    hub.features["label"] = datasets.Value("int64")  # without names
    assert [row.label for row in task_rows("rte", task, HUB).read("train")] == [1, 0, 1]


def test_scores_of_the_hub_are_the_decimals_of_the_files(tmp_path, hub):
    """The Hub keeps them in single precision."""
    hub.features = datasets.Features(hub.features | {"label": datasets.Value("float32")})
    files = {}
    for split, file in (("train", "train"), ("validation", "dev")):
        scores = [3.8, 4.2, 0.333][: len(PAIRS[split])]
        hub.tables[split] |= {"label": scores}
        pairs = enumerate(zip(PAIRS[split], scores, strict=True))
        files[file] = STSB + "".join(f"{i}\t{a}\t{b}\t{s:.3f}\n" for i, ((a, b, _), s) in pairs)
    data = write(tmp_path, "stsb", **files)
    assert [score for *_, score in rows("stsb", HUB)] == [3.8, 4.2, 0.333]
    assert rows("stsb", HUB) == rows("stsb", data)
    one, other = (prepare("stsb", source, tmp_path / "cache") for source in (HUB, data))
    assert one.folder != other.folder and one.fingerprint == other.fingerprint
    assert one.split("train").labels.dtype == np.float32


def test_labels_of_the_hubs_test_split_are_never_read(hub):
    assert unlabelled("rte", HUB) == [(0, ("seven", "eight"))]
    hub.features = datasets.Features({k: v for k, v in hub.features.items() if k != "label"})
    del hub.tables["test"]["label"]
    assert unlabelled("rte", HUB) == [(0, ("seven", "eight"))]


# --- templates, and the same from all ------------------------------------------------------------


def test_built_in_tasks_fit_their_yaml(tmp_path):
    data = BuiltinGlue(train_examples=48, validation_examples=24)
    for name in ("mrpc", "stsb", "mnli"):
        prepared = prepare(name, data, tmp_path)
        parts = [f"validation_{part}" for part in TASKS[name].parts] or ["validation"]
        assert prepared.manifest["rows"] == {"train": 48, **dict.fromkeys(parts, 24)}
        made = [example.label for example in builtin_examples(name, "train", 48)]
        labels = prepared.split("train").labels
        if name == "stsb":
            assert labels.tolist() == np.float32(made).tolist()
        else:
            assert [TASKS[name].labels[number] for number in labels] == made
    assert "cola" in refusal(prepare, "cola", data, tmp_path)
    assert "mrpc has no test split: take data=hub or" in refusal(unlabelled, "mrpc", data)
    task = replace(TASKS["mrpc"], labels=["different", "same"])
    message = refusal(lambda: task_rows("mrpc", task, data).read("train"))
    assert re.search(r"built-in mrpc:1: label '.*equivalent' .*task\.mrpc does not fit", message)


def test_what_decides_the_content_decides_the_folder(tmp_path):
    data, cache = as_files(tmp_path), tmp_path / "cache"
    first = prepare("rte", data, cache)
    task = replace(TASKS["rte"], labels=["entailment", "x", "not_entailment"])
    others = [
        prepare("rte", data, cache, WordPiece.bert(TOKENIZER.vocabulary, False)),
        prepare("rte", replace(data, max_train_examples=2), cache),
        prepare("rte", data, cache, task=task),
    ]
    assert len({first.folder, *(other.folder for other in others)}) == 4
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 4


# --- triplets ------------------------------------------------------------------------------------

TRIPLET = {"A": "a b", "B": "c", "C": "d e f"}


def lines(*rows) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def triplets(root, **files):
    """Write files, given with _ for the dot of their names."""
    for name, content in files.items():
        (root / name.replace("_", ".")).write_text(content)
    return FilesTriplets(path=str(root))


def numbered(count, **more):
    """Return triplets that are all different."""
    words = [f"{a}{b}" for a in LETTERS for b in LETTERS][:count]
    return [{"A": word, "B": f"{word} x", "C": f"{word} y", **more} for word in words]


def prepare_scm(source, cache):
    return triplet_rows(source).prepare(TOKENIZER, cache, progress=False)


def test_labels_are_read_where_there_are_some_and_assumed_aloud_elsewhere(tmp_path, capsys):
    labelled = lines({**TRIPLET, "label": "B"}, {**TRIPLET, "label": "C"})
    held_out = lines({"A": "d e f", "B": "x", "C": "y"}, {"A": "x", "B": "y", "C": "z"})
    source = triplets(tmp_path, train_json=labelled, valid_json=held_out)
    assert [row.label for row in open_triplets(source).rows("train")] == [0, 1]
    manifest = prepare_scm(source, tmp_path / "cache").manifest
    assert capsys.readouterr().err == (
        "scm: valid.json has no labels: B is taken to be the closer one of every row\n"
    )
    assert manifest["labels"] == {"train": {"B": 1, "C": 1}, "validation": {"B": 2, "C": 0}}
    assert manifest["shared"] == {"validation": 1}  # has a document of the training triplets


LABELLED = {**TRIPLET, "label": "C"}


@pytest.mark.parametrize(
    ("first", "row", "message"),
    [
        (TRIPLET, {"A": "a", "C": "b"}, "no 'B' among its keys ['A', 'C']"),
        (TRIPLET, {**TRIPLET, "C": "c"}, "two of A, B and C are the same document"),
        (LABELLED, {**TRIPLET, "label": "A"}, "label 'A' is none of B, C"),
        (TRIPLET, LABELLED, "one row has a label and another none"),
    ],
)
def test_a_bad_triplet_is_one_line_and_skipped_up_to_the_limit(tmp_path, first, row, message):
    given = triplets(tmp_path, train_json=lines(first, row, first), dev_json=lines(first))
    told = refusal(list, open_triplets(given).rows("train"))
    assert told.startswith(f"{tmp_path}/train.json:2: {message}")
    source = open_triplets(replace(given, max_bad_rows=1))
    assert [row.number for row in source.rows("train")] == [0, 2]
    assert source.describe()["first_skipped"].startswith(f"train.json:2: {message}")


PLACES = {
    "nothing there": ({}, "missing", "missing is no folder"),
    "one file": ({"all_json": lines(TRIPLET)}, "all.json", "one file: .*data.split=paper622"),
    "no validation": ({"train_JSON": lines(TRIPLET)}, "", "no validation file .*but train.JSON"),
    "two": (
        {"train_json": "{}", "valid_json": "{}", "dev_jsonl": "{}"},
        *("", "has valid.json and dev.jsonl: keep one of them"),
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_files_that_are_not_there_are_told(tmp_path, name):
    files, where, message = PLACES[name]
    triplets(tmp_path, **files)
    with pytest.raises(InputError, match=message):
        list(open_triplets(FilesTriplets(path=str(tmp_path / where))).rows("train"))


def test_paper622_is_six_two_two_of_all_rows_by_its_seed(tmp_path):
    """Of one file or of a folder of splits."""
    rows = numbered(50)
    (tmp_path / "all.jsonl").write_text(lines(*rows))
    (tmp_path / "folder").mkdir()
    triplets(tmp_path / "folder", train_json=lines(*rows[:40]), test_json=lines(*rows[40:]))
    made = []
    for path, seed in (("all.jsonl", 0), ("folder", 0), ("all.jsonl", 1)):
        given = FilesTriplets(path=str(tmp_path / path), split="paper622", split_seed=seed)
        source = open_triplets(given)
        parts = {split: list(source.rows(split)) for split in source.splits}
        assert [len(part) for part in parts.values()] == [30, 10, 10]
        assert sorted(row.number for part in parts.values() for row in part) == [*range(50)]
        made.append({split: [row.texts for row in part] for split, part in parts.items()})
    assert made[0] == made[1] != made[2]


def test_builtin_triplets_keep_where_their_evidence_stands(tmp_path):
    source = BuiltinTriplets(train_triplets=8, validation_triplets=40, test_triplets=8)
    characters = {c for triplet in case_triplets("validation", 40) for c in "".join(triplet[:3])}
    tokenizer = WordPiece.bert([*SPECIAL_TOKENS, *sorted(characters - {" "})], True)
    prepared = triplet_rows(source).prepare(tokenizer, tmp_path, progress=False)
    split = prepared.split("validation")
    assert Counter(split.places.tolist()) == {0: 20, 1: 20}
    expected = [{"B": 0, "C": 1}[triplet.label] for triplet in case_triplets("validation", 40)]
    assert split.labels.tolist() == expected
    assert prepared.manifest["shared"] == {"validation": 0, "test": 0}


def test_a_vocabulary_of_other_text_and_fewer_triplets(tmp_path):
    row = {"A": "中 中 a", "B": "a 中", "C": "中"}
    given = triplets(tmp_path, train_json=lines(row), dev_json=lines(row))
    message = refusal(prepare_scm, given, tmp_path / "cache")
    assert re.search(r"^scm: 66\.7% of the tokens are \[UNK\].*start from", message)
    given = triplets(tmp_path, train_json=lines(*numbered(30)), dev_json=lines(*numbered(30)))
    few = prepare_scm(replace(given, max_train_triplets=10, max_held_out_triplets=5), tmp_path)
    assert len(few.split("train")) == 10 and len(few.split("validation")) == 5


def test_a_row_is_both_pairs_of_a_triplet(tmp_path):
    rows = numbered(12, label="C")
    rows[3]["label"] = "B"
    given = triplets(tmp_path, train_json=lines(*rows), dev_json=lines(*numbered(4)))
    split = prepare_scm(given, tmp_path / "cache").split("train")
    batch = TripletInputs(split, TOKENIZER, 64, PairConfig(token_types="segments"))[[5, 3]]
    for row, number in enumerate((5, 3)):
        first = [TOKENIZER.cls_id, *split.ids[0][number], TOKENIZER.sep_id]
        for side, ids in enumerate((split.ids[1][number], split.ids[2][number])):
            pair = [*first, *ids, TOKENIZER.sep_id]
            assert batch["input_ids"][row, side, : len(pair)].tolist() == pair
            types = batch["token_type_ids"][row, side, : len(pair)].tolist()
            assert types == [0] * len(first) + [1] * (len(ids) + 1)
    assert batch["labels"].tolist() == [1, 0]
    assert "token_type_ids" not in TripletInputs(split, TOKENIZER, 64, PairConfig())[[0, 1]]
