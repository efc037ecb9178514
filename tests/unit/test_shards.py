"""Token shards: slices across borders, the split rule, and the cache that keeps them."""

import hashlib
import json
import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.config.schema import ChineseBuiltinText, FilesText, TokenizerConfig
from roformer.data import folders, shards
from roformer.data.shards import TokenStream, prepare_text
from roformer.data.tokenizers import SPECIAL_TOKENS
from roformer.data.toy.cases import case_documents
from tests.unit.small_corpus import TEXTS, corpus


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


# --- the stream ----------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_slice_across_shards_is_the_slice_of_their_concatenation(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("stream")
    dtype = data.draw(st.sampled_from(["<u2", "<u4"]))
    top = 2**16 if dtype == "<u2" else 2**32
    parts = data.draw(
        st.lists(st.lists(st.integers(0, top - 1), min_size=1, max_size=9), min_size=1, max_size=5)
    )
    files = [folder / f"{i}.bin" for i in range(len(parts))]
    for file, part in zip(files, parts, strict=True):
        file.write_bytes(np.array(part, dtype).tobytes())
    stream = TokenStream(files, [len(part) for part in parts], dtype)
    whole = np.concatenate([np.array(part, np.int64) for part in parts])
    border = st.none() | st.integers(-len(whole) - 2, len(whole) + 2)
    a, b = data.draw(border), data.draw(border)
    assert len(stream) == len(whole)
    assert stream[a:b].dtype == np.int64
    np.testing.assert_array_equal(stream[a:b], whole[a:b])


def test_a_stream_lends_copies_pickles_small_and_goes_forwards(prepared):
    stream = prepared.train
    first = stream[:5]
    first[:] = -1
    assert stream[:5].min() >= 0
    assert len(pickle.dumps(stream)) < 2000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(stream))[:], stream[:])
    with pytest.raises(ValueError, match="not in steps of 2"):
        stream[::2]


# --- what is prepared ----------------------------------------------------------------------------


def test_documents_are_their_pieces_and_sep_in_the_order_of_the_source(prepared):
    split = {"train": [], "valid": []}
    for text in TEXTS:
        share = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
        split["valid" if share < 0.2 else "train"].append(prepared.tokenizer.encode(text))
    for name, expected in split.items():
        assert [list(ids) for ids in documents(prepared, name)] == expected
        assert prepared.manifest["documents"][name] == len(expected)
    assert len(split["valid"]) in range(40, 80)


def test_the_manifest_accounts_for_everything(prepared):
    manifest = prepared.manifest
    assert manifest == json.loads((prepared.folder / "manifest.json").read_text())
    assert str(prepared.folder.parents[2]) not in json.dumps(manifest)
    assert sum(manifest["bytes"].values()) == sum(len(text.encode()) for text in TEXTS)
    assert manifest["tokens"] == {"train": len(prepared.train), "valid": len(prepared.valid)}
    assert manifest["source"]["files"][0]["file"] == "a.jsonl"
    assert manifest["tokenizer"]["fingerprint"] == prepared.tokenizer.fingerprint
    assert sorted(path.name for path in prepared.folder.iterdir()) == [
        "manifest.json",
        "tokenizer",
        "train_00000.bin",
        "valid_00000.bin",
    ]
    prepared.verify()


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
        "from roformer.data.shards import prepare_text\n"
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
    assert sum(again.manifest["documents"].values()) == len(TEXTS) + 1


def test_shards_are_cut_and_read_as_one(tmp_path, prepared, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_TOKENS", 1000)
    cut = prepare_text(corpus(tmp_path / "text"), tmp_path, progress=False)
    lengths = [shard["tokens"] for shard in cut.manifest["shards"]["train"]]
    assert len(lengths) > 3 and set(lengths[:-1]) == {1000} and 0 < lengths[-1] <= 1000
    np.testing.assert_array_equal(cut.train[:], prepared.train[:])
    np.testing.assert_array_equal(cut.valid[:], prepared.valid[:])
    cut.verify()


def test_a_large_vocabulary_takes_four_bytes(tmp_path):
    (file := tmp_path / "vocab.txt").write_text(
        "\n".join([*SPECIAL_TOKENS, *(f"w{i}" for i in range(2**16 - 5)), "document"])
    )
    config = corpus(tmp_path / "text", tokenizer=TokenizerConfig(source=str(file)))
    large = prepare_text(config, tmp_path, progress=False)
    assert large.manifest["dtype"] == "<u4"
    assert large.train[:].max() == 2**16
    assert (large.folder / "train_00000.bin").stat().st_size == 4 * len(large.train)


def test_the_real_corpus_is_prepared(real_data, tmp_path):
    vocabulary = str(real_data / "vocab" / "bert-base-uncased.txt")
    config = FilesText(
        path=str(real_data / "english" / "*.jsonl.gz"),
        tokenizer=TokenizerConfig(source=vocabulary),
        max_documents=60,
    )
    prepared = prepare_text(config, tmp_path, progress=False)
    assert sum(prepared.manifest["documents"].values()) == 60
    unknown = np.mean(prepared.train[:] == prepared.tokenizer.unk_id)
    assert unknown < 0.001
    assert prepared.tokenizer.decode(documents(prepared, "train")[0][:4]).isascii()


# --- the cache -----------------------------------------------------------------------------------


def test_complete_shards_are_opened_and_not_made_again(tmp_path, monkeypatch):
    config = corpus(tmp_path / "text")
    first = prepare_text(config, tmp_path / "cache", progress=False)
    monkeypatch.setattr(shards, "_build", None)
    again = prepare_text(config, tmp_path / "cache", progress=False, workers=2)
    assert again.folder == first.folder and again.fingerprint == first.fingerprint
    (tmp_path / "text").rename(tmp_path / "moved")
    moved = FilesText(path=str(tmp_path / "moved"), tokenizer=config.tokenizer)
    assert prepare_text(moved, tmp_path / "cache", progress=False).folder == first.folder


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
    keys = {shards._key(c, shards.open_documents(c)) for c in (base, config)}
    os.utime(file, ns=(1, 1))
    keys.add(shards._key(base, shards.open_documents(base)))
    assert len(keys) == 3


def test_a_local_vocabulary_is_known_by_its_content(tmp_path):
    keys = []
    for name, last in (("a", "x"), ("b", "x"), ("c", "y")):
        (file := tmp_path / name).write_text("\n".join([*SPECIAL_TOKENS, last]))
        config = corpus(tmp_path / "text", tokenizer=TokenizerConfig(source=str(file)))
        os.utime(tmp_path / "text" / "a.jsonl", ns=(1, 1))
        keys.append(shards._key(config, shards.open_documents(config)))
    assert keys[0] == keys[1] != keys[2]


def test_words_have_a_key_of_their_own(monkeypatch):
    """Another dictionary of words prepares the text anew."""

    class Source:
        def key(self):
            return {"files": []}

    def key(**options):
        tokenizer = TokenizerConfig(vocab_size=100, **options)
        return shards._key(FilesText(path="x", tokenizer=tokenizer), Source())

    assert key() == key(words="none")
    words = key(words="jieba")
    monkeypatch.setattr(shards, "segmenter", lambda: "rjieba 9.9.9")
    assert len({key(), words, key(words="jieba")}) == 3


def test_chinese_words_are_prepared_as_any_text(tmp_path):
    """The grammar's cases: the shards hold the words, and say what found them."""
    config = ChineseBuiltinText(
        documents=40, tokenizer=TokenizerConfig(vocab_size=600, words="jieba")
    )
    text = prepare_text(config, tmp_path, progress=False)
    manifest = text.manifest
    assert manifest["tokenizer"]["words"] == shards.segmenter() == "rjieba 0.2.2"
    assert manifest["source"]["kind"] == "chinese_builtin" and manifest["source"]["rows_read"] == 40
    assert text.tokenizer.words == "jieba"
    made = [text.tokenizer.encode(document) for document in case_documents(40, 0)]
    found = [list(ids) for split in ("train", "valid") for ids in documents(text, split)]
    assert sorted(found) == sorted(made)
    fewer = ChineseBuiltinText(documents=40, max_documents=30, tokenizer=config.tokenizer)
    other = ChineseBuiltinText(documents=40, documents_seed=1, tokenizer=config.tokenizer)
    opened = [shards.open_documents(one) for one in (config, fewer, other)]
    assert [len(list(source.documents())) for source in opened] == [40, 30, 40]
    keys = {shards._key(c, s) for c, s in zip((config, fewer, other), opened, strict=True)}
    assert len(keys) == 3


def test_documents_of_the_real_cases_are_read_by_their_field(tmp_path, real_data):
    """CAIL2019-SCM's rows have three texts: data.text_field names the one that is read."""
    tokenizer = TokenizerConfig(vocab_size=4000, words="jieba")
    path = str(real_data / "cail2019-scm" / "validation.jsonl.gz")
    text = prepare_text(
        FilesText(path=path, text_field="B", tokenizer=tokenizer), tmp_path, progress=False
    )
    assert text.manifest["source"]["rows_read"] == 80
    assert text.tokenizer.encode("原告诉称")[0] != text.tokenizer.unk_id


# --- at once -------------------------------------------------------------------------------------


def _prepare(path, cache):
    config = FilesText(path=path, tokenizer=TokenizerConfig(vocab_size=200))
    return prepare_text(config, cache, progress=False).fingerprint


def test_two_processes_at_once_make_one_corpus(tmp_path, prepared):
    config = corpus(tmp_path / "corpus")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(_prepare, [(config.path, str(tmp_path / "cache"))] * 2, chunksize=1)
    assert found == [prepared.fingerprint] * 2
    assert len(list((tmp_path / "cache" / "text").iterdir())) == 1


def test_the_loser_of_the_rename_takes_what_the_winner_made(tmp_path):
    (folder := tmp_path / "key").mkdir()
    (folder / "winner").touch()
    with folders.temporary_beside(folder) as temporary:
        (temporary / "loser").touch()
        folders.publish(temporary, folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["key", "winner"]
