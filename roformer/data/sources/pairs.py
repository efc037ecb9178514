"""Pairs of sentences, none empty or with a line break: built in, from local files or the Hub.

A training pair with an empty side is skipped and counted, and beyond `max_train_pairs` nothing is
read. In valid and test an empty side would falsify the score and is an error.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from roformer.config.wmt import BuiltinParallel, FilesParallel, HubParallel, Parallel
from roformer.data.sources import BadRow, Columns, Example, MadeRows, Rows, Source
from roformer.data.sources.files import (
    JSON_LINES,
    TABLES,
    Files,
    absent,
    file_rows,
    has_suffix,
    named_file,
    text_lines,
)
from roformer.data.sources.hub import HubTable
from roformer.data.toy.translation import TRANSLATION_GRAMMAR, builtin_pairs
from roformer.errors import InputError

SPLITS = ("train", "valid", "test")
ROWS = (*TABLES, *JSON_LINES, ".parquet")
"""Suffixes of files with both languages in a row."""
FILTERED = 2737
"""Lines of a filtered newstest2014, sacrebleu's wmt14 and not wmt14/full."""


def open_parallel(config: Parallel) -> Source[Example]:
    """Open the source that the config names, reading nothing yet but a list of files."""
    if isinstance(config, BuiltinParallel):
        return _builtin(config)
    return FilePairs(config) if isinstance(config, FilesParallel) else HubPairs(config)


def _builtin(config: BuiltinParallel) -> Source[Example]:
    languages = config.source_language, config.target_language
    if sorted(languages) != ["de", "en"]:
        raise InputError(
            f"the built-in text is English and German, not {' and '.join(languages)}: take "
            "data=files, or en and de"
        )

    def make(split: str) -> Iterator[Example]:
        most = config.max_train_pairs if split == "train" else None
        made = islice(builtin_pairs(split, getattr(config, f"{split}_pairs")), most)
        for number, pair in enumerate(made):
            yield Example(number, pair if languages[0] == "en" else pair[::-1])

    return MadeRows(make, {"grammar": TRANSLATION_GRAMMAR}, SPLITS, kind="builtin")


class _Pairs(Source[Example]):
    splits = SPLITS
    config: FilesParallel | HubParallel
    most_bad_rows: int | None = None
    """Bad training rows that may be skipped; None: any number."""

    def columns(self, split: str) -> Columns:
        """Return the columns of the two languages."""
        return Columns((self.config.source_language, self.config.target_language), filled=2)

    @abstractmethod
    def read(self, split: str) -> Rows:
        """Yield all rows of a split, a column for each language."""

    def rows(self, split: str = "train") -> Iterator[Example]:
        rows, columns = self.read(split), self.columns(split)
        if split == "train":
            rows = islice(rows, self.config.max_train_pairs)
            columns = replace(columns, skip_empty=True)
            remedy = f"fix it, or allow more with data.max_bad_rows (now {self.most_bad_rows})"
            return self.checked(rows, split, columns, self.most_bad_rows, remedy)
        remedy = f"it would falsify the {split} score: fix it, or take it out of both languages"
        return self.checked(rows, split, columns, 0, remedy)


class FilePairs(_Pairs, Files[Example]):
    """Splits of local files: two files, `<path>/<name>.<language>`, aligned by line; one file of rows,
    `<path>/<name>.tsv` or of another kind; or a share of the training pairs.
    """

    config: FilesParallel

    def __init__(self, config: FilesParallel) -> None:
        path, self.config = Path(config.path), config
        super().__init__(path.parent if path.is_file() else path)
        self.most_bad_rows = config.max_bad_rows
        if path.is_file() and not has_suffix(path, ROWS):
            raise InputError(
                f"data.path={path} is not a file of {', '.join(ROWS)} with a column per language: convert "
                "it, or give a folder of two aligned files, train.en and train.de"
            )
        shares = {"valid": config.valid_fraction, "test": config.test_fraction}
        self.shares = {split: share for split, share in shares.items() if share is not None}
        self.found = {"train": [path] if path.is_file() else self._find("train")}
        for split in shares:
            self.found[split] = self.found["train"] if split in self.shares else self._find(split)

    def _find(self, split: str) -> list[Path]:
        place = self.root / getattr(self.config, split)
        languages = self.config.source_language, self.config.target_language
        names = [f"{place.name}.{language}" for language in languages]
        aligned = [named_file(place.parent, [name], ("", ".gz")) for name in names]
        rows = named_file(place.parent, [place.name], ROWS)
        if rows is not None and any(aligned):
            raise InputError(f"{self.root} has {names[0]} and {rows.name}: keep one of them")
        found = [file for file in (rows, *aligned) if file is not None]
        if len(found) == (1 if rows else 2):
            return found
        wanted = (
            f"{' and '.join(names)}, aligned by line, nor {place.name} with {', '.join(ROWS)} and a "
            "column per language"
        )
        remedy = f"put them there (convert other formats), or set the languages and data.{split}"
        if split != "train":
            remedy += f", or hold out pairs with data.{split}_fraction=0.01"
        raise absent(place.parent, wanted, remedy)

    def files(self, split: str) -> list[Path]:
        return self.found[split]

    def columns(self, split: str) -> Columns:
        columns, config = super().columns(split), self.config
        if len(self.found[split]) == 2:
            return columns
        fields = config.source_field, config.target_field
        pairs = zip(fields, columns.texts, strict=True)
        texts = tuple(name if field is None else field for field, name in pairs)
        numbers = "by number in a .tsv or .csv without a header"
        return replace(
            columns, texts=texts, set_by=f"data.source_field and .target_field, {numbers}"
        )

    def read(self, split: str) -> Rows:
        columns, count = self.columns(split), 0
        for where, number, row in self._all_rows(split, columns):
            if split not in ("train", *self.shares) or self._split_of(row, columns) == split:
                count += 1
                yield where, number, row
        if not count:
            raise InputError(
                f"{self.found[split][0]} has no pair for {split} with data.valid_fraction="
                f"{self.config.valid_fraction} and data.test_fraction={self.config.test_fraction}: "
                "change them, or give more text"
            )

    def _split_of(self, row: dict[Any, Any] | str, columns: Columns) -> str:
        """Return the split of a row of the training file; rows that cannot be used are not held out."""
        if not self.shares or isinstance(row, str):
            return "train"
        try:
            texts = columns.check(0, row).texts
        except BadRow:
            return "train"
        # The same language in both directions, so that the split is the same.
        languages = self.config.source_language, self.config.target_language
        text = texts[languages.index(min(languages))]
        place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
        for split, share in self.shares.items():
            if place < share:
                return split
            place -= share
        return "train"

    def _all_rows(self, split: str, columns: Columns) -> Rows:
        files = self.found[split]
        if len(files) == 1:
            for where, number, row in file_rows(files[0], columns):
                if isinstance(row, dict):
                    nested = row.get("translation")
                    row = nested if isinstance(nested, dict) else row
                    row = {k: _one_line(v) if isinstance(v, str) else v for k, v in row.items()}
                yield where, number, row
            return
        place, number = f"{files[0]} and {files[1].name}", 0
        for lines in zip_longest(*map(text_lines, files)):
            if None in lines:
                counts = [f"{sum(1 for _ in text_lines(file)):,}" for file in files]
                raise InputError(
                    f"{files[0]} has {counts[0]} lines and {files[1]} {counts[1]}: line n of one "
                    "must translate line n of the other, so find where they part"
                )
            (number, source), (_, target) = lines
            yield place, number, dict(zip(columns.texts, (source, target), strict=True))
        if not number:
            raise InputError(f"{place} are empty: give text")


class HubPairs(_Pairs):
    """A WMT set of the Hub: a column `translation` of {language: sentence}."""

    def __init__(self, config: HubParallel) -> None:
        place = {"path": config.path, "name": config.name, "revision": config.revision}
        super().__init__(kind="hub", **place)
        self.config = config

    def read(self, split: str) -> Rows:
        config: Any = self.config
        official = "validation" if split == "valid" else split
        columns = Columns(("translation",), set_by="the data.path of a WMT set")
        hub = HubTable(config.path, config.name, config.revision, official, columns)
        feature, lines = hub.table.features["translation"], len(hub.table)
        there = sorted(getattr(feature, "languages", None) or feature)
        for side in ("source_language", "target_language"):
            if (language := getattr(config, side)) not in there:
                raise InputError(
                    f"{hub.where} has the languages {', '.join(there)}, not {language}: give "
                    f"data.{side}, or another data.name"
                )
        if split == "test" and config.test_lines not in (None, lines):
            filtered = " (a filtered newstest2014)" if lines == FILTERED else ""
            raise InputError(
                f"{hub.where} has {lines:,} lines{filtered}, not {config.test_lines:,}: scores on the "
                f"two cannot be compared; data.test_lines={lines} or null takes it all the same"
            )
        for where, number, row in hub.rows():
            assert isinstance(row, dict)
            sides = row["translation"].items()
            yield where, number, {side: _one_line(text or "") for side, text in sides}


def _one_line(text: str) -> str:
    return text.rstrip("\r\n").replace("\n", " ")
