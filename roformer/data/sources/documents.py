"""Documents: installed packages, made-up cases, local files or the Hugging Face Hub.

A document of a local file is

* a row of `.jsonl` `.json` (one JSON object a line) or `.parquet`, its text in `data.text_field`;
* a run of lines between blank lines of a `.txt`, as in BERT's own input format. A WikiText paragraph
  is thus a document of its own, and a file without blank lines is one document. With
  `data.document_separator=line_break` each line that is not blank is a document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from roformer.config.schema import BuiltinText, ChineseBuiltinText, FilesText, HubText, Text
from roformer.data.sources import Columns, Example, MadeRows, Source
from roformer.data.sources.files import JSON_LINES, PLAIN, FoundFiles, file_rows, has_suffix
from roformer.data.sources.hub import HubTable, current_revision
from roformer.data.toy.cases import case_documents
from roformer.data.toy.docstrings import docstring_documents, docstring_packages


def open_documents(config: Text, *, workers: int | None = None) -> Source[Example]:
    """Open the source that the config names, reading nothing yet but a list of files."""
    if isinstance(config, BuiltinText):
        packages, skipped = docstring_packages(), list[str]()
        return MadeRows(
            lambda _: _documents(docstring_documents(workers=workers, skipped=skipped)),
            {"packages": packages},
            kind="builtin",
            files_skipped=skipped,
        )
    if isinstance(config, ChineseBuiltinText):
        seed = config.documents_seed
        # Changed templates must not find the text of those before.
        sample = "\n".join(case_documents(20, seed))
        return MadeRows(
            lambda _: _documents(case_documents(config.documents, seed)),
            {"sample": hashlib.sha256(sample.encode()).hexdigest()},
            kind="chinese_builtin",
            documents_seed=seed,
        )
    return FileDocuments(config) if isinstance(config, FilesText) else HubDocuments(config)


def _documents(texts: Iterable[str]) -> Iterator[Example]:
    return (Example(number, (text,)) for number, text in enumerate(texts))


class FileDocuments(FoundFiles[Example]):
    """Local files, in the order of their names."""

    def __init__(self, config: FilesText) -> None:
        super().__init__(config.path, (*PLAIN, *JSON_LINES, ".parquet"), config.max_bad_rows)
        self.config = config

    def rows(self, split: str = "all") -> Iterator[Example]:
        columns = Columns((self.config.text_field,), set_by="data.text_field")
        read = (file_rows(file, columns, self.config.document_separator) for file in self.names)
        return self.fitting(chain.from_iterable(read), split, columns)

    def separation(self) -> str:
        """Return how a .txt is cut into documents, for a message about too few."""
        plain = any(has_suffix(file, PLAIN) for file in self.names)
        if not plain or self.config.document_separator == "line_break":
            return ""
        return (
            " (blank lines part the documents of a .txt: put them there, or read each line as a "
            "document with data.document_separator=line_break)"
        )


class HubDocuments(Source[Example]):
    """Data sets of the Hub, one after the other; rows without a text are skipped.

    A null revision is looked up when the reading starts and stands in the account. The cache key
    has the null: what was prepared once is found again without a network.
    """

    def __init__(self, config: HubText) -> None:
        super().__init__(kind="hub")
        self.config = config
        self.places: dict[str, dict[str, Any]] = {}

    def rows(self, split: str = "all") -> Iterator[Example]:
        for source in self.config.sources:
            revision = source.revision or current_revision(source.path)
            place = source.path, source.name, revision, source.split
            columns = Columns((source.text_field,), set_by="the source's text_field")
            table = HubTable(*place, columns, streaming=self.config.streaming)
            told = dict(zip(("path", "name", "revision", "split"), place, strict=True))
            self.places[table.where] = told
            rows = self.checked(table.rows(), table.where, columns, None, "")
            while joined := list(islice(rows, source.rows_per_document)):
                yield Example(joined[0].number, ("\n".join(row.texts[0] for row in joined),))

    def describe(self) -> dict[str, Any]:
        read = self.rows_read
        sources = [told | {"rows_read": read[where]} for where, told in self.places.items()]
        return super().describe() | {"sources": sources}
