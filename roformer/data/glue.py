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
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from roformer.config.build import plain
from roformer.config.glue import FilesGlue, Glue, TaskConfig
from roformer.data.folders import one_at_a_time, publish, sync, temporary_beside
from roformer.data.glue_files import TestRow
from roformer.data.glue_prepared import FORMAT, TOKENS, TaskData, seal, split_names
from roformer.data.glue_sources import ExampleSource, open_examples
from roformer.data.manifests import again, stored_files
from roformer.data.progress import stage
from roformer.data.random import Purpose, random_stream
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError

BATCH = 10_000
"""Rows tokenised at once."""


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
        random = random_stream(0, Purpose.EXAMPLE_SUBSET)
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
        with one_at_a_time(folder, progress):  # of several ranks, one prepares
            if not folder.exists():
                with temporary_beside(folder) as temporary:
                    _build(source, name, task, data, tokenizer, temporary, progress)
                    publish(temporary, folder)
    prepared = TaskData.open(folder, name, task)
    found = prepared.manifest["tokenizer"]
    if (found["fingerprint"], found["size"]) != (tokenizer.fingerprint, tokenizer.size):
        raise InputError(f"{folder} is prepared with another tokenizer: {again(folder)}")
    return prepared


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
        "files": stored_files(folder),
        "versions": {"python": platform.python_version()}
        | {package: metadata.version(package) for package in ("tokenizers", "datasets", "pyarrow")},
    }
    manifest["seal"] = seal(manifest)
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
            part = part.append_column(ids, pyarrow.array(encoded, TOKENS))
        parts.append(part)
        advance(len(part))
    return pyarrow.concat_tables(parts)


def _counts(table: pyarrow.Table, task: TaskConfig) -> dict[str, int] | None:
    """Return how often each class occurs, by name; None for a regression."""
    if task.labels is None:
        return None
    counts = Counter(table["label"].to_pylist())
    return {label: counts[number] for number, label in enumerate(task.labels)}
