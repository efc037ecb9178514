"""Prepared data of every kind: made once, complete or not at all, and checked when opened."""

import errno
import json
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import xxhash
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
from tests.conftest import REPOSITORY
from tests.data.prepared import MAKE, content, make
from tests.property.hostile import fuzz

# --- columns -------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.lists(st.integers(0, 2**31 - 1)), st.text()))))
@fuzz(60)
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
        assert lists.tokens.tolist() == [token for ids in wanted for token in ids]
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
    assert not stream.lists.tokens.flags.owndata  # mapped from the file


@pytest.mark.parametrize(
    ("batches", "tokenizer", "same"),
    [
        ([([7, 8], [[1], [2, 3]], [0, 1])], "t", True),  # another place in the source
        ([([0], [[1]], [0]), ([1], [[2, 3]], [1])], "t", True),
        ([([0, 1], [[1, 2], [3]], [0, 1])], "t", False),  # other borders
        ([([0, 1], [[1], [2, 4]], [0, 1])], "t", False),
        ([([0, 1], [[1], [2, 3]], [1, 1])], "t", False),
        ([([0, 1], [[1], [2, 3]], [0, 1])], "u", False),
    ],
)
def test_the_fingerprint_is_that_of_the_content(tmp_path, batches, tokenizer, same):
    def fingerprint(name, batches, tokenizer):
        (tmp_path / name).mkdir()
        builder = Builder(tmp_path / name)
        writer = builder.split("train", ids=np.int32)
        for index, ids, label in batches:
            writer.append(index=index, ids=ids, label=label)
        builder.finish("glue", {"tokenizer": {"fingerprint": tokenizer}})
        return json.loads((tmp_path / name / "manifest.json").read_text())["fingerprint"]

    first = fingerprint("first", [([0, 1], [[1], [2, 3]], [0, 1])], "t")
    assert (fingerprint("second", batches, tokenizer) == first) == same


# --- damage --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=MAKE)
def prepared(request, tmp_path_factory):
    """Data of a kind, and what a run would read of it."""
    folder = tmp_path_factory.mktemp(request.param)
    made = make(request.param, folder)
    return request.param, folder, made.folder, content(made)


def test_a_truncated_or_missing_file_is_an_error(prepared):
    kind, root, folder, whole = prepared
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        good = file.read_bytes()
        for damage in (lambda f=file, b=good[:-2]: f.write_bytes(b), file.unlink):
            damage()
            with pytest.raises(InputError, match=f"{re.escape(str(file))} is .*: delete {folder}"):
                make(kind, root)
        file.write_bytes(good)
    assert content(make(kind, root)) == whole


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"fingerprint": ""}'])
def test_a_foreign_folder_is_an_error(tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(InputError, match=r"manifest\.json is missing or damaged"):
        Prepared.open(tmp_path)


# --- once ----------------------------------------------------------------------------------------


def test_what_is_prepared_is_only_read(prepared, monkeypatch):
    """Also on a disk that cannot be written to: no lock is taken."""
    kind, root, folder, whole = prepared
    monkeypatch.setattr(Builder, "finish", None)
    monkeypatch.setattr(store, "_locked", None)
    assert content(make(kind, root)) == whole
    assert str(root) not in (folder / "manifest.json").read_text()


def test_neither_place_nor_time_of_the_files_matters(prepared, tmp_path):
    kind, root, folder, _ = prepared
    shutil.copytree(root / "source", tmp_path / "moved", copy_function=shutil.copyfile)
    assert MAKE[kind](tmp_path / "moved", root / "cache").folder == folder


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
    assert file.stat().st_size == before.st_size
    other = make(kind, tmp_path)
    assert other.folder != first.folder and other.fingerprint != first.fingerprint


def test_a_file_is_hashed_once_per_process(tmp_path, monkeypatch):
    hashes = mock.Mock(wraps=xxhash.xxh3_128)
    monkeypatch.setattr("xxhash.xxh3_128", hashes)
    folders = {make("text", tmp_path).folder for _ in range(2)}
    assert len(folders) == hashes.call_count == 1


# --- whole or not at all -------------------------------------------------------------------------


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), InputError("bad"), OSError(errno.ENOSPC, "No space left")]
)
def test_a_preparation_that_fails_leaves_nothing(tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SplitWriter, "append", fail)
        with pytest.raises(type(error)) as caught:
            make("text", tmp_path)
    if isinstance(error, OSError):
        assert re.search(r"disk is full.*runtime\.cache_dir", str(caught.value))
        assert str(caught.value.filename).startswith(str(tmp_path / "cache" / "text"))
    assert names(tmp_path / "cache" / "text") == []
    assert make("text", tmp_path).folder.is_dir()


def test_of_several_at_once_one_makes_and_the_others_wait(tmp_path):
    made = []

    def make(folder):
        time.sleep(0.2)
        made.append(folder)

    several = [
        threading.Thread(target=publish, args=(tmp_path / "made", make, False)) for _ in range(3)
    ]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert made == [tmp_path / "made.tmp"] and names(tmp_path) == ["made"]


HOLD = """
import sys, time
from pathlib import Path
from roformer.data.store import publish
def make(folder):
    (folder / "half").touch()
    print("building", flush=True)
    time.sleep(60)
publish(Path(sys.argv[1]), make, False)
"""


def test_a_waiting_process_names_the_holder_and_goes_on_where_that_is_killed(tmp_path, capsys):
    """The holder's partial folder is removed."""
    folder = tmp_path / "made"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    other = threading.Thread(
        target=publish, args=(folder, lambda made: (made / "whole").touch(), True)
    )
    try:
        assert holder.stdout.readline() == b"building\n"
        other.start()
        said, deadline = "", time.monotonic() + 60
        while not said and time.monotonic() < deadline:
            said = capsys.readouterr().err
            time.sleep(0.01)
        where = f"process {holder.pid} on {socket.gethostname()}"
        assert said == f"waiting: {where} is making {folder}\n"
        assert names(tmp_path) == [".made.lock", "made.tmp"]
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        other.join()
    assert names(tmp_path) == ["made"] and names(folder) == ["whole"]


def test_a_worker_whose_parent_holds_the_lock_does_not_wait_for_it(tmp_path):
    """A script without the guard: its worker imports it, and the import asks for the same data."""
    with store._locked(tmp_path / "made", progress=False):
        holder = f"process {os.getppid()} on {socket.gethostname()} is making it"
        (tmp_path / ".made.lock").write_text(holder)
        with pytest.raises(InputError, match=r'under `if __name__ == "__main__":`$'):
            publish(tmp_path / "made", Path.mkdir, False)


def test_on_a_disk_without_flock_the_lock_stays_the_librarys(tmp_path, monkeypatch):
    """Its content is the lock there: with other content, a waiting process would build too."""

    def absent(*given):
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr("fcntl.flock", absent)
    found = []
    with pytest.warns(UserWarning, match="SoftFileLock"):
        publish(
            tmp_path / "made", lambda _: found.append((tmp_path / ".made.lock").read_text()), False
        )
    assert found[0].startswith(f"{os.getpid()}\n")
