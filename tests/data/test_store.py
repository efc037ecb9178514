"""Prepared data of every kind: made once, complete or not at all, and found again by its content."""

import errno
import json
import multiprocessing
import os
import pickle
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.data import store
from roformer.data.store import (
    Builder,
    Prepared,
    RaggedTokens,
    SplitWriter,
    TokenStream,
    TokenWriter,
    publish,
)
from roformer.errors import InputError
from tests.data.prepared import MAKE, content, make
from tests.property.hostile import fuzz

# --- columns -------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.lists(st.integers(0, 2**31 - 1)), st.text()))))
@fuzz(20)
def test_rows_written_in_any_batches_are_read_back(tmp_path_factory, batches):
    folder = tmp_path_factory.mktemp("split")
    writer = SplitWriter(folder / "train", {"ids": np.int32})
    for rows in batches:
        writer.append(ids=[ids for ids, _ in rows], text=[text for _, text in rows])
    writer.close()
    rows = [row for batch in batches for row in batch]
    wanted = [ids for ids, _ in rows]
    for lists in (RaggedTokens.open(folder / "train.ids"), RaggedTokens.of(wanted)):
        assert [ids.tolist() for ids in lists] == wanted
        assert lists.lengths.tolist() == [len(ids) for ids in wanted]
        with pytest.raises(IndexError):
            lists[len(wanted)]
    assert writer.rows == len(rows) and writer.tokens == sum(map(len, wanted))
    if batches:
        texts = json.loads((folder / "train.json").read_text(encoding="utf-8"))
        assert texts == {"text": [text for _, text in rows]}


def test_mapped_tokens_pickle_as_a_file_name_and_return_copies(tmp_path):
    writer = TokenWriter(tmp_path / "ids", np.int32)
    writer.append([[1, 2, 3]] * 10_000)
    writer.close()
    stream = TokenStream(RaggedTokens.open(tmp_path / "ids"))
    assert len(pickle.dumps(stream)) < 1000
    assert pickle.loads(pickle.dumps(stream)).lists[9_999].tolist() == [1, 2, 3]
    stream[:5][:] = -1
    stream.lists[0][:] = -1
    assert stream[:3].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("rows", "tokenizer", "same"),
    [
        (([7, 8], [[1], [2, 3]], [0, 1]), "t", True),  # another place in the source
        (([0, 1], [[1, 2], [3]], [0, 1]), "t", False),  # other borders
        (([0, 1], [[1], [2, 4]], [0, 1]), "t", False),
        (([0, 1], [[1], [2, 3]], [1, 1]), "t", False),
        (([0, 1], [[1], [2, 3]], [0, 1]), "u", False),
    ],
)
def test_the_fingerprint_is_that_of_the_content(tmp_path, rows, tokenizer, same):
    def fingerprint(rows, tokenizer):
        builder = Builder(tmp_path)
        builder.split("train", ids=np.int32).append(index=rows[0], ids=rows[1], label=rows[2])
        builder.finish("glue", {"tokenizer": {"fingerprint": tokenizer}})
        return Prepared(tmp_path).fingerprint

    first = fingerprint(([0, 1], [[1], [2, 3]], [0, 1]), "t")
    assert (fingerprint(rows, tokenizer) == first) == same


# --- once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKE)
def test_what_is_prepared_is_only_read_wherever_its_source_is(kind, tmp_path, monkeypatch):
    """Also on a disk that cannot be written to: no lock is taken."""
    first = make(kind, tmp_path)
    whole = content(first)
    monkeypatch.setattr(Builder, "finish", None)
    monkeypatch.setattr(store, "_locked", None)
    assert content(make(kind, tmp_path)) == whole
    shutil.copytree(tmp_path / "source", tmp_path / "moved", copy_function=shutil.copyfile)
    assert MAKE[kind](tmp_path / "moved", tmp_path / "cache").folder == first.folder
    assert str(tmp_path) not in json.dumps(first.manifest)


@pytest.mark.parametrize(
    ("kind", "name", "old", "new"),
    [
        ("text", "rows.jsonl", b"Document 7", b"Document 8"),
        ("bytes", "a.txt", b"\x00\x01", b"\x00\x02"),
        ("wmt", "test.de", b"Halt", b"Hilt"),
        ("glue", "RTE/train.tsv", b"three", b"seven"),
        ("scm", "train.json", b"a b", b"a c"),
    ],
)
def test_a_changed_source_is_prepared_anew(tmp_path, kind, name, old, new):
    """Also where its size and its time are the same, as archives that set all times to one leave them."""
    first = make(kind, tmp_path)
    file = tmp_path / "source" / name
    before = file.stat()
    file.write_bytes(file.read_bytes().replace(old, new))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    other = make(kind, tmp_path)
    assert other.folder != first.folder and other.fingerprint != first.fingerprint


# --- whole or not at all -------------------------------------------------------------------------


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_a_preparation_that_fails_leaves_nothing(tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SplitWriter, "append", fail)
        with pytest.raises(type(error)) as caught:
            make("text", tmp_path)
    if isinstance(error, OSError):  # a full disk names its folder
        assert caught.value.filename.startswith(str(tmp_path / "cache" / "text"))
    assert names(tmp_path / "cache" / "text") == []
    assert make("text", tmp_path).folder.is_dir()


def test_of_several_at_once_one_makes_and_the_others_wait(tmp_path, capsys):
    (folder := tmp_path / "made").with_name("made.tmp").mkdir()
    (tmp_path / "made.tmp" / "half").touch()  # of a process that was killed

    def make(made):
        time.sleep(0.2)
        (made / "whole").touch()

    several = [threading.Thread(target=publish, args=(folder, make, True)) for _ in range(3)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert names(tmp_path) == ["made"] and names(folder) == ["whole"]
    assert capsys.readouterr().err == f"waiting: another process is making {folder}\n" * 2


def test_a_worker_that_imports_an_unguarded_script_does_not_wait_for_its_parent(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(InputError, match=r'under `if __name__ == "__main__":`$'):
        publish(tmp_path / "made", Path.mkdir, False)
