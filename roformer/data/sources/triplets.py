"""Triplets of documents: cases of a grammar, or JSON lines with A, B and C, and a label or none.

    {"A": "…", "B": "…", "C": "…", "label": "B"}      A is closer to B than to C

The published CAIL2019-SCM has the label; a file in which no row has one is read as its authors
describe theirs, A always closer to B, and that is told. Files may end in .json, .jsonl, .gz or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from roformer.config.scm import BuiltinTriplets, FilesTriplets, TripletData
from roformer.data.random import Purpose, random_stream
from roformer.data.sources import Source
from roformer.data.sources.files import BadRows, checked_text, identity, json_objects
from roformer.data.toy import cases
from roformer.errors import InputError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
NAMES = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
"""What the file of each split may be called."""
DOCUMENTS = ("A", "B", "C")
LABELS = ("B", "C")
"""Which one A is closer to, by number."""
PLACES = ("early", "late")
"""Where the evidence of a builtin triplet stands, by number."""
NOWHERE = -1
"""Of a triplet that is not builtin."""
CUT = (0.6, 0.8)
"""Where `paper622` cuts the shuffled rows."""


class Triplet(NamedTuple):
    """One triplet as its source has it."""

    number: int
    """Its place in the source, bad rows counted."""
    texts: tuple[str, str, str]
    """A, B and C."""
    label: int
    """Which one A is closer to: number in `LABELS`."""
    place: int = NOWHERE
    """Where the evidence of a builtin triplet stands: number in `PLACES`."""


def open_triplets(data: TripletData) -> Source[Triplet]:
    """Open the source that the config names, reading nothing yet.

    Raises:
        InputError: there is no such file or folder, or a split is missing.
    """
    if isinstance(data, FilesTriplets):
        return FileTriplets(data)
    assert isinstance(data, BuiltinTriplets)
    return BuiltinCases(data)


class BuiltinCases:
    """Cases made by a grammar; see `roformer.data.toy.cases`."""

    def __init__(self, data: BuiltinTriplets) -> None:
        self.counts = {
            "train": data.train_triplets,
            "validation": data.validation_triplets,
            "test": data.test_triplets,
        }

        self.splits = (*self.counts,)

    def rows(self, split: str) -> Iterator[Triplet]:
        made = cases.case_triplets(split, self.counts[split])
        for index, (a, b, c, label, place) in enumerate(made):
            yield Triplet(index, (a, b, c), LABELS.index(label), PLACES.index(place))

    def describe(self) -> dict[str, Any]:
        return {"kind": "scm_builtin", "grammar": cases.GRAMMAR}

    def key(self) -> dict[str, Any]:
        return {"grammar": cases.GRAMMAR}


class FileTriplets:
    """The file, or the folder of files, that `data.path` names."""

    def __init__(self, data: FilesTriplets) -> None:
        self.data = data
        self.path = Path(data.path).expanduser()
        self.files = self._find()
        self.accounts: dict[str, dict[str, Any]] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits there are: of `paper622` all, of a folder those it has a file of."""
        return (*NAMES,) if self.data.split == "paper622" else (*self.files,)

    def rows(self, split: str) -> Iterator[Triplet]:
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
        # Of several files, rows would share their numbers.
        for place in parts[split]:
            yield rows[place]._replace(number=int(place))

    def describe(self) -> dict[str, Any]:
        """Say what was read; complete once all splits are."""
        seed = self.data.split_seed if self.data.split == "paper622" else None
        return {
            "kind": "scm_files",
            "split": self.data.split,
            "split_seed": seed,
            "files": list(self.accounts.values()),
        }

    def key(self) -> dict[str, Any]:
        """Identify the input without absolute paths, for a cache key."""
        return {"files": [identity(file, file.parent) for file in self.files.values()]}

    # --- files -----------------------------------------------------------------------------------

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

    # --- rows ------------------------------------------------------------------------------------

    def _read(self, file: Path) -> list[Triplet]:
        rows: list[Triplet] = []
        bad = BadRows(self.data.max_bad_rows, file.parent)
        labelled = first_line = 0
        for place, (line, content, problem) in enumerate(json_objects(file, "A, B and C")):
            row = None
            if content is not None:
                row, problem = _checked(place, content)
            if content is None or row is None:
                bad.skip(f"{file.name}:{line}: {problem}")
                continue
            first_line = first_line or line
            # Guessing the label of some rows would be worse than none.
            if rows and ("label" in content) != bool(labelled):
                problem = "has no label" if labelled else "has a label"
                raise InputError(
                    f"{file}:{line}: the row {problem}, unlike line {first_line}: give all rows a "
                    "label, or none"
                )
            labelled += "label" in content
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


def _checked(place: int, content: dict[str, Any]) -> tuple[Triplet | None, str]:
    """Return the triplet, else None and what is wrong with it."""
    texts = []
    for name in DOCUMENTS:
        if name not in content:
            return None, f"no {name!r} among its keys {sorted(content)}"
        text, problem = checked_text(content[name], name)
        if text is None:
            return None, problem
        texts.append(text)
    for one, other in (("A", "B"), ("A", "C"), ("B", "C")):
        if content[one] == content[other]:
            return None, f"{one} and {other} are the same document"
    label = content.get("label", "B")
    if label not in LABELS:
        return None, f"label {label!r} is neither B nor C"
    a, b, c = texts
    return Triplet(place, (a, b, c), LABELS.index(label)), ""
