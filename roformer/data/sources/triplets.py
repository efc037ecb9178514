"""Triplets of documents: built-in cases, or JSON lines with A, B and C, and a label or none.

    {"A": "…", "B": "…", "C": "…", "label": "B"}      A is closer to B than to C

The published CAIL2019-SCM has the label; a file in which no row has one is read as its authors
describe theirs, A always closer to B, and a line says so. Files may end in .json, .jsonl, .gz or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from roformer.config.scm import BuiltinTriplets, FilesTriplets, TripletData
from roformer.data.random import Purpose, random_stream
from roformer.data.sources import MadeRows, Source
from roformer.data.sources.examples import Example
from roformer.data.sources.files import BadRows, Checked, checked_text, identity, json_objects
from roformer.data.toy import cases
from roformer.errors import InputError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
NAMES = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
"""Accepted file names of each split."""
LABELS = ("B", "C")
"""Which one A is closer to, by number."""
PLACES = ("early", "late")
"""Places of the evidence in a built-in triplet, by number."""
CUT = (0.6, 0.8)
"""Shares of the shuffled rows at which `paper622` splits them."""


def open_triplets(data: TripletData) -> Source[Example]:
    """Open the source that the config names, reading nothing yet.

    Raises:
        InputError: there is no such file or folder, or a split is missing.
    """
    if isinstance(data, FilesTriplets):
        return FileTriplets(data)
    assert isinstance(data, BuiltinTriplets)
    counts = {
        "train": data.train_triplets,
        "validation": data.validation_triplets,
        "test": data.test_triplets,
    }

    def made(split: str) -> Iterator[Example]:
        for number, row in enumerate(cases.case_triplets(split, counts[split])):
            label, place = LABELS.index(row.label), PLACES.index(row.place)
            yield Example(number, (row.a, row.b, row.c), label, place)

    grammar = {"grammar": cases.GRAMMAR}
    return MadeRows(made, grammar, tuple(counts), kind="scm_builtin", **grammar)


class FileTriplets(Source[Example]):
    """The file, or the folder of files, that `data.path` names."""

    def __init__(self, data: FilesTriplets) -> None:
        self.data = data
        self.path = Path(data.path).expanduser()
        self.files = self._find()
        # All splits are drawn from `paper622`'s rows; a folder has those that it has files of.
        self.splits = tuple(NAMES if data.split == "paper622" else self.files)
        self.accounts: dict[str, dict[str, Any]] = {}

    def rows(self, split: str = "train") -> Iterator[Example]:
        """Read a split.

        Raises:
            InputError: a file that cannot be read, or more bad rows in it than `data.max_bad_rows`.
        """
        if self.data.split == "shipped":
            yield from self._read(self.files[split])
            return
        rows = [row for file in self.files.values() for row in self._read(file)]
        order = random_stream(self.data.split_seed, Purpose.PAPER_SPLIT).permutation(len(rows))
        first, last = (round(share * len(rows)) for share in CUT)
        parts = dict(zip(NAMES, (order[:first], order[first:last], order[last:]), strict=True))
        # Rows of several files would share their numbers.
        for place in parts[split]:
            yield rows[place]._replace(number=int(place))

    def describe(self) -> dict[str, Any]:
        seed = self.data.split_seed if self.data.split == "paper622" else None
        return {
            "kind": "scm_files",
            "split": self.data.split,
            "split_seed": seed,
            "files": list(self.accounts.values()),
        }

    def key(self) -> dict[str, Any]:
        return {"files": [identity(file, file.parent) for file in self.files.values()]}

    def _find(self) -> dict[str, Path]:
        """Return the file of each split; a single file is all of `paper622`."""
        given = f"data.path={self.data.path}"
        if self.path.is_file():
            if not self.path.name.endswith(SUFFIXES):
                raise InputError(f"{given} is none of {', '.join(SUFFIXES)}: convert it")
            if self.data.split != "paper622":
                raise InputError(
                    f"{given} is one file and has no splits: give the folder, or set "
                    "data.split=paper622"
                )
            return {"all": self.path}
        if not self.path.is_dir():
            raise InputError(f"{given} does not exist: give a folder of splits, or a file")
        found: dict[str, Path] = {}
        for split, names in NAMES.items():
            files = [self.path / (name + end) for name, end in product(names, SUFFIXES)]
            there = [file for file in files if file.is_file()]
            if len(there) > 1:
                both = " and ".join(file.name for file in there)
                raise InputError(f"{self.path} has {both}: keep one as {split}")
            if there:
                found[split] = there[0]
        missing = [split for split in ("train", "validation") if split not in found]
        if (missing and self.data.split == "shipped") or not found:
            split = (missing or ["train"])[0]
            listed = ", ".join(sorted(file.name for file in self.path.iterdir())) or "nothing"
            raise InputError(
                f"{self.path} has no {split} file ({' or '.join(NAMES[split])} with "
                f"{', '.join(SUFFIXES)}), but {listed}: put it there, or set data.split=paper622"
            )
        return found

    def _read(self, file: Path) -> list[Example]:
        rows: list[Example] = []
        bad = BadRows(self.data.max_bad_rows, file.parent)
        labelled = first_line = 0
        for line, found, problem in _triplets(file):
            if found is None:
                bad.skip(file, line, problem)
                continue
            row, has_label = found
            first_line = first_line or line
            # Guessing the label of some rows would be worse than none.
            if rows and has_label != bool(labelled):
                problem = "has no label" if labelled else "has a label"
                raise InputError(
                    f"{file}:{line}: the row {problem}, unlike line {first_line}: give all rows a "
                    "label, or none"
                )
            labelled += has_label
            rows.append(row)
        if not rows:
            raise InputError(f"{file} has no usable row: fetch it again")
        self.accounts[file.name] = {
            **identity(file, file.parent),
            "rows": len(rows),
            "bad_rows": bad.count,
            "first_bad_row": bad.first,
            "labelled_rows": labelled,
        }
        return rows


def _triplets(file: Path) -> Iterator[Checked[tuple[Example, bool]]]:
    """Yield line number, the triplet and whether it has a label, and what is wrong where None."""
    for number, (line, content, problem) in enumerate(json_objects(file, "A, B and C")):
        problem = problem or _problem(content or {})
        if content is None or problem:
            yield line, None, problem
        else:
            texts = tuple(content[name] for name in "ABC")
            label = LABELS.index(content.get("label", "B"))
            yield line, (Example(number, texts, label), "label" in content), ""


def _problem(content: dict[str, Any]) -> str:
    """Return what is wrong with a triplet, empty where nothing is."""
    for name in "ABC":
        if name not in content:
            return f"no {name!r} among its keys {sorted(content)}"
        text, problem = checked_text(content[name], name)
        if text is None:
            return problem
    for one, other in ("AB", "AC", "BC"):
        if content[one] == content[other]:
            return f"{one} and {other} are the same document"
    label = content.get("label", "B")
    return "" if label in LABELS else f"label {label!r} is neither B nor C"
