"""Triplets of documents as Arrow: read from a source, tokenised once, opened by every run.

    source                       train, validation, and test where there is one     `open_triplets`
    <cache_dir>/scm/<key>/       train.parquet, …: index, label, place, ids_a, ids_b, ids_c
                                 manifest.json

Nothing is cut to a length here: that is up to the model.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow
import pyarrow.parquet

from roformer.config.build import plain
from roformer.config.scm import BuiltinTriplets, FilesTriplets, TripletData
from roformer.data.builtin import cases
from roformer.data.folders import one_at_a_time, publish, sync, temporary_beside
from roformer.data.manifests import again, stored_files
from roformer.data.progress import stage
from roformer.data.random import Purpose, random_stream
from roformer.data.tokenizers import WordPiece
from roformer.data.triplet_files import LABELS, FileTriplets, TripletRow
from roformer.data.triplet_prepared import COLUMNS, FORMAT, NOWHERE, PLACES, Triplets, seal
from roformer.errors import InputError

BATCH = 1000
"""Triplets tokenised at once."""


class TripletSource(Protocol):
    """The triplets of every split, and an account of what was read."""

    @property
    def splits(self) -> list[str]:
        """`train`, `validation`, and `test` where there is one."""

    def rows(self, split: str) -> list[TripletRow]:
        """Read a split; raise InputError where the input is wrong."""

    def describe(self) -> dict[str, Any]:
        """Say what was read, for the manifest; complete once all splits are read."""

    def key(self) -> dict[str, Any]:
        """Identify the input without absolute paths, for a cache key."""


def open_triplets(data: TripletData) -> TripletSource:
    """Open the source that the config names, reading nothing yet.

    Raises:
        InputError: there is no such file or folder, or a split is missing.
    """
    if isinstance(data, FilesTriplets):
        return FileTriplets(data)
    assert isinstance(data, BuiltinTriplets)
    return BuiltinCases(data)


class BuiltinCases:
    """Cases made by a grammar; see `roformer.data.builtin.cases`."""

    def __init__(self, data: BuiltinTriplets) -> None:
        self.counts = {
            "train": data.train_triplets,
            "validation": data.validation_triplets,
            "test": data.test_triplets,
        }

    @property
    def splits(self) -> list[str]:
        return [*self.counts]

    def rows(self, split: str) -> list[TripletRow]:
        made = cases.case_triplets(split, self.counts[split])
        return [TripletRow(index, *triplet) for index, triplet in enumerate(made)]

    def describe(self) -> dict[str, Any]:
        return {"kind": "scm_builtin", "grammar": cases.GRAMMAR}

    def key(self) -> dict[str, Any]:
        return {"grammar": cases.GRAMMAR}


def training_texts(data: TripletData) -> Iterator[str]:
    """Yield the training documents, to train a tokenizer on."""
    for row in _read(open_triplets(data), data, "train"):
        yield from (row.a, row.b, row.c)


def _read(source: TripletSource, data: TripletData, split: str) -> list[TripletRow]:
    rows = source.rows(split)
    count = data.max_train_triplets if split == "train" else data.max_held_out_triplets
    if count is None or count >= len(rows):
        return rows
    drawn = random_stream(0, Purpose.TRIPLET_SUBSET).choice(len(rows), count, replace=False)
    return [rows[number] for number in np.sort(drawn)]


# --- preparing -----------------------------------------------------------------------------------


def prepare_triplets(
    data: TripletData, tokenizer: WordPiece, cache_dir: str | Path, *, progress: bool = True
) -> Triplets:
    """Open the tokenised triplets, making them first where they do not exist yet.

    Args:
        data: the source.
        tokenizer: that of the model.
        cache_dir: the splits go to `<cache_dir>/scm/<key>`.
        progress: tell on stderr how far it is.

    Raises:
        InputError: the source is not usable; says where and what to do.
        OSError: the disk is full. What was written is removed.
    """
    source = open_triplets(data)
    folder = Path(cache_dir) / "scm" / _key(source, data, tokenizer)
    if not folder.exists():
        with one_at_a_time(folder, progress):  # of several ranks, one prepares
            if not folder.exists():
                with temporary_beside(folder) as temporary:
                    _build(source, data, tokenizer, temporary, progress)
                    publish(temporary, folder)
    prepared = Triplets.open(folder)
    found = prepared.manifest["tokenizer"]
    if (found["fingerprint"], found["size"]) != (tokenizer.fingerprint, tokenizer.size):
        raise InputError(f"{folder} is prepared with another tokenizer: {again(folder)}")
    return prepared


def _key(source: TripletSource, data: TripletData, tokenizer: WordPiece) -> str:
    settings = plain(data)
    settings.pop("path", None)  # where files lie does not decide what is read
    identity = {
        "format": FORMAT,
        "data": settings,
        "source": source.key(),
        "tokenizer": tokenizer.fingerprint,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _build(
    source: TripletSource, data: TripletData, tokenizer: WordPiece, folder: Path, progress: bool
) -> None:
    read: dict[str, list[TripletRow]] = {}
    with stage("reading", "triplets", None, progress, "scm") as advance:
        for split in source.splits:
            read[split] = _read(source, data, split)
            if not read[split]:
                raise InputError(f"no triplet is left for {split}: give more rows (data.path)")
            advance(len(read[split]))
    account = source.describe()
    for file in account.get("files", ()):
        if file["bad_rows"]:
            first = f"(the first: {file['first_bad_row']})"
            print(f"scm: {file['bad_rows']:,} bad rows skipped {first}", file=sys.stderr)
        if not file["labelled_rows"]:
            line = "has no labels: B is taken to be the closer one of every row"
            print(f"scm: {file['file']} {line}", file=sys.stderr)
    content = hashlib.sha256(tokenizer.fingerprint.encode())
    with stage("tokenising", "triplets", sum(map(len, read.values())), progress, "scm") as advance:
        for split, rows in read.items():
            content.update(split.encode())
            for row in rows:
                content.update(json.dumps(row[1:]).encode())
            pyarrow.parquet.write_table(
                _tokenised(rows, tokenizer, advance),
                folder / f"{split}.parquet",
                write_page_checksum=True,
            )

    manifest = {
        "format": FORMAT,
        "kind": "scm",
        "fingerprint": content.hexdigest(),
        "source": account,
        "rows": {split: len(rows) for split, rows in read.items()},
        "labels": {split: _balance(rows) for split, rows in read.items()},
        "shared": _shared(read),
        "tokenizer": {
            "lowercase": tokenizer.lowercase,
            "size": tokenizer.size,
            "fingerprint": tokenizer.fingerprint,
        },
        "files": stored_files(folder),
        "versions": {"python": platform.python_version()}
        | {package: metadata.version(package) for package in ("tokenizers", "pyarrow")},
    }
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    sync(*folder.iterdir(), folder)


def _balance(rows: Sequence[TripletRow]) -> dict[str, int]:
    """Return how often each of B and C is the closer one."""
    counts: Counter[str] = Counter(row.label for row in rows)
    return {label: counts[label] for label in LABELS}


def _shared(read: dict[str, list[TripletRow]]) -> dict[str, int]:
    """Return how many triplets of each held-out split have a document of the training triplets."""
    known = {text for row in read["train"] for text in (row.a, row.b, row.c)}
    return {
        split: sum(not known.isdisjoint((row.a, row.b, row.c)) for row in rows)
        for split, rows in read.items()
        if split != "train"
    }


def _tokenised(
    rows: Sequence[TripletRow], tokenizer: WordPiece, advance: Callable[[int], object]
) -> pyarrow.Table:
    parts = []
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        columns: dict[str, Any] = {
            "index": [row.row for row in part],
            "label": [LABELS.index(row.label) for row in part],
            "place": [NOWHERE if row.place is None else PLACES.index(row.place) for row in part],
            "ids_a": tokenizer.encode_batch([row.a for row in part]),
            "ids_b": tokenizer.encode_batch([row.b for row in part]),
            "ids_c": tokenizer.encode_batch([row.c for row in part]),
        }
        parts.append(pyarrow.table(columns, schema=COLUMNS))
        advance(len(part))
    return pyarrow.concat_tables(parts)
