"""Parallel text: read, encoded and filtered once, memory-mapped by every run.

    <cache_dir>/wmt/<key>/<split>.arrow   source, target: token lists, each ends in </s>
                                          of valid and test also source_text, target_text

Only training pairs are left out (`data.filter`); every pair of valid and test is scored.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from roformer.config.build import plain
from roformer.config.wmt import FilesParallel, FilterConfig, Parallel
from roformer.data.bpe import Bpe
from roformer.data.parallel_words import SIDES, chunks_of, read_lines, write_words
from roformer.data.progress import stage
from roformer.data.sources.pairs import SPLITS, ParallelSource, open_parallel
from roformer.data.store import Builder, Prepared, prepare
from roformer.data.translation_batches import Pairs
from roformer.errors import InputError


class PreparedPairs:
    """A prepared parallel text: three splits, their tokenizer and the account of their making.

    `fingerprint` is equal where tokens, the texts to score and the tokenizer are, wherever they
    came from.
    """

    def __init__(self, data: Prepared) -> None:
        self.data, self.folder, self.manifest = data, data.folder, data.manifest
        self.fingerprint = data.fingerprint
        self.tokenizer = Bpe.load(data.folder / "tokenizer")
        self.train, self.valid, self.test = (
            Pairs(*(data.tokens(split, side) for side in SIDES)) for split in SPLITS
        )

    def texts(self, split: str) -> tuple[list[str], list[str]]:
        """Return the source and target sentences of `valid` or `test` as they were read."""
        if split not in SPLITS[1:]:
            raise ValueError(f"the texts of {split} are not kept, only those of valid and test")
        source, target = (self.data.values(split, f"{side}_text") for side in SIDES)
        return source, target


def prepare_parallel(
    config: Parallel,
    cache_dir: str | Path,
    *,
    workers: int | None = None,
    progress: bool = True,
) -> PreparedPairs:
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
    settings = plain(config)
    if isinstance(config, FilesParallel):
        settings.pop("path")  # where files lie does not decide what is read
    if given is not None:
        settings["tokenizer"] = given.fingerprint
    data = prepare(
        "wmt",
        {"version": 1, "data": settings, "source": source.key()},
        cache_dir,
        lambda builder: _build(config, source, given, builder, workers, progress),
        progress=progress,
    )
    return PreparedPairs(data)


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


def _build(
    config: Parallel,
    source: ParallelSource,
    given: Bpe | None,
    builder: Builder,
    workers: int | None,
    progress: bool,
) -> dict[str, Any]:
    languages = config.source_language, config.target_language
    files = write_words(config, source, builder.folder, workers, progress)
    text = chain.from_iterable(read_lines(files["train", side]) for side in SIDES)
    bpe = given or Bpe.learn(text, config.tokenizer, *languages, progress)
    bpe.save(builder.folder / "tokenizer")

    left_out = Counter(empty=source.empty, too_long=0, ratio=0)
    total = sum(source.pairs_read.values()) - source.empty
    used = np.zeros(bpe.size, bool)
    with stage("encoding", "pairs", total, progress, "-".join(languages)) as advance:
        for split in SPLITS:
            train = split == "train"
            limits = config.filter if train else None
            seen = _encode(split, files, bpe, builder, limits, left_out, advance)
            used |= seen & train
    for file in files.values():
        file.unlink()
    kept = builder.writers["train"].rows
    if not kept:
        raise InputError(
            f"none of {source.pairs_read['train']:,} training pairs is left (left out: "
            f"{dict(left_out)}): raise data.filter.max_length or data.filter.max_ratio"
        )
    facts = {
        "languages": languages,
        "source": source.describe(),
        "max_train_pairs": config.max_train_pairs,
        "filter": plain(config.filter)
        | {"read": source.pairs_read["train"], "kept": kept, "left_out": left_out},
        "tokenizer": {
            "source": "train" if given is None else Path(config.tokenizer.source).name,
            "words": bpe.words,
            "merges": bpe.merges,
            "size": bpe.size,
            "size_used": int(used.sum()),
            "fingerprint": bpe.fingerprint,
        },
    }
    if progress:
        print(_summary(facts), file=sys.stderr, flush=True)
    return facts


def _encode(
    split: str,
    files: dict[tuple[str, str], Path],
    bpe: Bpe,
    builder: Builder,
    limits: FilterConfig | None,
    left_out: Counter[str],
    advance: Callable[[int], object],
) -> NDArray[np.bool_]:
    """Write a split; with limits only the pairs within them, counting the others.

    Returns:
        Which ids occur, (vocabulary,).
    """
    texts = [f"{side}_text" for side in SIDES if split != "train"]
    schema = dict.fromkeys(SIDES, pyarrow.large_list(pyarrow.int32()))
    schema |= dict.fromkeys(texts, pyarrow.string())
    seen = np.zeros(bpe.size, bool)
    with builder.split(split, **schema) as writer:
        rows = zip(*(read_lines(files[split, column]) for column in (*SIDES, *texts)), strict=True)
        for chunk in chunks_of(rows):
            ids = [bpe.encode_words(side) for side in chunk[:2]]
            if limits is not None:
                kept = _kept(ids, limits, left_out)
                ids = [list(compress(side, kept)) for side in ids]
            for sentence in chain.from_iterable(ids):
                sentence.append(bpe.end_id)
                seen[sentence] = True
            columns: dict[str, Any] = dict(zip((*SIDES, *texts), (*ids, *chunk[2:]), strict=True))
            writer.append(**columns)
            advance(len(chunk[0]))
    return seen


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


def _summary(facts: dict[str, Any]) -> str:
    kept, tokenizer = facts["filter"], facts["tokenizer"]
    reasons = {
        "empty": "empty",
        "too_long": f"longer than {kept['max_length']} tokens",
        "ratio": f"length ratio over {kept['max_ratio']}",
    }
    left_out = ", ".join(f"{reasons[key]}: {count:,}" for key, count in kept["left_out"].items())
    return (
        f"{'-'.join(facts['languages'])}: {kept['kept']:,} of {kept['read']:,} training pairs "
        f"kept ({left_out}); {tokenizer['merges']:,} merges, vocabulary of "
        f"{tokenizer['size']:,}, {tokenizer['size_used']:,} of it in the training text"
    )
