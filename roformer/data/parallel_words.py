"""The words of a parallel text, on disk while merges are learnt on them and before they are encoded.

Moses takes longer than everything else together, so it runs once, in several processes. The text
streams: memory holds a few chunks of it.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, TextIO

from roformer.config.wmt import Parallel
from roformer.data.bpe import split_words
from roformer.data.progress import stage
from roformer.data.sources.pairs import SPLITS, ParallelSource

SIDES = ("source", "target")
CHUNK = 5_000
"""Pairs that go through each step at once."""
ALONE = 10
"""Chunks that this process does before it starts others: they take seconds to be there."""

Texts = list[list[str]]
"""Sentences of the source and of the target."""


def write_words(
    config: Parallel, source: ParallelSource, folder: Path, workers: int | None, progress: bool
) -> dict[tuple[str, str], Path]:
    """Write the words of each split and side to a file, one sentence a line.

    Of valid and test the sentences themselves are written too.

    Args:
        config: languages and words; see `roformer.data.bpe.split_words`.
        source: is read once.
        folder: takes the files.
        workers: processes for Moses; null: one a core.
        progress: tell on stderr how far it is.

    Returns:
        The files, by split and column: `source`, `target`, `source_text`, `target_text`.

    Raises:
        InputError: the source is not usable; says where and what to do.
    """
    languages = config.source_language, config.target_language
    work = partial(split_texts, words=config.tokenizer.words, languages=languages)
    if config.tokenizer.words == "bytes":
        workers = 1  # nothing to do
    files = {}
    with stage("reading", "pairs", None, progress, "-".join(languages)) as advance:
        for split in SPLITS:
            chunks = chunks_of((first, second) for _, first, second in source.rows(split))
            kept = split != "train"
            columns = [*SIDES, *(f"{side}_text" for side in SIDES if kept)]
            with ExitStack() as stack:
                streams = []
                for column in columns:
                    files[split, column] = folder / f"{split}.{column}.lines"
                    streams.append(stack.enter_context(_open_lines(files[split, column], "w")))
                for texts, words in in_processes(work, chunks, workers):
                    for stream, lines in zip(
                        streams, [*words, *texts] if kept else words, strict=True
                    ):
                        stream.writelines(f"{line}\n" for line in lines)
                    advance(len(texts[0]))
    return files


def split_texts(texts: Texts, words: str, languages: tuple[str, str]) -> Texts:
    """Return the words of both sides; see `roformer.data.bpe.split_words`."""
    return [split_words(*side) for side in zip(texts, (words, words), languages, strict=True)]


def in_processes(
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


def read_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file of words, without their ends."""
    with _open_lines(file, "r") as stream:
        for line in stream:
            yield line.removesuffix("\n")


def _open_lines(file: Path, mode: Literal["r", "w"]) -> TextIO:
    # Only a newline ends a line: a sentence may hold the other characters that could.
    return open(file, mode, encoding="utf-8", newline="\n")


def chunks_of(rows: Iterable[tuple[str, ...]]) -> Iterator[list[list[str]]]:
    """Yield CHUNK rows at a time, column by column."""
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK)):
        yield [list(column) for column in zip(*chunk, strict=True)]
