"""Local files and Hub data as documents: what is read, and what each mistake is told."""

import gzip
import json
import os
import re
import sys
from itertools import islice

import datasets
import huggingface_hub
import pyarrow
import pyarrow.parquet
import pytest

from roformer.config.schema import FilesText, HubSource, HubText
from roformer.data.sources.documents import open_documents
from roformer.errors import InputError


def read(path, **options):
    return list(open_documents(FilesText(path=str(path), **options)).rows())


def rows(*texts, field="text"):
    return "".join(json.dumps({field: text}) + "\n" for text in texts)


def write_parquet(file, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


# --- what is read --------------------------------------------------------------------------------


def test_txt_documents_stand_between_blank_lines(tmp_path):
    (file := tmp_path / "a.txt").write_text("\n\none\ntwo\n \n\nthree\r\n\n\n", newline="")
    assert read(file) == ["one\ntwo", "three"]


def test_each_line_of_a_txt_is_a_document_if_asked_for(tmp_path):
    (file := tmp_path / "a.txt").write_text("\none\n two\r\n\t\nthree", newline="")
    assert read(file, document_separator="line_break") == ["one", " two", "three"]
    (tmp_path / "b.jsonl").write_text(rows("a\nb"))
    assert read(tmp_path, document_separator="line_break") == ["one", " two", "three", "a\nb"]


def test_jsonl_rows_end_at_newlines_only_and_blank_lines_are_nothing(tmp_path):
    text = "line\u2028separator \x85 é"
    content = "\ufeff" + json.dumps({"body": text}, ensure_ascii=False) + "\n\n" + '{"body": "b"}'
    (file := tmp_path / "a.jsonl").write_text(content, encoding="utf-8")
    assert read(file, text_field="body") == [text, "b"]


def test_a_folder_is_read_by_relative_name_without_hidden_and_other_files(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".cache").mkdir()
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as stream:
        stream.write(rows("one"))
    with gzip.open(tmp_path / "b" / "b.txt.gz", "wt") as stream:
        stream.write("three")
    write_parquet(tmp_path / "aa.parquet", text=["two"])
    (tmp_path / "c.json").write_text(rows("four"))
    (tmp_path / "README.md").write_text("not a document")
    (tmp_path / ".cache" / "z.txt").write_text("hidden")
    assert read(tmp_path) == ["one", "two", "three", "four"]


def test_a_glob_picks_files_and_names_them_below_its_fixed_part(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("deep/one.txt", "deep/er/two.txt", "three.txt"):
        (tmp_path / name).write_text(name)
    source = open_documents(FilesText(path=f"{tmp_path}/deep/**/*.txt"))
    assert list(source.rows()) == ["deep/er/two.txt", "deep/one.txt"]
    assert [file["file"] for file in source.describe()["files"]] == ["er/two.txt", "one.txt"]


def test_the_real_corpus_opens(real_data):
    source = open_documents(FilesText(path=str(real_data / "english")))
    documents = list(islice(source.rows(), 300))
    assert len(documents) == 300
    assert sum(map(len, documents)) > 1_000_000


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{'text': 'x'}", "not JSON"),
        ('["x"]', "a JSON list, not an object with 'text'"),
        ('{"body": "x"}', r"no 'text' among its keys ['body'] (data.text_field)"),
        ('{"text": null}', "'text' is null, not text"),
        ('{"text": 3}', "'text' is int, not text"),
        ('{"text": " "}', "'text' is empty"),
        (r'{"text": "\ud83d"}', "'text' holds half of a surrogate pair"),
    ],
)
def test_bad_rows_are_counted_named_and_refused_beyond_the_limit(tmp_path, row, problem):
    good = rows("good")
    (file := tmp_path / "a.jsonl").write_text(f"{good}{row}\n{good}{row}\n")
    source = open_documents(FilesText(path=str(file), max_bad_rows=2))
    assert list(source.rows()) == ["good", "good"]
    account = source.describe()
    assert (account["rows_read"], account["rows_skipped"]) == (4, 2)
    assert f"a.jsonl:2: {problem}" in account["first_skipped"]
    for limit in (0, 1):
        with pytest.raises(InputError) as caught:
            read(file, max_bad_rows=limit)
        assert f"{file}:2: {problem}" in str(caught.value)
        assert f"data.max_bad_rows (now {limit})" in str(caught.value)
        assert "\n" not in str(caught.value)


def broken_gzip(file):
    data = gzip.compress(os.urandom(5000).hex().encode())
    file.write_bytes(data[:-2000])


def corrupt_gzip(file):
    data = bytearray(gzip.compress(b"some text that is long enough" * 50))
    data[-6] ^= 0xFF
    file.write_bytes(data)


def truncated_parquet(file):
    write_parquet(file, text=["x"] * 100)
    file.write_bytes(file.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.txt", None, "data.path={file} does not exist: give a file, a folder or a glob"),
        ("*.txt", None, "data.path={file} holds no file of .txt"),
        ("a", lambda file: file.mkdir(), "data.path={file} holds no file of .txt"),
        ("a.pdf", lambda file: file.write_text("x"), "data.path={file} is none of .txt"),
        ("a.txt", lambda file: file.touch(), "{file} is empty: remove it"),
        ("a.jsonl", lambda file: file.write_text("\n\n"), "{file} is empty: remove it"),
        ("a.txt.gz", lambda file: file.touch(), "{file} is empty: remove it"),
        ("a.txt.gz", broken_gzip, "{file} is not a complete gzip file: "),
        ("a.txt.gz", corrupt_gzip, "{file} is not a complete gzip file: "),
        ("a.jsonl.gz", lambda file: file.write_text(rows("x")), "{file} is not a complete gzip"),
        (
            "a.txt",
            lambda file: file.write_bytes(b"good\nbad \xe9t\xe9\n"),
            "{file}:2: not UTF-8 (byte 5 of the line is 0xe9): convert the file",
        ),
        ("a.parquet", truncated_parquet, "{file} cannot be read as Parquet: "),
        ("a.parquet", lambda file: file.touch(), "{file} cannot be read as Parquet: "),
        (
            "a.parquet",
            lambda file: write_parquet(file, title=["x"], body=["y"]),
            "{file} has no column 'text': set data.text_field to one of title, body",
        ),
        (
            "a.parquet",
            lambda file: write_parquet(file, text=["x", None]),
            "{file}:2: 'text' is null, not text",
        ),
        (
            "a.parquet",
            lambda file: write_parquet(file, text=[1]),
            "{file}:1: 'text' is int, not text",
        ),
    ],
)
def test_each_mistake_is_one_line_that_names_the_place(tmp_path, name, make, message):
    file = tmp_path / name
    if make:
        make(file)
    with pytest.raises(InputError, match="^" + re.escape(message.format(file=file))) as caught:
        read(file)
    assert "\n" not in str(caught.value)


# --- the Hub -------------------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(monkeypatch):
    """Stand-ins of the same interface; returns the calls that were made."""
    calls = []
    tables = {
        "wikimedia/wikipedia": {"title": ["a", "b", "c"], "text": ["one", "", "two"]},
        "rojagtap/bookcorpus": {"text": ["three"]},
    }

    def load_dataset(path, name=None, *, revision=None, split=None, streaming=False):
        calls.append((path, name, revision, split, streaming))
        table = datasets.Dataset.from_dict(tables[path])
        return table.to_iterable_dataset() if streaming else table

    class HfApi:
        def dataset_info(self, path):
            return huggingface_hub.hf_api.DatasetInfo(
                id=path, sha="f" * 40, tags=[], siblings=None, private=False, downloads=0, likes=0
            )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub, "HfApi", HfApi)
    return calls


SOURCES = [
    HubSource(path="wikimedia/wikipedia", name="20231101.en", revision=COMMIT),
    HubSource(path="rojagtap/bookcorpus", revision=None),
]


@pytest.mark.parametrize("streaming", [False, True])
def test_hub_sources_are_concatenated_pinned_and_accounted_for(hub, streaming):
    source = open_documents(HubText(sources=SOURCES, streaming=streaming))
    assert list(source.rows()) == ["one", "two", "three"]
    assert hub == [
        ("wikimedia/wikipedia", "20231101.en", COMMIT, "train", streaming),
        ("rojagtap/bookcorpus", None, "f" * 40, "train", streaming),
    ]
    account = source.describe()
    assert [read["revision"] for read in account["sources"]] == [COMMIT, "f" * 40]
    assert (account["rows_read"], account["rows_skipped"]) == (4, 1)


def test_sentences_of_the_hub_are_joined_into_documents(hub):
    joined = [
        HubSource(path="wikimedia/wikipedia", revision=COMMIT, rows_per_document=2),
        HubSource(path="rojagtap/bookcorpus", revision=COMMIT, rows_per_document=2),
    ]
    assert list(open_documents(HubText(sources=joined)).rows()) == ["one\ntwo", "three"]


def test_a_missing_hub_column_lists_those_there(hub):
    wrong = HubSource(path="wikimedia/wikipedia", revision=COMMIT, text_field="body")
    with pytest.raises(InputError, match=r"no column 'body'.*text_field to one of title, text"):
        list(open_documents(HubText(sources=[wrong])).rows())


def test_no_network_is_one_line_with_a_way_out(hub, monkeypatch):
    def load_dataset(path, *args, **options):
        raise ConnectionError(f"Couldn't reach '{path}' on the Hub\nand a second line")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InputError) as caught:
        list(open_documents(HubText(sources=SOURCES)).rows())
    message = str(caught.value)
    assert message.startswith("wikimedia/wikipedia cannot be read from the Hugging Face Hub")
    assert "Couldn't reach" in message and "data=files" in message and "\n" not in message


def test_the_slow_libraries_are_imported_only_for_the_hub():
    import subprocess

    code = "import sys, roformer.data.sources.documents; print({'datasets', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"
