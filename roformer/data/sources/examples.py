"""Examples of the GLUE tasks: made by grammars, the official folder or the Hub.

In the official folder a task is a folder of tab-separated files. A tab always ends a field and
quotes are text like any other: these files are not CSV. Columns are found by their name in the
header, or by number in a file without one (CoLA). Text is UTF-8, a byte-order mark (MRPC) is
ignored, and lines may end in CRLF.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from roformer.config.glue import BuiltinGlue, Column, FilesGlue, Glue, HubGlue, TaskConfig
from roformer.data.sources import Source
from roformer.data.sources.files import BadRows, identity, text_lines
from roformer.data.sources.hub import load
from roformer.data.toy.glue import GRAMMAR, builtin_examples
from roformer.errors import InputError

TestRow = tuple[int, str, str | None]
"""Where a row of a test split stands in its source, and its text or texts."""


class Example(NamedTuple):
    """A labelled text, pair or triplet."""

    number: int
    """Where it stands in its source."""
    texts: tuple[str, ...]
    label: int | float
    """The class number or the score."""


class ExampleSource(Source[Example], Protocol):
    """The rows of one task."""

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        """Yield index and texts of the test split, or of a part of it, without labels."""


def open_examples(name: str, task: TaskConfig, data: Glue) -> ExampleSource:
    """Open the source that the config names, reading nothing yet."""
    if isinstance(data, FilesGlue):
        return FolderExamples(name, task, data)
    if isinstance(data, HubGlue):
        return HubExamples(name, task, data)
    return BuiltinExamples(name, task, data)


def split_names(task: TaskConfig) -> tuple[str, ...]:
    """Return train and the validation split or splits, the headline's first."""
    return ("train", *([f"validation_{part}" for part in task.parts] or ["validation"]))


class ExampleCheck:
    """What an example must be, wherever it comes from: texts, and a label of the task."""

    def __init__(self, task: TaskConfig) -> None:
        self.scores = task.scores
        names = task.labels or []
        # A class is spelt as its number in some files and by its name in others.
        self.numbers = {str(number): number for number in range(len(names))}
        self.numbers |= {name: number for number, name in enumerate(names)}
        self.valid = f"{', '.join(names)} (or 0 to {len(names) - 1})"

    def __call__(
        self, index: int, texts: Sequence[object], label: object
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
        value = self._number(label) if self.scores is None else self._score(label, *self.scores)
        if isinstance(value, str):
            return None, value
        return Example(index, tuple(strings), value), ""

    def _number(self, label: object) -> int | str:
        number = self.numbers.get(str(label)) if label is not None else None
        return f"label {label!r} is none of {self.valid}" if number is None else number

    def _score(self, label: object, lowest: float, highest: float) -> float | str:
        try:
            # Python would read 1_0 as ten.
            score = float("nan" if "_" in str(label) else label)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            score = float("nan")
        if lowest <= score <= highest:
            return score
        return f"score {label!r} is no number from {lowest:g} to {highest:g}"


class BuiltinExamples:
    """Tasks made by grammars; see `roformer.data.toy.glue`."""

    def __init__(self, name: str, task: TaskConfig, data: BuiltinGlue) -> None:
        self.name, self.data = name, data
        self.check, self.splits = ExampleCheck(task), split_names(task)

    def rows(self, split: str) -> Iterator[Example]:
        train = split == "train"
        count = self.data.train_examples if train else self.data.validation_examples
        for index, made in enumerate(builtin_examples(self.name, split, count)):
            texts = [made.text_a] if made.text_b is None else [made.text_a, made.text_b]
            example, problem = self.check(index, texts, made.label)
            if example is None:
                raise InputError(
                    f"the built-in {self.name} does not fit task.{self.name}: {problem}"
                )
            yield example

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        raise InputError(f"the built-in {self.name} has no test split: take data=hub or data=files")

    def describe(self) -> dict[str, Any]:
        return {"kind": "builtin", "grammar": GRAMMAR}

    def key(self) -> dict[str, Any]:
        return {"grammar": GRAMMAR}


class FolderExamples:
    """One task below the folder that `data.path` names."""

    def __init__(self, name: str, task: TaskConfig, data: FilesGlue) -> None:
        self.name, self.task, self.data = name, task, data
        self.root = Path(data.path).expanduser()
        self.check, self.splits = ExampleCheck(task), split_names(task)
        self.accounts: list[dict[str, Any]] = []

    def rows(self, split: str) -> Iterator[Example]:
        """Yield the rows of a split; a row's index is its place among them, bad ones counted.

        Raises:
            InputError: a missing file or column, text that is not UTF-8, or more bad rows than
                `data.max_bad_rows`.
        """
        file = self._file(split)
        account = {**self._identity(split), "rows": 0}
        bad = BadRows(self.data.max_bad_rows, self.root)
        columns = [*self.task.files.texts, self.task.files.label]
        for index, (line, cells, problem) in enumerate(self._cells(file, columns)):
            example = None
            if cells is not None:
                example, problem = self.check(index, cells[:-1], cells[-1])
            if example is not None:
                account["rows"] += 1
                yield example
            else:
                bad.skip(f"{account['file']}:{line}: {problem}")
        self.accounts.append({**account, "bad_rows": bad.count, "first_bad_row": bad.first})

    def test_rows(self, part: str | None) -> Iterator[TestRow]:
        """Yield index and texts of the test split; its labels, where there are any, stay unread.

        Raises:
            InputError: as `rows`, but at the first bad row: a submission needs all of them.
        """
        file = self._file(f"test_{part}" if part else "test")
        columns = self.task.files.test_texts or self.task.files.texts
        for index, (line, cells, problem) in enumerate(self._cells(file, columns)):
            if cells is None:
                raise InputError(f"{file}:{line}: {problem}: mend it; a submission needs every row")
            yield index, cells[0], cells[1] if len(cells) == 2 else None

    def describe(self) -> dict[str, Any]:
        return {"kind": "files", "files": self.accounts}

    def key(self) -> dict[str, Any]:
        return {"files": [self._identity(split) for split in self.splits]}

    def _file(self, split: str) -> Path:
        """Return the file of `train`, `validation`, `test` or one of their parts."""
        kind, _, part = split.partition("_")
        kind = "dev" if kind == "validation" else kind
        name = f"{kind}_{part}.tsv" if part else f"{kind}.tsv"
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

    def _cells(
        self, file: Path, columns: Sequence[Column]
    ) -> Iterator[tuple[int, list[str] | None, str]]:
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


class HubExamples:
    """A configuration of GLUE on the Hub, through `datasets.load_dataset`."""

    def __init__(self, name: str, task: TaskConfig, data: HubGlue) -> None:
        self.name, self.task, self.data = name, task, data
        self.check, self.splits = ExampleCheck(task), split_names(task)
        self.rows_read: dict[str, int] = {}

    def rows(self, split: str) -> Iterator[Example]:
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
            example, problem = self.check(
                row["idx"], [row[text] for text in self.task.texts], row["label"]
            )
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

    def key(self) -> dict[str, Any]:
        return {}  # path and revision stand in the config
