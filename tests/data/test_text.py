"""A corpus as tokens: the split rule, what is kept of documents, and what decides the folder."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from roformer.config.schema import ChineseBuiltinText, FilesText, TokenizerConfig
from roformer.data import text as corpora
from roformer.data.sources.documents import open_documents
from roformer.data.store import read_table
from roformer.data.text import prepare_text, text_identity
from roformer.data.tokenizers import SPECIAL_TOKENS
from roformer.data.toy.cases import case_documents
from roformer.errors import InputError
from tests.data.small_corpus import TEXTS, corpus


def identity(config):
    return json.dumps(text_identity(config, open_documents(config)), sort_keys=True)


def documents(prepared, split):
    """The documents of a split as their token lists, [SEP] left out."""
    stream = getattr(prepared, split)[:]
    ends = np.flatnonzero(stream == prepared.tokenizer.sep_id)
    assert len(stream) and ends[-1] == len(stream) - 1
    return [part[1:] if i else part for i, part in enumerate(np.split(stream, ends)[:-1])]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return prepare_text(corpus(folder / "text"), folder / "cache", progress=False)


# --- what is prepared ----------------------------------------------------------------------------


def test_documents_are_their_pieces_and_sep_in_the_order_of_the_source(prepared):
    split = {"train": [], "valid": []}
    for text in TEXTS:
        share = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
        split["valid" if share < 0.2 else "train"].append(prepared.tokenizer.encode(text))
    for name, expected in split.items():
        assert [list(ids) for ids in documents(prepared, name)] == expected
        assert prepared.manifest["rows"][name] == len(expected)
    assert len(split["valid"]) in range(40, 80)


def test_the_tokenizer_learns_from_train_alone(tmp_path):
    def held_out(text):
        return hashlib.sha256(text.encode()).digest()[0] < 0.2 * 256 - 1

    texts = [text.replace("so.", "☃☃☃" if held_out(text) else "so.") for text in TEXTS]
    texts = [text for text in texts if held_out(text) == ("☃" in text)]
    assert sum("☃" in text for text in texts) > 5
    prepared = prepare_text(corpus(tmp_path / "text", texts), tmp_path, progress=False)
    assert prepared.tokenizer.unk_id in prepared.valid[:]
    assert not any("☃" in entry for entry in prepared.tokenizer.vocabulary)


def test_order_and_neighbours_do_not_move_a_document_to_the_other_split(tmp_path, prepared):
    vocabulary = str(prepared.folder / "tokenizer")
    options = {"tokenizer": TokenizerConfig(source=vocabulary)}
    one = prepare_text(corpus(tmp_path / "a", TEXTS[::-1], **options), tmp_path, progress=False)
    few = prepare_text(corpus(tmp_path / "b", TEXTS[:99], **options), tmp_path, progress=False)
    for split in ("train", "valid"):
        whole = {tuple(ids) for ids in documents(prepared, split)}
        assert {tuple(ids) for ids in documents(one, split)} == whole
        assert {tuple(ids) for ids in documents(few, split)} < whole
    assert one.fingerprint != prepared.fingerprint


def test_workers_place_and_repetition_do_not_change_the_fingerprint(tmp_path, prepared):
    code = (
        "import sys\n"
        "from roformer.config.schema import FilesText, TokenizerConfig\n"
        "from roformer.data.text import prepare_text\n"
        "config = FilesText(path=sys.argv[1], tokenizer=TokenizerConfig(vocab_size=200))\n"
        "print(prepare_text(config, sys.argv[2], workers=3, progress=False).fingerprint)\n"
    )
    corpus(tmp_path / "elsewhere")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "elsewhere"), str(tmp_path / "cache")],
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == prepared.fingerprint


def test_exact_duplicates_are_dropped_and_counted(tmp_path, prepared):
    texts = [*TEXTS, *TEXTS[:7], TEXTS[0] + " "]
    again = prepare_text(corpus(tmp_path / "text", texts), tmp_path, progress=False)
    assert again.manifest["duplicates_dropped"] == 7
    assert sum(again.manifest["rows"].values()) == len(TEXTS) + 1


def test_a_large_vocabulary_takes_four_bytes(tmp_path, prepared):
    (file := tmp_path / "vocab.txt").write_text(
        "\n".join([*SPECIAL_TOKENS, *(f"w{i}" for i in range(2**16 - 5)), "document"])
    )
    config = corpus(tmp_path / "text", tokenizer=TokenizerConfig(source=str(file)))
    large = prepare_text(config, tmp_path, progress=False)
    assert large.train[:].max() == 2**16
    types = [
        str(read_table(of.folder / "train.arrow").schema.field("ids").type)
        for of in (large, prepared)
    ]
    assert types == ["large_list<item: uint32>", "large_list<item: uint16>"]


# --- the cache -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"valid_fraction": 0.3},
        {"max_documents": 100},
        {"tokenizer": TokenizerConfig(vocab_size=150)},
        {"tokenizer": TokenizerConfig(vocab_size=200, lowercase=False)},
    ],
)
def test_what_decides_the_content_decides_the_folder(tmp_path, prepared, options):
    config = corpus(tmp_path / "text", **options)
    file = tmp_path / "text" / "a.jsonl"
    base = FilesText(path=config.path, tokenizer=TokenizerConfig(vocab_size=200))
    keys = {identity(c) for c in (base, config)}
    os.utime(file, ns=(1, 1))
    keys.add(identity(base))
    assert len(keys) == 3


def test_a_local_vocabulary_is_known_by_its_content(tmp_path):
    keys = []
    for name, last in (("a", "x"), ("b", "x"), ("c", "y")):
        (file := tmp_path / name).write_text("\n".join([*SPECIAL_TOKENS, last]))
        config = corpus(tmp_path / "text", tokenizer=TokenizerConfig(source=str(file)))
        os.utime(tmp_path / "text" / "a.jsonl", ns=(1, 1))
        keys.append(identity(config))
    assert keys[0] == keys[1] != keys[2]


def test_chinese_words_are_prepared_as_any_text(tmp_path):
    """The grammar's cases: the shards hold the words, and say what found them."""
    config = ChineseBuiltinText(
        documents=40, tokenizer=TokenizerConfig(vocab_size=600, words="jieba")
    )
    text = prepare_text(config, tmp_path, progress=False)
    manifest = text.manifest
    assert manifest["tokenizer"]["words"] == corpora.segmenter() == "rjieba 0.2.2"
    assert manifest["source"]["kind"] == "chinese_builtin" and manifest["source"]["rows_read"] == 40
    assert text.tokenizer.words == "jieba"
    made = [text.tokenizer.encode(document) for document in case_documents(40, 0)]
    found = [list(ids) for split in ("train", "valid") for ids in documents(text, split)]
    assert sorted(found) == sorted(made)
    fewer = ChineseBuiltinText(documents=40, max_documents=30, tokenizer=config.tokenizer)
    other = ChineseBuiltinText(documents=40, documents_seed=1, tokenizer=config.tokenizer)
    few = prepare_text(fewer, tmp_path, progress=False)
    assert few.manifest["source"]["rows_read"] == sum(few.manifest["rows"].values()) == 30
    keys = {identity(c) for c in (config, fewer, other)}
    assert len(keys) == 3


def test_another_dictionary_cuts_other_words(monkeypatch, tmp_path):
    """What was prepared with it is prepared anew; what is not cut into words is not."""
    plain, words = (
        corpus(tmp_path / "text", tokenizer=TokenizerConfig(vocab_size=100, words=words))
        for words in ("none", "jieba")
    )
    before = identity(plain), identity(words)
    monkeypatch.setattr(corpora, "segmenter", lambda: "rjieba 9.9.9")
    assert identity(plain) == before[0] and identity(words) not in before


# --- what is told --------------------------------------------------------------------------------


def test_a_split_without_documents_is_refused(tmp_path):
    for texts, split in (([TEXTS[0]], "train|valid"), ([], "empty")):
        with pytest.raises(InputError, match=split):
            prepare_text(corpus(tmp_path / "corpus", texts), tmp_path / "cache", progress=False)
    config = corpus(tmp_path / "corpus", TEXTS[:20], valid_fraction=1e-9)
    with pytest.raises(
        InputError, match=r"valid_fraction=1e-09 puts none of 20 documents into val"
    ):
        prepare_text(config, tmp_path / "cache", progress=False)


def test_progress_is_lines_where_there_is_no_terminal(tmp_path, capsys):
    prepare_text(corpus(tmp_path / "corpus"), tmp_path / "cache")
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in told] == [
        " reading",
        " training the tokenizer",
        " tokenizing",
    ]
    prepare_text(corpus(tmp_path / "quiet", TEXTS[:99]), tmp_path / "cache", progress=False)
    assert capsys.readouterr().err == ""


def test_skipped_rows_are_told_even_when_quiet(tmp_path, capsys):
    config = corpus(tmp_path / "corpus", max_bad_rows=1)
    with open(tmp_path / "corpus" / "a.jsonl", "a") as stream:
        stream.write("not JSON\n")
    prepared = prepare_text(config, tmp_path / "cache", progress=False)
    assert "1 bad rows skipped (the first: " in capsys.readouterr().err
    assert prepared.manifest["source"]["rows_skipped"] == 1


def test_a_text_without_blank_lines_says_what_separates_documents(tmp_path):
    """And the remedy that it names is one."""
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in TEXTS[:50]))
    tokenizer = TokenizerConfig(vocab_size=200)
    config = FilesText(path=str(tmp_path / "corpus.txt"), tokenizer=tokenizer)
    with pytest.raises(InputError) as refused:
        prepare_text(config, tmp_path / "cache", progress=False)
    for told in ("1 document (", "blank lines part", "document_separator=line_break"):
        assert told in str(refused.value)
    lines = replace(config, document_separator="line_break")
    prepared = prepare_text(lines, tmp_path / "cache", progress=False)
    assert prepared.manifest["source"]["rows_read"] == 50
