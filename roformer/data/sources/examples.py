"""Examples of the GLUE tasks: built in, the official folder or the Hub.

In the official folder a task is a folder of tab-separated files. A tab always ends a field and
quotes are text like any other: these files are not CSV. Columns are found by their name in the
header, or by number in a file without one (CoLA). Text is UTF-8, a byte-order mark (MRPC) is
ignored, and lines may end in CRLF.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from roformer.config.glue import BuiltinGlue, Column, FilesGlue, Glue, HubGlue, TaskConfig
from roformer.data.sources import Source
from roformer.data.sources.files import BadRows, Checked, identity, text_lines
from roformer.data.sources.hub import load
from roformer.data.toy.glue import GRAMMAR, builtin_examples
from roformer.errors import InputError

TestRow = tuple[int, str, str | None]
"""Row number of a test example in its source, and its text or texts."""
NOWHERE = -1
"""`Example.place` of all but built-in triplets."""


class Example(NamedTuple):
    """A labelled text, pair or triplet."""

    number: int
    """Row number in its source, bad rows counted."""
    texts: tuple[str, ...]
    label: int | float
    """The class number or the score; of a triplet 0 where A is closer to B and 1 if to C."""
    place: int = NOWHERE
    """Place of the evidence in a built-in triplet: number in `PLACES`."""


def open_examples(name: str, task: TaskConfig, data: Glue) -> ExampleSource:
    """Open the source that the config names, reading nothing yet."""
    if isinstance(data, FilesGlue):
        return FolderExamples(name, task, data)
    if isinstance(data, HubGlue):
        return HubExamples(name, task, data)
    return BuiltinExamples(name, task, data)


class ExampleSource(Source[Example]):
    """The rows of one task; the headline's validation split comes before the other."""

    def __init__(self, name: str, task: TaskConfig) -> None:
        self.name, self.task = name, task
        self.splits = ("train", *([f"validation_{part}" for part in task.parts] or ["validation"]))
        # A class is spelt as its number in some files and by its name in others.
        labels = list(enumerate(task.labels or ()))
        self.numbers = {str(number): number for number, _ in labels}
        self.numbers |= {label: number for number, label in labels}

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        """Yield index and texts of the test split, or of a part of it, without labels."""
        raise InputError(f"the built-in {self.name} has no test split: take data=hub or data=files")

    def check(
        self, number: int, texts: Sequence[object], label: object
    ) -> tuple[Example | None, str]:
        """Return the example, else None and what is wrong with it.

        One of two texts may be empty, as happens in the official data.
        """
        strings = [text for text in texts if isinstance(text, str)]
        if len(strings) < len(texts):
            wrong = next(text for text in texts if not isinstance(text, str))
            return None, f"a text is {'null' if wrong is None else type(wrong).__name__}"
        if not any(text.strip() for text in strings):
            return None, "no text"
        value: float | None
        if self.task.scores is None:
            names = self.task.labels or []
            value = self.numbers.get(str(label)) if label is not None else None
            valid = f"none of {', '.join(names)} (or 0 to {len(names) - 1})"
        else:
            lowest, highest = self.task.scores
            value = _score(label)
            value = value if lowest <= value <= highest else None
            valid = f"no number from {lowest:g} to {highest:g}"
        if value is None:
            kind = "label" if self.task.scores is None else "score"
            return None, f"{kind} {label!r} is {valid}"
        return Example(number, tuple(strings), value), ""


def _score(label: object) -> float:
    try:
        # Python would read 1_0 as ten.
        return float("nan" if "_" in str(label) else label)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return float("nan")


class BuiltinExamples(ExampleSource):
    """Tasks made from templates; see `roformer.data.toy.glue`."""

    def __init__(self, name: str, task: TaskConfig, data: BuiltinGlue) -> None:
        super().__init__(name, task)
        self.data = data

    def rows(self, split: str = "train") -> Iterator[Example]:
        train = split == "train"
        count = self.data.train_examples if train else self.data.validation_examples
        for number, (text_a, text_b, label) in enumerate(builtin_examples(self.name, split, count)):
            texts = [text_a] if text_b is None else [text_a, text_b]
            example, problem = self.check(number, texts, label)
            if example is None:
                raise InputError(
                    f"the built-in {self.name} does not fit task.{self.name}: {problem}"
                )
            yield example

    def describe(self) -> dict[str, Any]:
        return {"kind": "builtin", "grammar": GRAMMAR}

    def key(self) -> dict[str, Any]:
        return {"grammar": GRAMMAR}


class FolderExamples(ExampleSource):
    """One task below the folder that `data.path` names."""

    def __init__(self, name: str, task: TaskConfig, data: FilesGlue) -> None:
        super().__init__(name, task)
        self.data, self.root = data, Path(data.path).expanduser()
        self.accounts: list[dict[str, Any]] = []

    def rows(self, split: str = "train") -> Iterator[Example]:
        """Yield the rows of a split.

        Raises:
            InputError: a missing file or column, text that is not UTF-8, or more bad rows than
                `data.max_bad_rows`.
        """
        file = self._file(split)
        bad, count = BadRows(self.data.max_bad_rows, self.root), 0
        columns = [*self.task.files.texts, self.task.files.label]
        for number, (line, cells, problem) in enumerate(self._cells(file, columns)):
            example = None
            if cells is not None:
                example, problem = self.check(number, cells[:-1], cells[-1])
            if example is None:
                bad.skip(file, line, problem)
            else:
                count += 1
                yield example
        counts = {"rows": count, "bad_rows": bad.count, "first_bad_row": bad.first}
        self.accounts.append({**self._identity(split), **counts})

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        """Yield index and texts of the test split; its labels, where there are any, stay unread.

        Raises:
            InputError: as `rows`, but at the first bad row: a submission needs all of them.
        """
        file = self._file(f"test_{part}" if part else "test")
        columns = self.task.files.test_texts or self.task.files.texts
        for number, (line, cells, problem) in enumerate(self._cells(file, columns)):
            if cells is None:
                raise InputError(f"{file}:{line}: {problem}: mend it; a submission needs every row")
            yield number, cells[0], cells[1] if len(cells) == 2 else None

    def describe(self) -> dict[str, Any]:
        return {"kind": "files", "files": self.accounts}

    def key(self) -> dict[str, Any]:
        return {"files": [self._identity(split) for split in self.splits]}

    def _file(self, split: str) -> Path:
        """Return the file of `train`, `validation`, `test` or one of their parts."""
        name = f"{split.replace('validation', 'dev')}.tsv"
        folder = self.root / self.task.files.folder
        if not self.root.is_dir():
            raise InputError(
                f"data.path={self.data.path} is no folder: give the GLUE folder, which holds a "
                f"folder for each task, {self.task.files.folder} for {self.name}"
            )
        if not folder.is_dir():
            raise InputError(
                f"data.path={self.data.path} has no folder {folder.name}, but {_names(self.root)}: "
                f"put {self.name} there, or set task.{self.name}.files.folder"
            )
        if not (folder / name).is_file():
            raise InputError(f"{folder} has no {name}, but {_names(folder)}: put the file there")
        return folder / name

    def _identity(self, split: str) -> dict[str, Any]:
        return {"split": split, **identity(self._file(split), self.root)}

    def _cells(self, file: Path, columns: Sequence[Column]) -> Iterator[Checked[list[str]]]:
        """Yield line number, the cells of these columns, and what is wrong where they are None."""
        width, places, empty = 0, [0], True
        for line, text in text_lines(file):
            cells = text.split("\t")
            if line == 1:
                width, places = len(cells), [self._place(file, cells, column) for column in columns]
                if any(isinstance(column, str) for column in columns):
                    continue  # the header
            if not text and width > 1:
                continue  # a blank line, as some editors leave at the end
            empty = False
            if len(cells) == width:
                yield line, [cells[place] for place in places], ""
            else:
                yield line, None, f"{len(cells)} tab-separated fields, not {width} as in line 1"
        if empty:
            raise InputError(f"{file} has no rows: fetch it again")

    def _place(self, file: Path, first: list[str], column: Column) -> int:
        """Return the place of a column, given the cells of the first line."""
        ways = f"set the columns in task.{self.name}.files"
        if isinstance(column, str):
            if (count := first.count(column)) != 1:
                columns = f"{count} columns" if count else "no column"
                raise InputError(f"{file}:1: {columns} {column!r} among {', '.join(first)}: {ways}")
            return first.index(column)
        if column >= len(first):
            raise InputError(f"{file}:1: {len(first)} fields, no column {column} (from 0): {ways}")
        return column


def _names(folder: Path) -> str:
    names = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
    return ", ".join(names) or "nothing"


class HubExamples(ExampleSource):
    """A configuration of GLUE on the Hub, through `datasets.load_dataset`."""

    def __init__(self, name: str, task: TaskConfig, data: HubGlue) -> None:
        super().__init__(name, task)
        self.data = data
        self.rows_read: dict[str, int] = {}

    def rows(self, split: str = "train") -> Iterator[Example]:
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
            texts = [row[text] for text in self.task.texts]
            example, problem = self.check(row["idx"], texts, row["label"])
            if example is None:
                raise InputError(
                    f"{self.data.path} ({self.name}, {split}), row with idx={row['idx']}: "
                    f"{problem}: give another data.revision"
                )
            self.rows_read[split] += 1
            yield example

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        table = self._load(f"test_{part}" if part else "test", [*self.task.texts, "idx"])
        for row in cast(Iterable[dict[str, Any]], table):
            first, *second = (row[text] for text in self.task.texts)
            yield row["idx"], first, second[0] if second else None

    def _load(self, split: str, columns: list[str]) -> Any:
        """Return the data set with these columns alone."""
        path = self.data.path
        table = load(path, self.name, self.data.revision, split)
        if missing := [column for column in columns if column not in table.column_names]:
            raise InputError(
                f"{path} ({self.name}, {split}) has no column {missing[0]!r}, but "
                f"{', '.join(table.column_names)}: set task.{self.name}.texts, or another data.path"
            )
        return table.select_columns(columns)

    def describe(self) -> dict[str, Any]:
        path, revision = self.data.path, self.data.revision
        return {"kind": "hub", "path": path, "revision": revision, "rows": self.rows_read}
