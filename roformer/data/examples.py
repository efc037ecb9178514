"""Labelled texts: read from a source, tokenized once, opened by every fine-tuning.

    source                  rows with a label and one text, two or three        `roformer.data.sources`
    <cache_dir>/glue/<key>  index, label, place, ids_a, ids_b           `task_rows(…).prepare`
    <cache_dir>/scm/<key>   index, label, place, ids_a, ids_b, ids_c    `triplet_rows(…).prepare`

A label is a class number or a score; a triplet's label is 0 where A is closer to B and 1 where A is
closer to C. Tokens are without special ones, and nothing is cut to a length here: that is up to the
model.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roformer.config.build import plain
from roformer.config.glue import Glue, TaskConfig
from roformer.config.scm import TripletData
from roformer.data.random import Purpose, random_stream
from roformer.data.sources import Example, Source
from roformer.data.sources.examples import LABELS, open_examples, open_triplets
from roformer.data.store import Builder, Prepared, settings
from roformer.data.text import tokenizer_facts
from roformer.data.tokenizers import WordPiece, segmenter
from roformer.data.tokens import RaggedTokens
from roformer.data.work import batches, stage, tell_skipped
from roformer.errors import InputError

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
    ids: tuple[RaggedTokens, ...]
    """Tokens of the first texts, of the second and of the third, as far as the task has them."""

    def __len__(self) -> int:
        return len(self.index)


class PreparedExamples(Prepared):
    """Prepared splits of labelled texts."""

    kind = "glue"

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


class PreparedTriplets(PreparedExamples):
    """Prepared splits of triplets."""

    kind = "scm"


@dataclass(frozen=True)
class LabelledRows:
    """Rows of a source: of a split all, or so many, drawn once and for all in the source's order."""

    name: str
    source: Source[Example]
    kind: type[PreparedExamples]
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
            raise InputError(
                f"{self.name} has no usable row in {split}: give another source (data.path)"
            )
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
        """Open the tokenized splits in `<cache_dir>/<kind>/<key>`, making them first if need be."""
        keys = {"source": self.source.key(), "tokenizer": tokenizer.fingerprint}
        if tokenizer.words != "none":
            keys["words"] = segmenter()
        return self.kind.prepare(
            self.identity | keys,
            cache_dir,
            lambda builder: self._build(builder, tokenizer, progress),
            progress,
        )

    def _build(self, builder: Builder, tokenizer: WordPiece, progress: bool) -> dict[str, Any]:
        splits: Splits = {}
        with stage("reading", "rows", None, progress, self.name) as bar:
            for split in self.source.splits:
                splits[split] = self.read(split)
                bar.update(len(splits[split]))
        account = self.source.describe()
        tell_skipped(self.name, account)
        for file in account.get("unlabelled", ()):
            line = "has no labels: B is taken to be the closer one of every row"
            print(f"{self.name}: {file} {line}", file=sys.stderr)
        total = sum(map(len, splits.values()))
        with stage("tokenizing", "rows", total, progress, self.name) as bar:
            for split, rows in splits.items():
                _write(builder, split, rows, tokenizer, bar)
        return {
            "source": account,
            "texts": len(splits["train"][0].texts),
            **self.facts(splits),
            "tokenizer": tokenizer_facts(tokenizer),
        }


def _write(
    builder: Builder, split: str, rows: list[Example], tokenizer: WordPiece, bar: Any
) -> None:
    columns = IDS[: len(rows[0].texts)]
    writer = builder.split(split, **dict.fromkeys(columns, np.int32))
    for some in batches(rows, 1000):
        index, texts, label, place = zip(*some, strict=True)
        ids = (tokenizer.encode_batch(column) for column in zip(*texts, strict=True))
        writer.append(index=index, place=place, label=label, **dict(zip(columns, ids, strict=True)))
        bar.update(len(some))


def _settings(data: Glue | TripletData) -> dict[str, Any]:
    """Return the settings that decide the content, which a path of local files does not."""
    return settings(data, *([] if hasattr(data, "revision") else ["path"]))


def _label_counts(splits: Splits, labels: Sequence[str]) -> dict[str, dict[str, int]]:
    counts = {split: Counter(row.label for row in rows) for split, rows in splits.items()}
    return {
        split: {label: found[number] for number, label in enumerate(labels)}
        for split, found in counts.items()
    }


# --- GLUE ----------------------------------------------------------------------------------------


def task_rows(name: str, task: TaskConfig, data: Glue) -> LabelledRows:
    """Open `train` and `validation`, or `validation_<part>` where the task has parts."""

    def facts(splits: Splits) -> dict[str, Any]:
        return {
            "task": name,
            "max_train_examples": data.max_train_examples,
            "labels": task.labels,
            "scores": task.scores,
            "label_counts": _label_counts(splits, task.labels) if task.labels else None,
        }

    identity = {"task": {name: plain(task)}, "data": _settings(data)}
    return LabelledRows(
        name=name,
        source=open_examples(name, task, data),
        kind=PreparedExamples,
        purpose=Purpose.EXAMPLE_SUBSET,
        train_limit=data.max_train_examples,
        held_out_limit=None,
        identity=identity,
        facts=facts,
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


# --- triplets ------------------------------------------------------------------------------------


def triplet_rows(data: TripletData) -> LabelledRows:
    """Open triplets of documents."""

    def facts(splits: Splits) -> dict[str, Any]:
        known = {text for row in splits["train"] for text in row.texts}
        return {
            "labels": _label_counts(splits, LABELS),
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
        kind=PreparedTriplets,
        purpose=Purpose.TRIPLET_SUBSET,
        train_limit=data.max_train_triplets,
        held_out_limit=data.max_held_out_triplets,
        identity={"data": _settings(data)},
        facts=facts,
    )
