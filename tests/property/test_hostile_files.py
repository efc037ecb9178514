"""Text and tokenizers of any bytes: each is read whole, or raises one line that names the file.

The law of `read_or_refused`; and where a reader returns something, nothing was cut out of it silently.
"""

import io
import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.config.schema import FilesText, TokenizerConfig
from roformer.data.bpe import Bpe
from roformer.data.files import text_lines
from roformer.data.text import open_documents
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece, load_wordpiece
from roformer.errors import LONGEST, InputError
from tests.property.hostile import fuzz, mangled, mangled_json, read_or_refused

VOCABULARY = [*SPECIAL_TOKENS, *"abcde", *(f"##{c}" for c in "abcde")]
BAD_ROWS = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


def lines_of(file):
    return [line for _, line in text_lines(file)]


def lines(file, content):
    found = read_or_refused(lambda: lines_of(file), file)
    wanted = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    assert found is None or len(found) == wanted


def documents(file, content):
    source = open_documents(FilesText(path=str(file), max_bad_rows=BAD_ROWS))
    found = read_or_refused(lambda: [row.texts[0] for row in source.rows()], file)
    if found is not None:
        assert all(text.strip() and text.encode() for text in found)
        assert len(found) + source.skipped["all"] == source.rows_read["all"]
        assert source.skipped["all"] <= BAD_ROWS
    if found is not None and file.suffix == ".jsonl":
        rows = [line for line in content.decode("utf-8-sig").split("\n") if line.strip()]
        assert len(rows) == source.rows_read["all"]


def vocabulary(file, content):
    found = used(lambda: load_wordpiece(TokenizerConfig(source=str(file))), file)
    assert found is None or found.size == len(content.removesuffix(b"\n").split(b"\n"))


def used(read, *names):
    """Read a tokenizer by the law and encode with it."""
    tokenizer = read_or_refused(read, *names)
    if isinstance(tokenizer, WordPiece):
        assert len(set(tokenizer.vocabulary)) == tokenizer.size
        ids = tokenizer.encode("abc \0\u2028 x")
    elif tokenizer is not None:
        (ids,) = tokenizer.encode_batch(["abc \0\u2028 x"], tokenizer.source_language)
    assert tokenizer is None or all(0 <= index < tokenizer.size for index in ids)
    return tokenizer


pyarrow.parquet.write_table(
    pyarrow.table({"text": ["One.", None, "Three."]}), stream := io.BytesIO()
)
PARQUET = stream.getvalue()
ROWS = "".join(json.dumps({"text": f"Document {i}."}) + "\n" for i in range(4)).encode()
READERS = {
    "lines.txt": (lines, mangled("One.\r\nTwo\u2028two\n\n\ufeffThree\n".encode())),
    "rows.jsonl": (documents, mangled(ROWS) | st.just(b'{"text": "\\ud800"}\n')),
    # The last bytes say that it is Parquet at all.
    "rows.parquet": (documents, mangled(PARQUET[:-8]).map(lambda c: c + PARQUET[-8:])),
    "vocab.txt": (vocabulary, mangled("\n".join([*VOCABULARY, ""]).encode())),
}


@pytest.mark.parametrize("name", READERS)
@given(st.data())
@fuzz(40)
def test_a_file_is_read_whole_or_refused(folder, name, data):
    assert_law, contents = READERS[name]
    (folder / name).write_bytes(content := data.draw(contents))
    assert_law(folder / name, content)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the folder of a tokenizer of each class."""
    made = (
        WordPiece.bert(VOCABULARY, lowercase=True),
        Bpe([("a", "b"), ("ab", "c")], "moses", "en", "de"),
    )
    folders = {type(one): tmp_path_factory.mktemp(type(one).__name__) for one in made}
    for one in made:
        one.save(folders[type(one)])
    (folders[WordPiece] / "vocab.txt").unlink()  # so that tokenizer.json is read
    return folders


JSON = [(WordPiece, "tokenizer.json"), (WordPiece, "tokenizer_config.json")]


@pytest.mark.parametrize(("cls", "name"), [*JSON, (Bpe, "tokenizer.json"), (Bpe, "bpe.json")])
@given(st.data())
@fuzz(40)
def test_a_tokenizer_folder_is_sound_or_refused(saved, cls, name, data):
    file = saved[cls] / name
    good = file.read_bytes()
    whole = json.loads(good)
    try:
        file.write_bytes(data.draw(mangled(good) | mangled_json(whole)))
        assert isinstance(used(lambda: cls.load(saved[cls]), saved[cls]), cls | None)
    finally:
        file.write_bytes(good)


@given(st.text() | st.text("\n\r\u2028\x1b\ud800\0", min_size=1))
@fuzz(40)
def test_a_refusal_is_one_printable_line(text):
    message = str(InputError(f"a{text}b"))
    assert message.isprintable() and len(message.splitlines()) == 1
    assert not text.isprintable() or message == f"a{text}b"


def test_a_long_refusal_keeps_its_place_and_what_to_do():
    message = str(InputError(f"file.tsv:3: {'x' * 10**6}: fix it"))
    assert message.startswith("file.tsv:3: x") and message.endswith("x: fix it")
    assert len(message) <= LONGEST + 3
