"""Text to model: tokens of documents, or the bytes of one long text; made once, read by all.

`prepare_text` reads the source once, drops exact duplicates, sorts each document into train or
valid by its own hash, trains the tokenizer on train (or reads one) and keeps it beside the tokens.
A document is its pieces followed by [SEP], so that [SEP] occurs at the end of documents only.

`prepare_bytes` reads the source once and cuts it into three stretches in this order: train, valid
and test. Of N bytes valid has round(valid_fraction·N) and test round(test_fraction·N), the last
ones: of enwik8's 10^8 the usual 90, 5 and 5 million.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from roformer.config.build import plain
from roformer.config.lm import Bytes
from roformer.config.schema import Text
from roformer.data.progress import stage
from roformer.data.sources import Example, Source
from roformer.data.sources.documents import FileDocuments, open_documents
from roformer.data.sources.pieces import open_bytes
from roformer.data.store import Builder, Prepared, prepare
from roformer.data.tokenizers import (
    ByteVocabulary,
    WordPiece,
    load_wordpiece,
    segmenter,
    train_tokenizer,
)
from roformer.data.tokens import TokenStream
from roformer.errors import InputError

SPLITS = ("train", "valid")
SPLIT_RULE = "valid where the first 8 bytes of sha256(text) / 2^64 < valid_fraction"
BATCH_CHARACTERS = 2**22
"""Characters tokenized at once: enough to keep all threads busy."""
BYTE_SPLITS = ("train", "valid", "test")
COPIED = 2**22
"""Bytes copied at once."""


# --- tokens --------------------------------------------------------------------------------------


class PreparedText:
    """A prepared corpus: two token streams, their tokenizer and the account of their making."""

    def __init__(self, data: Prepared) -> None:
        self.folder, self.manifest, self.fingerprint = data.folder, data.manifest, data.fingerprint
        self.train, self.valid = (TokenStream(data.tokens(split, "ids")) for split in SPLITS)
        self.tokenizer = WordPiece.load(data.folder / "tokenizer")


def prepare_text(
    config: Text, cache_dir: str | Path, *, workers: int | None = None, progress: bool = True
) -> PreparedText:
    """Open a corpus's tokens in `<cache_dir>/text/<key>`, making them first where they are missing.

    `workers` are processes that parse the built-in corpus and threads that tokenize (null: one a
    core); the result is the same.

    Raises:
        InputError: the source, the tokenizer or the split is not usable; says what to change.
        OSError: the disk is full. What was written is removed.
    """
    source = open_documents(config, workers=workers)
    if workers:  # read once, when the process first uses those threads
        os.environ.setdefault("RAYON_NUM_THREADS", str(workers))
    data = prepare(
        "text",
        text_identity(config, source),
        cache_dir,
        lambda builder: _build_text(config, source, builder, progress),
        progress=progress,
    )
    return PreparedText(data)


def text_identity(config: Text, source: Source[Example]) -> dict[str, Any]:
    """Return everything that decides the tokens of a corpus."""
    settings = plain(config)
    # Where files lie and how the Hub is read does not decide what is read.
    settings.pop("path", None)
    settings.pop("streaming", None)
    tokenizer = settings["tokenizer"]
    # What is cut into words depends on the dictionary.
    if config.tokenizer.words != "none":
        tokenizer["words"] = segmenter()
    if config.tokenizer.source != "train":
        tokenizer.pop("vocab_size")
        if Path(config.tokenizer.source).expanduser().exists():
            tokenizer["source"] = load_wordpiece(config.tokenizer).fingerprint
    return {"version": 1, "data": settings, "source": source.key()}


def _build_text(
    config: Text, source: Source[Example], builder: Builder, progress: bool
) -> dict[str, Any]:
    given = config.tokenizer.source
    tokenizer = None if given == "train" else load_wordpiece(config.tokenizer)  # fails early
    spools, duplicates = _read(config, source, builder.folder, progress)
    account = source.describe()
    if account["rows_skipped"]:
        first = f" (the first: {account['first_skipped']})" if account.get("first_skipped") else ""
        print(f"text: {account['rows_skipped']:,} bad rows skipped{first}", file=sys.stderr)
    if tokenizer is None:
        with stage("training the tokenizer", "entries", None, progress) as advance:
            tokenizer = train_tokenizer(spools["train"], config.tokenizer)
            advance(tokenizer.size)
    tokenizer.save(builder.folder / "tokenizer")

    dtype = pyarrow.uint16() if tokenizer.size < 2**16 else pyarrow.uint32()
    total = sum(spool.bytes for spool in spools.values())
    with stage("tokenizing", "B", total, progress) as advance:
        for split, spool in spools.items():
            with builder.split(split, ids=pyarrow.large_list(dtype)) as writer:
                for texts in _batches(spool):
                    ids = tokenizer.encode_batch(texts)
                    for document in ids:
                        document.append(tokenizer.sep_id)
                    writer.append(ids=ids)
                    advance(sum(len(text.encode()) for text in texts))
            spool.file.unlink()
    return {
        "source": account,
        "max_documents": config.max_documents,
        "duplicates_dropped": duplicates,
        "split_rule": SPLIT_RULE,
        "valid_fraction": config.valid_fraction,
        "bytes": {split: spool.bytes for split, spool in spools.items()},
        "tokenizer": {
            "source": Path(given).name if Path(given).expanduser().exists() else given,
            "revision": config.tokenizer.revision,
            "lowercase": tokenizer.lowercase,
            "size": tokenizer.size,
            "fingerprint": tokenizer.fingerprint,
            **({"words": segmenter()} if tokenizer.words != "none" else {}),
        },
    }


class _Spool:
    """The documents of one split, on disk until they are read again: one JSON string a line."""

    def __init__(self, file: Path) -> None:
        self.file, self.documents, self.bytes = file, 0, 0

    def __iter__(self) -> Iterator[str]:
        with open(self.file, "rb") as stream:
            yield from map(json.loads, stream)


def _read(
    config: Text, source: Source[Example], folder: Path, progress: bool
) -> tuple[dict[str, _Spool], int]:
    """Sort the documents into one spool a split; return these and the number of duplicates."""
    spools = {split: _Spool(folder / f"{split}.jsonl") for split in SPLITS}
    seen: set[bytes] = set()
    duplicates = 0
    with (
        open(spools["train"].file, "wb") as train,
        open(spools["valid"].file, "wb") as valid,
        stage("reading", "documents", config.max_documents, progress) as advance,
    ):
        for row in islice(source.rows(), config.max_documents):
            advance(1)
            (text,) = row.texts
            encoded = text.encode()
            digest = hashlib.sha256(encoded).digest()
            if digest[:16] in seen:
                duplicates += 1
                continue
            seen.add(digest[:16])
            held_out = int.from_bytes(digest[:8], "big") < config.valid_fraction * 2**64
            spool = spools["valid" if held_out else "train"]
            spool.documents += 1
            spool.bytes += len(encoded)
            (valid if held_out else train).write(json.dumps(text).encode() + b"\n")
    separation = source.separation() if isinstance(source, FileDocuments) else ""
    for split, spool in spools.items():
        if not spool.documents:
            found = f"{len(seen)} document{'' if len(seen) == 1 else 's'}{separation}"
            raise InputError(
                f"data.valid_fraction={config.valid_fraction} puts none of {found} into {split}: "
                "give more documents, or change data.valid_fraction"
            )
    return spools, duplicates


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in documents:
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


# --- bytes ---------------------------------------------------------------------------------------


class PreparedBytes:
    """A prepared text: three streams of bytes, and the account of their making."""

    def __init__(self, data: Prepared) -> None:
        self.folder, self.manifest, self.fingerprint = data.folder, data.manifest, data.fingerprint
        self.train, self.valid, self.test = (
            TokenStream(data.tokens(split, "ids")) for split in BYTE_SPLITS
        )
        self.vocabulary = ByteVocabulary()


def prepare_bytes(
    config: Bytes, cache_dir: str | Path, *, workers: int | None = None, progress: bool = True
) -> PreparedBytes:
    """Open a text's bytes in `<cache_dir>/bytes/<key>`; see `prepare_text`."""
    source = open_bytes(config, cache_dir, workers=workers, progress=progress)
    settings = plain(config)
    for where in ("path", "url"):  # they do not decide what is read
        settings.pop(where, None)
    data = prepare(
        "bytes",
        {"version": 1, "data": settings, "source": source.key()},
        cache_dir,
        lambda builder: _build_bytes(config, source, builder, progress),
        progress=progress,
    )
    return PreparedBytes(data)


def _build_bytes(
    config: Bytes, source: Source[bytes], builder: Builder, progress: bool
) -> dict[str, Any]:
    whole = builder.folder / "whole.bin"
    with (
        open(whole, "wb") as stream,
        stage("reading", "B", config.max_bytes, progress, "bytes") as advance,
    ):
        for piece in source.rows():
            left = None if config.max_bytes is None else config.max_bytes - stream.tell()
            advance(stream.write(piece[:left]))
            if left is not None and left <= len(piece):
                break
    count = whole.stat().st_size
    held_out = [round(share * count) for share in (config.valid_fraction, config.test_fraction)]
    sizes = [count - sum(held_out), *held_out]
    if min(sizes) < 2:
        raise InputError(
            f"the text has {count:,} bytes, of which {sizes[0]:,} would be train, {sizes[1]:,} valid "
            f"and {sizes[2]:,} test: give more text (data.max_bytes={config.max_bytes})"
        )
    with open(whole, "rb") as stream:
        for split, size in zip(BYTE_SPLITS, sizes, strict=True):
            with builder.split(split, ids=pyarrow.large_list(pyarrow.uint8())) as writer:
                while size:
                    piece = stream.read(min(size, COPIED))
                    writer.append(ids=[np.frombuffer(piece, np.uint8)])
                    size -= len(piece)
    whole.unlink()
    return {
        "source": source.describe(),
        "max_bytes": config.max_bytes,
        "split_rule": "consecutive: train, valid, test",
        "valid_fraction": config.valid_fraction,
        "test_fraction": config.test_fraction,
    }
