"""Triplets of documents in JSON lines: A, B and C, and with or without a label.

    {"A": "…", "B": "…", "C": "…", "label": "B"}      A is closer to B than to C

The published CAIL2019-SCM has the label; a file in which no row has one is read as its authors
describe theirs, A always closer to B, and that is told. Files may end in .json, .jsonl, .gz or not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from roformer.config.scm import FilesTriplets
from roformer.data.files import checked_text, readable, text_lines
from roformer.data.random import Purpose, random_stream
from roformer.errors import InputError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
NAMES = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
"""What the file of each split may be called."""
DOCUMENTS = ("A", "B", "C")
LABELS = ("B", "C")
CUT = (0.6, 0.8)
"""Where `paper622` cuts the shuffled rows."""


class TripletRow(NamedTuple):
    """One triplet as its source has it."""

    row: int
    """Its place in the source, bad rows counted."""
    a: str
    b: str
    c: str
    label: Literal["B", "C"]
    """Which one A is closer to."""
    place: str | None = None
    """Where the builtin cases' evidence stands, `early` or `late`; else None."""


class FileTriplets:
    """The file, or the folder of files, that `data.path` names."""

    def __init__(self, data: FilesTriplets) -> None:
        self.data = data
        self.path = Path(data.path).expanduser()
        self.files = self._find()
        self.accounts: dict[str, dict[str, Any]] = {}

    @property
    def splits(self) -> list[str]:
        """The splits there are: of `paper622` all, of a folder those it has a file of."""
        return [*NAMES] if self.data.split == "paper622" else [*self.files]

    def rows(self, split: str) -> list[TripletRow]:
        """Read a split.

        Raises:
            InputError: a file that cannot be read, or more bad rows in it than `data.max_bad_rows`.
        """
        if self.data.split == "shipped":
            return self._read(self.files[split])
        rows = [row for file in self.files.values() for row in self._read(file)]
        order = random_stream(self.data.split_seed, Purpose.PAPER_SPLIT).permutation(len(rows))
        first, last = (round(share * len(rows)) for share in CUT)
        parts = dict(zip(NAMES, (order[:first], order[first:last], order[last:]), strict=True))
        # Of several files, rows would share their numbers.
        return [rows[place]._replace(row=int(place)) for place in parts[split]]

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
        return {"files": [_identity(file) for file in self.files.values()]}

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

    def _read(self, file: Path) -> list[TripletRow]:
        rows: list[TripletRow] = []
        labelled = 0
        account: dict[str, Any] = {**_identity(file), "rows": 0, "bad_rows": 0}
        account |= {"first_bad_row": None}
        first_place = 0
        for place, (line, content, problem) in enumerate(_lines(file)):
            row = None
            if content is not None:
                row, problem = _checked(place, content)
            if row is not None:
                first_place = first_place or line
                # Guessing the label of some rows would be worse than none.
                if rows and ("label" in content) != bool(labelled):  # type: ignore[operator]
                    problem = "has no label" if labelled else "has a label"
                    raise InputError(
                        f"{file}:{line}: the row {problem}, unlike line {first_place}: give all "
                        "rows a label, or none"
                    )
                labelled += "label" in content  # type: ignore[operator]
                rows.append(row)
                continue
            account["bad_rows"] += 1
            account["first_bad_row"] = account["first_bad_row"] or f"{file.name}:{line}: {problem}"
            if account["bad_rows"] > self.data.max_bad_rows:
                raise InputError(
                    f"{file.parent}/{account['first_bad_row']} (bad rows so far: "
                    f"{account['bad_rows']}): mend it, or allow more bad rows with "
                    f"data.max_bad_rows (now {self.data.max_bad_rows})"
                )
        if not rows:
            raise InputError(f"{file} has no usable row: fetch it again")
        account |= {"rows": len(rows), "labelled_rows": labelled}
        self.accounts[file.name] = account
        return rows


def _identity(file: Path) -> dict[str, Any]:
    with readable(file), open(file, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
    return {"file": file.name, "bytes": size, "sha256": digest}


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any] | None, str]]:
    """Yield line number, the object on it, and what is wrong where it is None."""
    for line, text in text_lines(file):
        if not text.strip():
            continue
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield line, None, f"not JSON, {error}"
            continue
        if isinstance(content, dict):
            yield line, content, ""
        else:
            yield line, None, f"a JSON {type(content).__name__}, not an object with A, B and C"


def _checked(place: int, content: dict[str, Any]) -> tuple[TripletRow | None, str]:
    """Return the triplet, else None and what is wrong with it."""
    texts = []
    for name in DOCUMENTS:
        if name not in content:
            return None, f"no {name!r} among its keys {sorted(content)}"
        text, problem = checked_text(content[name], name)
        if text is None:
            return None, problem
        texts.append(text)
    a, b, c = texts
    for one, other in (("A", "B"), ("A", "C"), ("B", "C")):
        if content[one] == content[other]:
            return None, f"{one} and {other} are the same document"
    label = content.get("label", "B")
    if label not in LABELS:
        return None, f"label {label!r} is neither B nor C"
    return TripletRow(place, a, b, c, label), ""
