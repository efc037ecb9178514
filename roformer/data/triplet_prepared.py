"""Prepared triplets, as `roformer.data.triplets` wrote them: checked, and read split by split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from roformer.data.files import first_line
from roformer.data.glue_prepared import TOKENS, Tokens, token_arrays
from roformer.data.manifests import (
    TripletManifest,
    again,
    check_files,
    check_manifest,
    read_manifest,
)
from roformer.errors import InputError

FORMAT = 2
PLACES = ("early", "late")
"""Where the evidence of a builtin triplet stands, by number."""
NOWHERE = -1
"""Of a triplet that is not builtin."""

COLUMNS = pyarrow.schema(
    {
        "index": pyarrow.int64(),
        "label": pyarrow.int8(),
        "place": pyarrow.int8(),
        "ids_a": TOKENS,
        "ids_b": TOKENS,
        "ids_c": TOKENS,
    }
)


def seal(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a run takes from a manifest."""
    said = [
        manifest[key] for key in ("fingerprint", "rows", "labels", "shared", "source", "tokenizer")
    ]
    return hashlib.sha256(
        json.dumps([said, manifest["files"]], sort_keys=True).encode()
    ).hexdigest()


@dataclass(frozen=True)
class TripletSplit:
    """The triplets of one split, N of them, in memory."""

    index: NDArray[np.int64]
    """Place in the source, (N,)."""
    labels: NDArray[np.int8]
    """0 where A is closer to B, 1 where it is closer to C; (N,)."""
    places: NDArray[np.int8]
    """Number in `PLACES`, or `NOWHERE`; (N,)."""
    ids_a: Tokens
    """Tokens of each A, without special ones: N arrays of their own lengths."""
    ids_b: Tokens
    ids_c: Tokens

    def __len__(self) -> int:
        return len(self.index)


class Triplets:
    """Prepared triplets: their splits and the account of their making.

    `fingerprint` is equal where tokens and labels are, wherever they came from.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.splits: list[str] = list(manifest["rows"])

    @classmethod
    def open(cls, folder: str | Path) -> Triplets:
        """Open a prepared folder, checking that it is complete.

        Raises:
            InputError: not prepared triplets, or damaged.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "prepared triplets")
        if (manifest.get("format"), manifest.get("kind")) != (FORMAT, "scm"):
            what = f"{manifest.get('kind')} of format {manifest.get('format')}"
            raise InputError(f"{folder} is {what}, not scm of format {FORMAT}: {again(folder)}")
        check_manifest(folder, manifest, TripletManifest)
        if {f"{split}.parquet" for split in manifest["rows"]} != {*manifest["files"]}:
            raise InputError(f"{folder} has other files than splits: {again(folder)}")
        check_files(folder, manifest["files"], content=True)
        if seal(manifest) != manifest["seal"]:
            raise InputError(
                f"{folder / 'manifest.json'} is damaged (seal: not that of what it says): "
                f"{again(folder)}"
            )
        return cls(folder, manifest)

    def split(self, name: str) -> TripletSplit:
        """Read a split into memory.

        Raises:
            InputError: no such split, or a damaged file.
        """
        if name not in self.splits:
            raise InputError(f"the triplets have no split {name!r}, but {', '.join(self.splits)}")
        file = self.folder / f"{name}.parquet"
        try:
            table = pyarrow.parquet.read_table(file, page_checksum_verification=True)
            self._check(table, name)
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise InputError(
                f"{file} is damaged ({first_line(error)}): {again(self.folder)}"
            ) from error
        return TripletSplit(
            index=table["index"].to_numpy(),
            labels=table["label"].to_numpy(),
            places=table["place"].to_numpy(),
            ids_a=token_arrays(table["ids_a"]),
            ids_b=token_arrays(table["ids_b"]),
            ids_c=token_arrays(table["ids_c"]),
        )

    def _check(self, table: pyarrow.Table, name: str) -> None:
        """Raise ValueError where a table is not what was prepared."""
        if table.schema.names != COLUMNS.names or table.schema.types != COLUMNS.types:
            raise ValueError("its columns are others")
        if len(table) != self.manifest["rows"][name]:
            raise ValueError(f"{len(table):,} rows, not {self.manifest['rows'][name]:,}")
        known = not any(table[column].null_count for column in COLUMNS.names)
        known = known and bool(np.isin(table["label"].to_numpy(), (0, 1)).all())
        places = (NOWHERE, *range(len(PLACES)))
        known = known and bool(np.isin(table["place"].to_numpy(), places).all())
        for column in ("ids_a", "ids_b", "ids_c"):
            tokens = table[column].combine_chunks().flatten()
            numbers = tokens.to_numpy(zero_copy_only=False)
            size = self.manifest["tokenizer"]["size"]
            known = known and not tokens.null_count
            known = known and bool(((numbers >= 0) & (numbers < size)).all())
        if not known:
            raise ValueError("labels, places or tokens that triplets have not")
