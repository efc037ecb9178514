"""Parallel text as token arrays: read, encoded and filtered once, memory-mapped by every run.

    <cache_dir>/wmt/<key>/                             `prepare_parallel`
        train.source.tokens.npy   int32, all sentences one after the other, each ends in </s>
        train.source.offsets.npy  int64 (N + 1,): sentence i is tokens[offsets[i]:offsets[i + 1]]
        train.target.…  valid.…  test.…
        valid.source.txt  …       the sentences of valid and test as they were read, one a line
        tokenizer/                see `roformer.data.bpe`
        manifest.json             what was read, left out and written

Only training pairs are left out (`data.filter`); every pair of valid and test is scored.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roformer.config.build import plain
from roformer.config.wmt import FilesParallel, FilterConfig, Parallel
from roformer.data.bpe import Bpe
from roformer.data.folders import one_at_a_time, publish, sync, temporary_beside
from roformer.data.manifests import (
    ParallelManifest,
    StoredFile,
    again,
    check_files,
    check_manifest,
    read_manifest,
    stored_files,
)
from roformer.data.parallel_sources import SPLITS, ParallelSource, open_parallel
from roformer.data.parallel_words import SIDES, chunks_of, read_lines, write_words
from roformer.data.progress import stage
from roformer.data.sentences import Pairs, Sentences, SentenceWriter
from roformer.errors import InputError

FORMAT = 1
KIND = "parallel"
ARRAYS = ("tokens", "offsets")


class ParallelText:
    """A prepared parallel text: three splits, their tokenizer and the account of their making.

    `fingerprint` is equal where tokens, the texts to score and the tokenizer are, wherever they
    came from.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.tokenizer = Bpe.load(folder / "tokenizer")
        self.train, self.valid, self.test = (
            Pairs(*(Sentences.open(folder / f"{split}.{side}") for side in SIDES))
            for split in SPLITS
        )

    @classmethod
    def open(cls, folder: str | Path) -> ParallelText:
        """Open a prepared folder, checking that it is complete.

        Raises:
            InputError: not a prepared parallel text, of another format, or damaged.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "prepared parallel text")
        kind, version = manifest.get("kind"), manifest.get("format")
        if (version, kind) != (FORMAT, KIND):
            raise InputError(
                f"{folder} is {kind} of format {version}, not {KIND} of format {FORMAT}: "
                f"{again(folder)}"
            )
        check_manifest(folder, manifest, ParallelManifest)
        check_files(folder, manifest["files"])
        try:
            text = cls(folder, manifest)
        except InputError as error:
            raise InputError(f"{error}; {again(folder)}") from error
        tokenizer = text.tokenizer.fingerprint
        if tokenizer != manifest["tokenizer"]["fingerprint"]:
            raise InputError(
                f"{folder / 'tokenizer'} is not the one of the tokens: {again(folder)}"
            )
        if _fingerprint(tokenizer, manifest["files"]) != manifest["fingerprint"]:
            raise InputError(
                f"{folder / 'manifest.json'} is damaged (fingerprint: not that of its files): "
                f"{again(folder)}"
            )
        for split, pairs in zip(SPLITS, (text.train, text.valid, text.test), strict=True):
            wanted = manifest["pairs"][split]
            for side, found in zip(SIDES, (len(pairs.source), len(pairs.target)), strict=True):
                if found != wanted:
                    raise InputError(
                        f"{folder}/{split}.{side} has {found:,} sentences, not {wanted:,}: "
                        f"{again(folder)}"
                    )
        return text

    def verify(self) -> None:
        """Read every file: its SHA-256 is the manifest's, and its tokens the tokenizer's.

        Raises:
            InputError: a file was changed after it was written.
        """
        needed = {
            f"{split}.{side}.{name}.npy" for split in SPLITS for side in SIDES for name in ARRAYS
        }
        check_files(self.folder, self.manifest["files"], content=True)
        if lost := sorted(needed - self.manifest["files"].keys()):
            raise InputError(
                f"{self.folder / 'manifest.json'} is damaged (files: {lost[0]} is not among them): "
                f"{again(self.folder)}"
            )
        for split, pairs in zip(SPLITS, (self.train, self.valid, self.test), strict=True):
            for side, sentences in zip(SIDES, (pairs.source, pairs.target), strict=True):
                tokens, ends = sentences.tokens, sentences.offsets[1:] - 1
                inside = tokens.min() >= 0 and tokens.max() < self.tokenizer.size
                if not inside or (tokens[ends] != self.tokenizer.end_id).any():
                    raise InputError(
                        f"{self.folder}/{split}.{side} has other tokens than its tokenizer: "
                        f"{again(self.folder)}"
                    )

    def texts(self, split: str) -> tuple[list[str], list[str]]:
        """Return the source and target sentences of `valid` or `test` as they were read.

        Raises:
            InputError: a file was changed and has another number of lines.
        """
        if split not in SPLITS[1:]:
            raise ValueError(f"the texts of {split} are not kept, only those of valid and test")
        source, target = (self._lines(split, side) for side in SIDES)
        return source, target

    def _lines(self, split: str, side: str) -> list[str]:
        file, wanted = self.folder / f"{split}.{side}.txt", self.manifest["pairs"][split]
        try:
            # Cut at newlines alone: a sentence may hold other characters that end lines.
            *lines, rest = file.read_bytes().decode().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is damaged ({error}): {again(self.folder)}") from error
        if rest or len(lines) != wanted:
            raise InputError(
                f"{file} has {len(lines):,} lines, not {wanted:,}: {again(self.folder)}"
            )
        return lines


# --- preparing -----------------------------------------------------------------------------------


def prepare_parallel(
    config: Parallel,
    cache_dir: str | Path,
    *,
    workers: int | None = None,
    progress: bool = True,
) -> ParallelText:
    """Open a parallel text's tokens, making them first where they do not exist yet.

    Pairs stream: memory holds some thousands of them, the word counts of the tokenizer and 16 bytes
    for each pair that is kept. The words, as Moses cuts them, wait on disk, beside the tokens,
    while the merges are learnt on them.

    Args:
        config: the text, its tokenizer and its filter.
        cache_dir: tokens go to `<cache_dir>/wmt/<key>`.
        workers: processes for Moses and threads that encode; null: one a core. Does not change the
            result.
        progress: tell on stderr how far it is, and in the end what was left out.

    Raises:
        InputError: the source or the tokenizer is not usable; says where and what to do.
        OSError: the disk is full. What was written is removed.
    """
    source = open_parallel(config)
    given = _given_tokenizer(config)
    if workers:  # read once, when the process first uses those threads
        os.environ.setdefault("RAYON_NUM_THREADS", str(workers))
    folder = Path(cache_dir) / "wmt" / _key(config, source, given)
    if not folder.exists():
        with one_at_a_time(folder, progress):  # of several ranks, one prepares
            if not folder.exists():
                with temporary_beside(folder) as temporary:
                    _build(config, source, given, temporary, workers, progress)
                    publish(temporary, folder)
    text = ParallelText.open(folder)
    text.verify()  # a flipped bit would train on other text under the same fingerprint
    return text


def _given_tokenizer(config: Parallel) -> Bpe | None:
    """Read the tokenizer that the config names; None where it is to be learnt."""
    if config.tokenizer.source == "train":
        return None
    bpe = Bpe.load(Path(config.tokenizer.source).expanduser())
    named = f"data.tokenizer.source={config.tokenizer.source}"
    found, wanted = (f"{of.source_language}-{of.target_language}" for of in (bpe, config))
    if found != wanted:
        raise InputError(
            f"{named} is a tokenizer of {found}, not of {wanted}: give one of these languages, or "
            "data.tokenizer.source=train"
        )
    if bpe.words != config.tokenizer.words:
        raise InputError(f"{named} is made otherwise: set data.tokenizer.words={bpe.words}")
    return bpe


def _key(config: Parallel, source: ParallelSource, given: Bpe | None) -> str:
    settings = plain(config)
    if isinstance(config, FilesParallel):
        settings.pop("path")  # where files lie does not decide what is read
    if given is not None:
        settings["tokenizer"] = given.fingerprint
    identity = {"format": FORMAT, "data": settings, "source": source.key()}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _build(
    config: Parallel,
    source: ParallelSource,
    given: Bpe | None,
    folder: Path,
    workers: int | None,
    progress: bool,
) -> None:
    languages = config.source_language, config.target_language
    words = write_words(config, source, folder, workers, progress)
    text = chain.from_iterable(read_lines(words["train", side]) for side in SIDES)
    bpe = given or Bpe.learn(text, config.tokenizer, *languages, progress)
    bpe.save(folder / "tokenizer")

    left_out = Counter(empty=source.empty, too_long=0, ratio=0)
    total = sum(source.pairs_read.values()) - source.empty
    encoded = {}
    with stage("encoding", "pairs", total, progress, "-".join(languages)) as advance:
        for split in SPLITS:
            limits = config.filter if split == "train" else None
            encoded[split] = _encode(split, words, bpe, folder, limits, left_out, advance)
    for file in words.values():
        file.unlink()
    kept = encoded["train"].pairs
    if not kept:
        raise InputError(
            f"none of {source.pairs_read['train']:,} training pairs is left (left out: "
            f"{dict(left_out)}): raise data.filter.max_length or data.filter.max_ratio"
        )

    files = stored_files(folder)
    manifest = {
        "format": FORMAT,
        "kind": KIND,
        "fingerprint": _fingerprint(bpe.fingerprint, files),
        "languages": languages,
        "source": source.describe(),
        "max_train_pairs": config.max_train_pairs,
        "filter": plain(config.filter)
        | {"read": source.pairs_read["train"], "kept": kept, "left_out": left_out},
        "pairs": {split: of.pairs for split, of in encoded.items()},
        "tokens": {split: of.tokens for split, of in encoded.items()},
        "tokenizer": {
            "source": "train" if given is None else Path(config.tokenizer.source).name,
            "words": bpe.words,
            "merges": bpe.merges,
            "size": bpe.size,
            "size_used": int(np.count_nonzero(encoded["train"].counts)),
            "fingerprint": bpe.fingerprint,
        },
        "files": files,
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in ("numpy", "tokenizers", "sacremoses")},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    sync(*folder.rglob("*"), folder)
    if progress:
        print(_summary(manifest), file=sys.stderr, flush=True)


class _Encoded(NamedTuple):
    pairs: int
    tokens: dict[str, int]
    """By side, ends included."""
    counts: NDArray[np.int64]
    """How often each id occurs, (vocabulary,)."""


def _encode(
    split: str,
    words: dict[tuple[str, str], Path],
    bpe: Bpe,
    folder: Path,
    limits: FilterConfig | None,
    left_out: Counter[str],
    advance: Callable[[int], object],
) -> _Encoded:
    """Write the tokens of a split; with limits only the pairs within them, counting the others."""
    counts = np.zeros(bpe.size, np.int64)
    with (
        SentenceWriter(folder / f"{split}.source") as source,
        SentenceWriter(folder / f"{split}.target") as target,
    ):
        lines = (read_lines(words[split, side]) for side in SIDES)
        for chunk in chunks_of(zip(*lines, strict=True)):
            ids = [bpe.encode_words(side) for side in chunk]
            if limits is not None:
                kept = _kept(ids, limits, left_out)
                ids = [list(compress(side, kept)) for side in ids]
            for writer, side in zip((source, target), ids, strict=True):
                tokens = writer.append([[*sentence, bpe.end_id] for sentence in side])
                counts += np.bincount(tokens, minlength=bpe.size)
            advance(len(chunk[0]))
    return _Encoded(len(source), {"source": source.tokens, "target": target.tokens}, counts)


def _kept(ids: list[list[list[int]]], limits: FilterConfig, left_out: Counter[str]) -> list[bool]:
    """Tell which training pairs are kept; counts the others by their first reason."""
    lengths: NDArray[np.int64] = np.array([[len(sentence) for sentence in side] for side in ids])
    shorter, longer = lengths.min(0), lengths.max(0)
    empty = shorter == 0  # of control characters alone, which Moses drops
    too_long = ~empty & (longer > limits.max_length)
    ratio = ~empty & ~too_long & (limits.max_ratio is not None)
    ratio &= longer > shorter * (limits.max_ratio or 1)
    left_out.update(empty=int(empty.sum()), too_long=int(too_long.sum()), ratio=int(ratio.sum()))
    return (~(empty | too_long | ratio)).tolist()


def _fingerprint(tokenizer: str, files: dict[str, StoredFile]) -> str:
    """Return the fingerprint of a text from its tokenizer's and its files'."""
    content = [tokenizer, *(f"{name} {file['sha256']}" for name, file in files.items())]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()


def _summary(manifest: dict[str, Any]) -> str:
    kept, tokenizer = manifest["filter"], manifest["tokenizer"]
    reasons = {
        "empty": "empty",
        "too_long": f"longer than {kept['max_length']} tokens",
        "ratio": f"length ratio over {kept['max_ratio']}",
    }
    left_out = ", ".join(f"{reasons[key]}: {count:,}" for key, count in kept["left_out"].items())
    return (
        f"{'-'.join(manifest['languages'])}: {kept['kept']:,} of {kept['read']:,} training pairs "
        f"kept ({left_out}); {tokenizer['merges']:,} merges, vocabulary of "
        f"{tokenizer['size']:,}, {tokenizer['size_used']:,} of it in the training text"
    )
