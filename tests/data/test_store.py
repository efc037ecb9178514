"""Prepared data of every kind: made once, complete or not at all, and checked when opened."""

import errno
import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import datasets
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.data import store
from roformer.data.store import Builder, Prepared, SplitWriter, publish, read_table
from roformer.data.tokens import TokenLists, TokenStream
from roformer.errors import InputError
from tests.conftest import REPOSITORY
from tests.data.prepared import MAKE, content, make
from tests.property.hostile import fuzz, mangled, mangled_json, read_or_refused

KINDS = list(MAKE)
LISTS = pyarrow.large_list(pyarrow.int32())


# --- columns -------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.lists(st.integers(0, 2**31 - 1)), st.text()))))
def test_what_is_written_in_any_batches_is_read_as_one_array(tmp_path_factory, batches):
    file = tmp_path_factory.mktemp("split") / "train.arrow"
    with SplitWriter(file, {"ids": LISTS, "text": pyarrow.string()}) as writer:
        for rows in batches:
            writer.append(ids=[ids for ids, _ in rows], text=[text for _, text in rows])
    rows = [row for batch in batches for row in batch]
    wanted = [ids for ids, _ in rows]
    for lists in (TokenLists.open(file, "ids"), TokenLists.of(wanted)):
        assert [ids.tolist() for ids in lists] == wanted
        assert lists.tokens.tolist() == [token for ids in wanted for token in ids]
        assert lists.lengths.tolist() == [len(ids) for ids in wanted]
        with pytest.raises(IndexError):
            lists[len(wanted)]
    assert writer.rows == len(rows) and writer.tokens == sum(map(len, wanted))
    assert read_table(file)["text"].to_pylist() == [text for _, text in rows]
    assert [path.name for path in file.parent.iterdir()] == ["train.arrow"]


def test_mapped_tokens_pickle_as_a_file_name_and_lend_copies(tmp_path):
    file = tmp_path / "train.arrow"
    with SplitWriter(file, {"ids": LISTS}) as writer:
        writer.append(ids=[[1, 2, 3]] * 10_000)
    stream = TokenStream(TokenLists.open(file, "ids"))
    assert len(pickle.dumps(stream)) < 1000
    assert pickle.loads(pickle.dumps(stream)).lists[9_999].tolist() == [1, 2, 3]
    stream[:5][:] = -1
    stream.lists[0][:] = -1
    assert stream[:3].tolist() == [1, 2, 3]
    assert not stream.lists.tokens.flags.owndata  # the file's own bytes
    here = pickle.loads(pickle.dumps(TokenLists.of([[1], [2, 3]])))
    assert here[1].tolist() == [2, 3]


def test_a_split_is_a_data_set_of_the_datasets_library(tmp_path):
    file = tmp_path / "train.arrow"
    with SplitWriter(file, {"ids": LISTS, "label": pyarrow.int64()}) as writer:
        writer.append(ids=[[1], [2, 3]], label=[0, 1])
        writer.append(ids=[[]], label=[2])
    table = datasets.Dataset.from_file(str(file))
    assert table[:] == {"ids": [[1], [2, 3], []], "label": [0, 1, 2]}


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
        with builder.split("train", index=pyarrow.int64(), ids=LISTS, label=pyarrow.int8()) as one:
            for index, ids, label in batches:
                one.append(index=index, ids=ids, label=label)
        builder.seal("glue", {"tokenizer": {"fingerprint": tokenizer}})
        return Prepared.open(tmp_path / name, "glue").fingerprint

    first = fingerprint("first", [([0, 1], [[1], [2, 3]], [0, 1])], "t")
    assert (fingerprint("second", batches, tokenizer) == first) == same


# --- damage --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS)
def prepared(request, tmp_path_factory):
    """Data of a kind, and what a run would read of it."""
    folder = tmp_path_factory.mktemp(request.param)
    made = make(request.param, folder)
    return request.param, folder, made.folder, content(made)


@given(st.data())
@fuzz(60)
def test_damage_to_any_file_is_noticed_or_changes_nothing(prepared, data):
    kind, root, folder, whole = prepared
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    name = data.draw(st.sampled_from([*names, "manifest.json", "manifest.json"]))
    good = (folder / name).read_bytes()
    contents = mangled(good)
    if name == "manifest.json":
        contents |= mangled_json(json.loads(good))
    try:
        (folder / name).write_bytes(data.draw(contents))
        again = f"delete {folder} and it will be prepared again"
        found = read_or_refused(lambda: content(make(kind, root)), again)
    finally:
        (folder / name).write_bytes(good)
    assert found is None or found == whole


def test_one_flipped_bit_of_any_file_is_noticed(prepared):
    kind, root, folder, whole = prepared
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        good = file.read_bytes()
        flipped = bytearray(good)
        flipped[len(good) // 2] ^= 1
        file.write_bytes(flipped)
        with pytest.raises(InputError, match=f"{re.escape(str(file))} is .*: delete {folder} and"):
            make(kind, root)
        file.write_bytes(good)
    assert content(make(kind, root)) == whole


def test_a_lost_file_and_another_manifest_are_refused(prepared):
    kind, root, folder, _ = prepared
    again = f"delete {re.escape(str(folder))} and"
    lost, file = folder / "train.arrow", folder / "manifest.json"
    for member, message in ((lost, "is not what was written"), (file, "is missing or damaged")):
        good = member.read_bytes()
        member.unlink()
        with pytest.raises(InputError, match=f"{member} {message}.*{again}"):
            make(kind, root)
        member.write_bytes(good)
    for change in ({"format": 0}, {"kind": "else"}):
        file.write_text(json.dumps(json.loads(good) | change))
        with pytest.raises(InputError, match=rf"{folder} is .*, not {kind} of format.*{again}"):
            make(kind, root)
    file.write_bytes(good)


# --- once ----------------------------------------------------------------------------------------


def test_what_is_prepared_is_only_read(prepared, monkeypatch):
    """Also on a disk that cannot be written to: no lock is taken."""
    kind, root, folder, whole = prepared
    monkeypatch.setattr(Builder, "seal", None)
    monkeypatch.setattr(store, "_locked", None)
    assert content(make(kind, root)) == whole
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert str(root) not in (folder / "manifest.json").read_text()


def test_where_the_files_lie_does_not_matter(prepared, tmp_path):
    kind, root, folder, _ = prepared
    shutil.copytree(root / "source", tmp_path / "moved")
    for copied in (tmp_path / "moved").rglob("*"):
        original = root / "source" / copied.relative_to(tmp_path / "moved")
        os.utime(copied, ns=(1, original.stat().st_mtime_ns))
    assert MAKE[kind](tmp_path / "moved", root / "cache").folder == folder


CHANGES = {
    "text": ("rows.jsonl", "Document 7", "Document 700"),
    "bytes": ("a.txt", "\x00\x01", "\x00\x02"),
    "wmt": ("test.de", "Halt", "Stopp"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_source_is_prepared_anew(tmp_path, kind):
    """Those that tests of their own change are GLUE's and the triplets'."""
    first = make(kind, tmp_path)
    name, old, new = CHANGES[kind]
    file = tmp_path / "source" / name
    encoding = "latin1" if kind == "bytes" else "utf-8"
    file.write_bytes(file.read_bytes().decode(encoding).replace(old, new).encode(encoding))
    os.utime(file, ns=(1, 1))  # a large file is known by its time and length
    other = make(kind, tmp_path)
    assert other.folder != first.folder and other.fingerprint != first.fingerprint


# --- whole or not at all -------------------------------------------------------------------------


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
    assert list((tmp_path / "cache" / "text").iterdir()) == []
    assert make("text", tmp_path).folder.is_dir()


HANG = """
import sys, time
from pathlib import Path
from roformer.data.store import Builder
from tests.data.prepared import make
def hang(*_, **__):
    print("building", flush=True)
    time.sleep(60)
Builder.seal = hang
make(sys.argv[1], Path(sys.argv[2]))
"""


def test_what_a_killed_process_left_goes_and_what_a_living_one_makes_stays(tmp_path):
    kind = "text"
    process = subprocess.Popen(
        [sys.executable, "-c", HANG, kind, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"building\n"
        (temporary,) = (tmp_path / "cache" / kind).glob("*.tmp")
        publish(tmp_path / "cache" / kind / "another", lambda folder: None, False)
        assert list(temporary.glob("*.arrow"))  # its maker lives
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert temporary.is_dir()
    publish(tmp_path / "cache" / kind / "third", lambda folder: None, False)
    assert not temporary.exists()
    made = make(kind, tmp_path)  # does not wait for the dead
    assert {p.name for p in made.folder.parent.iterdir()} == {made.folder.name, "another", "third"}


def _make(kind, folder):
    return content(make(kind, folder))


@pytest.mark.parametrize("kind", ["text", "wmt"])
def test_two_processes_at_once_make_one(tmp_path, kind):
    alone = make(kind, tmp_path)
    shutil.rmtree(tmp_path / "cache")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(_make, [(kind, tmp_path)] * 2, chunksize=1)
    assert [one[0] for one in found] == [alone.fingerprint] * 2
    assert len(list((tmp_path / "cache" / kind).iterdir())) == 1


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
        assert (
            said == f"waiting: process {holder.pid} on {socket.gethostname()} is making {folder}\n"
        )
        assert not folder.exists()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
        other.join()
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
