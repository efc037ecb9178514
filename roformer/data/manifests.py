"""The manifest.json of prepared data: checked, and the files it names with it, before use.

A cache is what anything may have happened to: a full disk, a copy that stopped, a stranger. What is
not as it was written is refused in one line; deleting the folder makes it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from typing_extensions import TypedDict

from roformer.errors import InputError
from roformer.json_files import check_shape, member, read_object

Count = Annotated[int, Field(ge=0, lt=2**63)]


class StoredFile(TypedDict):
    """What a manifest says of a file."""

    bytes: Count
    sha256: str


class Shard(StoredFile):
    """What the manifest of a text says of a shard."""

    file: str
    tokens: Annotated[int, Field(ge=1, lt=2**62)]


class ShardLists(TypedDict):
    """The shards of each split, in the order of their tokens."""

    train: Annotated[list[Shard], Field(min_length=1)]
    valid: Annotated[list[Shard], Field(min_length=1)]


class OfTokenizer(TypedDict):
    """What a manifest says of the tokenizer."""

    size: Count
    fingerprint: str


class OfSource(TypedDict):
    """What a manifest says of where its text came from."""

    kind: str


class TextManifest(TypedDict):
    """What is used of a text's manifest; here and below the rest is the account."""

    fingerprint: str
    dtype: Literal["<u2", "<u4"]
    shards: ShardLists
    tokenizer: OfTokenizer
    source: OfSource


class ByteManifest(TypedDict):
    """What is used of the manifest of a text as bytes."""

    fingerprint: str
    source: OfSource
    files: dict[str, StoredFile]


class OfTokens(TypedDict):
    """How many tokens the training rows of a task have."""

    train: Count


class TaskManifest(TypedDict):
    """What is used of a GLUE task's manifest."""

    fingerprint: str
    task: str
    labels: list[str] | None
    rows: dict[str, Annotated[Count, Field(ge=1)]]
    tokens: OfTokens
    tokenizer: OfTokenizer
    files: dict[str, StoredFile]
    seal: str


class TripletManifest(TypedDict):
    """What is used of the manifest of triplets."""

    fingerprint: str
    rows: dict[str, Annotated[Count, Field(ge=1)]]
    labels: dict[str, dict[str, Count]]
    shared: dict[str, Count]
    source: OfSource
    tokenizer: OfTokenizer
    files: dict[str, StoredFile]
    seal: str


class PairCounts(TypedDict):
    """The pairs of each split."""

    train: Annotated[Count, Field(ge=1)]
    valid: Annotated[Count, Field(ge=1)]
    test: Annotated[Count, Field(ge=1)]


class ParallelManifest(TypedDict):
    """What is used of a parallel text's manifest."""

    fingerprint: str
    pairs: PairCounts
    tokenizer: OfTokenizer
    files: dict[str, StoredFile]


def again(folder: Path) -> str:
    """Return what to do about a prepared folder that cannot be used."""
    return f"delete {folder} and it will be prepared again"


def read_manifest(folder: Path, what: str) -> dict[str, Any]:
    """Return the manifest of a prepared folder, as it stands there.

    Raises:
        InputError: there is none, so the folder is no `what`; or it is not a JSON object.
    """
    file = folder / "manifest.json"
    try:
        return read_object(file)
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} has no manifest.json, so it is no {what} (in a cache: {again(folder)})"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is damaged ({error}): {again(folder)}") from error


def check_manifest(folder: Path, manifest: Mapping[str, Any], shape: type) -> None:
    """Check that a manifest has what its reader uses.

    Raises:
        InputError: names the key that is missing or wrong.
    """
    try:
        check_shape(shape, manifest)
    except ValueError as error:
        file = folder / "manifest.json"
        raise InputError(f"{file} is damaged ({error}): {again(folder)}") from error


def check_files(folder: Path, files: Mapping[str, StoredFile], *, content: bool = False) -> None:
    """Check that files are there and as long as they were, and with `content` their SHA-256.

    Raises:
        InputError: a file was changed; or a name leads out of the folder, and nothing is read then.
    """
    for name, stored in files.items():
        try:
            file = member(folder, name)
        except ValueError as error:
            place = folder / "manifest.json"
            raise InputError(f"{place} is damaged ({error}): {again(folder)}") from error
        size = file.stat().st_size if file.is_file() else 0
        if size != stored["bytes"] or not file.is_file():
            raise InputError(f"{file} has {size:,} bytes, not {stored['bytes']:,}: {again(folder)}")
        if content:
            with open(file, "rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if digest != stored["sha256"]:
                raise InputError(f"{file} is not what was written (SHA-256): {again(folder)}")


def stored_files(folder: Path) -> dict[str, StoredFile]:
    """Return bytes and SHA-256 of the files in a folder, by name."""
    stored = {}
    for file in sorted(file for file in folder.iterdir() if file.is_file()):
        with open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        stored[file.name] = cast(StoredFile, {"bytes": file.stat().st_size, "sha256": digest})
    return stored
