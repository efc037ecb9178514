"""Pairs of sentences, none empty or with a line break: built in, line-aligned files or the Hub."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from roformer.config.wmt import BuiltinParallel, FilesParallel, HubParallel, Parallel
from roformer.data.sources import Source
from roformer.data.sources.files import dates, identity, text_lines
from roformer.data.sources.hub import load
from roformer.data.toy.translation import TRANSLATION_GRAMMAR, builtin_pairs
from roformer.errors import InputError

SPLITS = ("train", "valid", "test")
BATCH = 10_000
"""Rows of the Hub held as Python objects at once."""

Pair = tuple[str, str]
"""Source sentence and target sentence."""


def open_parallel(config: Parallel) -> ParallelSource:
    """Open the source that the config names, reading nothing yet.

    Raises:
        InputError: a file that does not exist, or a language that the source does not have.
    """
    if isinstance(config, BuiltinParallel):
        return BuiltinPairs(config)
    return FilePairs(config) if isinstance(config, FilesParallel) else HubPairs(config)


class ParallelSource(Source[Pair]):
    """Pairs of sentences, and an account of what was read."""

    splits = SPLITS

    def __init__(self, config: Parallel) -> None:
        self.languages = config.source_language, config.target_language
        self.max_train_pairs = config.max_train_pairs
        self.pairs_read: dict[str, int] = {}
        """Pairs read of each split, empty ones too."""
        self.empty = 0
        """Training pairs left out because a side is empty."""

    def rows(self, split: str = "train") -> Iterator[Pair]:
        """Yield the pairs of a split: `train`, `valid` or `test`.

        A training pair with an empty side is left out and counted, and beyond `max_train_pairs`
        nothing is read. In valid and test an empty side would falsify the score and is an error.

        Raises:
            InputError: the source is not usable; says where and what to do.
        """
        train = split == "train"
        self.pairs_read[split] = 0
        if train:
            self.empty = 0
        limit = self.max_train_pairs if train else None
        for number, pair in enumerate(islice(self._read(split), limit), 1):
            self.pairs_read[split] = number
            empty = [side for side, text in enumerate(pair) if not text.strip()]
            if not empty:
                yield pair
            elif train:
                self.empty += 1
            else:
                raise InputError(
                    f"{self._place(split, empty[0], number)}: an empty sentence would falsify the "
                    f"{split} score: mend it, or take it out of both languages"
                )

    @abstractmethod
    def _read(self, split: str) -> Iterator[Pair]:
        """Yield all pairs of a split, empty ones too."""

    @abstractmethod
    def _place(self, split: str, side: int, number: int) -> str:
        """Say where a sentence stands; side 0 is the source, 1 the target; numbers are from 1."""


class BuiltinPairs(ParallelSource):
    """English and German from templates; see `roformer.data.toy.translation`."""

    def __init__(self, config: BuiltinParallel) -> None:
        super().__init__(config)
        if sorted(self.languages) != ["de", "en"]:
            raise InputError(
                f"the built-in text is English and German, not {' and '.join(self.languages)}: "
                "take data=files, or en and de"
            )
        self.counts = dict(
            zip(SPLITS, (config.train_pairs, config.valid_pairs, config.test_pairs), strict=True)
        )

    def _read(self, split: str) -> Iterator[Pair]:
        turned = self.languages[0] == "de"
        for english, german in builtin_pairs(split, self.counts[split]):
            yield (german, english) if turned else (english, german)

    def _place(self, split: str, side: int, number: int) -> str:
        return f"built-in {split} pair {number}"

    def describe(self) -> dict[str, Any]:
        return {"kind": "builtin", "grammar": TRANSLATION_GRAMMAR, "pairs": self.pairs_read}

    def key(self) -> dict[str, Any]:
        return {"grammar": TRANSLATION_GRAMMAR}


class FilePairs(ParallelSource):
    """Two files a split, `<path>/<name>.<language>` or the same with .gz, aligned by line."""

    def __init__(self, config: FilesParallel) -> None:
        super().__init__(config)
        folder = self.folder = Path(config.path).expanduser()
        if not folder.is_dir():
            raise InputError(f"data.path={config.path} is no folder: give that of the text files")
        names = dict(zip(SPLITS, (config.train, config.valid, config.test), strict=True))
        self.files = {
            split: [_find(folder, name, language, split) for language in self.languages]
            for split, name in names.items()
        }

    def _read(self, split: str) -> Iterator[Pair]:
        files = self.files[split]
        number = 0
        readers = [text_lines(file) for file in files]
        for number, lines in enumerate(zip_longest(*readers), 1):
            if None in lines:
                longer = lines.index(None) ^ 1
                counts = [number - 1, number - 1]
                counts[longer] += 1 + sum(1 for _ in readers[longer])
                raise InputError(
                    f"{files[0]} has {counts[0]:,} lines and {files[1]} {counts[1]:,}: line n of "
                    "one must translate line n of the other, so find where they part"
                )
            (_, source), (_, target) = lines
            yield source, target
        if not number:
            raise InputError(f"{files[0]} and {files[1]} are empty: give text (data.{split})")

    def _place(self, split: str, side: int, number: int) -> str:
        return f"{self.files[split][side]}:{number}"

    def describe(self) -> dict[str, Any]:
        files = [identity(file, file.parent) for split in SPLITS for file in self.files[split]]
        return {"kind": "files", "files": files, "pairs": self.pairs_read}

    def key(self) -> dict[str, Any]:
        files = [file for split in SPLITS for file in self.files[split]]
        return {"files": dates(files, self.folder)}


def _find(folder: Path, name: str, language: str, split: str) -> Path:
    for file in (folder / f"{name}.{language}", folder / f"{name}.{language}.gz"):
        if file.is_file():
            return file
    raise InputError(
        f"{folder / name}.{language} does not exist, nor with .gz: put it there, or give "
        f"data.{split}=<name> and the languages as the files have them"
    )


class HubPairs(ParallelSource):
    """A WMT set of the Hub: a column `translation` of {language: sentence}."""

    def __init__(self, config: HubParallel) -> None:
        super().__init__(config)
        self.config = config

    def _read(self, split: str) -> Iterator[Pair]:
        table = self._load(split)
        if split == "test":
            self._check_test(len(table))
        number = 0
        # The table lies on disk; a batch of it at a time becomes Python objects.
        for batch in table.iter(batch_size=BATCH):
            for row in batch["translation"]:
                number += 1
                texts = [row[language] for language in self.languages]
                if None in texts:
                    place = self._place(split, texts.index(None), number)
                    raise InputError(f"{place}: the sentence is null: give another data.revision")
                source, target = (text.rstrip("\r\n").replace("\n", " ") for text in texts)
                yield source, target
        if not number:
            raise InputError(f"{self._name(split)} has no row: give another data.revision")

    def _load(self, split: str) -> Any:
        config, name = self.config, self._name(split)
        table = load(config.path, config.name, config.revision, _official(split))
        if "translation" not in table.column_names:
            raise InputError(
                f"{name} has no column 'translation', but {', '.join(table.column_names)}: give the "
                "data.path of a WMT set"
            )
        feature = table.features["translation"]
        there = sorted(getattr(feature, "languages", None) or feature)
        for side, language in zip(("source", "target"), self.languages, strict=True):
            if language not in there:
                raise InputError(
                    f"{name} has the languages {', '.join(there)}, not {language}: give "
                    f"data.{side}_language, or another data.name"
                )
        return table.select_columns(["translation"])

    def _check_test(self, found: int) -> None:
        wanted = self.config.test_lines
        if wanted in (None, found):
            return
        filtered = " (the filtered newstest2014, sacrebleu's wmt14 and not wmt14/full)"
        raise InputError(
            f"{self._name('test')} has {found:,} lines{filtered if found == 2737 else ''}, not "
            f"{wanted:,}: scores on the two cannot be compared; data.test_lines={found} or null "
            "takes it all the same"
        )

    def _name(self, split: str) -> str:
        return f"{self.config.path} ({self.config.name}, {_official(split)})"

    def _place(self, split: str, side: int, number: int) -> str:
        return f"{self._name(split)}, row {number}, {self.languages[side]}"

    def describe(self) -> dict[str, Any]:
        config = self.config
        return {
            "kind": "hub",
            "path": config.path,
            "name": config.name,
            "revision": config.revision,
            "pairs": self.pairs_read,
        }


def _official(split: str) -> str:
    """Return what the Hub calls a split."""
    return "validation" if split == "valid" else split
