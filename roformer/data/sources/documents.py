"""Documents: installed packages, synthetic cases, local files or the Hugging Face Hub.

A document of a local file is

* a row of `.jsonl` `.json` (one JSON object a line) or `.parquet`, its text in `data.text_field`;
* a run of lines between blank lines of a `.txt`, as in BERT's own input format. A file without blank lines
  is one document. With `data.document_separator=line_break` each line that is not blank is a document, with
  `heading` each article of a WikiText file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from roformer.config.build import plain
from roformer.config.schema import BuiltinText, ChineseBuiltinText, FilesText, HubText, Text
from roformer.data.sources import Columns, Example, MadeRows, Rows, Source
from roformer.data.sources.files import (
    JSON_LINES,
    PLAIN,
    FoundFiles,
    articles,
    file_rows,
    has_suffix,
)
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
        if not plain or self.config.document_separator != "blank_line":
            return ""
        return (
            " (blank lines part the documents of a .txt: put them there, or read each line as a "
            "document with data.document_separator=line_break)"
        )


def _articles(table: HubTable, columns: Columns) -> Rows:
    """Yield the articles of a table of one line per row."""
    (field,) = columns.texts
    lines = ((number, row[field] or "") for _, number, row in table.rows() if isinstance(row, dict))
    return ((table.where, number, {field: text}) for number, text in articles(lines))


class HubDocuments(Source[Example]):
    """Data sets of the Hub, one after the other; rows without a text are skipped.

    A null revision is looked up when the reading starts and is written into the account. The cache key has
    the null, so that prepared data is found again without a network.
    """

    def __init__(self, config: HubText) -> None:
        super().__init__(kind="hub")
        self.config = config
        self.revisions: list[str] = []

    def rows(self, split: str = "all") -> Iterator[Example]:
        self.revisions = []
        for number, source in enumerate(self.config.sources, 1):
            revision = source.revision or current_revision(source.path)
            self.revisions.append(revision)
            place = source.path, source.name, revision, source.split
            columns = Columns((source.text_field,), set_by="the source's text_field")
            table = HubTable(*place, columns, streaming=self.config.streaming)
            given = table.rows() if source.document_separator is None else _articles(table, columns)
            rows = self.checked(given, f"source {number}", columns, None, "")
            while joined := list(islice(rows, source.rows_per_document)):
                yield Example(joined[0].number, ("\n".join(row.texts[0] for row in joined),))

    def describe(self) -> dict[str, Any]:
        # The last ones may not have been reached.
        read = zip(self.config.sources, self.revisions, self.rows_read.values(), strict=False)
        sources = [
            plain(source) | {"revision": revision, "rows_read": count}
            for source, revision, count in read
        ]
        return super().describe() | {"sources": sources}
