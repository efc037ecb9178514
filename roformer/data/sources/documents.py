"""Documents: installed packages, made-up cases, local files or the Hugging Face Hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from roformer.config.schema import (
    BuiltinText,
    ChineseBuiltinText,
    FilesText,
    HubSource,
    HubText,
    Text,
)
from roformer.data.sources import Source
from roformer.data.sources.files import FileDocuments, checked_text
from roformer.data.sources.hub import current_revision, load, reachable
from roformer.data.toy.cases import case_documents
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.errors import InputError


def open_documents(config: Text, *, workers: int | None = None) -> Source[str]:
    """Open the source that the config names, reading nothing yet but a list of files.

    Args:
        config: which corpus.
        workers: processes that parse the built-in corpus; null: one a core.

    Raises:
        InputError: a path that does not exist, or holds no file of a supported kind.
    """
    if isinstance(config, BuiltinText):
        return BuiltinDocuments(config, workers)
    if isinstance(config, ChineseBuiltinText):
        return CaseDocuments(config)
    if isinstance(config, FilesText):
        return FileDocuments(config)
    return HubDocuments(config)


class BuiltinDocuments:
    """Docstrings of the pinned packages; see `roformer.data.toy.docstrings`."""

    splits = ("all",)

    def __init__(self, config: BuiltinText, workers: int | None = None) -> None:
        self.config, self.workers = config, workers
        self.rows_read = 0
        self.skipped: list[str] = []

    def rows(self, split: str = "all") -> Iterator[str]:
        self.rows_read, self.skipped = 0, []
        found = docstring_documents(workers=self.workers, skipped=self.skipped)
        for text in islice(found, self.config.max_documents):
            self.rows_read += 1
            yield text

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "builtin",
            "packages": docstring_packages(),
            "rows_read": self.rows_read,
            "rows_skipped": 0,
            "files_skipped": self.skipped,
        }

    def key(self) -> dict[str, Any]:
        return {"packages": docstring_packages()}


class CaseDocuments:
    """Chinese legal cases of a grammar; see `roformer.data.toy.cases`."""

    splits = ("all",)

    def __init__(self, config: ChineseBuiltinText) -> None:
        self.config = config
        self.rows_read = 0

    def rows(self, split: str = "all") -> Iterator[str]:
        self.rows_read = 0
        made = case_documents(self.config.documents, self.config.documents_seed)
        for text in islice(made, self.config.max_documents):
            self.rows_read += 1
            yield text

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "chinese_builtin",
            "documents_seed": self.config.documents_seed,
            "rows_read": self.rows_read,
            "rows_skipped": 0,
        }

    def key(self) -> dict[str, Any]:
        # A changed grammar must not find the text of the one before.
        sample = "\n".join(case_documents(20, self.config.documents_seed))
        return {"sample": hashlib.sha256(sample.encode()).hexdigest()}


# --- the Hugging Face Hub ------------------------------------------------------------------------


class HubDocuments:
    """Data sets of the Hub, one after the other, through `datasets.load_dataset`.

    A null revision is looked up when the reading starts and stands in `describe()`. `key()` keeps
    the null: what was prepared once is found again without a network.
    """

    splits = ("all",)

    def __init__(self, config: HubText) -> None:
        self.config = config
        self.read: list[dict[str, Any]] = []

    def rows(self, split: str = "all") -> Iterator[str]:
        self.read = []
        return islice(self._documents(), self.config.max_documents)

    def _documents(self) -> Iterator[str]:
        for source in self.config.sources:
            account: dict[str, Any] = {
                "path": source.path,
                "name": source.name,
                "revision": source.revision or current_revision(source.path),
                "split": source.split,
                "rows_read": 0,
                "rows_skipped": 0,
            }
            self.read.append(account)
            rows: list[str] = []
            for value in self._column(source, account["revision"]):
                account["rows_read"] += 1
                text, _ = checked_text(value, source.text_field)
                if text is None:
                    account["rows_skipped"] += 1
                    continue
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
        return {
            "kind": "hub",
            "sources": self.read,
            "rows_read": sum(account["rows_read"] for account in self.read),
            "rows_skipped": sum(account["rows_skipped"] for account in self.read),
        }

    def key(self) -> dict[str, Any]:
        return {}  # the sources stand in the config
