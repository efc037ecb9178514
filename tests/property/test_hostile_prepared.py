"""Prepared data that anything happened to: noticed before a token of it is used, inside its folder.

Damaged files are refused by what the manifest says of them. Planted ones agree with their manifest,
as a stranger could make them: names, shapes and tokens are then refused for what they are.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.data import shards
from roformer.data.sentences import Sentences
from roformer.errors import InputError
from roformer.json_files import member
from tests.property.hostile import NOT_OBJECTS, fuzz, lawful, mangled, mangled_json
from tests.property.hostile_cache import MAKE, files_of, make_task, read, sealed

# --- damage --------------------------------------------------------------------------------------


@given(st.data())
@fuzz(80)
def test_damage_to_any_file_is_noticed_or_changes_nothing(prepared, data):
    kind, folder, whole = prepared
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    name = data.draw(st.sampled_from([*names, "manifest.json", "manifest.json"]))
    good = (folder / name).read_bytes()
    contents = mangled(good)
    if name == "manifest.json":
        contents |= mangled_json(json.loads(good))
    try:
        (folder / name).write_bytes(data.draw(contents))
        found = lawful(lambda: read(kind, folder), f"delete {folder} and it will be prepared again")
    finally:
        (folder / name).write_bytes(good)
    assert found is None or found == whole


def test_a_manifest_that_is_no_object_is_refused(copied):
    kind, folder, _ = copied
    for content in NOT_OBJECTS:
        (folder / "manifest.json").write_bytes(content)
        assert lawful(lambda: read(kind, folder), f"delete {folder} and") is None
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").mkdir()
    assert lawful(lambda: read(kind, folder), f"delete {folder} and") is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("text", "train_00000.bin"),
        ("task", "train.parquet"),
        ("parallel", "train.source.tokens.npy"),
    ],
)
def test_one_flipped_bit_is_noticed_when_a_run_finds_the_folder(tmp_path, kind, name):
    """The tokens are still tokens: only the sum tells."""
    folder = MAKE[kind](tmp_path / "source")
    assert MAKE[kind](tmp_path / "source") == folder
    content = bytearray((folder / name).read_bytes())
    content[-8] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=r"is not what was written \(SHA-256\): delete"):
        MAKE[kind](tmp_path / "source")


# --- names ---------------------------------------------------------------------------------------

OUTSIDE = [
    "../outside",
    "{root}/outside",
    "../key/../outside",
    "",
    ".",
    "..",
    "a/b",
    "a\\b",
    "x\0y",
]


@pytest.mark.parametrize("name", [*OUTSIDE, "link", "circle"])
def test_a_name_never_leaves_its_folder(copied, tmp_path, name):
    """The file outside is what the manifest says: read, it would be taken for a part of the data."""
    kind, folder, manifest = copied
    files = files_of(kind, manifest)
    first = next(iter(files))
    outside = tmp_path / "cache" / "outside"
    shutil.move(folder / first, outside)
    (folder / "link").symlink_to(outside)
    (folder / "circle").symlink_to(folder / "circle")
    name = name.format(root=tmp_path / "cache")
    if kind == "text":
        files[first]["file"] = name
        manifest["fingerprint"] = shards._fingerprint(
            manifest["shards"], manifest["tokenizer"]["fingerprint"]
        )
        (folder / "manifest.json").write_text(json.dumps(manifest))
    else:
        manifest["files"] = {name if key == first else key: of for key, of in files.items()}
        sealed(kind, folder, manifest)
    assert lawful(lambda: read(kind, folder), f"delete {folder} and") is None
    assert outside.is_file()


def test_a_data_file_that_is_a_link_out_is_refused(copied, tmp_path):
    """Its name is as it should be; what it names is not in the folder."""
    kind, folder, manifest = copied
    first = next(iter(files_of(kind, manifest)))
    shutil.move(folder / first, outside := tmp_path / "outside")
    (folder / first).symlink_to(outside)
    with pytest.raises(InputError, match="is a link that leads out of the folder"):
        read(kind, folder)


def test_a_split_name_never_leaves_the_folder(tmp_path):
    folder = make_task(tmp_path / "source")
    shutil.copy(folder / "train.parquet", folder.parent / "outside.parquet")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["rows"]["../outside"] = manifest["rows"]["train"]
    sealed("task", folder, manifest)
    with pytest.raises(InputError, match="is prepared with rows="):
        read("task", folder)


@given(st.text(st.sampled_from("./\\\0ab~") | st.characters()))
@fuzz(200)
def test_a_member_is_directly_in_its_folder(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp()
    try:
        file = member(folder, name)
    except ValueError:
        return
    assert os.path.normpath(os.fspath(file)) == os.fspath(file) and file.parent == folder


# --- planted content -----------------------------------------------------------------------------


def text_beyond_the_vocabulary(folder, manifest):
    file = folder / "train_00000.bin"
    file.write_bytes(file.read_bytes()[:-2] + b"\xff\xff")


def text_of_no_tokens(folder, manifest):
    manifest["shards"]["train"] = []


def text_of_another_type(folder, manifest):
    manifest["dtype"] = "O"


def text_longer_than_its_file(folder, manifest):
    manifest["shards"]["train"][0]["tokens"] = 10**15


def task_table(folder, **columns):
    table = pyarrow.parquet.read_table(folder / "train.parquet")
    for name, column in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, column)
    pyarrow.parquet.write_table(table, folder / "train.parquet")


def task_beyond_the_vocabulary(folder, manifest):
    ids = pyarrow.array([[10**9]] * 3, pyarrow.list_(pyarrow.int32()))
    task_table(folder, ids_a=ids)


def task_of_other_labels(folder, manifest):
    task_table(folder, label=pyarrow.array([0, 1, 2]))


def task_without_a_label(folder, manifest):
    task_table(folder, label=pyarrow.array([0, None, 1]))


def task_with_half_of_its_pairs(folder, manifest):
    task_table(folder, ids_b=pyarrow.array([[5], None, [5]], pyarrow.list_(pyarrow.int32())))


def task_of_other_columns(folder, manifest):
    task_table(folder, label=pyarrow.array(["a", "b", "c"]))


def pairs_beyond_the_vocabulary(folder, manifest):
    tokens = np.load(file := folder / "train.source.tokens.npy")
    tokens[0] = 10**9
    np.save(file, tokens)


def pairs_without_ends(folder, manifest):
    tokens = np.load(file := folder / "valid.target.tokens.npy")
    tokens[-1] = 5
    np.save(file, tokens)


def pairs_backwards(folder, manifest):
    offsets = np.load(file := folder / "train.source.offsets.npy")
    offsets[3] = -offsets[3]
    np.save(file, offsets)


def pairs_in_a_square(folder, manifest):
    np.save(folder / "train.source.tokens.npy", np.zeros((2, 2), np.int32))


def pairs_of_an_archive(folder, manifest):
    np.savez(folder / "a.npz", tokens=np.zeros(3, np.int32))
    shutil.move(folder / "a.npz", folder / "train.source.tokens.npy")


def pairs_that_are_not_listed(folder, manifest):
    del manifest["files"]["train.target.tokens.npy"]


PLANTED = {
    "text": [
        text_beyond_the_vocabulary,
        text_of_no_tokens,
        text_of_another_type,
        text_longer_than_its_file,
    ],
    "task": [
        task_beyond_the_vocabulary,
        task_of_other_labels,
        task_without_a_label,
        task_with_half_of_its_pairs,
        task_of_other_columns,
    ],
    "parallel": [
        pairs_beyond_the_vocabulary,
        pairs_without_ends,
        pairs_backwards,
        pairs_in_a_square,
        pairs_of_an_archive,
        pairs_that_are_not_listed,
    ],
}


def test_planted_data_is_refused_for_what_it_is(copied, prepared):
    kind, folder, _ = copied
    for plant in PLANTED[kind]:
        shutil.rmtree(folder)
        shutil.copytree(prepared[1], folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        plant(folder, manifest)
        sealed(kind, folder, manifest)
        assert lawful(lambda: read(kind, folder), f"delete {folder} and") is None, plant.__name__


@pytest.mark.parametrize(
    "shape",
    ["(1000000000000000,)", "(-1,)", "()", "(2, 3)", "[3]", "3", "(3.5,)", "('x',)", "(" * 4000],
)
def test_an_array_is_as_long_as_its_header_says_or_refused(tmp_path, shape):
    """Nothing is allocated for what a header claims."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}\n".encode("latin1")
    for name in ("tokens", "offsets"):
        file = tmp_path / f"train.{name}.npy"
        file.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert lawful(lambda: Sentences.open(tmp_path / "train"), tmp_path / "train") is None


@pytest.mark.parametrize("offsets", [[0, 4, 2, 6], [1, 6], [0, 5], [0, -1, 6], [0, 7], []])
def test_sentences_follow_one_another(tmp_path, offsets):
    np.save(tmp_path / "train.tokens.npy", np.arange(6, dtype=np.int32))
    np.save(tmp_path / "train.offsets.npy", np.array(offsets, np.int64))
    with pytest.raises(InputError, match="do not fit each other"):
        Sentences.open(tmp_path / "train")


@given(st.data())
@fuzz(80)
def test_a_damaged_array_is_refused_or_fits(tmp_path_factory, data):
    stem = tmp_path_factory.getbasetemp() / "arrays"
    np.save(f"{stem}.tokens.npy", np.arange(6, dtype=np.int32))
    np.save(f"{stem}.offsets.npy", np.array([0, 2, 6]))
    name = data.draw(st.sampled_from(["tokens", "offsets"]))
    file = Path(f"{stem}.{name}.npy")
    file.write_bytes(data.draw(mangled(file.read_bytes())))
    found = lawful(lambda: Sentences.open(stem), stem)
    assert found is None or sum(len(found[i]) for i in range(len(found))) == len(found.tokens)
