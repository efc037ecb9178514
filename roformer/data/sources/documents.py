"""Documents: installed packages, made-up cases, local files or the Hugging Face Hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, cast

from roformer.config.schema import (
    BuiltinText,
    ChineseBuiltinText,
    FilesText,
    HubSource,
    HubText,
    Text,
)
from roformer.data.sources import MadeRows, Source
from roformer.data.sources.files import FileDocuments, checked_text
from roformer.data.sources.hub import current_revision, load, reachable
from roformer.data.toy.cases import case_documents
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.errors import InputError


def open_documents(config: Text, *, workers: int | None = None) -> Source[str]:
    """Open the source that the config names, reading nothing yet but a list of files.

    Raises:
        InputError: a path that does not exist, or holds no file of a supported kind.
    """
    if isinstance(config, BuiltinText):
        packages = docstring_packages()
        skipped: list[str] = []
        return MadeRows(
            lambda _: docstring_documents(workers=workers, skipped=skipped),
            {"packages": packages},
            kind="builtin",
            packages=packages,
            files_skipped=skipped,
        )
    if isinstance(config, ChineseBuiltinText):
        seed = config.documents_seed
        # Changed templates must not find the text of those before.
        sample = "\n".join(case_documents(20, seed))
        return MadeRows(
            lambda _: case_documents(config.documents, seed),
            {"sample": hashlib.sha256(sample.encode()).hexdigest()},
            kind="chinese_builtin",
            documents_seed=seed,
        )
    return FileDocuments(config) if isinstance(config, FilesText) else HubDocuments(config)


class HubDocuments(Source[str]):
    """Data sets of the Hub, one after the other, through `datasets.load_dataset`.

    A null revision is looked up when the reading starts and stands in the account. The cache key
    has the null: what was prepared once is found again without a network.
    """

    def __init__(self, config: HubText) -> None:
        self.config = config
        self.account: dict[str, Any] = {}

    def rows(self, split: str = "all") -> Iterator[str]:
        self.account = {"kind": "hub", "sources": [], "rows_read": 0, "rows_skipped": 0}
        for source in self.config.sources:
            account: dict[str, Any] = {
                "path": source.path,
                "name": source.name,
                "revision": source.revision or current_revision(source.path),
                "split": source.split,
                "rows_read": 0,
                "rows_skipped": 0,
            }
            self.account["sources"].append(account)
            rows: list[str] = []
            for value in self._column(source, account["revision"]):
                text, _ = checked_text(value, source.text_field)
                for counts in (account, self.account):
                    counts["rows_read"] += 1
                    counts["rows_skipped"] += text is None
                if text is not None:
                    rows.append(text)
                if len(rows) == source.rows_per_document:
                    yield "\n".join(rows)
                    rows = []
            if rows:
                yield "\n".join(rows)

    def _column(self, source: HubSource, revision: str) -> Iterator[object]:
        streaming = self.config.streaming
        with reachable(source.path):  # what is streamed is fetched row by row
            rows = load(source.path, source.name, revision, source.split, streaming=streaming)
            for row in cast(Iterable[dict[str, object]], rows):
                if source.text_field not in row:
                    raise InputError(
                        f"{source.path} has no column {source.text_field!r}: set the source's "
                        f"text_field to one of {', '.join(row)}"
                    )
                yield row[source.text_field]

    def describe(self) -> dict[str, Any]:
        return self.account
