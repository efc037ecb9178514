"""A corpus as tokens: the split rule, what is kept of documents, and what decides the folder."""

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from roformer.config.schema import ChineseBuiltinText, FilesText, TokenizerConfig
from roformer.data import text as corpora
from roformer.data import work
from roformer.data.text import open_documents, prepare_text, text_identity
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from roformer.data.toy.cases import case_documents
from roformer.errors import InputError
from tests.data.small_corpus import TEXTS, corpus


def identity(config):
    return json.dumps(text_identity(config, open_documents(config)), sort_keys=True)


def documents(prepared, split):
    """The documents of a split as their token lists, without [SEP]."""
    lists = [ids.tolist() for ids in getattr(prepared, split).lists]
    assert {ids.pop() for ids in lists} == {prepared.tokenizer.sep_id}
    return lists


def held_out(text, fraction=0.2):
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < fraction


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return prepare_text(corpus(folder / "text"), folder / "cache", progress=False)


def test_documents_are_their_pieces_and_sep_in_the_order_of_the_source(prepared):
    for name, wanted in (("train", False), ("valid", True)):
        texts = [text for text in TEXTS if held_out(text) == wanted]
        assert documents(prepared, name) == [prepared.tokenizer.encode(text) for text in texts]
        assert prepared.manifest["rows"][name] == len(texts) >= 40


def test_the_tokenizer_learns_from_train_alone(tmp_path):
    texts = [text.replace("so.", "☃☃☃" if held_out(text) else "so.") for text in TEXTS]
    texts = [text for text in texts if held_out(text) == ("☃" in text)]
    assert sum("☃" in text for text in texts) > 5
    prepared = prepare_text(corpus(tmp_path / "text", texts), tmp_path, progress=False)
    assert prepared.tokenizer.unk_id in prepared.valid[:]
    assert not any("☃" in entry for entry in prepared.tokenizer.vocabulary)


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


def test_a_large_vocabulary_takes_four_bytes(tmp_path, prepared):
    words = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(2**16 - 5)), "document"]
    config = corpus(tmp_path / "text", [f"document w{i}" for i in range(99)])
    large = prepare_text(config, tmp_path, tokenizer=WordPiece.bert(words, True), progress=False)
    assert large.train[:].max() == 2**16
    assert large.train.lists.tokens.dtype == np.uint32
    assert prepared.train.lists.tokens.dtype == np.uint16


def test_chinese_words_are_prepared_as_any_text(tmp_path):
    """The grammar's cases: the tokens are of words, and the manifest says what found them."""
    tokenizer = TokenizerConfig(vocab_size=600, words="jieba")
    config = ChineseBuiltinText(documents=40, tokenizer=tokenizer)
    text = prepare_text(config, tmp_path, progress=False)
    assert text.manifest["tokenizer"]["words"] == corpora.segmenter() == "rjieba 0.2.2"
    assert text.manifest["source"]["kind"] == "chinese_builtin"
    assert text.manifest["source"]["rows_read"] == 40
    made = [text.tokenizer.encode(document) for document in case_documents(40, 0)]
    assert sorted(documents(text, "train") + documents(text, "valid")) == sorted(made)
    few = prepare_text(replace(config, max_documents=30), tmp_path, progress=False)
    assert few.manifest["source"]["rows_read"] == sum(few.manifest["rows"].values()) == 30
    assert identity(replace(config, documents_seed=1)) != identity(config)


# --- the cache -----------------------------------------------------------------------------------


def test_another_dictionary_cuts_other_words(monkeypatch, tmp_path):
    """Text that was cut with it is prepared again; text that is not cut into words is not."""
    plain, words = (
        corpus(tmp_path, tokenizer=TokenizerConfig(vocab_size=100, words=words))
        for words in ("none", "jieba")
    )
    before = identity(plain), identity(words)
    monkeypatch.setattr(corpora, "segmenter", lambda: "rjieba 9.9.9")
    assert identity(plain) == before[0] and identity(words) not in before


# --- error messages ------------------------------------------------------------------------------


def test_a_text_without_blank_lines_says_what_separates_documents(tmp_path):
    """And the remedy that it names is one."""
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in TEXTS[:50]))
    tokenizer = TokenizerConfig(vocab_size=200)
    config = FilesText(path=str(tmp_path / "corpus.txt"), tokenizer=tokenizer)
    told = r"none of 1 documents .*blank lines part.*document_separator=line_break"
    with pytest.raises(InputError, match=told):
        prepare_text(config, tmp_path / "cache", progress=False)
    lines = replace(config, document_separator="line_break")
    prepared = prepare_text(lines, tmp_path / "cache", progress=False)
    assert prepared.manifest["source"]["rows_read"] == 50


@pytest.mark.parametrize("known", [0.4, 0.6, 0.99])
def test_a_vocabulary_that_does_not_fit_is_a_warning_or_an_error(tmp_path, capsys, known):
    """Words of another language are [UNK]."""
    words = ["word" if place < known * 100 else "词" for place in range(100)]
    texts = [
        " ".join([*words, f"{i:08b}".replace("0", "a ").replace("1", "b ")]) for i in range(99)
    ]
    (file := tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "word", "a", "b"]))
    config = corpus(tmp_path / "text", texts, tokenizer=TokenizerConfig(source=str(file)))
    share = (100 - 100 * known) / 108
    problem = (
        f"text: {share:.1%} of the tokens are [UNK], because the vocabulary does not have them"
    )
    if share > 0.5:
        with pytest.raises(InputError, match="^" + re.escape(problem) + ".*data.tokenizer.source"):
            prepare_text(config, tmp_path / "cache", progress=False)
        return
    prepared = prepare_text(config, tmp_path / "cache", progress=False)
    assert prepared.manifest["unknown_share"] == pytest.approx(share)
    assert capsys.readouterr().err.startswith(f"warning: {problem}" if share > 0.02 else "")
    assert f" {share:.2%} of the tokens [UNK]: " in prepared.summary


def test_the_summary_counts_documents_and_says_where_the_reading_ended(tmp_path):
    texts = [*TEXTS, *TEXTS[:7]]
    for limit in (None, 305):
        config = corpus(tmp_path / "text", texts, max_documents=limit)
        prepared = prepare_text(config, tmp_path / "cache", progress=False)
        count = {"train": len(prepared.train), "valid": len(prepared.valid)}
        reached = "" if limit is None else f"; data.max_documents={limit} reached"
        assert prepared.summary == (
            f"text: {limit or 307} documents ({max(0, (limit or 307) - 300)} duplicates dropped{reached}), "
            f"{count['train']:,} training and {count['valid']:,} validation tokens, vocabulary "
            f"{prepared.tokenizer.size}, {prepared.manifest['unknown_share']:.2%} of the tokens [UNK]: "
            f"{prepared.folder}"
        )


def test_progress_is_shown_and_skipped_rows_are_told_even_when_it_is_not(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(work, "EVERY", 1e-9)
    config = corpus(tmp_path / "corpus", max_bad_rows=1)
    prepare_text(config, tmp_path / "cache")
    told = capsys.readouterr().err
    for place in ("text: reading: 300 documents", "training the tokenizer: 200", "tokenizing: 1"):
        assert place in told
    with open(tmp_path / "corpus" / "a.jsonl", "a") as stream:
        stream.write("not JSON\n")
    prepared = prepare_text(config, tmp_path / "cache", progress=False)
    told = capsys.readouterr().err
    assert told.startswith("text: 1 bad rows skipped (the first: ") and told.count("\n") == 1
    assert prepared.manifest["source"]["rows_skipped"] == 1
