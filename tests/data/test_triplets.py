"""Triplets from files and the templates: checked, labelled, split, prepared and batched."""

import json
from collections import Counter

import pytest

from roformer.config.scm import BuiltinTriplets, FilesTriplets, PairConfig
from roformer.data.classification import TripletInputs
from roformer.data.examples import prepare_triplets
from roformer.data.sources.triplets import FileTriplets
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from roformer.data.toy.cases import case_triplets
from roformer.errors import InputError

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = WordPiece([*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS)], True)
GOOD = {"A": "a b", "B": "c", "C": "d e f"}


def lines(*rows) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def folder(root, **files):
    for name, content in files.items():
        (root / name.replace("_", ".")).write_text(content)
    return FilesTriplets(path=str(root))


def numbered(count, **more):
    """Triplets that are all different."""
    words = [f"{a}{b}" for a in LETTERS for b in LETTERS][:count]
    return [{"A": word, "B": f"{word} x", "C": f"{word} y", **more} for word in words]


def prepare(source, cache, tokenizer=TOKENIZER):
    return prepare_triplets(source, tokenizer, cache, progress=False)


# --- files ---------------------------------------------------------------------------------------


def test_labels_are_read_where_there_are_some_and_assumed_aloud_elsewhere(tmp_path, capsys):
    labelled = lines({**GOOD, "label": "B"}, {**GOOD, "label": "C"})
    held_out = lines({"A": "d e f", "B": "x", "C": "y"}, {"A": "x", "B": "y", "C": "z"})
    source = folder(tmp_path, train_json=labelled, valid_json=held_out)
    assert [row.label for row in FileTriplets(source).rows("train")] == [0, 1]
    manifest = prepare(source, tmp_path / "cache").manifest
    assert capsys.readouterr().err == (
        "scm: valid.json has no labels: B is taken to be the closer one of every row\n"
    )
    assert manifest["labels"] == {"train": {"B": 1, "C": 1}, "validation": {"B": 2, "C": 0}}
    assert [file["labelled_rows"] for file in manifest["source"]["files"]] == [2, 0]
    assert manifest["shared"] == {"validation": 1}  # has a document of the training triplets


BAD = {
    "broken": ('{"A": "a", "B"', r"train.json:2: not JSON, .*mend it"),
    "list": ("[1]", "train.json:2: a JSON list, not an object with A, B and C"),
    "without": ({"A": "a", "C": "b"}, r"train.json:2: no 'B' among its keys \['A', 'C'\]"),
    "empty": ({**GOOD, "B": "  "}, "train.json:2: 'B' is empty"),
    "number": ({**GOOD, "A": 3}, "train.json:2: 'A' is int, not text"),
    "a is b": ({**GOOD, "A": "c"}, "train.json:2: A and B are the same document"),
    "b is c": ({**GOOD, "C": "c"}, "train.json:2: B and C are the same document"),
    "label": ({**GOOD, "label": "A"}, "train.json:2: label 'A' is neither B nor C"),
    "label list": ({**GOOD, "label": ["B"]}, r"label \['B'\] is neither B nor C"),
    "mixed": ({**GOOD, "label": "B"}, "train.json:2: the row has a label, unlike line 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_one_line_that_names_it(tmp_path, name):
    row, message = BAD[name]
    source = FileTriplets(folder(tmp_path, train_json=lines(GOOD, row), dev_json=lines(GOOD)))
    with pytest.raises(InputError, match=message) as refusal:
        list(source.rows("train"))
    assert "\n" not in str(refusal.value) and str(tmp_path) in str(refusal.value)


def test_bad_rows_are_skipped_up_to_the_limit_counted_and_told(tmp_path, capsys):
    given = folder(tmp_path, train_json=lines("{", GOOD, "{"), dev_json=lines(GOOD))
    with pytest.raises(InputError, match=r"bad rows so far: 2.*max_bad_rows \(now 1\)"):
        prepare(FilesTriplets(path=given.path, max_bad_rows=1), tmp_path / "cache")
    prepared = prepare(FilesTriplets(path=given.path, max_bad_rows=2), tmp_path / "cache")
    assert prepared.split("train").index.tolist() == [1]
    assert "scm: 2 bad rows skipped (the first: train.json:1: not JSON" in capsys.readouterr().err


PLACES = {
    "nothing there": ({}, "missing", "does not exist: give a folder"),
    "one file": ({"all_json": lines(GOOD)}, "all.json", "data.split=paper622"),
    "other file": ({"all_csv": "A,B,C"}, "all.csv", "is none of .jsonl"),
    "no validation": ({"train_json": lines(GOOD)}, "", "no validation file .*but train.json"),
    "two": (
        {"train_json": lines(GOOD), "valid_json": lines(GOOD), "dev_jsonl": lines(GOOD)},
        *("", "has valid.json and dev.jsonl: keep one as validation"),
    ),
    "empty": ({"train_json": "\n", "dev_json": lines(GOOD)}, "", "train.json has no usable row"),
}


@pytest.mark.parametrize("name", PLACES)
def test_files_that_are_not_there_are_told(tmp_path, name):
    files, where, message = PLACES[name]
    folder(tmp_path, **files)
    with pytest.raises(InputError, match=message):
        list(FileTriplets(FilesTriplets(path=str(tmp_path / where))).rows("train"))


def test_paper622_is_six_two_two_of_all_rows_by_its_seed(tmp_path):
    """Of one file or of a folder of splits."""
    rows = numbered(50)
    (tmp_path / "all.jsonl").write_text(lines(*rows))
    (tmp_path / "folder").mkdir()
    folder(tmp_path / "folder", train_json=lines(*rows[:40]), test_json=lines(*rows[40:]))
    made = []
    for path, seed in (("all.jsonl", 0), ("folder", 0), ("all.jsonl", 1)):
        given = FilesTriplets(path=str(tmp_path / path), split="paper622", split_seed=seed)
        source = FileTriplets(given)
        parts = {split: list(source.rows(split)) for split in source.splits}
        assert [len(part) for part in parts.values()] == [30, 10, 10]
        assert sorted(row.number for part in parts.values() for row in part) == [*range(50)]
        made.append({split: [row.texts for row in part] for split, part in parts.items()})
    assert made[0] == made[1] != made[2]


def test_the_published_sample_is_read(real_data):
    if not (real_data / "cail2019-scm").is_dir():
        pytest.skip("needs cail2019-scm below ROFORMER_TEST_DATA or data/")
    source = FileTriplets(FilesTriplets(path=str(real_data / "cail2019-scm")))
    assert [len(list(source.rows(split))) for split in source.splits] == [320, 80]
    assert {row.label for row in source.rows("train")} == {0}


# --- prepared ------------------------------------------------------------------------------------


@pytest.fixture
def prepared(tmp_path):
    rows = numbered(12, label="C")
    rows[3]["label"] = "B"
    given = folder(tmp_path, train_json=lines(*rows), dev_json=lines(*numbered(4)))
    return prepare(given, tmp_path / "cache")


def test_prepared_triplets_are_those_of_the_source(prepared, tmp_path):
    split = prepared.split("train")
    rows = FileTriplets(FilesTriplets(path=str(tmp_path))).rows("train")
    for number, row in enumerate(rows):
        for lists, text in zip(split.ids, row.texts, strict=True):
            assert lists[number].tolist() == TOKENIZER.encode(text)
    assert split.labels.tolist() == [1, 1, 1, 0, *[1] * 8]
    assert set(split.places.tolist()) == {-1}


def test_builtin_triplets_keep_where_their_evidence_stands(tmp_path):
    source = BuiltinTriplets(train_triplets=8, validation_triplets=40, test_triplets=8)
    prepared = prepare(source, tmp_path)
    split = prepared.split("validation")
    assert Counter(split.places.tolist()) == {0: 20, 1: 20}
    expected = [{"B": 0, "C": 1}[t.label] for t in case_triplets("validation", 40)]
    assert split.labels.tolist() == expected
    assert prepared.manifest["shared"] == {"validation": 0, "test": 0}


def test_fewer_training_triplets_are_drawn_once(tmp_path):
    rows = lines(*numbered(30))
    given = folder(tmp_path, train_json=rows, dev_json=rows)
    few = FilesTriplets(path=given.path, max_train_triplets=10, max_held_out_triplets=5)
    first, second = (prepare(few, tmp_path / cache) for cache in ("one", "two"))
    assert len(first.split("train")) == 10 and len(first.split("validation")) == 5
    assert first.split("train").index.tolist() == second.split("train").index.tolist()


# --- batches -------------------------------------------------------------------------------------


def inputs_of(prepared, max_length=64, **pair):
    return TripletInputs(prepared.split("train"), TOKENIZER, max_length, PairConfig(**pair))


def test_a_row_is_both_pairs_of_a_triplet(prepared):
    split, inputs = prepared.split("train"), inputs_of(prepared, token_types="segments")
    batch = inputs[[5, 3]]
    for row, number in enumerate((5, 3)):
        first = [TOKENIZER.cls_id, *split.ids[0][number], TOKENIZER.sep_id]
        for side, ids in enumerate((split.ids[1][number], split.ids[2][number])):
            pair = [*first, *ids, TOKENIZER.sep_id]
            assert batch["input_ids"][row, side, : len(pair)].tolist() == pair
            types = batch["token_type_ids"][row, side, : len(pair)].tolist()
            assert types == [0] * len(first) + [1] * (len(ids) + 1)
    assert batch["labels"].tolist() == [1, 0]
    assert "token_type_ids" not in inputs_of(prepared)[[0, 1]]


def test_of_a_longer_pair_the_longer_document_loses_its_end(tmp_path):
    rows = [{"A": " ".join("abcdefghij"), "B": "k l", "C": " ".join("mnopqrstuv")}]
    given = folder(tmp_path, train_json=lines(*rows), dev_json=lines(GOOD))
    inputs = inputs_of(prepare(given, tmp_path / "cache"), max_length=13)
    read = [TOKENIZER.decode(pair.tolist()) for pair in inputs[[0]]["input_ids"][0]]
    assert read == [
        "[CLS] a b c d e f g h [SEP] k l [SEP]",
        "[CLS] a b c d e [SEP] m n o p q [SEP]",
    ]
    assert inputs.too_long.tolist() == [True, True] and inputs.lengths.tolist() == [13]
