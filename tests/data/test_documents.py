"""Documents of local files and of the Hub: what is read, and the error of each mistake."""

import gzip
import json
import os
import re
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow
import pyarrow.parquet
import pytest

from roformer.config.schema import FilesText, HubSource, HubText
from roformer.data.text import open_documents
from roformer.errors import InputError


def texts(source):
    return [row.texts[0] for row in source.rows()]


def read(path, **options):
    return texts(open_documents(FilesText(path=str(path), **options)))


def rows(*texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def write_parquet(file, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), file)


# --- what is read --------------------------------------------------------------------------------


def test_a_txt_is_cut_at_blank_lines_or_at_each_line(tmp_path):
    (file := tmp_path / "a.txt").write_text("\n\none\n two\n \n\nthree\r\n\n\n", newline="")
    assert read(file) == ["one\n two", "three"]
    assert read(file, document_separator="line_break") == ["one", " two", "three"]


WIKITEXT = """
 = Homarus gammarus =

 The lobster is large .
 = = Description = =

 It has claws :
 = 1 m =

 = = = Size = = =

 It grows .


 = E = mc2 =

 A formula .

 = M =

 The end .
""".removeprefix("\n").splitlines()
"""Rows in the shape of Salesforce/wikitext; a line that follows a text directly is no heading."""
ARTICLES = [
    "= Homarus gammarus =\nThe lobster is large .\n= = Description = =\nIt has claws :\n= 1 m =\n"
    "= = = Size = = =\nIt grows .",
    "= E = mc2 =\nA formula .",
    "= M =\nThe end .",
]


def test_a_heading_of_the_first_level_begins_a_document(tmp_path):
    (file := tmp_path / "wiki.txt").write_text("".join(f"{row}\n" for row in ["", *WIKITEXT]))
    assert read(file, document_separator="heading") == ARTICLES


def test_jsonl_rows_end_at_newlines_only_and_blank_lines_are_nothing(tmp_path):
    text = "line\u2028separator \x85 é"
    content = "\ufeff" + json.dumps({"body": text}, ensure_ascii=False) + "\n\n" + '{"body": "b"}'
    (file := tmp_path / "a.jsonl").write_text(content, encoding="utf-8")
    assert read(file, text_field="body") == [text, "b"]


def test_a_folder_is_read_by_relative_name_and_other_files_are_listed(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".cache").mkdir()
    (tmp_path / "C.JSONL.GZ").write_bytes(gzip.compress(rows("one").encode()))
    (tmp_path / "b" / "b.txt.gz").write_bytes(gzip.compress(b"three"))
    write_parquet(tmp_path / "D.Parquet", text=["two"])
    (tmp_path / "c.json").write_text(rows("four"))
    (tmp_path / "README").write_text("not a document")
    (tmp_path / "e.txt").symlink_to("nowhere")
    (tmp_path / ".cache" / "z.txt").write_text("hidden")
    source = open_documents(FilesText(path=str(tmp_path)))
    assert texts(source) == ["one", "two", "three", "four"]
    assert source.describe()["other_files"] == ["README", "e.txt"]


def test_links_are_followed_and_each_real_file_is_read_once(tmp_path):
    for name in ("corpus", "corpus/v1", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{Path(name).name}.txt").write_text(name)
    for link, target in {
        "corpus/link": "../elsewhere",
        "corpus/z.txt": "corpus.txt",
        "corpus/v1/up": "..",
        "corpus/v1/same": ".",
        "elsewhere/back": "../corpus",
    }.items():
        (tmp_path / link).symlink_to(target)
    os.link(tmp_path / "corpus/v1/v1.txt", tmp_path / "corpus/v1/w.txt")
    for pattern in ("", "/**", "/**/*.txt"):
        source = open_documents(FilesText(path=f"{tmp_path}/corpus{pattern}"))
        assert texts(source) == ["corpus", "elsewhere", "corpus/v1"]
        assert [*source.files.values()] == ["corpus.txt", "link/elsewhere.txt", "v1/v1.txt"]
    for pattern in ("*/*.txt", "*/**", "*/**/*.txt"):
        assert read(f"{tmp_path}/corpus/{pattern}") == ["elsewhere", "corpus/v1"]


def test_a_list_of_paths_is_read_in_its_order_and_no_file_twice(tmp_path):
    """A glob names its files below its fixed part."""
    for name in ("b/x.txt", "a/x.txt", "a/y.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    paths = [str(tmp_path / "b"), str(tmp_path / "a/y*"), str(tmp_path), str(tmp_path / "b/x.txt")]
    source = open_documents(FilesText(path=paths))
    assert texts(source) == ["b/x.txt", "a/y.txt", "a/x.txt"]
    names = ["1/x.txt", "2/y.txt", "3/a/x.txt"]
    assert [file["file"] for file in source.describe()["files"]] == names
    (tmp_path / "b/y.jsonl").write_text("bad\n" + rows("c"))
    source = open_documents(FilesText(path=paths, max_bad_rows=1))
    assert texts(source)[1] == "c"
    assert source.describe()["first_skipped"].startswith("1/y.jsonl:1: not JSON")
    with pytest.raises(InputError, match=r"data\.path=.*/no does not exist"):
        open_documents(FilesText(path=[*paths, str(tmp_path / "no")]))


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{'text': 'x'}", "not JSON"),
        ('["x"]', "a JSON list, not an object"),
        ('{"body": "x"}', r"no 'text' among its keys ['body'] (data.text_field)"),
        ('{"text": null}', "'text' is null, not text"),
        ('{"text": " "}', "'text' is empty"),
        (r'{"text": "\ud83d"}', "'text' holds half of a surrogate pair"),
    ],
)
def test_bad_rows_are_counted_named_and_refused_beyond_the_limit(tmp_path, row, problem):
    (file := tmp_path / "a.jsonl").write_text(f"{rows('good')}{row}\n{rows('good')}{row}\n")
    source = open_documents(FilesText(path=str(file), max_bad_rows=2))
    assert texts(source) == ["good", "good"]
    account = source.describe()
    assert (account["rows_read"], account["rows_skipped"]) == (4, 2)
    assert account["first_skipped"].startswith(f"a.jsonl:2: {problem}")
    for limit in (0, 1):
        with pytest.raises(InputError) as refused:
            read(file, max_bad_rows=limit)
        assert f"{file}:2: {problem}" in str(refused.value)
        assert f"data.max_bad_rows (now {limit})" in str(refused.value)
        assert "\n" not in str(refused.value)


def truncated_parquet(file):
    write_parquet(file, text=["x"] * 100)
    file.write_bytes(file.read_bytes()[:-10])


PACKED = gzip.compress(b"some text that is long enough" * 50, mtime=0)
FLIPPED = PACKED[:-6] + bytes([PACKED[-6] ^ 0xFF]) + PACKED[-5:]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", None, "data.path={file} does not exist: give a file, a folder or a glob"),
        ("*.txt", None, "data.path={file} matches no file"),
        ("a.pdf", b"x", "data.path={file} gives no file of .txt"),
        ("a.txt", b"", "{file} is empty: remove it"),
        ("a.JSON", b'\n[\n  {"text": "a"}\n]', "{file} holds a JSON list: write one JSON object"),
        ("a.json", b'{\n  "text": "a"\n}', "{file}:1: not JSON, Expecting property name"),
        ("a.txt.gz", PACKED[:-10], "{file} is not a complete gzip file: "),
        ("a.txt.gz", FLIPPED, "{file} is not a complete gzip file: "),
        (
            *("a.txt", b"good\nbad \xe9t\xe9\n"),
            "{file}:2: not UTF-8 (byte 5 of the line is 0xe9): convert the file, e.g. with iconv -f latin1 ",
        ),
        (
            "a.txt",
            "a".encode("utf-16"),
            "{file}:1: not UTF-8 (byte 1 of the line is 0xff): convert",
        ),
        ("a.parquet", truncated_parquet, "{file} cannot be read as Parquet: "),
        (
            *("a.parquet", lambda file: write_parquet(file, title=["x"], body=["y"])),
            "{file} has no column 'text', but title, body: set data.text_field",
        ),
        (
            *("a.parquet", lambda file: write_parquet(file, text=["x", None])),
            "{file}:2: 'text' is null, not text",
        ),
    ],
)
def test_each_mistake_is_one_line_that_names_the_place(tmp_path, name, content, message):
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content:
        content(file)
    with pytest.raises(InputError, match="^" + re.escape(message.format(file=file))) as refused:
        read(file)
    assert "\n" not in str(refused.value)


# --- the Hub -------------------------------------------------------------------------------------

COMMIT, NEWEST = "0123456789abcdef0123456789abcdef01234567", "f" * 40
WIKIPEDIA, BOOKS = "wikimedia/wikipedia", "rojagtap/bookcorpus"
WIKITEXT_ROWS = "Salesforce/wikitext"
TABLES = {
    WIKIPEDIA: {"title": [*"abcd"], "text": ["one", "", "two", ""]},
    BOOKS: {"text": ["x"]},
    WIKITEXT_ROWS: {"text": ["", *WIKITEXT[:2], None, *WIKITEXT[2:]]},
}


@pytest.fixture
def hub(monkeypatch):
    """Replace the Hub with a fake; return the calls that were made."""
    calls = []

    def load_dataset(path, name=None, *, revision=None, split=None, streaming=False):
        calls.append((path, name, revision, split, streaming))
        if path not in TABLES:
            raise ConnectionError(f"Couldn't reach '{path}' on the Hub\nand a second line")
        table = datasets.Dataset.from_dict(TABLES[path])
        return table.to_iterable_dataset() if streaming else table

    class HfApi:
        def dataset_info(self, path):
            return huggingface_hub.DatasetInfo(
                id=path, sha=NEWEST, tags=[], siblings=None, private=False, downloads=0, likes=0
            )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub, "HfApi", HfApi)
    return calls


def of_hub(path=WIKIPEDIA, **changes):
    return HubSource(path=path, **({"revision": COMMIT} | changes))


@pytest.mark.parametrize("streaming", [False, True])
def test_hub_sources_are_concatenated_pinned_and_accounted_for(hub, streaming):
    sources = [of_hub(name="20231101.en"), of_hub(BOOKS, revision=None), of_hub(text_field="title")]
    source = open_documents(HubText(sources=sources, streaming=streaming))
    assert texts(source) == ["one", "two", "x", *"abcd"]
    assert hub == [
        (WIKIPEDIA, "20231101.en", COMMIT, "train", streaming),
        (BOOKS, None, NEWEST, "train", streaming),
        (WIKIPEDIA, None, COMMIT, "train", streaming),
    ]
    account = source.describe()
    read = [(read["revision"], read["rows_read"]) for read in account["sources"]]
    assert read == [(COMMIT, 4), (NEWEST, 1), (COMMIT, 4)]
    assert (account["rows_read"], account["rows_skipped"]) == (9, 2)
    joined = [of_hub(rows_per_document=2), of_hub(BOOKS, rows_per_document=2)]
    joined = HubText(sources=joined, streaming=streaming)
    assert texts(open_documents(joined)) == ["one\ntwo", "x"]


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_of_the_hub_are_joined_into_articles(hub, streaming):
    """As the same lines of a file are."""
    source = of_hub(WIKITEXT_ROWS, document_separator="heading")
    assert texts(open_documents(HubText(sources=[source], streaming=streaming))) == ARTICLES
    with pytest.raises(ValueError, match="document_separator or rows_per_document, not both"):
        of_hub(document_separator="heading", rows_per_document=2)
