"""The built-in corpus: what counts as a document, and that nothing but versions decides it."""

import pytest

from roformer.config.schema import BuiltinText, TokenizerConfig
from roformer.data.text import open_documents, prepare_text
from roformer.data.toy.docstrings import docstring_documents, module_docstrings
from roformer.errors import InputError

MODULE = '''
"""The module says what it is for."""
import os

class Outer:
    """Outer classes hold inner things.

        Indented by four.
    Back at the margin.
    """

    def method(self):
        r"""Methods of the class follow \\d it at once."""
        def inner():
            """Inner functions come right after their outer one."""

try:
    async def fetch():
        """Asynchronous functions are documented in the same way."""
except ImportError:
    def fetch():
        """Too short here."""
        text = """This string is not a docstring at all."""

def table():
    """| 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |"""
'''


def test_docstrings_stand_in_source_order_dedented_without_the_short_and_the_drawn(tmp_path):
    (file := tmp_path / "module.py").write_text(MODULE)
    assert module_docstrings(str(file)) == [
        "The module says what it is for.",
        "Outer classes hold inner things.\n\n    Indented by four.\nBack at the margin.",
        "Methods of the class follow \\d it at once.",
        "Inner functions come right after their outer one.",
        "Asynchronous functions are documented in the same way.",
    ]


@pytest.mark.parametrize(
    "content",
    [b"def broken(:\n", b'"""caf\xe9 is not UTF-8 in a module"""\n', b"x = 1\0\n", None],
    ids=["syntax", "encoding", "null byte", "missing"],
)
def test_a_file_that_cannot_be_parsed_is_none(tmp_path, content):
    file = tmp_path / "module.py"
    if content is not None:
        file.write_bytes(content)
    assert module_docstrings(str(file)) is None


INSTALLED = {
    "one/a.py": '"""A sentence that is in two   modules at once."""',
    "one/b.py": '"""A sentence that is in two modules at once."""',
    "one/c.py": '"""The last module has its own text."""\ndef f():\n    """A sentence that is '
    'in two modules at once."""',
    "one/tests/t.py": '"""Tests are not a part of the corpus."""',
    "one/version.py": '"""Written by the build and skipped."""',
    "one/d.py": "def (",
    "one/e.pyi": '"""Stubs are not a part of the corpus."""',
    "other/x.py": '"""Another folder of the same distribution says this."""',
    "two/z.py": '"""Found by looking into the folder itself."""',
}


def test_documents_are_modules_by_name_with_each_docstring_once(tmp_path, monkeypatch):
    """In two distributions, the second without a RECORD."""
    for file, content in INSTALLED.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content)
    for name in ("one", "two"):
        (info := tmp_path / f"dist_{name}-1.0.dist-info").mkdir()
        lines = f"Metadata-Version: 2.1\nName: dist-{name}\nVersion: 1.0+cpu\n"
        (info / "METADATA").write_text(lines)
    record = "".join(f"{file},,\n" for file in reversed([*INSTALLED][:-1]))
    (tmp_path / "dist_one-1.0.dist-info" / "RECORD").write_text(record)
    monkeypatch.syspath_prepend(str(tmp_path))
    packages = {"dist-one": "one", "dist-two": "two"}
    monkeypatch.setattr("roformer.data.toy.docstrings.DISTRIBUTIONS", packages)
    skipped = []
    documents = docstring_documents(["dist-two", "dist-one"], workers=1, skipped=skipped)
    assert list(documents) == [
        "Found by looking into the folder itself.",
        "A sentence that is in two   modules at once.",
        "The last module has its own text.",
    ]
    assert skipped == ["one/d.py"]
    shuffled = docstring_documents(["dist-two", "dist-one"], workers=1, shuffled=True)
    assert list(shuffled) == [
        "The last module has its own text.\n\nA sentence that is in two modules at once.",
        "Found by looking into the folder itself.",
    ]


def test_nothing_installed_says_what_to_do():
    with pytest.raises(InputError, match=r"not-installed-at-all is installed.*data=files"):
        list(docstring_documents(["not-installed-at-all"], workers=1))


def test_the_source_reads_no_more_than_it_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "roformer.data.text.docstring_documents",
        lambda **_: docstring_documents(["accelerate"], workers=1),
    )
    config = BuiltinText(max_documents=9, tokenizer=TokenizerConfig(vocab_size=200))
    account = prepare_text(config, tmp_path, progress=False).manifest["source"]
    assert account["rows_read"] == 9
    assert open_documents(config).key == {"packages": account["packages"]}
