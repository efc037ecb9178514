"""Text as bytes: what a source yields, how it is split and stored, which inputs raise errors."""

import gzip
import hashlib
import io
import json
import zipfile
from http.client import IncompleteRead
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest

from roformer.config.build import build
from roformer.config.lm import BuiltinBytes, Enwik8, FileBytes
from roformer.data import bytes as byte_sources
from roformer.data.bytes import PreparedBytes, prepare_bytes
from roformer.errors import InputError

TEXT = bytes(range(256)) * 40


def written(text: PreparedBytes) -> bytes:
    """All splits one after the other."""
    parts = (text.train, text.valid, text.test)
    return b"".join(part[:].astype(np.uint8).tobytes() for part in parts)


def prepare(path, cache, **changes):
    return prepare_bytes(FileBytes(path=str(path), **changes), cache, progress=False)


def packed(path, kind):
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inside/text", TEXT)
    else:
        path.write_bytes(gzip.compress(TEXT, mtime=0) if kind == "gz" else TEXT)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.gz", "a.zip", "enwik8"])
def test_files_are_their_bytes(tmp_path, name):
    """Every value, no decoding, no line ends changed."""
    path = packed(tmp_path / name, name.rpartition(".")[2])
    text = prepare(path, tmp_path / "cache")
    assert written(text) == TEXT
    assert text.manifest["source"]["files"][0]["file"] == name


@pytest.mark.parametrize(
    ("count", "valid", "test", "sizes"),
    [(10_000, 0.05, 0.05, (9000, 500, 500)), (10_001, 0.1, 0.25, (6501, 1000, 2500))],
)
def test_splits_are_consecutive_and_of_the_stated_sizes(tmp_path, count, valid, test, sizes):
    (tmp_path / "a.txt").write_bytes(TEXT)
    (tmp_path / "b.gz").write_bytes(b"no gzip: nothing is read beyond data.max_bytes")
    shares = {"valid_fraction": valid, "test_fraction": test}
    text = prepare(tmp_path, tmp_path / "cache", max_bytes=count, **shares)
    assert (len(text.train), len(text.valid), len(text.test)) == sizes
    assert written(text) == TEXT[:count]
    assert text.summary == (
        f"text: {count:,} bytes (data.max_bytes={count} reached), {sizes[0]:,} for training, "
        f"{sizes[1]:,} for validation, {sizes[2]:,} for the test: {text.folder}"
    )


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path, capsys):
    """Rows of JSON are their texts; files of other kinds are skipped and listed."""
    folder = tmp_path / "text"
    folder.mkdir()
    rows = [json.dumps({"text": word}) for word in ("éins", "zwei")]
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    (folder / "a.txt").write_bytes(b"\r\nfirst\x00")
    (folder / "latest.txt").symlink_to("a.txt")  # otherwise it could be in train and in test
    (folder / "LICENSE").write_text("skipped")
    (folder / "c.parquet").write_bytes(b"skipped")
    (folder / "d.tar.gz").write_bytes(b"skipped")
    text = prepare(folder, tmp_path / "cache", valid_fraction=0.2, test_fraction=0.2)
    assert written(text) == b"\r\nfirst\x00" + "éins\n\nzwei\n\n".encode()
    listed = "text: 3 files of other kinds skipped: LICENSE, c.parquet, d.tar.gz\n"
    assert capsys.readouterr().err == listed


def test_bad_rows_are_counted_over_all_files(tmp_path, capsys):
    row = json.dumps({"text": "word" * 9}) + "\n"
    for name, content in (("a", row * 30 + "{}\n"), ("b", "{}\n" + row * 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.jsonl").write_text(content)
    text = prepare(tmp_path, tmp_path / "cache", max_bad_rows=2, valid_fraction=0.2)
    source = text.manifest["source"]
    assert (source["rows_read"], source["rows_skipped"]) == (42, 2)
    told = "text: 2 bad rows skipped (the first: a/part.jsonl:31: no 'text' among"
    assert capsys.readouterr().err.startswith(told)
    with pytest.raises(InputError, match=r"b/part\.jsonl:1: .*bad rows so far: 2\).*now 1"):
        prepare(tmp_path, tmp_path / "cache", max_bad_rows=1, valid_fraction=0.2)


def test_the_builtin_text_is_that_of_pre_training_mixed(tmp_path, monkeypatch):
    def documents(workers, skipped, shuffled):
        return ["one", "two"] if shuffled else ["two", "one"]

    monkeypatch.setattr(byte_sources, "docstring_documents", documents)
    changes = {"valid_fraction": 0.2, "test_fraction": 0.2}
    text = prepare_bytes(BuiltinBytes(**changes), tmp_path, workers=1, progress=False)
    assert written(text) == b"one\n\ntwo\n\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"PAR1", "gives no file of .txt, .gz, .zip, .jsonl"),
        ("a.tar.gz", gzip.compress(TEXT, mtime=0), r"but a\.tar\.gz: convert or unpack it"),
        ("torn.gz", gzip.compress(TEXT, mtime=0)[:-20], "torn.gz is not a complete gzip file"),
        ("none.zip", b"no zip at all", "none.zip is not a .zip that can be unpacked"),
        ("several.zip", {"a": "a", "b": "b"}, r"holds a, b: choose one file with data\.member"),
        ("empty.txt", b"", "empty.txt is empty"),
        ("short.txt", b"abc", "the text has 3 bytes, which would be 3 train, 0 valid, 0 test"),
    ],
)
def test_what_is_no_text_is_one_line(tmp_path, name, content, message):
    """And nothing is left in the cache."""
    if isinstance(content, dict):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for member, text in content.items():
                archive.writestr(member, text)
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        prepare(tmp_path / name, tmp_path / "cache")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache").rglob("*.npy"))


def test_a_text_and_its_packed_copy_are_not_both_read(tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT))
    with pytest.raises(InputError, match=r"a\.txt exists packed and unpacked: keep one of them"):
        prepare(tmp_path, tmp_path / "cache")


# --- enwik8 --------------------------------------------------------------------------------------


class Answer(io.BytesIO):
    length = None


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site with a small enwik8.zip, in place of the one on the web."""
    content = packed(tmp_path / "site.zip", "zip").read_bytes()
    config = Enwik8(
        url="http://example.org/enwik8.zip",
        sha256=hashlib.sha256(content).hexdigest(),
        member="inside/text",
    )
    found = SimpleNamespace(content=content, config=config, asked=0)

    def urlopen(url, timeout):
        found.asked += 1
        if isinstance(found.content, Exception):
            raise found.content
        return Answer(found.content)

    monkeypatch.setattr(byte_sources, "urlopen", urlopen)
    return found


def test_a_download_is_checked_kept_and_not_fetched_again(site, tmp_path):
    text = prepare_bytes(site.config, tmp_path / "cache", progress=False)
    assert written(text) == TEXT and site.asked == 1
    part = build(Enwik8, {**vars(site.config), "max_bytes": 2000})
    assert written(prepare_bytes(part, tmp_path / "cache", progress=False)) == TEXT[:2000]
    assert site.asked == 1
    assert text.manifest["source"]["sha256"] == site.config.sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"other", "ValueError, its SHA-256 is .*, not .*"),
        (URLError("no network"), "URLError, .*no network.*"),
        (IncompleteRead(b""), "IncompleteRead, .*"),
        (UnicodeError("no host"), "UnicodeError, no host"),
    ],
)
def test_a_download_that_fails_is_one_line_and_leaves_nothing(site, tmp_path, content, message):
    site.content = content
    message = f"cannot be downloaded: {message}; fetch it .*data=files data.path="
    with pytest.raises(InputError, match=message) as error:
        prepare_bytes(site.config, tmp_path / "cache", progress=False)
    assert "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
