"""Text to model: tokens of documents, or the bytes of one long text; made once, read by all.

`prepare_text` reads the source once, drops exact duplicates, sorts each document into train or
valid by its own hash, trains the tokenizer on train (or reads one) and keeps it with the tokens.
A document is its pieces followed by [SEP], so that [SEP] occurs at the end of documents only.

`prepare_bytes` reads the source once and cuts it into three stretches in this order: train, valid
and test. Of N bytes valid has round(valid_fraction·N) and test round(test_fraction·N), the last
ones: of enwik8's 10^8 the usual 90, 5 and 5 million.
"""

from __future__ import annotations

import hashlib
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from roformer.config.lm import Bytes
from roformer.config.schema import Text
from roformer.data.sources import Example, Source
from roformer.data.sources.documents import FileDocuments, open_documents
from roformer.data.sources.pieces import open_bytes
from roformer.data.store import Builder, Prepared, Spool, settings
from roformer.data.tokenizers import (
    ByteVocabulary,
    WordPiece,
    load_wordpiece,
    segmenter,
    train_tokenizer,
)
from roformer.data.tokens import TokenStream
from roformer.data.work import batches, stage, tell_skipped
from roformer.errors import InputError

MANY_UNKNOWN, MOST_UNKNOWN = 0.02, 0.5
"""Shares of [UNK] in a text beyond which the vocabulary is likely, and surely, made for other text."""
CHARACTERS = 2**22
"""Characters tokenized at once: enough to keep all threads busy."""
COPIED = 2**22
"""Bytes copied at once; a row of the prepared data."""


class PreparedText(Prepared):
    """A prepared corpus: two token streams and their tokenizer."""

    kind = "text"

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        super().__init__(folder, manifest)
        self.train, self.valid = (TokenStream(self.tokens(s, "ids")) for s in ("train", "valid"))
        self.tokenizer = WordPiece.load(folder / "tokenizer")

    @property
    def summary(self) -> str:
        """The size of the text and its folder, in one line."""
        facts, limit = self.manifest, self.manifest["max_documents"]
        rows, tokens = facts["rows"], facts["tokens"]
        duplicates = facts["duplicates_dropped"]
        read = sum(rows.values()) + duplicates
        reached = f"; data.max_documents={limit} reached" if read == limit else ""
        return (
            f"text: {read:,} documents ({duplicates:,} duplicates dropped{reached}), {tokens['train']:,} "
            f"training and {tokens['valid']:,} validation tokens, vocabulary {self.tokenizer.size:,}, "
            f"{facts['unknown_share']:.2%} of the tokens [UNK]: {self.folder}"
        )


class PreparedBytes(Prepared):
    """A prepared text: three streams of bytes."""

    kind = "bytes"
    vocabulary = ByteVocabulary()

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        super().__init__(folder, manifest)
        self.train, self.valid, self.test = (
            TokenStream(self.tokens(split, "ids")) for split in ("train", "valid", "test")
        )

    @property
    def summary(self) -> str:
        """The size of the text and its folder, in one line."""
        sizes, limit = self.manifest["tokens"], self.manifest["max_bytes"]
        reached = f" (data.max_bytes={limit} reached)" if sum(sizes.values()) == limit else ""
        return (
            f"text: {sum(sizes.values()):,} bytes{reached}, {sizes['train']:,} for training, "
            f"{sizes['valid']:,} for validation, {sizes['test']:,} for the test: {self.folder}"
        )


# --- tokens --------------------------------------------------------------------------------------


def prepare_text(
    config: Text,
    cache_dir: str | Path,
    *,
    tokenizer: WordPiece | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> PreparedText:
    """Open a corpus's tokens in `<cache_dir>/text/<key>`, making them first where they are missing.

    `tokenizer` replaces the tokenizer of the config. `workers` are processes that parse the built-in
    corpus and threads that tokenize (null: one per core); the result is the same.
    """
    source = open_documents(config, workers=workers)
    use_threads(workers)
    if tokenizer is not None:
        # The tokenizer of a run may have been trained on this very text.
        own = PreparedText.find(text_identity(config, source), cache_dir)
        if own is not None and own.tokenizer.fingerprint == tokenizer.fingerprint:
            return own
    return PreparedText.prepare(
        text_identity(config, source, tokenizer),
        cache_dir,
        lambda builder: _build_text(config, source, tokenizer, builder, progress),
        progress,
    )


def use_threads(workers: int | None) -> None:
    """Limit the threads of `tokenizers`, which asks once, when the process first uses them."""
    if workers:
        os.environ.setdefault("RAYON_NUM_THREADS", str(workers))


def text_identity(
    config: Text, source: Source[Example], tokenizer: WordPiece | None = None
) -> dict[str, Any]:
    """Return everything that decides the tokens of a corpus."""
    data, wanted = settings(config, "path", "streaming"), config.tokenizer
    if tokenizer is None and Path(wanted.source).exists():
        tokenizer = load_wordpiece(wanted)
    if tokenizer is not None:
        rules = {"lowercase": tokenizer.lowercase, "words": tokenizer.words}
        data["tokenizer"] = {"source": tokenizer.fingerprint, "revision": wanted.revision, **rules}
    elif wanted.source != "train":
        data["tokenizer"].pop("vocab_size")
    # Cutting a text into words depends on the dictionary.
    if data["tokenizer"]["words"] != "none":
        data["tokenizer"]["words"] = segmenter()
    return {"data": data, "source": source.key()}


def _build_text(
    config: Text,
    source: Source[Example],
    tokenizer: WordPiece | None,
    builder: Builder,
    progress: bool,
) -> dict[str, Any]:
    given = config.tokenizer.source if tokenizer is None else "init_from"
    if tokenizer is None and given != "train":
        tokenizer = load_wordpiece(config.tokenizer)  # fails early
    facts, spools = _read(config, source, builder.folder, progress)
    if tokenizer is None:
        with stage("training the tokenizer", "entries", None, progress) as bar:
            tokenizer = train_tokenizer(spools["train"], config.tokenizer)
            bar.update(tokenizer.size)
    tokenizer.save(builder.folder / "tokenizer")

    unknown = 0
    dtype = np.uint16 if tokenizer.size < 2**16 else np.uint32
    with stage("tokenizing", "B", sum(facts["bytes"].values()), progress) as bar:
        for split, spool in spools.items():
            writer = builder.split(split, ids=dtype)
            for texts in batches(spool, CHARACTERS, weight=len):
                ids = tokenizer.encode_batch(texts)
                writer.append(ids=[[*document, tokenizer.sep_id] for document in ids])
                unknown += sum(document.count(tokenizer.unk_id) for document in ids)
                bar.update(sum(len(text.encode()) for text in texts))
    written = builder.writers.values()
    share = unknown / max(1, sum(writer.tokens - writer.rows for writer in written))
    check_unknown(share, given)
    facts["unknown_share"] = share
    facts["tokenizer"] = {
        "source": Path(given).name if Path(given).exists() else given,
        "revision": config.tokenizer.revision,
        **tokenizer_facts(tokenizer),
        **({"words": segmenter()} if tokenizer.words != "none" else {}),
    }
    return facts


def check_unknown(share: float, source: str) -> None:
    """Warn where more than `MANY_UNKNOWN` of the tokens are [UNK]; raise InputError beyond `MOST_UNKNOWN`."""
    if share <= MANY_UNKNOWN:
        return
    remedy = {
        "train": "raise data.tokenizer.vocab_size, or give more text",
        "init_from": "start from weights that were trained on such text",
    }.get(source, "give another data.tokenizer.source, or train, which learns one from the text")
    problem = (
        f"{share:.1%} of the tokens are [UNK], because the vocabulary does not have them: {remedy}"
    )
    if share > MOST_UNKNOWN:
        raise InputError(f"text: {problem}")
    print(f"warning: text: {problem}", file=sys.stderr)


def tokenizer_facts(tokenizer: WordPiece) -> dict[str, Any]:
    """Return what a manifest says of a tokenizer."""
    return {name: getattr(tokenizer, name) for name in ("lowercase", "size", "fingerprint")}


def _read(
    config: Text, source: Source[Example], folder: Path, progress: bool
) -> tuple[dict[str, Any], dict[str, Spool]]:
    """Sort the documents into train and valid; return what was read, and these on disk."""
    spools = {split: Spool(folder) for split in ("train", "valid")}
    sizes = dict.fromkeys(spools, 0)
    seen: set[bytes] = set()
    duplicates = 0
    with stage("reading", "documents", config.max_documents, progress) as bar:
        for row in islice(source.rows(), config.max_documents):
            bar.update(1)
            (text,) = row.texts
            encoded = text.encode()
            digest = hashlib.sha256(encoded).digest()
            if digest[:16] in seen:
                duplicates += 1
                continue
            seen.add(digest[:16])
            held_out = int.from_bytes(digest[:8], "big") < config.valid_fraction * 2**64
            split = "valid" if held_out else "train"
            spools[split].append(text)
            sizes[split] += len(encoded)
    for split, spool in spools.items():
        if not spool.rows:
            found = f"{len(seen)} document{'' if len(seen) == 1 else 's'}"
            separation = source.separation() if isinstance(source, FileDocuments) else ""
            raise InputError(
                f"data.valid_fraction={config.valid_fraction} puts none of {found}{separation} "
                f"into {split}: give more documents, or change data.valid_fraction"
            )
    account = source.describe()
    tell_skipped("text", account)
    return {
        "source": account,
        "max_documents": config.max_documents,
        "duplicates_dropped": duplicates,
        "split_rule": "valid where the first 8 bytes of sha256(text) / 2^64 < valid_fraction",
        "valid_fraction": config.valid_fraction,
        "bytes": sizes,
    }, spools


# --- bytes ---------------------------------------------------------------------------------------


def prepare_bytes(
    config: Bytes, cache_dir: str | Path, *, workers: int | None = None, progress: bool = True
) -> PreparedBytes:
    """Open a text's bytes in `<cache_dir>/bytes/<key>`; see `prepare_text`."""
    source = open_bytes(config, cache_dir, workers=workers, progress=progress)
    return PreparedBytes.prepare(
        {"data": settings(config, "path", "url"), "source": source.key()},
        cache_dir,
        lambda builder: _build_bytes(config, source, builder, progress),
        progress,
    )


def _build_bytes(
    config: Bytes, source: Source[bytes], builder: Builder, progress: bool
) -> dict[str, Any]:
    whole = builder.folder / "whole.bin"
    with (
        open(whole, "wb") as stream,
        stage("reading", "B", config.max_bytes, progress, "bytes") as bar,
    ):
        for piece in source.rows():
            left = None if config.max_bytes is None else config.max_bytes - stream.tell()
            bar.update(stream.write(piece[:left]))
            if left is not None and left <= len(piece):
                break
    count = whole.stat().st_size
    valid, test = (round(part * count) for part in (config.valid_fraction, config.test_fraction))
    sizes = {"train": count - valid - test, "valid": valid, "test": test}
    if min(sizes.values()) < 2:
        counts = ", ".join(f"{size:,} {split}" for split, size in sizes.items())
        raise InputError(
            f"the text has {count:,} bytes, which would be {counts}: give more text "
            f"(data.max_bytes={config.max_bytes})"
        )
    with open(whole, "rb") as stream:
        for split, size in sizes.items():
            writer = builder.split(split, ids=np.uint8)
            while size:
                piece = stream.read(min(size, COPIED))
                writer.append(ids=[np.frombuffer(piece, np.uint8)])
                size -= len(piece)
    whole.unlink()
    account = source.describe()
    tell_skipped("text", account)
    return {
        "source": account,
        "max_bytes": config.max_bytes,
        "split_rule": "consecutive: train, valid, test",
        "valid_fraction": config.valid_fraction,
        "test_fraction": config.test_fraction,
    }
