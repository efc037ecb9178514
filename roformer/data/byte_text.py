"""A text as bytes, for language models without a tokenizer: made once, memory-mapped by all.

`prepare_bytes` reads the source once and writes, below `<cache_dir>/bytes/<key>`:

    train.bin valid.bin test.bin   the text, cut into three stretches in this order
    manifest.json                  what was read, what was written, SHA-256 of each file

Of N bytes valid has round(valid_fraction·N) and test round(test_fraction·N), the last ones: of
enwik8's 10^8 the usual 90, 5 and 5 million.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from roformer.config.lm import Bytes
from roformer.data.byte_sources import ByteSource, cut, open_bytes
from roformer.data.folders import one_at_a_time, publish, sync, temporary_beside
from roformer.data.manifests import (
    ByteManifest,
    again,
    check_files,
    check_manifest,
    read_manifest,
    stored_files,
)
from roformer.data.progress import stage
from roformer.data.shards import TokenStream
from roformer.errors import InputError

FORMAT = 1
SPLITS = ("train", "valid", "test")
DTYPE = "u1"
COPIED = 2**22
"""Bytes copied at once."""


class ByteVocabulary:
    """What stands where a tokenizer would: 256 entries, each its own id."""

    size = 256
    fingerprint = "bytes"
    FILE = "bytes.json"

    def save(self, folder: Path) -> None:
        """Write the file by which a run's folder says that it reads bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"vocabulary": self.fingerprint, "size": self.size}
        (folder / self.FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


class ByteText:
    """A prepared text: three streams of bytes, and the account of their making.

    `fingerprint` is equal where the bytes and their split are, on whatever machine.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.train, self.valid, self.test = (self._stream(split) for split in SPLITS)

    def _stream(self, split: str) -> TokenStream:
        name = f"{split}.bin"
        return TokenStream([self.folder / name], [self.manifest["files"][name]["bytes"]], DTYPE)

    @cached_property
    def vocabulary(self) -> ByteVocabulary:
        return ByteVocabulary()

    @classmethod
    def open(cls, folder: str | Path) -> ByteText:
        """Open a prepared folder; every byte is checked against the manifest.

        Raises:
            InputError: not a prepared folder, of another format, or damaged.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "prepared bytes")
        if manifest.get("format") != FORMAT:
            found = manifest.get("format")
            raise InputError(f"{folder} has format {found}, not {FORMAT}: {again(folder)}")
        check_manifest(folder, manifest, ByteManifest)
        files = manifest["files"]
        if set(files) != {f"{split}.bin" for split in SPLITS}:
            raise InputError(
                f"{folder / 'manifest.json'} is damaged (files: not those of its splits): "
                f"{again(folder)}"
            )
        if _fingerprint(files) != manifest["fingerprint"]:
            raise InputError(
                f"{folder / 'manifest.json'} is damaged (fingerprint: not that of its files): "
                f"{again(folder)}"
            )
        check_files(folder, files, content=True)
        return cls(folder, manifest)


def prepare_bytes(
    config: Bytes, cache_dir: str | Path, *, workers: int | None = None, progress: bool = True
) -> ByteText:
    """Open a text's bytes, reading its source first where that was not done yet.

    Args:
        config: the text.
        cache_dir: files go to `<cache_dir>/bytes/<key>`.
        workers: processes that parse the built-in text; null: one a core.
        progress: tell on stderr how far it is.

    Raises:
        InputError: the source is not usable, or too short to be split; says what to change.
        OSError: the disk is full. What was written is removed.
    """
    source = open_bytes(config, cache_dir, workers=workers, progress=progress)
    folder = Path(cache_dir) / "bytes" / _key(config, source)
    if not folder.exists():
        with one_at_a_time(folder, progress):  # of several ranks, one prepares
            if not folder.exists():
                with temporary_beside(folder) as temporary:
                    _build(config, source, temporary, progress)
                    publish(temporary, folder)
    return ByteText.open(folder)


def _key(config: Bytes, source: ByteSource) -> str:
    settings = asdict(cast(Any, config))
    for where in ("path", "url"):  # they do not decide what is read
        settings.pop(where, None)
    identity = {"format": FORMAT, "data": settings, "source": source.key()}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _fingerprint(files: dict[str, Any]) -> str:
    hashes = [files[f"{split}.bin"]["sha256"] for split in SPLITS]
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def _build(config: Bytes, source: ByteSource, folder: Path, progress: bool) -> None:
    whole = folder / "whole.bin"
    with (
        open(whole, "wb") as stream,
        stage("reading", "B", config.max_bytes, progress, "bytes") as advance,
    ):
        for piece in cut(source.pieces(), config.max_bytes):
            stream.write(piece)
            advance(len(piece))
    count = whole.stat().st_size
    held_out = [round(share * count) for share in (config.valid_fraction, config.test_fraction)]
    sizes = [count - sum(held_out), *held_out]
    if min(sizes) < 2:
        raise InputError(
            f"the text has {count:,} bytes, of which {sizes[0]:,} would be train, {sizes[1]:,} valid "
            f"and {sizes[2]:,} test: give more text (data.max_bytes={config.max_bytes})"
        )
    with open(whole, "rb") as stream:
        for split, size in zip(SPLITS, sizes, strict=True):
            with open(folder / f"{split}.bin", "wb") as part:
                while size:
                    part.write(piece := stream.read(min(size, COPIED)))
                    size -= len(piece)
    whole.unlink()
    files = stored_files(folder)
    manifest = {
        "format": FORMAT,
        "kind": "bytes",
        "fingerprint": _fingerprint(files),
        "source": source.describe(),
        "max_bytes": config.max_bytes,
        "split_rule": "consecutive: train, valid, test",
        "valid_fraction": config.valid_fraction,
        "test_fraction": config.test_fraction,
        "files": files,
        "versions": {"python": platform.python_version()},
    }
    sync(*folder.rglob("*"))
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    sync(folder / "manifest.json", folder)
