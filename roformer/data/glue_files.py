"""GLUE tasks in the official folder: tab-separated files, one folder a task.

A tab always ends a field and quotes are text like any other: these files are not CSV. Columns are
found by their name in the header, or by number in a file without one (CoLA). Text is UTF-8, a
byte-order mark (MRPC) is ignored, and lines may end in CRLF.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from roformer.config.glue import Column, FilesGlue, TaskConfig
from roformer.data.files import readable, text_lines
from roformer.errors import InputError

Example = tuple[str, str | None, int | float]
"""The text or texts, and the class number or score."""
Row = tuple[int, str, str | None, int | float]
"""Where it stands in its source, and the example."""
TestRow = tuple[int, str, str | None]
"""The same of a test split, without its label."""


class ExampleCheck:
    """What an example must be, wherever it comes from: texts, and a label of the task."""

    def __init__(self, task: TaskConfig) -> None:
        self.scores = task.scores
        names = task.labels or []
        # A class is spelt as its number in some files and by its name in others.
        self.numbers = {str(number): number for number in range(len(names))}
        self.numbers |= {name: number for number, name in enumerate(names)}
        self.valid = f"{', '.join(names)} (or 0 to {len(names) - 1})"

    def __call__(self, texts: Sequence[object], label: object) -> tuple[Example | None, str]:
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
        return (strings[0], strings[1] if len(strings) == 2 else None, value), ""

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


class FolderExamples:
    """One task below the folder that `data.path` names."""

    def __init__(self, name: str, task: TaskConfig, data: FilesGlue) -> None:
        self.name, self.task, self.data = name, task, data
        self.root = Path(data.path).expanduser()
        self.check = ExampleCheck(task)
        self.accounts: list[dict[str, Any]] = []

    def rows(self, split: str) -> Iterator[Row]:
        """Yield the rows of a split; a row's index is its place among them, bad ones counted.

        Raises:
            InputError: a missing file or column, text that is not UTF-8, or more bad rows than
                `data.max_bad_rows`.
        """
        file = self._file(split)
        account: dict[str, Any] = {
            **self._identity(split),
            "rows": 0,
            "bad_rows": 0,
            "first_bad_row": None,
        }
        self.accounts.append(account)
        columns = [*self.task.files.texts, self.task.files.label]
        for index, (line, cells, problem) in enumerate(self._cells(file, columns)):
            example = None
            if cells is not None:
                example, problem = self.check(cells[:-1], cells[-1])
            if example is not None:
                account["rows"] += 1
                yield (index, *example)
            else:
                self._skip(account, line, problem)

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

    def key(self, splits: Sequence[str]) -> dict[str, Any]:
        return {"files": [self._identity(split) for split in splits]}

    def _skip(self, account: dict[str, Any], line: int, problem: str) -> None:
        account["bad_rows"] += 1
        account["first_bad_row"] = (
            account["first_bad_row"] or f"{account['file']}:{line}: {problem}"
        )
        if account["bad_rows"] > self.data.max_bad_rows:
            raise InputError(
                f"{self.root}/{account['first_bad_row']} (bad rows so far: {account['bad_rows']}): "
                f"mend it, or allow more bad rows with data.max_bad_rows (now "
                f"{self.data.max_bad_rows})"
            )

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
        file = self._file(split)
        with readable(file), open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
        name = file.relative_to(self.root).as_posix()
        return {"split": split, "file": name, "bytes": size, "sha256": digest}

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
