"""Text and tokenizers of any bytes: each is read whole, or refused in one line that names the file.

The law of `read_or_refused`; and where a reader returns something, nothing was cut out of it silently.
"""

import gzip
import io
import json
from itertools import zip_longest

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roformer.config.glue import FilesGlue
from roformer.config.schema import FilesText, TokenizerConfig
from roformer.data.bpe import Bpe
from roformer.data.sources.documents import FileDocuments
from roformer.data.sources.examples import FolderExamples
from roformer.data.sources.files import text_lines
from roformer.data.sources.pairs import FilePairs
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece, load_wordpiece
from roformer.errors import LONGEST, InputError
from tests.data.glue_tasks import TASKS
from tests.data.parallel_texts import files as parallel_files
from tests.property.hostile import fuzz, mangled, mangled_json, read_or_refused

VOCABULARY = [*SPECIAL_TOKENS, *"abcde", *(f"##{c}" for c in "abcde")]
WORDPIECE = WordPiece(VOCABULARY, lowercase=True)
BPE = Bpe([("a", "b"), ("ab", "c"), ("Ġ", "abc")], "moses", "en", "de")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


# --- lines and documents -------------------------------------------------------------------------


@given(mangled("One.\r\nTwo\u2028two\n\n\ufeffThree\n".encode()), st.booleans())
@fuzz(80)
def test_lines_are_all_there_or_the_file_is_named(folder, content, packed):
    file = folder / ("lines.txt.gz" if packed else "lines.txt")
    file.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    lines = read_or_refused(lambda: [line for _, line in text_lines(file)], file)
    wanted = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
    assert lines is None or len(lines) == wanted


@given(mangled(gzip.compress(b"One.\nTwo.\n" * 9, mtime=0)))
@fuzz(80)
def test_a_damaged_gzip_is_never_half_a_text(folder, content):
    (file := folder / "packed.txt.gz").write_bytes(content)
    lines = read_or_refused(lambda: [line for _, line in text_lines(file)], file)
    assert lines is None or lines == gzip.decompress(content).decode().split("\n")[:-1]


ROWS = "".join(json.dumps({"text": f"Document {i}."}) + "\n" for i in range(4)).encode()


def documents(file, bad_rows, field="text"):
    source = FileDocuments(FilesText(path=str(file), max_bad_rows=bad_rows, text_field=field))
    return [row.texts[0] for row in source.rows()], source


@given(mangled(ROWS), st.sampled_from([0, 2]))
@example(b'{"text": "\\ud800"}\n', 1)
@example(b'{"text": ' + b"[" * 100_000 + b"\n", 1)
@fuzz(120)
def test_json_lines_are_read_or_counted_as_skipped(folder, content, bad_rows):
    (file := folder / "rows.jsonl").write_bytes(content)
    if (found := read_or_refused(lambda: documents(file, bad_rows), file)) is not None:
        texts, source = found
        lines = [line for line in content.decode("utf-8-sig").split("\n") if line.strip()]
        assert len(texts) + source.skipped["all"] == len(lines) == source.rows_read["all"]
        assert source.skipped["all"] <= bad_rows
        assert all(text.strip() and text.encode() for text in texts)


def parquet(columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), stream := io.BytesIO())
    return stream.getvalue()


PARQUET = parquet({"text": ["One.", None, "Three."]})


@given(mangled(PARQUET[:-8]).map(lambda content: content + PARQUET[-8:]) | mangled(PARQUET))
@fuzz(60)
def test_a_damaged_parquet_is_refused_or_read(folder, content):
    (file := folder / "rows.parquet").write_bytes(content)
    found = read_or_refused(lambda: documents(file, 1), file)
    assert found is None or all(isinstance(text, str) and text for text in found[0])


# --- rows of tasks and pairs ---------------------------------------------------------------------

TABLES = {
    "rte": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n",
    "stsb": "index\tsentence1\tsentence2\tscore\n0\ta\tb\t5.0\n1\tc\td\t0.25\n",
    "cola": "gj04\t1\t\tOne.\ngj04\t0\t*\tTwo it.\n",
}


@pytest.mark.parametrize("name", TABLES)
@given(st.data(), st.sampled_from([0, 1]))
@fuzz(80)
def test_a_table_of_a_task_is_read_or_counted(folder, name, data, bad_rows):
    task = TASKS[name]
    (place := folder / task.files.folder).mkdir(exist_ok=True)
    file = place / "train.tsv"
    file.write_bytes(data.draw(mangled(TABLES[name].encode())))
    source = FolderExamples(name, task, FilesGlue(path=str(folder), max_bad_rows=bad_rows))
    rows = read_or_refused(lambda: list(source.rows("train")), file)
    (place / "test.tsv").write_bytes(file.read_bytes())
    read_or_refused(lambda: list(source.rows("test")), place / "test.tsv")
    if rows is None:
        return
    lines = [line for _, line in text_lines(file)]
    header = name != "cola"
    full = [line for line in lines[header:] if line or not lines[0].count("\t")]
    assert len(rows) + source.skipped["train"] == len(full)
    for _, texts, label, _ in rows:
        assert len(texts) == len(task.texts) and all(isinstance(text, str) for text in texts)
        if task.labels is not None:
            assert label in range(len(task.labels))
        else:
            assert task.scores[0] <= label <= task.scores[1]


PAIRS = b"One.\nTwo.\nThree.\n"


@given(mangled(PAIRS), mangled(PAIRS) | st.just(PAIRS), st.sampled_from(["train", "test"]))
@fuzz(80)
def test_pairs_stay_aligned(folder, source, target, split):
    for name in ("train", "valid", "test"):
        (folder / f"{name}.en").write_bytes(source)
        (folder / f"{name}.de").write_bytes(target)
    pairs = FilePairs(parallel_files(folder))
    found = read_or_refused(
        lambda: list(pairs.rows(split)), folder / f"{split}.en", folder / f"{split}.de"
    )
    if found is not None:
        sides = [[line for _, line in text_lines(folder / f"{split}.{of}")] for of in ("en", "de")]
        whole = list(zip_longest(*sides))
        assert [row.texts for row in found] == [
            pair for pair in whole if pair[0].strip() and pair[1].strip()
        ]
        assert len(found) + pairs.skipped[split] == len(whole)


# --- tokenizers ----------------------------------------------------------------------------------


def used(read, *names):
    """Read a tokenizer by the law and encode with it."""
    tokenizer = read_or_refused(read, *names)
    if isinstance(tokenizer, WordPiece):
        assert len(set(tokenizer.vocabulary)) == tokenizer.size
        ids = tokenizer.encode("abc \0\u2028 x")
    elif tokenizer is not None:
        (ids,) = tokenizer.encode_batch(["abc \0\u2028 x"], tokenizer.source_language)
    else:
        return None
    assert all(0 <= index < tokenizer.size for index in ids)
    return tokenizer


@given(mangled("\n".join([*VOCABULARY, ""]).encode()))
@fuzz(80)
def test_a_vocabulary_is_sound_or_refused(folder, content):
    (file := folder / "vocab.txt").write_bytes(content)
    found = used(lambda: load_wordpiece(TokenizerConfig(source=str(file))), file)
    assert found is None or found.size == len(content.removesuffix(b"\n").split(b"\n"))


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    WORDPIECE.save(folder := tmp_path_factory.mktemp("wordpiece"))
    (folder / "vocab.txt").unlink()  # so that tokenizer.json is read
    return folder


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    BPE.save(folder := tmp_path_factory.mktemp("bpe"))
    return folder


JSON = [
    ("wordpiece", "tokenizer.json"),
    ("wordpiece", "tokenizer_config.json"),
    ("bpe", "tokenizer.json"),
    ("bpe", "bpe.json"),
]


@pytest.mark.parametrize(("kind", "name"), JSON)
@given(st.data())
@fuzz(100)
def test_a_tokenizer_folder_is_sound_or_refused(request, kind, name, data):
    folder = request.getfixturevalue(kind)
    good = (folder / name).read_bytes()
    whole = json.loads(good)
    if name == "tokenizer.json":  # the parts that are read
        whole = {key: whole[key] for key in ("normalizer", "model")}
    try:
        (folder / name).write_bytes(data.draw(mangled(good) | mangled_json(whole)))
        reader = WordPiece if kind == "wordpiece" else Bpe
        assert isinstance(used(lambda: reader.load(folder), folder), reader | None)
    finally:
        (folder / name).write_bytes(good)


# --- the message ---------------------------------------------------------------------------------


@given(st.text() | st.text("\n\r\u2028\x1b\ud800\0", min_size=1))
@fuzz(80)
def test_a_refusal_is_one_printable_line(text):
    message = str(InputError(f"a{text}b"))
    assert message.isprintable() and len(message.splitlines()) == 1
    assert not text.isprintable() or message == f"a{text}b"


def test_a_long_refusal_keeps_its_place_and_what_to_do():
    message = str(InputError(f"file.tsv:3: {'x' * 10**6}: mend it"))
    assert message.startswith("file.tsv:3: x") and message.endswith("x: mend it")
    assert len(message) <= LONGEST + 3
