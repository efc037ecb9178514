"""Pairs of sentences, none empty or with a line break: built in, line-aligned files or the Hub.

A training pair with an empty side is left out and counted, and beyond `max_train_pairs` nothing is
read. In valid and test an empty side would falsify the score and is an error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from roformer.config.wmt import BuiltinParallel, FilesParallel, HubParallel, Parallel
from roformer.data.sources import Columns, Example, MadeRows, Rows, Source
from roformer.data.sources.files import Files, absent, text_lines
from roformer.data.sources.hub import HubTable
from roformer.data.toy.translation import TRANSLATION_GRAMMAR, builtin_pairs
from roformer.errors import InputError

SPLITS = ("train", "valid", "test")
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

    @abstractmethod
    def read(self, split: str) -> Rows:
        """Yield all rows of a split, a column for each language."""

    def rows(self, split: str = "train") -> Iterator[Example]:
        config, train = self.config, split == "train"
        columns = Columns((config.source_language, config.target_language), filled=2)
        rows = islice(self.read(split), config.max_train_pairs if train else None)
        remedy = f"it would falsify the {split} score: fix it, or take it out of both languages"
        return self.checked(rows, split, columns, None if train else 0, remedy)


class FilePairs(_Pairs, Files[Example]):
    """Two files a split, `<path>/<name>.<language>` or the same with .gz, aligned by line."""

    def __init__(self, config: FilesParallel) -> None:
        super().__init__(Path(config.path))
        self.config = config
        self.found = {split: self._find(split) for split in SPLITS}

    def _find(self, split: str) -> list[Path]:
        found = []
        for language in (self.config.source_language, self.config.target_language):
            name = f"{getattr(self.config, split)}.{language}"
            file = self.root / name
            file = file if file.is_file() else self.root / f"{name}.gz"
            if not file.is_file():
                remedy = f"put it there, or set data.{split} and the languages as the files say"
                raise absent(self.root, f"{name}, nor with .gz", remedy)
            found.append(file)
        return found

    def files(self, split: str) -> list[Path]:
        return self.found[split]

    def read(self, split: str) -> Rows:
        files, config = self.found[split], self.config
        place, number = f"{files[0]} and {files[1].name}", 0
        for lines in zip_longest(*map(text_lines, files)):
            if None in lines:
                counts = [f"{sum(1 for _ in text_lines(file)):,}" for file in files]
                raise InputError(
                    f"{files[0]} has {counts[0]} lines and {files[1]} {counts[1]}: line n of one "
                    "must translate line n of the other, so find where they part"
                )
            (number, source), (_, target) = lines
            row = {config.source_language: source, config.target_language: target}
            yield place, number, row
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
