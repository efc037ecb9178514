"""Labelled texts: read from a source, tokenized once, opened by every fine-tuning.

    <cache_dir>/glue/<key>  index, label, place, ids_a, ids_b

A label is a class number or a score. Tokens are without special ones; the model's inputs are cut later.

GLUE tasks are built in, in the official folder (one folder per task, with .tsv or .csv files) or on the Hub.
Columns are found by their name in the header, or by number in a file without one (CoLA). A split is `train`,
`validation`, `test`, or a part of the latter two, such as `validation_matched`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roformer.config.build import plain
from roformer.config.glue import FilesGlue, Glue, HubGlue, TaskConfig
from roformer.data.files import (
    Columns,
    Example,
    Source,
    absent,
    file_rows,
    named_file,
)
from roformer.data.hub import HubTable
from roformer.data.random import Purpose, random_stream
from roformer.data.store import Builder, Prepared, RaggedTokens, settings
from roformer.data.tokenizers import WordPiece, check_unknown, segmenter, tokenizer_facts
from roformer.data.toy import glue
from roformer.data.work import batches, print_skipped, progress_bar
from roformer.errors import InputError

IDS = ("ids_a", "ids_b", "ids_c")

Splits = dict[str, list[Example]]


@dataclass(frozen=True)
class ExampleSplit:
    """The examples of one split, N of them."""

    index: NDArray[np.int64]
    """Row numbers in the source, (N,)."""
    labels: NDArray[np.int64] | NDArray[np.float32]
    """Class numbers, int64, or scores, float32; (N,)."""
    places: NDArray[np.int64]
    """For triplets, the number in `PLACES` or `NO_EVIDENCE`; (N,)."""
    ids: tuple[RaggedTokens, ...]
    """Tokens of the first texts, and of the second and the third if the task has them."""

    def __len__(self) -> int:
        return len(self.index)


class PreparedExamples(Prepared):
    """Prepared splits of labelled texts."""

    def split(self, name: str) -> ExampleSplit:
        """Map a split."""
        values = self.values(name)
        labels: Any = np.array(values["label"])
        return ExampleSplit(
            index=np.array(values["index"], np.int64),
            labels=labels.astype(np.float32 if labels.dtype == np.float64 else np.int64),
            places=np.array(values["place"], np.int64),
            ids=tuple(self.tokens(name, ids) for ids in IDS[: self.manifest["texts"]]),
        )


@dataclass(frozen=True)
class LabelledRows:
    """All rows of a source, or a fixed random subset of each split in the source's order."""

    name: str
    source: Source[Example]
    kind: str
    """Folder in the cache."""
    purpose: Purpose
    train_limit: int | None
    held_out_limit: int | None
    """Of each other split."""
    identity: dict[str, Any]
    """The keys that decide the content, in addition to source and tokenizer."""
    facts: Callable[[Splits], dict[str, Any]]
    """Returns further entries of the manifest."""

    def read(self, split: str) -> list[Example]:
        """Read `train` or another split."""
        rows = list(self.source.rows(split))
        count = self.train_limit if split == "train" else self.held_out_limit
        if count is not None and count < len(rows):
            chosen = random_stream(0, self.purpose).choice(len(rows), count, replace=False)
            rows = [rows[number] for number in np.sort(chosen)]
        if not rows:
            raise InputError(f"{self.name} has no usable row in {split}: change data.path")
        if isinstance(rows[0].label, float):
            # The Hub keeps scores in single precision, the files in decimals: 3.8 is meant.
            rows = [row._replace(label=float(str(np.float32(row.label)))) for row in rows]
        return rows

    def training_texts(self) -> Iterator[str]:
        """Yield the texts of `train`, to train a tokenizer on."""
        return (text for row in self.read("train") for text in row.texts)

    def prepare(
        self, tokenizer: WordPiece, cache_dir: str | Path, *, progress: bool = True
    ) -> PreparedExamples:
        """Open the tokenized splits in `<cache_dir>/<kind>/<key>`, making them first if missing."""
        keys = {"source": self.source.key, "tokenizer": tokenizer.fingerprint}
        if tokenizer.words != "none":
            keys["words"] = segmenter()

        def build(builder: Builder) -> dict[str, Any]:
            splits: Splits = {}
            with progress_bar("reading", "rows", None, progress, self.name) as bar:
                for split in self.source.splits:
                    splits[split] = self.read(split)
                    bar.update(len(splits[split]))
            account = self.source.describe()
            print_skipped(self.name, account)
            for file in account.get("unlabelled", ()):
                line = "has no labels: B is taken to be the closer one of every row"
                print(f"{self.name}: {file} {line}", file=sys.stderr)
            total = sum(map(len, splits.values()))
            with progress_bar("tokenizing", "rows", total, progress, self.name) as bar:
                unknown = 0
                for split, rows in splits.items():
                    columns = IDS[: len(rows[0].texts)]
                    writer = builder.split(split, **dict.fromkeys(columns, np.int32))
                    for some in batches(rows, 1000):
                        index, texts, label, place = zip(*some, strict=True)
                        ids = [
                            tokenizer.encode_batch(column) for column in zip(*texts, strict=True)
                        ]
                        unknown += sum(
                            text.count(tokenizer.unk_id) for side in ids for text in side
                        )
                        tokens = dict(zip(columns, ids, strict=True))
                        writer.append(index=index, place=place, label=label, **tokens)
                        bar.update(len(some))
            count = sum(writer.tokens for writer in builder.writers.values())
            check_unknown(unknown / max(1, count), "init_from", self.name)
            return {
                "source": account,
                "texts": len(splits["train"][0].texts),
                **self.facts(splits),
                "tokenizer": tokenizer_facts(tokenizer),
            }

        identity = self.identity | keys
        return PreparedExamples.prepare(self.kind, identity, cache_dir, build, progress)


# --- GLUE ----------------------------------------------------------------------------------------


def task_rows(name: str, task: TaskConfig, data: Glue) -> LabelledRows:
    """Open `train` and `validation`, or `validation_<part>` where the task has parts."""
    return LabelledRows(
        name=name,
        source=open_examples(name, task, data),
        kind="glue",
        purpose=Purpose.EXAMPLE_SUBSET,
        train_limit=data.max_train_examples,
        held_out_limit=None,
        identity={"task": {name: plain(task)}, "data": settings(data)},
        facts=lambda splits: {"task": name},
    )


TestRow = tuple[int, str | tuple[str, str]]
"""Row number of a test example in its source, and its text or the pair of them."""


def test_rows(name: str, task: TaskConfig, data: Glue, part: str | None) -> list[TestRow]:
    """Read the test split for a submission: number and text or texts of each row, labels never.

    The Hub's labels are -1 and MRPC's file has the real ones: neither may meet a model.
    """
    if part not in (task.parts or (None,)):
        parts = f"has the test parts {', '.join(task.parts)}" if task.parts else "has no test parts"
        raise InputError(f"{name} {parts}: asked for {part!r}")
    rows = open_examples(name, task, data).rows(f"test_{part}" if part else "test")
    return [
        (row.number, (row.texts[0], row.texts[1]) if row.texts[1:] else row.texts[0])
        for row in rows
    ]


# --- sources of GLUE -----------------------------------------------------------------------------


def open_examples(name: str, task: TaskConfig, data: Glue) -> Source[Example]:
    """Open the source that the config names; only local files are listed yet, nothing is read."""
    splits = ("train", *([f"validation_{part}" for part in task.parts] or ["validation"]))
    if isinstance(data, FilesGlue):
        return _folder_examples(name, task, data, splits)
    if isinstance(data, HubGlue):
        return _hub_examples(name, task, data, splits)

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        where = f"the built-in {name}"
        if split not in splits:
            raise InputError(f"{where} has no test split: take data=hub or data=files")
        columns = Columns(range(len(task.texts)), 2, class_numbers(task), task.scores)
        count = data.train_examples if split == "train" else data.validation_examples
        examples = enumerate(glue.builtin_examples(name, split, count), 1)
        rows = ((where, number, dict(enumerate(row))) for number, row in examples)
        return source.checked(rows, split, columns, f"task.{name} does not fit the templates")

    return Source(read, splits, key={"grammar": glue.GRAMMAR}, kind="builtin")


def _folder_examples(
    name: str, task: TaskConfig, data: FilesGlue, splits: Sequence[str]
) -> Source[Example]:
    """Open a task below the folder that `data.path` names."""
    root, places = Path(data.path), task.files
    folder, set_by = root / places.folder, f"the columns in task.{name}.files"
    if not folder.is_dir():
        remedy = f"put {name} there, or set task.{name}.files.folder"
        raise absent(root, f"folder {folder.name}", f"give the GLUE folder, and {remedy}")

    def file_of(split: str) -> Path | None:
        return named_file(folder, [split.replace("validation", "dev")], (".tsv", ".csv"))

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        if (file := file_of(split)) is None:
            stem = split.replace("validation", "dev")
            raise absent(folder, f"{stem}.tsv or {stem}.csv", "put the file there")
        if split.startswith("test"):
            columns = Columns(places.test_texts or places.texts, min_nonempty=0, set_by=set_by)
            remedy = "fix it; a submission needs every row"
        else:
            labels, remedy = class_numbers(task), ""
            columns = Columns(places.texts, places.label, labels, task.scores, set_by=set_by)
        return source.checked(file_rows(file, columns), split, columns, remedy)

    files = {file: file.relative_to(root).as_posix() for file in map(file_of, splits) if file}
    return Source(read, splits, files=files, max_bad_rows=data.max_bad_rows, kind="files")


def _hub_examples(
    name: str, task: TaskConfig, data: HubGlue, splits: Sequence[str]
) -> Source[Example]:
    """Open a configuration of GLUE on the Hub."""
    set_by = f"task.{name}.texts, or another data.path"

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        labelled = not split.startswith("test")
        columns = Columns(
            task.texts,
            "label" if labelled else None,
            class_numbers(task),
            task.scores,
            index="idx",
            min_nonempty=int(labelled),
            set_by=set_by,
        )
        hub = HubTable(data.path, name, data.revision, split, columns)
        names = getattr(hub.table.features["label"], "names", None) if labelled else None
        if names not in (None, task.labels):
            raise InputError(
                f"{hub.where} numbers its labels {names}, but task.{name}.labels={task.labels}: "
                "the order decides what a class number means, so give the data set's"
            )
        if names is not None:
            columns = replace(columns, labels={str(n): n for n in range(len(names))})
        return source.checked(hub.rows(), split, columns, "give another data.revision")

    return Source(read, splits, kind="hub", path=data.path, revision=data.revision)


def class_numbers(task: TaskConfig) -> dict[str, int]:
    """Return the class of each spelling of a label: its name or, if no name is a number, its number."""
    names = {name: number for number, name in enumerate(task.labels or ())}
    if any(name.isdigit() for name in names):
        return names
    return names | {str(number): number for number in names.values()}
