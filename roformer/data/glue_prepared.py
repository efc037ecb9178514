"""A prepared GLUE task, as `roformer.data.glue` wrote it: checked, and read split by split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from roformer.config.glue import TaskConfig
from roformer.data.files import first_line
from roformer.data.manifests import (
    TaskManifest,
    again,
    check_files,
    check_manifest,
    read_manifest,
)
from roformer.errors import InputError

FORMAT = 2
TOKENS = pyarrow.list_(pyarrow.int32())

Tokens = list[NDArray[np.int32]]


def split_names(task: TaskConfig) -> list[str]:
    """Return train and the validation split or splits, the headline's first."""
    return ["train", *([f"validation_{part}" for part in task.parts] or ["validation"])]


def seal(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a run takes from a manifest: of rows alone its fingerprint tells."""
    said = [manifest[key] for key in ("fingerprint", "labels", "rows", "tokenizer", "files")]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


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
        manifest = read_manifest(folder, "prepared task")
        if (manifest.get("format"), manifest.get("kind")) != (FORMAT, "glue"):
            what = f"{manifest.get('kind')} of format {manifest.get('format')}"
            raise InputError(f"{folder} is {what}, not glue of format {FORMAT}: {again(folder)}")
        check_manifest(folder, manifest, TaskManifest)
        files = {split: f"{split}.parquet" for split in split_names(task)}
        wanted = {"task": name, "labels": task.labels, "rows": [*files], "files": {*files.values()}}
        found = {key: manifest[key] for key in ("task", "labels")}
        found |= {"rows": [*manifest["rows"]], "files": {*manifest["files"]}}
        for key in wanted:
            if found[key] != wanted[key]:
                raise InputError(
                    f"{folder} is prepared with {key}={found[key]}, not {wanted[key]}: "
                    f"{again(folder)}"
                )
        check_files(folder, manifest["files"], content=True)
        for split, file in files.items():
            try:
                rows = pyarrow.parquet.read_metadata(folder / file).num_rows
            except (pyarrow.ArrowException, OSError) as error:
                why = f"{folder / file} is damaged ({first_line(error)})"
                raise InputError(f"{why}: {again(folder)}") from error
            if rows != (stated := manifest["rows"][split]):
                raise InputError(
                    f"{folder / file} has {rows:,} rows, not {stated:,}: {again(folder)}"
                )
        if seal(manifest) != manifest["seal"]:
            raise InputError(
                f"{folder / 'manifest.json'} is damaged (seal: not that of what it says): "
                f"{again(folder)}"
            )
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
            self._check(table)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise InputError(
                f"{file} is damaged ({first_line(error)}): {again(self.folder)}"
            ) from error
        return Split(
            index=table["index"].to_numpy(),
            ids_a=token_arrays(table["ids_a"]),
            ids_b=token_arrays(table["ids_b"]) if not table["ids_b"].null_count else None,
            labels=table["label"]
            .to_numpy()
            .astype(np.float32 if self.labels is None else np.int64),
        )

    def _check(self, table: pyarrow.Table) -> None:
        """Raise ValueError where a table is not of this task's labels and tokens."""
        label = pyarrow.float64() if self.labels is None else pyarrow.int64()
        types = {"index": pyarrow.int64(), "label": label, "ids_a": TOKENS, "ids_b": TOKENS}
        if dict(zip(table.column_names, table.schema.types, strict=True)) != types:
            raise ValueError("its columns are others")
        if self.labels is None:
            known = np.isfinite(table["label"].to_numpy()).all()
        else:
            known = np.isin(table["label"].to_numpy(), range(len(self.labels))).all()
        size, halves = self.manifest["tokenizer"]["size"], table["ids_b"].null_count
        for ids in (table["ids_a"], *([] if halves else [table["ids_b"]])):
            tokens = ids.combine_chunks().flatten()
            known &= not tokens.null_count and not ids.null_count
            known &= bool(((tokens.to_numpy() >= 0) & (tokens.to_numpy() < size)).all())
        if not known or halves not in (0, len(table)) or table["index"].null_count:
            raise ValueError("labels or tokens that the task has not")


def token_arrays(column: pyarrow.ChunkedArray) -> Tokens:
    """Return a column of token lists as one array a row; they share their memory."""
    lists = column.combine_chunks()
    tokens = np.array(lists.flatten().to_numpy())
    ends = np.cumsum(lists.value_lengths().to_numpy())
    return [tokens[start:end] for start, end in pairwise([0, *ends.tolist()])]
