"""Labelled texts: read from a source, tokenized once, opened by every fine-tuning.

    source                  rows with a label and one text, two or three       `roformer.data.sources`
    <cache_dir>/glue/<key>  index, label, ids_a, ids_b                         `prepare_task`
    <cache_dir>/scm/<key>   index, label, place, ids_a, ids_b, ids_c           `prepare_triplets`

A label is a class number or a score; that of a triplet is 0 where A is closer to B and 1 where it is
closer to C. Tokens are without special ones, and nothing is cut to a length here: that is up to the
model.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from roformer.config.build import plain
from roformer.config.glue import Glue, TaskConfig
from roformer.config.scm import TripletData
from roformer.data.progress import stage
from roformer.data.random import Purpose, random_stream
from roformer.data.sources import Example, Source
from roformer.data.sources.examples import LABELS, open_examples, open_triplets
from roformer.data.store import Builder, Prepared, prepare
from roformer.data.tokenizers import WordPiece
from roformer.data.tokens import TokenLists
from roformer.errors import InputError

BATCH = 1000
"""Rows tokenized at once."""
IDS = ("ids_a", "ids_b", "ids_c")

Splits = dict[str, list[Example]]


@dataclass(frozen=True)
class ExampleSplit:
    """The examples of one split, N of them."""

    index: NDArray[np.int64]
    """Row number of each in its source, (N,)."""
    labels: NDArray[np.int64] | NDArray[np.float32]
    """Class numbers, int64, or scores, float32; (N,)."""
    places: NDArray[np.int64]
    """For triplets, the number in `PLACES` or `NOWHERE`; (N,)."""
    ids: tuple[TokenLists, ...]
    """Tokens of the first texts, of the second and of the third, as far as the task has them."""

    @property
    def ids_a(self) -> TokenLists:
        return self.ids[0]

    @property
    def ids_b(self) -> TokenLists | None:
        return self.ids[1] if len(self.ids) > 1 else None

    def __len__(self) -> int:
        return len(self.index)


class PreparedExamples:
    """Prepared splits of labelled texts and the account of their making."""

    def __init__(self, data: Prepared) -> None:
        self.data, self.folder, self.manifest = data, data.folder, data.manifest
        self.fingerprint, self.splits = data.fingerprint, data.splits

    def split(self, name: str) -> ExampleSplit:
        """Map a split; raise InputError where there is none of this name."""
        labels = self.data.values(name, "label")
        scores = labels.dtype == np.float64
        return ExampleSplit(
            index=self.data.values(name, "index"),
            labels=labels.astype(np.float32 if scores else np.int64),
            places=self.data.values(name, "place"),
            ids=tuple(self.data.tokens(name, ids) for ids in IDS[: self.manifest["texts"]]),
        )


def _prepare(
    kind: str,
    name: str,
    source: Source[Example],
    read: Callable[[str], list[Example]],
    facts: Callable[[Splits], dict[str, Any]],
    identity: Mapping[str, Any],
    tokenizer: WordPiece,
    cache_dir: str | Path,
    progress: bool,
) -> PreparedExamples:
    """Open tokenized splits, making them first where they are missing.

    `read` returns the rows of a split that are taken, `facts` further entries of the manifest, and
    `identity` decides the content besides source and tokenizer.
    """

    def build(builder: Builder) -> dict[str, Any]:
        splits: Splits = {}
        with stage("reading", "rows", None, progress, name) as advance:
            for split in source.splits:
                splits[split] = read(split)
                advance(len(splits[split]))
        account = source.describe()
        _warn(name, account)
        first = splits["train"][0]
        columns = IDS[: len(first.texts)]
        schema = {"index": pyarrow.int64(), "place": pyarrow.int64()}
        schema["label"] = pyarrow.from_numpy_dtype(np.asarray(first.label).dtype)
        schema |= dict.fromkeys(columns, pyarrow.large_list(pyarrow.int32()))
        with stage("tokenizing", "rows", sum(map(len, splits.values())), progress, name) as advance:
            for split, rows in splits.items():
                with builder.split(split, **schema) as writer:
                    for start in range(0, len(rows), BATCH):
                        numbers, texts, labels, places = zip(
                            *rows[start : start + BATCH], strict=True
                        )
                        ids = [
                            tokenizer.encode_batch(column) for column in zip(*texts, strict=True)
                        ]
                        writer.append(
                            index=numbers,
                            place=places,
                            label=labels,
                            **dict(zip(columns, ids, strict=True)),
                        )
                        advance(len(numbers))
        return {
            "source": account,
            "texts": len(columns),
            **facts(splits),
            "tokenizer": {
                "lowercase": tokenizer.lowercase,
                "size": tokenizer.size,
                "fingerprint": tokenizer.fingerprint,
            },
        }

    whole = {"version": 1, **identity, "source": source.key(), "tokenizer": tokenizer.fingerprint}
    return PreparedExamples(prepare(kind, whole, cache_dir, build, progress=progress))


def _warn(name: str, account: Mapping[str, Any]) -> None:
    """Say what of the user's files was left out or assumed."""
    if account["rows_skipped"]:
        first = f"(the first: {account['first_skipped']})"
        print(f"{name}: {account['rows_skipped']:,} bad rows skipped {first}", file=sys.stderr)
    for file in account.get("unlabelled", ()):
        line = "has no labels: B is taken to be the closer one of every row"
        print(f"{name}: {file} {line}", file=sys.stderr)


def _settings(data: Glue | TripletData) -> dict[str, Any]:
    """Return what decides the content of a source: where its files lie does not."""
    settings = plain(data)
    if "revision" not in settings:  # the path of a data set of the Hub does
        settings.pop("path", None)
    return settings


def _drawn(rows: list[Example], count: int | None, purpose: Purpose) -> list[Example]:
    """Return at most `count` rows, drawn once and for all, in the order of the source."""
    if count is None or count >= len(rows):
        return rows
    chosen = random_stream(0, purpose).choice(len(rows), count, replace=False)
    return [rows[number] for number in np.sort(chosen)]


# --- GLUE ----------------------------------------------------------------------------------------


def read_examples(name: str, task: TaskConfig, data: Glue, split: str) -> list[Example]:
    """Read `train`, `validation`, or `validation_<part>` where the task has parts.

    Of train at most `data.max_train_examples` are drawn, once and for all, in the order of the source.

    Raises:
        InputError: the source is not usable; says where and what to do.
    """
    return _read(open_examples(name, task, data), name, task, data, split)


def _read(
    source: Source[Example], name: str, task: TaskConfig, data: Glue, split: str
) -> list[Example]:
    rows = list(source.rows(split))
    if not rows:
        raise InputError(f"{name} has no usable row in {split}: give another source (data.path)")
    if task.labels is None:
        # The Hub keeps scores in single precision, the files in decimals: 3.8 is meant.
        rows = [row._replace(label=float(str(np.float32(row.label)))) for row in rows]
    limit = data.max_train_examples if split == "train" else None
    return _drawn(rows, limit, Purpose.EXAMPLE_SUBSET)


def task_texts(name: str, task: TaskConfig, data: Glue) -> Iterator[str]:
    """Yield the training texts, to train a tokenizer on; see `read_examples`."""
    rows = read_examples(name, task, data, "train")
    for column in zip(*(row.texts for row in rows), strict=True):
        yield from column


TestRow = tuple[int, str, str | None]
"""Row number of a test example in its source, and its text or texts."""


def test_rows(name: str, task: TaskConfig, data: Glue, part: str | None) -> list[TestRow]:
    """Read the test split for a submission: index and texts of each row, labels never.

    The Hub's labels are -1 and MRPC's file has the real ones: neither may meet a model.

    Raises:
        InputError: no such part, no test split, or a row that cannot be read.
    """
    if part not in (task.parts or (None,)):
        parts = f"has the test parts {', '.join(task.parts)}" if task.parts else "has no test parts"
        raise InputError(f"{name} {parts}: asked for {part!r}")
    rows = open_examples(name, task, data).rows(f"test_{part}" if part else "test")
    return [(row.number, row.texts[0], row.texts[1] if row.texts[1:] else None) for row in rows]


def prepare_task(
    name: str,
    task: TaskConfig,
    data: Glue,
    tokenizer: WordPiece,
    cache_dir: str | Path,
    *,
    progress: bool = True,
) -> PreparedExamples:
    """Open a task's tokenized splits in `<cache_dir>/glue/<key>`, making them first if need be.

    Raises:
        InputError: the source is not usable; says where and what to do.
        OSError: the disk is full. What was written is removed.
    """
    source = open_examples(name, task, data)

    def facts(splits: Splits) -> dict[str, Any]:
        counts = {split: Counter(row.label for row in rows) for split, rows in splits.items()}
        named = {
            split: {label: found[number] for number, label in enumerate(task.labels or ())}
            for split, found in counts.items()
        }
        return {
            "task": name,
            "max_train_examples": data.max_train_examples,
            "labels": task.labels,
            "scores": task.scores,
            "label_counts": named if task.labels is not None else None,
        }

    return _prepare(
        "glue",
        name,
        source,
        lambda split: _read(source, name, task, data, split),
        facts,
        {"task": {name: plain(task)}, "data": _settings(data)},
        tokenizer,
        cache_dir,
        progress,
    )


# --- triplets ------------------------------------------------------------------------------------


def training_texts(data: TripletData) -> Iterator[str]:
    """Yield the training documents, to train a tokenizer on."""
    for row in _read_triplets(open_triplets(data), data, "train"):
        yield from row.texts


def _read_triplets(source: Source[Example], data: TripletData, split: str) -> list[Example]:
    count = data.max_train_triplets if split == "train" else data.max_held_out_triplets
    rows = _drawn(list(source.rows(split)), count, Purpose.TRIPLET_SUBSET)
    if not rows:
        raise InputError(f"no triplet is left for {split}: give more rows (data.path)")
    return rows


def prepare_triplets(
    data: TripletData, tokenizer: WordPiece, cache_dir: str | Path, *, progress: bool = True
) -> PreparedExamples:
    """Open the tokenized triplets in `<cache_dir>/scm/<key>`; see `prepare_task`."""
    source = open_triplets(data)

    def facts(splits: Splits) -> dict[str, Any]:
        known = {text for row in splits["train"] for text in row.texts}
        counts = {split: Counter(row.label for row in rows) for split, rows in splits.items()}
        return {
            "labels": {
                split: {label: found[number] for number, label in enumerate(LABELS)}
                for split, found in counts.items()
            },
            # Triplets of each held-out split that have a document of the training triplets.
            "shared": {
                split: sum(not known.isdisjoint(row.texts) for row in rows)
                for split, rows in splits.items()
                if split != "train"
            },
        }

    return _prepare(
        "scm",
        "scm",
        source,
        lambda split: _read_triplets(source, data, split),
        facts,
        {"data": _settings(data)},
        tokenizer,
        cache_dir,
        progress,
    )
