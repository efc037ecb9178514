"""Parallel text: read, encoded and filtered once, memory-mapped by every run.

    <cache_dir>/wmt/<key>/<split>.arrow   source, target: token lists, each ends in </s>
                                          of valid and test also source_text, target_text

Only training pairs are left out (`data.filter`); every pair of valid and test is scored.

The text streams: memory holds some thousands of pairs, the word counts of the tokenizer and 16 bytes
for each pair that is kept. Moses takes longer than everything else together, so it runs once, in
several processes; the words that it finds wait on disk while merges are learnt on them.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np
import pyarrow
from numpy.typing import NDArray

from roformer.config.build import plain
from roformer.config.wmt import FilesParallel, FilterConfig, Parallel
from roformer.data.bpe import Bpe, split_words
from roformer.data.progress import stage
from roformer.data.sources import Example, Source
from roformer.data.sources.pairs import SPLITS, open_parallel
from roformer.data.store import Builder, Prepared, prepare
from roformer.data.translation_batches import Pairs
from roformer.errors import InputError

SIDES = ("source", "target")
CHUNK = 5_000
"""Pairs that go through each step at once."""
ALONE = 10
"""Chunks that this process does before it starts others, which takes seconds."""

Texts = list[list[str]]
"""Columns of sentences: the source, the target."""
Files = dict[tuple[str, str], Path]
"""Files of words or sentences, one a line, by split and column."""


class PreparedPairs:
    """A prepared parallel text: three splits, their tokenizer and the account of their making."""

    def __init__(self, data: Prepared) -> None:
        self.data, self.folder, self.manifest = data, data.folder, data.manifest
        self.fingerprint = data.fingerprint
        self.tokenizer = Bpe.load(data.folder / "tokenizer")
        self.train, self.valid, self.test = (
            Pairs(*(data.tokens(split, side) for side in SIDES)) for split in SPLITS
        )

    def texts(self, split: Literal["valid", "test"]) -> tuple[list[str], list[str]]:
        """Return the source and target sentences of a held-out split as they were read."""
        source, target = (self.data.values(split, f"{side}_text") for side in SIDES)
        return source, target


def prepare_parallel(
    config: Parallel,
    cache_dir: str | Path,
    *,
    workers: int | None = None,
    progress: bool = True,
) -> PreparedPairs:
    """Open a parallel text's tokens in `<cache_dir>/wmt/<key>`, making them first if need be.

    `workers` are processes for Moses and threads that encode (null: one a core); the result is the
    same.

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
    source: Source[Example],
    given: Bpe | None,
    builder: Builder,
    workers: int | None,
    progress: bool,
) -> dict[str, Any]:
    languages = config.source_language, config.target_language
    files = _write_words(config, source, builder.folder, workers, progress)
    text = chain.from_iterable(_read_lines(files["train", side]) for side in SIDES)
    bpe = given or Bpe.learn(text, config.tokenizer, *languages, progress)
    bpe.save(builder.folder / "tokenizer")

    left_out = Counter(empty=source.skipped["train"], too_long=0, ratio=0)
    total = sum(source.rows_read.values()) - source.skipped["train"]
    with stage("encoding", "pairs", total, progress, "-".join(languages)) as advance:
        used, _, _ = (
            _encode(split, files, bpe, builder, config.filter, left_out, advance)
            for split in SPLITS
        )
    for file in files.values():
        file.unlink()
    kept = builder.writers["train"].rows
    if not kept:
        raise InputError(
            f"none of {source.rows_read['train']:,} training pairs is left (left out: "
            f"{dict(left_out)}): raise data.filter.max_length or data.filter.max_ratio"
        )
    facts = {
        "languages": languages,
        "source": source.describe(),
        "max_train_pairs": config.max_train_pairs,
        "filter": plain(config.filter)
        | {"read": source.rows_read["train"], "kept": kept, "left_out": left_out},
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


# --- words ---------------------------------------------------------------------------------------


def _write_words(
    config: Parallel, source: Source[Example], folder: Path, workers: int | None, progress: bool
) -> Files:
    """Write the words of each split and side to a file, and of valid and test the sentences."""
    languages = config.source_language, config.target_language
    words = config.tokenizer.words
    work = partial(_split, words=words, languages=languages)
    files: Files = {}
    with stage("reading", "pairs", None, progress, "-".join(languages)) as advance:
        for split in SPLITS:
            columns = [*SIDES, *(f"{side}_text" for side in SIDES if split != "train")]
            files |= {(split, column): folder / f"{split}.{column}.lines" for column in columns}
            with ExitStack() as stack:
                streams = [
                    stack.enter_context(_open_lines(files[split, column], "w"))
                    for column in columns
                ]
                chunks = _chunks(row.texts for row in source.rows(split))
                for texts, found in _in_processes(work, chunks, 1 if words == "bytes" else workers):
                    for stream, lines in zip(streams, [*found, *texts], strict=False):
                        stream.writelines(f"{line}\n" for line in lines)
                    advance(len(texts[0]))
    return files


def _split(texts: Texts, words: str, languages: tuple[str, str]) -> Texts:
    return [split_words(*side) for side in zip(texts, (words, words), languages, strict=True)]


def _in_processes(
    work: partial[Texts], chunks: Iterable[Texts], workers: int | None
) -> Iterator[tuple[Texts, Texts]]:
    """Yield each chunk and what `work` makes of it, in their order, few of them held at once."""
    workers = workers or os.cpu_count() or 1
    # Spawned, not forked: the caller may have started threads (torch, tqdm, a GPU's runtime).
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    waiting: deque[tuple[Texts, Future[Texts]]] = deque()
    try:
        for number, chunk in enumerate(chunks):
            if workers == 1 or number < ALONE:
                yield chunk, work(chunk)
                continue
            waiting.append((chunk, pool.submit(work, chunk)))
            if len(waiting) > 2 * workers:
                chunk, done = waiting.popleft()
                yield chunk, done.result()
        for chunk, done in waiting:
            yield chunk, done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _read_lines(file: Path) -> Iterator[str]:
    with _open_lines(file, "r") as stream:
        for line in stream:
            yield line.removesuffix("\n")


def _open_lines(file: Path, mode: Literal["r", "w"]) -> TextIO:
    # Only a newline ends a line: a sentence may hold the other characters that could.
    return open(file, mode, encoding="utf-8", newline="\n")


def _chunks(rows: Iterable[tuple[str, ...]]) -> Iterator[Texts]:
    """Yield CHUNK rows at a time, column by column."""
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK)):
        yield [list(column) for column in zip(*chunk, strict=True)]


# --- ids -----------------------------------------------------------------------------------------


def _encode(
    split: str,
    files: Files,
    bpe: Bpe,
    builder: Builder,
    limits: FilterConfig,
    left_out: Counter[str],
    advance: Callable[[int], object],
) -> NDArray[np.bool_]:
    """Write a split; of train only the pairs within the limits, counting the others.

    Returns:
        Which ids occur, (vocabulary,).
    """
    texts = [f"{side}_text" for side in SIDES if split != "train"]
    schema = dict.fromkeys(SIDES, pyarrow.large_list(pyarrow.int32()))
    schema |= dict.fromkeys(texts, pyarrow.string())
    used = np.zeros(bpe.size, bool)
    with builder.split(split, **schema) as writer:
        rows = zip(*(_read_lines(files[split, column]) for column in schema), strict=True)
        for chunk in _chunks(rows):
            ids = [bpe.encode_words(side) for side in chunk[:2]]
            if split == "train":
                kept = _kept(ids, limits, left_out)
                ids = [list(compress(side, kept)) for side in ids]
            for sentence in chain.from_iterable(ids):
                sentence.append(bpe.end_id)
                used[sentence] = True
            columns: dict[str, Any] = dict(zip(schema, (*ids, *chunk[2:]), strict=True))
            writer.append(**columns)
            advance(len(chunk[0]))
    return used


def _kept(ids: list[list[list[int]]], limits: FilterConfig, left_out: Counter[str]) -> list[bool]:
    """Tell which training pairs are kept; count the others by their first reason."""
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
