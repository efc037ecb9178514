"""A text corpus as token shards: made once, memory-mapped by every process that trains on it.

`prepare_text` reads the source once, drops exact duplicates, sorts each document into train or
valid by its own hash, trains the tokenizer on train (or reads one) and writes, below
`<cache_dir>/text/<key>`:

    train_00000.bin …  valid_00000.bin …   tokens, little-endian uint16 or uint32
    tokenizer/                             see `roformer.data.tokenizers`
    manifest.json                          what was read, what was written, SHA-256 of each shard

A document is its pieces followed by [SEP], so that [SEP] occurs at the end of documents only. The
key hashes what decides the content; the folder appears under it complete or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from roformer.config.schema import Text
from roformer.data.documents import DocumentSource, open_documents
from roformer.data.files import FileDocuments
from roformer.data.folders import one_at_a_time, publish, sync, temporary_beside
from roformer.data.jieba_words import segmenter
from roformer.data.manifests import (
    Shard,
    TextManifest,
    again,
    check_files,
    check_manifest,
    read_manifest,
)
from roformer.data.progress import stage
from roformer.data.tokenizers import WordPiece, load_wordpiece
from roformer.data.word_vocabulary import train_tokenizer
from roformer.errors import InputError

FORMAT = 1
SPLITS = ("train", "valid")
SPLIT_RULE = "valid where the first 8 bytes of sha256(text) / 2^64 < valid_fraction"
SHARD_TOKENS = 2**27
BATCH_CHARACTERS = 2**22
"""Text tokenised at once: enough to keep all threads busy, little enough to forget about."""


# --- reading -------------------------------------------------------------------------------------


class TokenStream:
    """The tokens of one split as one long sequence; maps files when it is first asked.

    `len(stream)` is the number of tokens and `stream[a:b]` a copy of shape (b - a,), int64. Pickles
    as file names, so it is cheap to hand to the workers of a DataLoader.
    """

    def __init__(self, files: Sequence[Path], lengths: Sequence[int], dtype: str) -> None:
        self._files, self._dtype = list(files), dtype
        self._ends = list(accumulate(lengths))
        self._maps: dict[int, NDArray[Any]] = {}

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: slice) -> NDArray[np.int64]:
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"a stream is read forwards, token by token, not in steps of {step}")
        tokens = np.empty(max(0, stop - start), np.int64)
        position = start
        while position < stop:
            shard = bisect_right(self._ends, position)
            begin, end = self._ends[shard - 1] if shard else 0, min(stop, self._ends[shard])
            part = self._map(shard)[position - begin : end - begin]
            tokens[position - start : end - start] = part
            position = end
        return tokens

    def _map(self, shard: int) -> NDArray[Any]:
        if shard not in self._maps:
            self._maps[shard] = np.memmap(self._files[shard], self._dtype, mode="r")
        return self._maps[shard]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}


class TextShards:
    """A prepared corpus: two token streams, their tokenizer and the account of their making.

    `fingerprint` is equal where tokens and vocabulary are, on whatever machine.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.train, self.valid = (self._stream(split) for split in SPLITS)
        self.tokenizer = WordPiece.load(folder / "tokenizer")

    def _stream(self, split: str) -> TokenStream:
        shards = self.manifest["shards"][split]
        files = [self.folder / shard["file"] for shard in shards]
        return TokenStream(files, [shard["tokens"] for shard in shards], self.manifest["dtype"])

    @classmethod
    def open(cls, folder: str | Path) -> TextShards:
        """Open a prepared folder, checking the manifest and the size of every shard.

        Raises:
            InputError: not a prepared folder, of another format, or damaged.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "prepared text")
        if manifest.get("format") != FORMAT:
            found = manifest.get("format")
            raise InputError(f"{folder} has format {found}, not {FORMAT}: {again(folder)}")
        check_manifest(folder, manifest, TextManifest)
        width = np.dtype(manifest["dtype"]).itemsize
        for shard in _all_shards(manifest):
            if shard["tokens"] * width != shard["bytes"]:
                raise InputError(
                    f"{folder / 'manifest.json'} is damaged ({shard['tokens']:,} tokens cannot be "
                    f"{shard['bytes']:,} bytes): {again(folder)}"
                )
        check_files(folder, {shard["file"]: shard for shard in _all_shards(manifest)})
        try:
            shards = cls(folder, manifest)
        except InputError as error:
            raise InputError(f"{error}; {again(folder)}") from error
        tokenizer = shards.tokenizer.fingerprint
        if tokenizer != manifest["tokenizer"]["fingerprint"]:
            raise InputError(
                f"{folder / 'tokenizer'} is not the one of the shards: {again(folder)}"
            )
        if _fingerprint(manifest["shards"], tokenizer) != manifest["fingerprint"]:
            raise InputError(
                f"{folder / 'manifest.json'} is damaged (fingerprint: not that of its shards): "
                f"{again(folder)}"
            )
        return shards

    def verify(self) -> None:
        """Read every shard: its SHA-256 is the manifest's, and its tokens the tokenizer's.

        Raises:
            InputError: a shard was changed after it was written.
        """
        files = {shard["file"]: shard for shard in _all_shards(self.manifest)}
        check_files(self.folder, files, content=True)
        for file in files:
            tokens = np.memmap(self.folder / file, self.manifest["dtype"], mode="r")
            if (largest := int(tokens.max())) >= self.tokenizer.size:
                raise InputError(
                    f"{self.folder / file} has a token {largest}, but the tokenizer "
                    f"{self.tokenizer.size:,}: {again(self.folder)}"
                )


def _fingerprint(shards: dict[str, list[Shard]], tokenizer: str) -> str:
    """Return the fingerprint of a corpus from its shards' and its tokenizer's."""
    hashes = [shard["sha256"] for split in SPLITS for shard in shards[split]]
    return hashlib.sha256(" ".join([*hashes, tokenizer]).encode()).hexdigest()


def _all_shards(manifest: dict[str, Any]) -> list[Shard]:
    return [shard for split in SPLITS for shard in manifest["shards"][split]]


# --- preparing -----------------------------------------------------------------------------------


def prepare_text(
    config: Text, cache_dir: str | Path, *, workers: int | None = None, progress: bool = True
) -> TextShards:
    """Open the shards of a corpus, making them first where they do not exist yet.

    Documents stream: memory holds a batch of them, 16 bytes (as Python stores them, about 100) for
    each distinct one, and the word counts of the tokenizer. The text itself waits on disk, beside
    the shards, between its one reading and its tokenising.

    Tokenising uses the threads of `tokenizers`: as fast as a pool of processes here (3.8 s for
    32 MB on 2 cores, both), with nothing to start and nothing to send. Neither changes the result.

    Args:
        config: the corpus.
        cache_dir: shards go to `<cache_dir>/text/<key>`.
        workers: processes that parse and threads that tokenise; null: one a core.
        progress: tell on stderr how far it is: bars on a terminal, lines elsewhere.

    Raises:
        InputError: the source, the tokenizer or the split is not usable; says what to change.
        OSError: the disk is full. What was written is removed.
    """
    source = open_documents(config, workers=workers)
    folder = Path(cache_dir) / "text" / _key(config, source)
    if workers:  # read once, when the process first uses those threads
        os.environ.setdefault("RAYON_NUM_THREADS", str(workers))
    if not folder.exists():
        with one_at_a_time(folder, progress):  # of several ranks, one prepares
            if not folder.exists():
                with temporary_beside(folder) as temporary:
                    _build(config, source, temporary, progress)
                    publish(temporary, folder)
    text = TextShards.open(folder)
    text.verify()  # a flipped bit would train on other text under the same fingerprint
    return text


def _key(config: Text, source: DocumentSource) -> str:
    settings = asdict(cast(Any, config))
    # Where files lie and how the Hub is read does not decide what is read.
    settings.pop("path", None)
    settings.pop("streaming", None)
    tokenizer = settings["tokenizer"]
    # What is cut into words depends on the dictionary; what is not keeps the key that it had.
    if tokenizer.pop("words") != "none":
        tokenizer["words"] = segmenter()
    if config.tokenizer.source != "train":
        tokenizer.pop("vocab_size")
        if Path(config.tokenizer.source).expanduser().exists():
            tokenizer["source"] = load_wordpiece(config.tokenizer).fingerprint
    identity = {"format": FORMAT, "data": settings, "source": source.key()}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _build(config: Text, source: DocumentSource, folder: Path, progress: bool) -> None:
    given = config.tokenizer.source
    tokenizer = None if given == "train" else load_wordpiece(config.tokenizer)  # fails early
    spools, duplicates = _read(config, source, folder, progress)
    account = source.describe()
    if account["rows_skipped"]:
        first = f" (the first: {account['first_skipped']})" if account.get("first_skipped") else ""
        print(f"text: {account['rows_skipped']:,} bad rows skipped{first}", file=sys.stderr)
    if tokenizer is None:
        with stage("training the tokenizer", "entries", None, progress) as advance:
            tokenizer = train_tokenizer(spools["train"], config.tokenizer)
            advance(tokenizer.size)
    tokenizer.save(folder / "tokenizer")

    dtype = "<u2" if tokenizer.size < 2**16 else "<u4"
    shards = {}
    total = sum(spool.bytes for spool in spools.values())
    with stage("tokenising", "B", total, progress) as advance:
        for split, spool in spools.items():
            shards[split] = _write_shards(folder, split, _tokens(spool, tokenizer, dtype, advance))
            spool.file.unlink()

    manifest = {
        "format": FORMAT,
        "kind": "text",
        "fingerprint": _fingerprint(shards, tokenizer.fingerprint),
        "source": account,
        "max_documents": config.max_documents,
        "duplicates_dropped": duplicates,
        "split_rule": SPLIT_RULE,
        "valid_fraction": config.valid_fraction,
        "documents": {split: spool.documents for split, spool in spools.items()},
        "bytes": {split: spool.bytes for split, spool in spools.items()},
        "tokens": {split: sum(shard["tokens"] for shard in shards[split]) for split in SPLITS},
        "tokenizer": {
            "source": Path(given).name if Path(given).expanduser().exists() else given,
            "revision": config.tokenizer.revision,
            "lowercase": tokenizer.lowercase,
            "size": tokenizer.size,
            "fingerprint": tokenizer.fingerprint,
        }
        | ({"words": segmenter()} if tokenizer.words != "none" else {}),
        "dtype": dtype,
        "shards": shards,
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in ("numpy", "tokenizers", "datasets", "pyarrow")},
    }
    sync(*folder.rglob("*"))
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    sync(folder / "manifest.json", folder)


class _Spool:
    """The documents of one split, on disk while they are read again: one JSON string a line."""

    def __init__(self, file: Path) -> None:
        self.file, self.documents, self.bytes = file, 0, 0

    def __iter__(self) -> Iterator[str]:
        with open(self.file, "rb") as stream:
            yield from map(json.loads, stream)


def _read(
    config: Text, source: DocumentSource, folder: Path, progress: bool
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
        for text in source.documents():
            advance(1)
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
    parted = source.parted() if isinstance(source, FileDocuments) else ""
    for split, spool in spools.items():
        if not spool.documents:
            found = f"{len(seen)} document{'' if len(seen) == 1 else 's'}{parted}"
            raise InputError(
                f"data.valid_fraction={config.valid_fraction} puts none of {found} into {split}: give "
                "more documents, or change data.valid_fraction"
            )
    return spools, duplicates


def _tokens(
    spool: _Spool, tokenizer: WordPiece, dtype: str, advance: Callable[[int], object]
) -> Iterator[NDArray[Any]]:
    """Yield the tokens of each document, [SEP] at the end; reports bytes of text."""
    for batch in _batches(spool):
        for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            yield np.array([*ids, tokenizer.sep_id], dtype)
            advance(len(text.encode()))


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


def _write_shards(folder: Path, split: str, documents: Iterator[NDArray[Any]]) -> list[Shard]:
    """Write `<split>_00000.bin`, … of SHARD_TOKENS tokens each, the last one shorter."""
    shards: list[Shard] = []
    tokens = next(documents, None)
    while tokens is not None:
        digest, count, size = hashlib.sha256(), 0, 0
        with open(folder / f"{split}_{len(shards):05d}.bin", "wb") as stream:
            while tokens is not None and count < SHARD_TOKENS:
                part, tokens = np.split(tokens, [SHARD_TOKENS - count])
                data = part.tobytes()
                stream.write(data)
                digest.update(data)
                count, size = count + len(part), size + len(data)
                if not len(tokens):
                    tokens = next(documents, None)
        name = Path(stream.name).name
        shards.append({"file": name, "tokens": count, "bytes": size, "sha256": digest.hexdigest()})
    return shards
