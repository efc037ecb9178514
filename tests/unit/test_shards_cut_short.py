"""Preparations of token shards that fail or are cut short, damage, and what is told of them."""

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from roformer.config.schema import FilesText, TokenizerConfig
from roformer.data import shards
from roformer.data.shards import TextShards, prepare_text
from roformer.errors import InputError
from tests.unit.small_corpus import TEXTS, corpus


def left_over(cache):
    return sorted(path.name for path in (cache / "text").iterdir() if path.name.count("."))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("bug"), InputError("bad")])
def test_a_preparation_that_fails_leaves_nothing(tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    config = corpus(tmp_path / "text")
    monkeypatch.setattr(shards, "_write_shards", fail)
    with pytest.raises(type(error)):
        prepare_text(config, tmp_path, progress=False)
    assert list((tmp_path / "text").glob("*")) == [tmp_path / "text" / "a.jsonl"]


def test_a_full_disk_cleans_up_and_names_the_way_out(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    config = corpus(tmp_path / "corpus")
    monkeypatch.setattr(shards, "_write_shards", full)
    with pytest.raises(OSError, match=r"disk is full.*runtime\.cache_dir") as caught:
        prepare_text(config, tmp_path / "cache", progress=False)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value.filename).startswith(str(tmp_path / "cache" / "text"))
    assert not list((tmp_path / "cache" / "text").iterdir())


HANG = """
import sys, time
from roformer.config.schema import FilesText, TokenizerConfig
from roformer.data import shards
def hang(*_, **__):
    print("building", flush=True)
    time.sleep(60)
shards._write_shards = hang
config = FilesText(path=sys.argv[1], tokenizer=TokenizerConfig(vocab_size=200))
shards.prepare_text(config, sys.argv[2], progress=False)
"""


def test_what_a_killed_process_left_goes_and_what_a_living_one_makes_stays(tmp_path):
    config, cache = corpus(tmp_path / "corpus"), tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-c", HANG, config.path, str(cache)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"building\n"
        (temporary,) = (cache / "text").glob("*.tmp")
        another = corpus(tmp_path / "another", TEXTS[:200])
        prepare_text(another, cache, progress=False)
        assert temporary.is_dir()  # its maker lives
    finally:
        process.kill()
        process.wait()
    prepare_text(config, cache, progress=False).verify()  # does not wait for the dead
    assert left_over(cache) == []


def damaged(tmp_path, name, change):
    prepared = prepare_text(corpus(tmp_path / "corpus"), tmp_path / "cache", progress=False)
    change(prepared.folder / name)
    return prepared.folder


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train_00000.bin", lambda f: os.truncate(f, 100), r"train_00000\.bin has 100 bytes, not"),
        ("valid_00000.bin", Path.unlink, r"valid_00000\.bin has 0 bytes, not .*: delete "),
        ("manifest.json", lambda f: os.truncate(f, 50), r"manifest\.json is damaged .*: delete "),
        ("manifest.json", Path.unlink, r"has no manifest\.json"),
        ("manifest.json", lambda f: f.write_text('{"format": 0}'), "has format 0, not 1: delete "),
        ("tokenizer/vocab.txt", Path.unlink, None),
        (
            "tokenizer/vocab.txt",
            lambda f: f.write_text(f.read_text() + "extra\n"),
            "tokenizer is not the one of the shards: delete ",
        ),
    ],
)
def test_damage_is_found_when_opening(tmp_path, name, change, message):
    folder = damaged(tmp_path, name, change)
    if message is None:
        assert TextShards.open(folder).tokenizer.size  # tokenizer.json says the same
        return
    with pytest.raises(InputError, match=message) as caught:
        TextShards.open(folder)
    assert str(folder) in str(caught.value)


def test_a_changed_byte_is_found_by_verify(tmp_path):
    def flip(file):
        data = bytearray(file.read_bytes())
        data[10] ^= 1
        file.write_bytes(data)

    folder = damaged(tmp_path, "train_00000.bin", flip)
    with pytest.raises(InputError, match=r"train_00000\.bin is not what was written.*delete"):
        TextShards.open(folder).verify()


def test_a_split_without_documents_is_refused(tmp_path):
    for texts, split in (([TEXTS[0]], "train|valid"), ([], "empty")):
        with pytest.raises(InputError, match=split):
            prepare_text(corpus(tmp_path / "corpus", texts), tmp_path / "cache", progress=False)
    config = corpus(tmp_path / "corpus", TEXTS[:20], valid_fraction=1e-9)
    with pytest.raises(
        InputError, match=r"valid_fraction=1e-09 puts none of 20 documents into val"
    ):
        prepare_text(config, tmp_path / "cache", progress=False)


def test_a_text_without_blank_lines_says_what_parts_documents(tmp_path):
    """And the way out that it names is one; texts of before that key keep their run ids."""
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in TEXTS[:50]))
    tokenizer = TokenizerConfig(vocab_size=200)
    config = FilesText(path=str(tmp_path / "corpus.txt"), tokenizer=tokenizer)
    with pytest.raises(InputError) as refused:
        prepare_text(config, tmp_path / "cache", progress=False)
    for told in (
        "1 document (from",
        "50 lines of .txt",
        "blank lines part",
        "document_separator=line_break",
    ):
        assert told in str(refused.value)
    lines = replace(config, document_separator="line_break")
    prepared = prepare_text(lines, tmp_path / "cache", progress=False)
    assert prepared.manifest["source"]["rows_read"] == 50


def test_progress_is_lines_where_there_is_no_terminal(tmp_path, capsys):
    prepare_text(corpus(tmp_path / "corpus"), tmp_path / "cache")
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in told] == [
        " reading",
        " training the tokenizer",
        " tokenising",
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
