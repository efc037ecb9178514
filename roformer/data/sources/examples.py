"""Labelled examples: the GLUE tasks, and triplets of documents.

The GLUE tasks are built in, in the official folder or on the Hub. The folder has one folder per task
with tab-separated (.tsv) or comma-separated files (.csv). Columns are found by their name in the header,
or by number in a file without one (CoLA). A split is `train`, `validation`, `test`, or a part of the
latter two, such as `validation_matched`. Labels of a test split are never read: the Hub's are -1, and
MRPC's file has the real ones.

Triplets are built-in cases, or JSON lines with A, B and C, and a label or none:

    {"A": "…", "B": "…", "C": "…", "label": "B"}      A is closer to B than to C

The published CAIL2019-SCM has the label; a file in which no row has one is read as its authors
describe theirs, A always closer to B.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from roformer.config.glue import BuiltinGlue, FilesGlue, Glue, HubGlue, TaskConfig
from roformer.config.scm import BuiltinTriplets, FilesTriplets, TripletData
from roformer.data.random import Purpose, random_stream
from roformer.data.sources import Column, Columns, Example, MadeRows, Rows, Source
from roformer.data.sources.files import JSON_LINES, Files, absent, file_rows, has_suffix, named_file
from roformer.data.sources.hub import HubTable
from roformer.data.toy import cases, glue
from roformer.errors import InputError

# --- GLUE ----------------------------------------------------------------------------------------


def open_examples(name: str, task: TaskConfig, data: Glue) -> Source[Example]:
    """Open the source that the config names, reading nothing yet."""
    if isinstance(data, FilesGlue):
        return FolderExamples(name, task, data)
    return (
        HubExamples(name, task, data)
        if isinstance(data, HubGlue)
        else BuiltinExamples(name, task, data)
    )


def _splits(task: TaskConfig) -> tuple[str, ...]:
    """Return the labelled splits; the headline's validation split comes before the other."""
    return ("train", *([f"validation_{part}" for part in task.parts] or ["validation"]))


def class_numbers(labels: Sequence[str], found: Mapping[str, str], key: str) -> dict[str, int]:
    """Return the class of each spelling in the data, which has all names or all numbers.

    Args:
        labels: names of the classes in the order of their numbers.
        found: each label in the data, and where it occurs first.
        key: of the labels, for messages.
    """
    names = {name: number for number, name in enumerate(labels)}
    numbers = {str(number): number for number in range(len(labels))}
    known = [label for label in found if label in names or label in numbers]
    named = [label for label in known if label in names]
    numbered = [label for label in known if label in numbers]
    both = [label for label in named if numbers.get(label, names[label]) != names[label]]
    if not known:
        return names | numbers
    if named == known and not (numbered == known and both):
        return names
    if not named:
        return numbers
    given = f"{key}={list(labels)}"
    if both:
        label = both[0]
        raise InputError(
            f"{found[label]}: label {label!r} of {given} is class {names[label]} by name and class "
            f"{numbers[label]} by number: give the classes names that are not numbers, in the key and in "
            "the data"
        )
    name, number = named[0], next(label for label in known if label not in names)
    raise InputError(
        f"{found[name]}: label {name!r} is a name of {given}, and {found[number]}: label {number!r} is "
        "a number: write all labels in one way"
    )


class TaskExamples(Source[Example]):
    """Base class of a task's examples from files or the Hub."""

    name: str
    task: TaskConfig
    label: Column
    """Column of the label."""

    @abstractmethod
    def read(self, split: str, columns: Columns) -> Rows:
        """Yield all rows of a split."""

    @cached_property
    def classes(self) -> dict[str, int]:
        """The class of each spelling, by the labels of all splits."""
        if self.task.labels is None:
            return {}
        found = dict[str, str]()
        for split in self.splits:
            with suppress(InputError):  # raised again where this split is read for its rows
                for where, line, row in self.read(split, Columns((), self.label)):
                    if isinstance(row, dict):
                        found.setdefault(str(row[self.label]), f"{where}:{line}")
        return class_numbers(self.task.labels, found, f"task.{self.name}.labels")


class BuiltinExamples(Source[Example]):
    """Tasks made from templates; see `roformer.data.toy.glue`."""

    def __init__(self, name: str, task: TaskConfig, data: BuiltinGlue) -> None:
        super().__init__(kind="builtin", **self.key())
        self.name, self.task, self.data, self.splits = name, task, data, _splits(task)

    def rows(self, split: str = "train") -> Iterator[Example]:
        name, task = f"the built-in {self.name}", self.task
        if split not in self.splits:
            raise InputError(f"{name} has no test split: take data=hub or data=files")
        classes = {label: number for number, label in enumerate(task.labels or ())}
        columns = Columns(range(len(task.texts)), 2, classes, task.scores)
        count = self.data.train_examples if split == "train" else self.data.validation_examples
        made = enumerate(glue.builtin_examples(self.name, split, count), 1)
        rows = ((name, number, dict(enumerate(row))) for number, row in made)
        return self.checked(rows, split, columns, 0, f"task.{self.name} does not fit the templates")

    def key(self) -> dict[str, Any]:
        return {"grammar": glue.GRAMMAR}


class FolderExamples(TaskExamples, Files[Example]):
    """One task below the folder that `data.path` names."""

    def __init__(self, name: str, task: TaskConfig, data: FilesGlue) -> None:
        super().__init__(Path(data.path), data.max_bad_rows)
        self.name, self.task, self.splits = name, task, _splits(task)
        self.label = task.files.label

    def files(self, split: str) -> list[Path]:
        folder = self.root / self.task.files.folder
        if not folder.is_dir():
            remedy = f"put {self.name} there, or set task.{self.name}.files.folder"
            raise absent(self.root, f"folder {folder.name}", f"give the GLUE folder, and {remedy}")
        stem = split.replace("validation", "dev")
        if (file := named_file(folder, [stem], (".tsv", ".csv"))) is None:
            raise absent(folder, f"{stem}.tsv or {stem}.csv", "put the file there")
        return [file]

    def read(self, split: str, columns: Columns) -> Rows:
        (file,) = self.files(split)
        return file_rows(file, columns)

    def rows(self, split: str = "train") -> Iterator[Example]:
        named, set_by = self.task.files, f"the columns in task.{self.name}.files"
        if not split.startswith("test"):
            scores = self.task.scores
            columns = Columns(named.texts, self.label, self.classes, scores, set_by=set_by)
            return self.fitting(self.read(split, columns), split, columns)
        columns = Columns(named.test_texts or named.texts, filled=0, set_by=set_by)
        remedy = "fix it; a submission needs every row"
        return self.checked(self.read(split, columns), split, columns, 0, remedy)


class HubExamples(TaskExamples):
    """A configuration of GLUE on the Hub, through `datasets.load_dataset`."""

    label = "label"

    def __init__(self, name: str, task: TaskConfig, data: HubGlue) -> None:
        super().__init__(kind="hub", path=data.path, revision=data.revision)
        self.name, self.task, self.data, self.splits = name, task, data, _splits(task)

    def open(self, split: str, columns: Columns) -> HubTable:
        """Open a split."""
        return HubTable(self.data.path, self.name, self.data.revision, split, columns)

    def read(self, split: str, columns: Columns) -> Rows:
        return self.open(split, columns).rows()

    def rows(self, split: str = "train") -> Iterator[Example]:
        task, remedy = self.task, "give another data.revision"
        more: dict[str, Any] = {
            "index": "idx",
            "set_by": f"task.{self.name}.texts, or another data.path",
        }
        if split.startswith("test"):
            columns = Columns(task.texts, filled=0, **more)
            return self.checked(self.read(split, columns), split, columns, 0, remedy)
        hub = self.open(split, Columns(task.texts, self.label, **more))
        names = getattr(hub.table.features.get(self.label), "names", None)
        if names not in (None, task.labels):
            raise InputError(
                f"{hub.where} numbers its labels {names}, but task.{self.name}.labels={task.labels}: "
                "the order decides what a class number means, so give the data set's"
            )
        numbers = {str(number): number for number in range(len(names or ()))}
        columns = Columns(task.texts, self.label, numbers or self.classes, task.scores, **more)
        return self.checked(hub.rows(), split, columns, 0, remedy)


# --- triplets ------------------------------------------------------------------------------------

NAMES = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
"""Accepted file names of each split."""
LABELS = ("B", "C")
"""Which one A is closer to, by number."""
PLACES = ("early", "late")
"""Places of the evidence in a built-in triplet, by number."""
CUT = (0.6, 0.8)
"""Shares of the shuffled rows at which `paper622` splits them."""


def open_triplets(data: TripletData) -> Source[Example]:
    """Open the source that the config names, reading nothing yet but a list of files."""
    if isinstance(data, FilesTriplets):
        return FileTriplets(data)
    assert isinstance(data, BuiltinTriplets)
    counts = {split: getattr(data, f"{split}_triplets") for split in NAMES}

    def make(split: str) -> Iterator[Example]:
        for number, (*texts, label, place) in enumerate(cases.case_triplets(split, counts[split])):
            yield Example(number, tuple(texts), LABELS.index(label), PLACES.index(place))

    return MadeRows(make, {"grammar": cases.GRAMMAR}, tuple(counts), kind="scm_builtin")


class FileTriplets(Files[Example]):
    """The file, or the folder of files, that `data.path` names."""

    columns = Columns(("A", "B", "C"), "label", {"B": 0, "C": 1}, filled=3)

    def __init__(self, data: FilesTriplets) -> None:
        path = Path(data.path)
        super().__init__(path.parent if path.is_file() else path, data.max_bad_rows)
        self.seed = data.split_seed if data.split == "paper622" else None
        self.found = _find(path, shipped=self.seed is None)
        # All splits are drawn from `paper622`'s rows; a folder has those that it has files of.
        self.splits = tuple(self.found if self.seed is None else NAMES)
        self.unlabelled: set[str] = set()
        """Names of files without labels."""

    def files(self, split: str) -> list[Path]:
        return [self.found[split]] if self.seed is None else list(self.found.values())

    def rows(self, split: str = "train") -> Iterator[Example]:
        if self.seed is None:
            return self._fitting(split)
        whole = self._whole
        order = random_stream(self.seed, Purpose.PAPER_SPLIT).permutation(len(whole))
        first, last = (round(share * len(whole)) for share in CUT)
        parts = dict(zip(NAMES, (order[:first], order[first:last], order[last:]), strict=True))
        return (whole[place]._replace(number=int(place)) for place in parts[split])

    @cached_property
    def _whole(self) -> list[Example]:
        """The rows that the splits of `paper622` are drawn from, read and counted once."""
        return list(self._fitting("all"))

    def _fitting(self, split: str) -> Iterator[Example]:
        rows = (row for file in self.files(split) for row in self._read(file))
        return self.fitting(rows, split, self.columns)

    def _read(self, file: Path) -> Rows:
        """Yield rows with a label: B in a file that has none. Guessing it for some would be wrong."""
        labelled = None
        for where, line, row in file_rows(file, self.columns):
            if isinstance(row, dict):
                if labelled is None and not (labelled := "label" in row):
                    self.unlabelled.add(file.name)
                texts = [str(row[name]) for name in "ABC" if name in row]
                if labelled != ("label" in row):
                    row = "one row has a label and another none: give all rows a label, or none"
                elif len(set(texts)) < len(texts):
                    row = "two of A, B and C are the same document"
                elif len(texts) == 3:
                    row.setdefault("label", LABELS[0])
            yield where, line, row

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"split_seed": self.seed, "unlabelled": sorted(self.unlabelled)}


def _find(path: Path, shipped: bool) -> dict[str, Path]:
    """Return the file of each split; a single file is all of `paper622`."""
    kinds = ", ".join(JSON_LINES)
    if path.is_file() and not shipped and has_suffix(path, JSON_LINES):
        return {"all": path}
    if path.is_file():
        raise InputError(
            f"data.path={path} is one file: give a folder of splits, or one of {kinds} with "
            "data.split=paper622"
        )
    found = {}
    for split, names in NAMES.items():
        if file := named_file(path, names, JSON_LINES):
            found[split] = file
        elif shipped and split != "test":
            wanted = f"{split} file ({' or '.join(names)} with {kinds})"
            raise absent(path, wanted, "put it there, or set data.split=paper622")
    if not found:
        raise absent(path, f"file of {kinds}", "put train, validation or test there")
    return found
