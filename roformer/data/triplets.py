"""Triplets of documents: A is closer to B or to C.

    <cache_dir>/scm/<key>   index, label, place, ids_a, ids_b, ids_c

Triplets are built-in cases, or JSON lines with A, B and C, and optionally a label:

    {"A": "…", "B": "…", "C": "…", "label": "B"}      A is closer to B than to C

The published CAIL2019-SCM has the label; a file without any label is read as its authors describe theirs, A
always closer to B.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from roformer.config.scm import BuiltinTriplets, FilesTriplets, TripletData
from roformer.data.examples import LabelledRows, Splits
from roformer.data.files import (
    JSON_LINES,
    Columns,
    Example,
    Rows,
    Source,
    absent,
    file_rows,
    has_suffix,
    named_file,
)
from roformer.data.random import Purpose, random_stream
from roformer.data.store import settings
from roformer.data.toy import cases
from roformer.errors import InputError

NAMES = {"train": ("train",), "validation": ("validation", "valid", "dev"), "test": ("test",)}
"""Accepted file names of each split."""
LABELS = ("B", "C")
"""Class names: the document that A is closer to."""
PLACES = ("early", "late")
"""Places of the evidence in a built-in triplet, by number."""
COLUMNS = Columns(("A", "B", "C"), "label", {"B": 0, "C": 1}, min_nonempty=3)
CUT = (0.6, 0.8)
"""Shares of the shuffled rows at which `paper622` splits them."""


def triplet_rows(data: TripletData) -> LabelledRows:
    """Open triplets of documents."""

    def facts(splits: Splits) -> dict[str, Any]:
        known = {text for row in splits["train"] for text in row.texts}
        return {
            "labels": {
                split: {
                    label: sum(row.label == n for row in rows) for n, label in enumerate(LABELS)
                }
                for split, rows in splits.items()
            },
            # Triplets of each held-out split that have a document of the training triplets.
            "shared": {
                split: sum(not known.isdisjoint(row.texts) for row in rows)
                for split, rows in splits.items()
                if split != "train"
            },
        }

    return LabelledRows(
        name="scm",
        source=open_triplets(data),
        kind="scm",
        purpose=Purpose.TRIPLET_SUBSET,
        train_limit=data.max_train_triplets,
        held_out_limit=data.max_held_out_triplets,
        identity={"data": settings(data)},
        facts=facts,
    )


# --- sources -------------------------------------------------------------------------------------


def open_triplets(data: TripletData) -> Source[Example]:
    """Open the source that the config names; only local files are listed yet, nothing is read."""
    if isinstance(data, FilesTriplets):
        return _file_triplets(data)
    assert isinstance(data, BuiltinTriplets)
    counts = {split: getattr(data, f"{split}_triplets") for split in NAMES}

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        made = enumerate(cases.case_triplets(split, counts[split]))
        examples = (
            Example(number, tuple(texts), LABELS.index(label), PLACES.index(place))
            for number, (*texts, label, place) in made
        )
        return source.count(examples, split)

    return Source(read, tuple(counts), key={"grammar": cases.GRAMMAR}, kind="scm_builtin")


def _file_triplets(data: FilesTriplets) -> Source[Example]:
    """Open the file, or the folder of files, that `data.path` names."""
    path = Path(data.path)
    root = path.parent if path.is_file() else path
    seed = data.split_seed if data.split == "paper622" else None
    files = _find(path, shipped=seed is None)
    unlabelled: list[str] = []
    whole: list[Example] = []

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        if seed is None:
            return source.checked(_labelled(files[split], unlabelled), split, COLUMNS)
        if not whole:
            rows = chain.from_iterable(_labelled(file, unlabelled) for file in files.values())
            whole.extend(source.checked(rows, "all", COLUMNS))
        order = random_stream(seed, Purpose.PAPER_SPLIT).permutation(len(whole))
        first, last = (round(share * len(order)) for share in CUT)
        parts = dict(zip(NAMES, (order[:first], order[first:last], order[last:]), strict=True))
        return (whole[place]._replace(number=int(place)) for place in parts[split])

    return Source(
        read,
        # All splits are drawn from `paper622`'s rows; a folder has those that it has files of.
        tuple(files if seed is None else NAMES),
        files={file: file.relative_to(root).as_posix() for file in files.values()},
        max_bad_rows=data.max_bad_rows,
        kind="files",
        split_seed=seed,
        unlabelled=unlabelled,
    )


def _labelled(file: Path, unlabelled: list[str]) -> Rows:
    """Yield rows with a label: B in a file without labels. Guessing it for some rows would be wrong."""
    labelled = None
    for where, line, row in file_rows(file, COLUMNS):
        if isinstance(row, dict):
            if labelled is None:
                labelled = "label" in row
                if not labelled and file.name not in unlabelled:
                    unlabelled.append(file.name)
            texts = [str(row[name]) for name in "ABC" if name in row]
            if labelled != ("label" in row):
                row = "one row has a label and another none: give all rows a label, or none"
            elif len(set(texts)) < len(texts):
                row = "two of A, B and C are the same document"
            elif len(texts) == 3:
                row.setdefault("label", LABELS[0])
        yield where, line, row


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
    found = {split: named_file(path, names, JSON_LINES) for split, names in NAMES.items()}
    files = {split: file for split, file in found.items() if file is not None}
    for split in ("train", "validation") if shipped else ():
        if split not in files:
            wanted = f"{split} file ({' or '.join(NAMES[split])} with {kinds})"
            raise absent(path, wanted, "put it there, or set data.split=paper622")
    if not files:
        raise absent(path, f"file of {kinds}", "put train, validation or test there")
    return files
