"""Where the examples of a GLUE task come from: grammars, the official folder or the Hub.

A source yields rows that are checked and labelled in one way, and can say, for the manifest, what
it read. Anything wrong with the input is one `InputError` line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

from roformer.config.glue import BuiltinGlue, FilesGlue, Glue, HubGlue, TaskConfig
from roformer.data.documents import check_revision, reachable
from roformer.data.glue_files import ExampleCheck, FolderExamples, Row, TestRow
from roformer.data.toy.glue import GRAMMAR, builtin_examples
from roformer.errors import InputError


class ExampleSource(Protocol):
    """The rows of one task, and an account of what was read."""

    def rows(self, split: str) -> Iterator[Row]:
        """Yield the labelled rows of a split; raise InputError where the input is wrong."""

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        """Yield index and texts of the test split, or of a part of it, without labels."""

    def describe(self) -> dict[str, Any]:
        """Say what was read, for the manifest; complete once the rows are used up."""

    def key(self, splits: Sequence[str]) -> dict[str, Any]:
        """Identify the input without absolute paths, for a cache key."""


def open_examples(name: str, task: TaskConfig, data: Glue) -> ExampleSource:
    """Open the source that the config names, reading nothing yet."""
    if isinstance(data, FilesGlue):
        return FolderExamples(name, task, data)
    if isinstance(data, HubGlue):
        return HubExamples(name, task, data)
    return BuiltinExamples(name, task, data)


class BuiltinExamples:
    """Tasks made by grammars; see `roformer.data.toy.glue`."""

    def __init__(self, name: str, task: TaskConfig, data: BuiltinGlue) -> None:
        self.name, self.data = name, data
        self.check = ExampleCheck(task)

    def rows(self, split: str) -> Iterator[Row]:
        train = split == "train"
        count = self.data.train_examples if train else self.data.validation_examples
        for index, made in enumerate(builtin_examples(self.name, split, count)):
            texts = [made.text_a] if made.text_b is None else [made.text_a, made.text_b]
            example, problem = self.check(texts, made.label)
            if example is None:
                raise InputError(
                    f"the built-in {self.name} does not fit task.{self.name}: {problem}"
                )
            yield (index, *example)

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        raise InputError(f"the built-in {self.name} has no test split: take data=hub or data=files")

    def describe(self) -> dict[str, Any]:
        return {"kind": "builtin", "grammar": GRAMMAR}

    def key(self, splits: Sequence[str]) -> dict[str, Any]:
        return {"grammar": GRAMMAR}


class HubExamples:
    """A configuration of GLUE on the Hub, through `datasets.load_dataset`."""

    def __init__(self, name: str, task: TaskConfig, data: HubGlue) -> None:
        self.name, self.task, self.data = name, task, data
        self.check = ExampleCheck(task)
        self.rows_read: dict[str, int] = {}

    def rows(self, split: str) -> Iterator[Row]:
        table = self._load(split, [*self.task.texts, "label", "idx"])
        names = getattr(table.features["label"], "names", None)
        if names is not None and names != self.task.labels:
            raise InputError(
                f"{self.data.path} ({self.name}) numbers its labels {names}, but task.{self.name}."
                f"labels={self.task.labels}: the order decides what a class number means, so give "
                "the data set's"
            )
        self.rows_read[split] = 0
        for row in cast(Iterable[dict[str, Any]], table):
            example, problem = self.check([row[text] for text in self.task.texts], row["label"])
            if example is None:
                raise InputError(
                    f"{self.data.path} ({self.name}, {split}), row with idx={row['idx']}: "
                    f"{problem}: give another data.revision"
                )
            self.rows_read[split] += 1
            yield (row["idx"], *example)

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        table = self._load(f"test_{part}" if part else "test", [*self.task.texts, "idx"])
        for row in cast(Iterable[dict[str, Any]], table):
            first, *second = (row[text] for text in self.task.texts)
            yield row["idx"], first, second[0] if second else None

    def _load(self, split: str, columns: list[str]) -> Any:
        """Return the data set with these columns alone."""
        path = self.data.path
        with reachable(path):
            from datasets import load_dataset

            table = load_dataset(path, self.name, revision=self.data.revision, split=split)
            check_revision(table, path, self.data.revision)
            missing = [column for column in columns if column not in table.column_names]
            if missing:
                raise InputError(
                    f"{path} ({self.name}, {split}) has no column {missing[0]!r}, but "
                    f"{', '.join(table.column_names)}: set task.{self.name}.texts, or another "
                    "data.path"
                )
            return table.select_columns(columns)

    def describe(self) -> dict[str, Any]:
        path, revision = self.data.path, self.data.revision
        return {"kind": "hub", "path": path, "revision": revision, "rows": self.rows_read}

    def key(self, splits: Sequence[str]) -> dict[str, Any]:
        return {}  # path and revision stand in the config
