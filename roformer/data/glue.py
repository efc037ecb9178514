"""A GLUE task as Arrow: read from one of three sources, tokenised once, opened by every run.

    rows, whatever the source    index, text_a, text_b, label               `read_rows`
    <cache_dir>/glue/<key>/      train.parquet, validation.parquet, …       `prepare_task`
                                 the same columns and ids_a, ids_b: tokens without special ones
                                 manifest.json

A label is the class number in the order of `TaskConfig.labels`, or the score. Nothing is cut to a
length here: that is up to the model.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from roformer.config.build import plain
from roformer.config.glue import FilesGlue, Glue, TaskConfig
from roformer.data.files import first_line
from roformer.data.folders import one_at_a_time, publish, sync, temporary_beside
from roformer.data.glue_files import TestRow
from roformer.data.glue_sources import ExampleSource, open_examples
from roformer.data.mlm import random_stream
from roformer.data.progress import stage
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError

FORMAT = 1
BATCH = 10_000
"""Rows tokenised at once."""
TRAINING_SUBSET = 5
"""Purpose of the random stream that draws `data.max_train_examples`; see `roformer.data.mlm`."""

Tokens = list[NDArray[np.int32]]


# --- rows ----------------------------------------------------------------------------------------


def arrow_schema(task: TaskConfig) -> pyarrow.Schema:
    """Return the columns of a task's rows, the same for all sources."""
    return pyarrow.schema(
        {
            "index": pyarrow.int64(),
            "text_a": pyarrow.string(),
            "text_b": pyarrow.string(),
            "label": pyarrow.int64() if task.labels is not None else pyarrow.float64(),
        }
    )


def split_names(task: TaskConfig) -> list[str]:
    """Return train and the validation split or splits, the headline's first."""
    return ["train", *([f"validation_{part}" for part in task.parts] or ["validation"])]


def read_rows(name: str, task: TaskConfig, data: Glue, split: str) -> pyarrow.Table:
    """Read a labelled split.

    Args:
        name: the task's key: what the Hub and the grammars call it.
        task: its columns and labels.
        data: the source.
        split: `train`, `validation`, or `validation_<part>` where the task has parts.

    Returns:
        `arrow_schema(task)`: index (row number or idx of the source), text_a, text_b (null where
        the task has one text), label. Of train at most `data.max_train_examples` rows, drawn once
        and for all, in the order of the source.

    Raises:
        InputError: the source is not usable; says where and what to do.
    """
    return _read(open_examples(name, task, data), name, task, data, split)


def _read(
    source: ExampleSource, name: str, task: TaskConfig, data: Glue, split: str
) -> pyarrow.Table:
    rows = list(source.rows(split))
    if not rows:
        raise InputError(f"{name} has no usable row in {split}: give another source (data.path)")
    schema = arrow_schema(task)
    columns = dict(zip(schema.names, map(list, zip(*rows, strict=True)), strict=True))
    if task.labels is None:
        # The Hub keeps scores in single precision, the files in decimals: 3.8 is meant.
        columns["label"] = [float(str(np.float32(score))) for score in columns["label"]]
    table = pyarrow.table(columns, schema=schema)
    count = data.max_train_examples
    if split == "train" and count is not None and count < len(rows):
        random = random_stream(0, TRAINING_SUBSET)
        table = table.take(np.sort(random.choice(len(rows), count, replace=False)))
    return table


def task_texts(name: str, task: TaskConfig, data: Glue) -> Iterator[str]:
    """Yield the training texts, to train a tokenizer on; see `read_rows`."""
    table = read_rows(name, task, data, "train")
    for column in ("text_a", "text_b"):
        yield from (text for text in table[column].to_pylist() if text is not None)


def test_rows(name: str, task: TaskConfig, data: Glue, part: str | None) -> list[TestRow]:
    """Read the test split for a submission: index and texts of each row, labels never.

    The Hub's labels are -1 and MRPC's file has the real ones: neither may meet a model.

    Args:
        name: see `read_rows`.
        task: see `read_rows`.
        data: see `read_rows`.
        part: one of `task.parts`; None for a task without.

    Raises:
        InputError: no such part, no test split, or a row that cannot be read.
    """
    if part not in (task.parts or (None,)):
        parts = f"has the test parts {', '.join(task.parts)}" if task.parts else "has no test parts"
        raise InputError(f"{name} {parts}: asked for {part!r}")
    rows = list(open_examples(name, task, data).test_rows(part))
    if not rows:
        raise InputError(f"{name} has no row in its test split: give another source (data.path)")
    return rows


# --- a prepared task -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """The examples of one split, N of them, in memory."""

    index: NDArray[np.int64]
    """Row number or idx of the source, (N,)."""
    ids_a: Tokens
    """Tokens of the first texts, without special ones: N arrays of their own lengths."""
    ids_b: Tokens | None
    """Tokens of the second texts; None where the task has one text."""
    labels: NDArray[np.int64] | NDArray[np.float32]
    """Class numbers, int64, or scores, float32; (N,)."""

    def __len__(self) -> int:
        return len(self.index)


class TaskData:
    """A prepared task: its splits and the account of their making.

    `fingerprint` is equal where rows, tokens and labels are, wherever they came from. The index of
    a row does not count: it says where a row stood, not what it is.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.name: str = manifest["task"]
        self.labels: list[str] | None = manifest["labels"]
        self.fingerprint: str = manifest["fingerprint"]
        self.splits: list[str] = list(manifest["rows"])

    @classmethod
    def open(cls, folder: str | Path, name: str, task: TaskConfig) -> TaskData:
        """Open a prepared folder, checking that it is this task's and complete.

        Raises:
            InputError: not a prepared task, another task or other labels, or damaged.
        """
        folder = Path(folder)
        again = f"delete {folder} and it will be prepared again"
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(
                f"{folder} has no manifest.json, so it is no prepared task (in a cache: {again})"
            ) from error
        except ValueError as error:
            raise InputError(f"{folder / 'manifest.json'} is damaged ({error}): {again}") from error
        if (manifest.get("format"), manifest.get("kind")) != (FORMAT, "glue"):
            what = f"{manifest.get('kind')} of format {manifest.get('format')}"
            raise InputError(f"{folder} is {what}, not glue of format {FORMAT}: {again}")
        for key, wanted in (("task", name), ("labels", task.labels)):
            if manifest[key] != wanted:
                raise InputError(
                    f"{folder} is prepared with {key}={manifest[key]}, not {wanted}: {again}"
                )
        for split, rows in manifest["rows"].items():
            file = folder / f"{split}.parquet"
            try:
                found = pyarrow.parquet.read_metadata(file).num_rows
            except (pyarrow.ArrowException, OSError) as error:
                raise InputError(f"{file} is damaged ({first_line(error)}): {again}") from error
            if found != rows:
                raise InputError(f"{file} has {found:,} rows, not {rows:,}: {again}")
        return cls(folder, manifest)

    def split(self, name: str) -> Split:
        """Read a split into memory.

        Raises:
            InputError: no such split, or a damaged file.
        """
        if name not in self.splits:
            raise InputError(f"{self.name} has no split {name!r}, but {', '.join(self.splits)}")
        file = self.folder / f"{name}.parquet"
        try:
            table = pyarrow.parquet.read_table(
                file,
                columns=["index", "label", "ids_a", "ids_b"],
                page_checksum_verification=True,
            )
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(
                f"{file} is damaged ({first_line(error)}): delete {self.folder} and it will be "
                "prepared again"
            ) from error
        return Split(
            index=table["index"].to_numpy(),
            ids_a=_arrays(table["ids_a"]),
            ids_b=_arrays(table["ids_b"]) if not table["ids_b"].null_count else None,
            labels=table["label"]
            .to_numpy()
            .astype(np.float32 if self.labels is None else np.int64),
        )


def _arrays(column: pyarrow.ChunkedArray) -> Tokens:
    lists = column.combine_chunks()
    tokens = np.array(lists.flatten().to_numpy())
    ends = np.cumsum(lists.value_lengths().to_numpy())
    return [tokens[start:end] for start, end in pairwise([0, *ends.tolist()])]


# --- preparing -----------------------------------------------------------------------------------


def prepare_task(
    name: str,
    task: TaskConfig,
    data: Glue,
    tokenizer: WordPiece,
    cache_dir: str | Path,
    *,
    progress: bool = True,
) -> TaskData:
    """Open a task's tokenised splits, making them first where they do not exist yet.

    Args:
        name: see `read_rows`.
        task: see `read_rows`.
        data: see `read_rows`.
        tokenizer: that of the model.
        cache_dir: the splits go to `<cache_dir>/glue/<key>`.
        progress: tell on stderr how far it is.

    Raises:
        InputError: the source is not usable; says where and what to do.
        OSError: the disk is full. What was written is removed.
    """
    source = open_examples(name, task, data)
    folder = Path(cache_dir) / "glue" / _key(source, name, task, data, tokenizer)
    if not folder.exists():
        with one_at_a_time(folder):  # of several ranks, one prepares
            if not folder.exists():
                with temporary_beside(folder) as temporary:
                    _build(source, name, task, data, tokenizer, temporary, progress)
                    publish(temporary, folder)
    return TaskData.open(folder, name, task)


def _key(
    source: ExampleSource, name: str, task: TaskConfig, data: Glue, tokenizer: WordPiece
) -> str:
    settings = plain(data)
    if isinstance(data, FilesGlue):
        settings.pop("path")  # where files lie does not decide what is read
    identity = {
        "format": FORMAT,
        "task": {name: plain(task)},
        "data": settings,
        "source": source.key(split_names(task)),
        "tokenizer": tokenizer.fingerprint,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _build(
    source: ExampleSource,
    name: str,
    task: TaskConfig,
    data: Glue,
    tokenizer: WordPiece,
    folder: Path,
    progress: bool,
) -> None:
    tables: dict[str, pyarrow.Table] = {}
    with stage("reading", "rows", None, progress, name) as advance:
        for split in split_names(task):
            tables[split] = _read(source, name, task, data, split)
            advance(len(tables[split]))
    account = source.describe()
    for file in account.get("files", ()):
        if file["bad_rows"]:
            first = f"(the first: {file['first_bad_row']})"
            print(f"{name}: {file['bad_rows']:,} bad rows skipped {first}", file=sys.stderr)

    content = hashlib.sha256(json.dumps([task.labels, tokenizer.fingerprint]).encode())
    tokens = {}
    total = sum(map(len, tables.values()))
    with stage("tokenising", "rows", total, progress, name) as advance:
        for split, rows in tables.items():
            content.update(split.encode())
            for example in zip(*(rows[c].to_pylist() for c in rows.column_names[1:]), strict=True):
                content.update(json.dumps(example).encode())
            table = _tokenised(rows, tokenizer, advance)
            tokens[split] = sum(len(table[ids].combine_chunks().flatten()) for ids in IDS)
            pyarrow.parquet.write_table(
                table, folder / f"{split}.parquet", write_page_checksum=True
            )

    manifest = {
        "format": FORMAT,
        "kind": "glue",
        "task": name,
        "fingerprint": content.hexdigest(),
        "source": account,
        "max_train_examples": data.max_train_examples,
        "labels": task.labels,
        "scores": task.scores,
        "rows": {split: len(table) for split, table in tables.items()},
        "label_counts": {split: _counts(table, task) for split, table in tables.items()},
        "tokens": tokens,
        "tokenizer": {
            "lowercase": tokenizer.lowercase,
            "size": tokenizer.size,
            "fingerprint": tokenizer.fingerprint,
        },
        "versions": {"python": platform.python_version()}
        | {package: metadata.version(package) for package in ("tokenizers", "datasets", "pyarrow")},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    sync(*folder.iterdir(), folder)


IDS = {"ids_a": "text_a", "ids_b": "text_b"}
"""Columns of tokens and the texts they are of."""


def _tokenised(
    rows: pyarrow.Table, tokenizer: WordPiece, advance: Callable[[int], object]
) -> pyarrow.Table:
    """Return the rows with their tokens, list<int32>, null where the text is."""
    parts = []
    for start in range(0, len(rows), BATCH):
        part = rows.slice(start, BATCH)
        for ids, column in IDS.items():
            texts = part[column].to_pylist()
            encoded = [None] * len(part) if None in texts else tokenizer.encode_batch(texts)
            part = part.append_column(ids, pyarrow.array(encoded, pyarrow.list_(pyarrow.int32())))
        parts.append(part)
        advance(len(part))
    return pyarrow.concat_tables(parts)


def _counts(table: pyarrow.Table, task: TaskConfig) -> dict[str, int] | None:
    """Return how often each class occurs, by name; None for a regression."""
    if task.labels is None:
        return None
    counts = Counter(table["label"].to_pylist())
    return {label: counts[number] for number, label in enumerate(task.labels)}
