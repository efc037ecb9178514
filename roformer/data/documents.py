"""Where a text corpus comes from: installed packages, local files or the Hugging Face Hub.

A source yields documents as strings and can say, for the manifest, exactly what it read. Anything
wrong with the input is one `InputError` line that names the file, the line and the key to change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, cast

from roformer.config.schema import (
    BuiltinText,
    ChineseBuiltinText,
    FilesText,
    HubSource,
    HubText,
    Text,
)
from roformer.data.files import FileDocuments, checked_text, first_line
from roformer.data.toy.cases import case_documents
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.errors import InputError

WRAPPERS = (
    "ConnectionError",
    "DatasetGenerationError",
    "FileNotFoundError",
    "LocalEntryNotFoundError",
)
"""Errors of the Hub's libraries that hide another one, which says what happened."""


class DocumentSource(Protocol):
    """Documents in an order that the input alone decides, and an account of what was read."""

    def documents(self) -> Iterator[str]:
        """Yield the documents, none empty; raise InputError where the input is wrong."""

    def describe(self) -> dict[str, Any]:
        """Say what was read, for the manifest; complete once `documents()` is used up."""

    def key(self) -> dict[str, Any]:
        """Identify the input, cheaply and without absolute paths, for a cache key."""


def open_documents(config: Text, *, workers: int | None = None) -> DocumentSource:
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

    def __init__(self, config: BuiltinText, workers: int | None = None) -> None:
        self.config, self.workers = config, workers
        self.rows_read = 0
        self.skipped: list[str] = []

    def documents(self) -> Iterator[str]:
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

    def __init__(self, config: ChineseBuiltinText) -> None:
        self.config = config
        self.rows_read = 0

    def documents(self) -> Iterator[str]:
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

    def __init__(self, config: HubText) -> None:
        self.config = config
        self.read: list[dict[str, Any]] = []

    def documents(self) -> Iterator[str]:
        self.read = []
        return islice(self._documents(), self.config.max_documents)

    def _documents(self) -> Iterator[str]:
        for source in self.config.sources:
            account: dict[str, Any] = {
                "path": source.path,
                "name": source.name,
                "revision": source.revision or _current_revision(source),
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
        with reachable(source.path):
            from datasets import load_dataset

            rows = load_dataset(
                source.path,
                source.name,
                revision=revision,
                split=source.split,
                streaming=self.config.streaming,
            )
            check_revision(rows, source.path, revision)
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


def _current_revision(source: HubSource) -> str:
    with reachable(source.path):
        from huggingface_hub import HfApi

        return cast(str, HfApi().dataset_info(source.path).sha)


@contextmanager
def reachable(path: str) -> Iterator[None]:
    """Turn what goes wrong in reading a data set of the Hub into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    # datasets, huggingface_hub and their HTTP clients share no base class for "could not be had"
    # (no network, no such revision, split or configuration, no permission, no disk left).
    except Exception as error:
        raise InputError(
            f"{path} cannot be read from the Hugging Face Hub: {told(error)}; "
            "data=files data.path=… works without a network"
        ) from error


def told(error: BaseException) -> str:
    """Return kind and first line of an error of the Hub's libraries, or of what it hides.

    A server's error 500 and a damaged file reach us inside errors that say only that something
    could not be found or made.
    """
    while type(error).__name__ in WRAPPERS:
        # `datasets` looks into its cache after a lost connection, which is then the context.
        lost = isinstance(error, ConnectionError)
        hidden = error.__cause__ or (None if lost else error.__context__)
        if hidden is None:
            break
        error = hidden
    return f"{type(error).__name__}, {first_line(error)}".rstrip(".")


def check_revision(table: Any, path: str, revision: str) -> None:
    """Refuse a data set that `datasets` took from its cache in another revision than asked for.

    Where the Hub cannot be reached, `load_dataset` gives the newest that it has of any revision.

    Raises:
        InputError: the files that the table was made of are of another commit.
    """
    places = [file["filename"] for file in getattr(table, "cache_files", [])]
    streamed = getattr(table, "_ex_iterable", None)  # no public name says what is streamed
    places += [str(place) for place in getattr(streamed, "kwargs", {}).get("files", [])]
    if places and not any(revision in place for place in places):
        raise InputError(
            f"{path}: the Hugging Face Hub cannot be reached, and of revision {revision} nothing is "
            "in the cache, only of another: start again with a network"
        )
