"""The Hugging Face Hub: what is the same for every data set of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from roformer.data.files import Columns, Rows, first_line
from roformer.errors import InputError

BATCH = 100
"""Rows that are Python objects at once."""
WRAPPERS = {
    "ConnectionError",
    "DatasetGenerationError",
    "FileNotFoundError",
    "LocalEntryNotFoundError",
}
"""Errors of the Hub's libraries that hide another one, which says what happened."""


class HubTable:
    """Some columns of a split of a data set of the Hub, downloaded or streamed."""

    def __init__(
        self,
        path: str,
        name: str | None,
        revision: str,
        split: str,
        columns: Columns,
        streaming: bool = False,
    ) -> None:
        self.path = path
        self.where = f"{path} ({name}, {split})" if name else f"{path} ({split})"
        with reachable(path):
            from datasets import load_dataset

            table = load_dataset(path, name, revision=revision, split=split, streaming=streaming)
            check_revision(table, path, revision)
            # Some streams say their columns with the first row only.
            columns.find(self.where, table.column_names or list(next(iter(table), {})))
            self.table: Any = table.select_columns(columns.names)

    def rows(self) -> Rows:
        """Yield the rows."""
        number = 0
        with reachable(self.path):  # a stream is fetched as it is read
            for batch in self.table.iter(batch_size=BATCH):
                for row in zip(*batch.values(), strict=True):
                    number += 1
                    yield self.where, number, dict(zip(batch, row, strict=True))
        if not number:
            raise InputError(f"{self.where} has no row: give another revision")


def current_revision(path: str) -> str:
    """Return the commit that a data set of the Hub is at."""
    with reachable(path):
        from huggingface_hub import HfApi

        return cast(str, HfApi().dataset_info(path).sha)


@contextmanager
def reachable(path: str) -> Iterator[None]:
    """Turn failures to read a data set of the Hub into InputErrors that name it."""
    try:
        yield
    except InputError:
        raise
    # datasets, huggingface_hub and their HTTP clients share no base class for "could not be had"
    # (no network, no such revision, split or configuration, no permission, no disk left).
    except Exception as error:
        raise InputError(
            f"{path} cannot be read from the Hugging Face Hub: {describe_error(error)}; "
            "data=files data.path=… works without a network"
        ) from error


def describe_error(error: BaseException) -> str:
    """Return kind and first line of an error of the Hub's libraries, or of the error inside it.

    A server's error 500 and a damaged file arrive inside errors that say only "not found" or "not made".
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
    """Raise InputError if `datasets` took another revision than the requested one from its cache.

    `load_dataset` returns the newest revision of its cache if the Hub cannot be reached.
    """
    places = [file["filename"] for file in getattr(table, "cache_files", [])]
    streamed = getattr(table, "_ex_iterable", None)  # no public name says what is streamed
    reads = getattr(streamed, "kwargs", {})  # of Parquet `files`, of plain text `base_files`
    places += [str(place) for place in reads.get("files", reads.get("base_files", []))]
    if places and not any(revision in place for place in places):
        raise InputError(
            f"{path}: the Hugging Face Hub cannot be reached, and the cache has another revision, "
            f"not {revision}: start again with a network"
        )
