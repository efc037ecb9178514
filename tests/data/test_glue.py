"""GLUE tasks from the Hub, grammars and files: the same rows, prepared in the same way."""

import json
from dataclasses import replace
from types import SimpleNamespace

import datasets
import numpy as np
import pytest

from roformer.config.glue import BuiltinGlue
from roformer.data import examples as glue
from roformer.data.examples import read_examples
from roformer.data.store import read_table
from roformer.data.tokenizers import WordPiece
from roformer.data.toy import glue as grammars
from roformer.errors import InputError
from tests.data.glue_tasks import (
    COMMIT,
    GOOD,
    HUB,
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

# --- the Hub -------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the Hub's RTE; returns its table and the calls that were made."""

    stand_in = SimpleNamespace(
        tables={
            split: {
                "sentence1": [a for a, _, _ in examples],
                "sentence2": [b for _, b, _ in examples],
                "label": [label for _, _, label in examples],
                "idx": list(range(len(examples))),
            }
            for split, examples in PAIRS.items()
        },
        features=datasets.Features(
            sentence1=datasets.Value("string"),
            sentence2=datasets.Value("string"),
            label=datasets.ClassLabel(names=["entailment", "not_entailment"]),
            idx=datasets.Value("int32"),
        ),
        calls=[],
    )

    def load_dataset(path, name=None, *, revision=None, split=None):
        stand_in.calls.append((path, name, revision, split))
        return datasets.Dataset.from_dict(stand_in.tables[split], features=stand_in.features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return stand_in


def test_the_hub_is_read_by_name_revision_and_split(hub, tmp_path):
    prepared = prepare("rte", HUB, tmp_path)
    assert hub.calls == [
        ("nyu-mll/glue", "rte", COMMIT, "train"),
        ("nyu-mll/glue", "rte", COMMIT, "validation"),
    ]
    assert prepared.manifest["source"] == {
        "kind": "hub",
        "path": "nyu-mll/glue",
        "revision": COMMIT,
        "rows": {"train": 3, "validation": 1},
    }
    assert rows("rte", HUB) == [(i, *row) for i, row in enumerate(PAIRS["train"])]


@pytest.mark.parametrize(
    "names", [["not_entailment", "entailment"], ["entailment", "other"], ["e"]]
)
def test_labels_in_another_order_than_the_hubs_are_refused(hub, names):
    task = replace(TASKS["rte"], labels=names if len(names) > 1 else [*names, "x", "y"])
    with pytest.raises(InputError) as caught:
        read_examples("rte", task, HUB, "train")
    message = str(caught.value)
    assert "numbers its labels ['entailment', 'not_entailment']" in message
    assert f"task.rte.labels={task.labels}" in message and "\n" not in message


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("label", -1, "label -1 is none of entailment, not_entailment"),
        ("label", None, "label None is none of entailment, not_entailment"),
        ("sentence2", None, "a text is null"),
    ],
)
def test_a_bad_row_of_the_hub_is_named(hub, column, value, problem):
    changed = [*hub.tables["train"][column][:2], value]
    hub.tables["train"] = hub.tables["train"] | {column: changed, "idx": [5, 6, 7]}
    with pytest.raises(InputError) as caught:
        rows("rte", HUB)
    assert str(caught.value).startswith(f"nyu-mll/glue (rte, train), row with idx=7: {problem}")


def test_a_missing_hub_column_lists_those_there(hub):
    with pytest.raises(InputError) as caught:
        rows("qnli", HUB)
    assert str(caught.value).startswith(
        "nyu-mll/glue (qnli, train) has no column 'question', but sentence1, sentence2, label, idx: "
        "set task.qnli.texts"
    )


def test_scores_of_the_hub_are_the_decimals_of_the_files(tmp_path, hub):
    hub.features = datasets.Features(hub.features | {"label": datasets.Value("float32")})
    for split in ("train", "validation"):
        scores = [3.8, 4.2, 0.333][: len(PAIRS[split])]
        hub.tables[split] = hub.tables[split] | {"label": scores}
    files = {
        file: STSB
        + "".join(
            f"{i}\t{a}\t{b}\t{score:.3f}\n"
            for i, ((a, b, _), score) in enumerate(
                zip(PAIRS[split], hub.tables[split]["label"], strict=True)
            )
        )
        for file, split in (("train", "train"), ("dev", "validation"))
    }
    data = write(tmp_path, "stsb", **files)
    assert [score for *_, score in rows("stsb", HUB)] == [3.8, 4.2, 0.333]
    assert rows("stsb", HUB) == rows("stsb", data)
    one, other = (prepare("stsb", source, tmp_path / "cache") for source in (HUB, data))
    assert one.folder != other.folder and one.fingerprint == other.fingerprint
    labels = one.split("train").labels
    assert labels.dtype == np.float32 and labels.tolist() == np.float32([3.8, 4.2, 0.333]).tolist()
    assert one.manifest["label_counts"] is None


# --- grammars ------------------------------------------------------------------------------------


def test_built_in_tasks_fit_their_yaml(tmp_path):
    data = BuiltinGlue(train_examples=48, validation_examples=24)
    for name in ("mrpc", "stsb", "mnli"):
        prepared = prepare(name, data, tmp_path)
        validation = (
            ["validation"] if name != "mnli" else [f"validation_{p}" for p in TASKS[name].parts]
        )
        assert prepared.splits == ["train", *validation]
        assert prepared.manifest["rows"] == {"train": 48, **dict.fromkeys(validation, 24)}
        assert prepared.manifest["source"]["kind"] == "builtin"
        made = grammars.builtin_examples(name, "train", 48)
        labels = prepared.split("train").labels
        if name == "stsb":
            assert labels.tolist() == np.float32([example.label for example in made]).tolist()
        else:
            assert [TASKS[name].labels[n] for n in labels] == [example.label for example in made]
    with pytest.raises(InputError, match="cola"):
        prepare("cola", data, tmp_path)


def test_a_grammar_with_other_labels_than_the_task_is_refused():
    task = replace(TASKS["mrpc"], labels=["different", "same"])
    with pytest.raises(InputError, match=r"built-in mrpc does not fit task\.mrpc: label '.*equiv"):
        read_examples("mrpc", task, BuiltinGlue(train_examples=48), "train")


def test_built_in_tasks_have_no_test_split():
    with pytest.raises(InputError, match="built-in mrpc has no test split: take data=hub or"):
        glue.test_rows("mrpc", TASKS["mrpc"], BuiltinGlue(), None)


# --- the same from all ---------------------------------------------------------------------------


def test_all_three_sources_give_the_same_rows_and_columns(hub, tmp_path, monkeypatch):
    made = [grammars.Example(a, b, TASKS["rte"].labels[n]) for a, b, n in PAIRS["train"]]
    monkeypatch.setattr("roformer.data.sources.examples.builtin_examples", lambda *_: made)
    sources = (as_files(tmp_path), HUB, BuiltinGlue())
    assert rows("rte", sources[0]) == rows("rte", sources[1]) == rows("rte", sources[2])
    schemas = [
        read_table(prepare("rte", source, tmp_path / "cache").folder / file).schema
        for source in sources
        for file in ("train.arrow", "validation.arrow")
    ]
    expected = {"index": "int64", "place": "int64", "label": "int64"}
    expected |= dict.fromkeys(("ids_a", "ids_b"), "large_list<item: int32>")
    for schema in schemas:
        assert {field.name: str(field.type) for field in schema} == expected


def test_tokens_are_those_of_the_texts_without_special_ones_and_uncut(tmp_path):
    long = "word " * 700
    body = f"0\tone\t{long}\tentailment\n1\t\t[SEP] two\tentailment\n2\tx\ty\tnot_entailment\n"
    data = write(tmp_path, "rte", train=RTE + body, dev=RTE + GOOD)
    split = prepare("rte", data, tmp_path / "cache").split("train")
    assert len(split) == 3
    texts = [("one", long), ("", "[SEP] two"), ("x", "y")]
    assert [ids.tolist() for ids in split.ids[0]] == [TOKENIZER.encode(a) for a, _ in texts]
    assert [ids.tolist() for ids in split.ids[1]] == [TOKENIZER.encode(b) for _, b in texts]
    assert {ids.dtype for ids in (*split.ids[0], *split.ids[1])} == {np.dtype("int32")}
    assert (split.index.dtype, split.labels.dtype) == (np.int64, np.int64)
    assert TOKENIZER.sep_id not in split.ids[1][1] and len(split.ids[1][0]) == 4 * 700


# --- the test split ------------------------------------------------------------------------------


def test_labels_of_the_hubs_test_split_are_never_read(hub):
    assert glue.test_rows("rte", TASKS["rte"], HUB, None) == [(0, "seven", "eight")]
    hub.features = datasets.Features({k: v for k, v in hub.features.items() if k != "label"})
    hub.tables["test"] = {k: v for k, v in hub.tables["test"].items() if k != "label"}
    assert glue.test_rows("rte", TASKS["rte"], HUB, None) == [(0, "seven", "eight")]


# --- the cache -----------------------------------------------------------------------------------


def test_what_decides_the_content_decides_the_folder_and_the_place_does_not(tmp_path):
    data = as_files(tmp_path / "here")
    cache = tmp_path / "cache"
    first = prepare("rte", data, cache)
    assert str(tmp_path) not in json.dumps(first.manifest)
    moved = as_files(tmp_path / "there")
    assert prepare("rte", moved, cache).folder == first.folder
    cased = WordPiece(TOKENIZER.vocabulary, False)
    others = [
        prepare("rte", data, cache, cased),
        prepare("rte", replace(data, max_train_examples=2), cache),
        prepare(
            "rte",
            data,
            cache,
            task=replace(TASKS["rte"], labels=["entailment", "x", "not_entailment"]),
        ),
    ]
    file = tmp_path / "there" / "RTE" / "dev.tsv"
    file.write_text(file.read_text().replace("five", "nine"))
    others.append(prepare("rte", moved, cache))
    assert len({first.folder, *(other.folder for other in others)}) == 5
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 5
