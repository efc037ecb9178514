"""Parallel text: read, encoded and filtered once, memory-mapped by every run.

    <cache_dir>/wmt/<key>/<split>.{source,target}.npy    token lists, each ends in </s>
                          {valid,test}.json              source_text, target_text

Only training pairs are left out (`data.filter`); every pair of valid and test is scored.

The text streams: memory holds some thousands of pairs, the word counts of the tokenizer and 16 bytes
for each pair that is kept. Moses takes longer than everything else together, so it runs once, in
several processes; the words that it finds wait on disk while merges are learnt on them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib import metadata
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from roformer.config.build import plain
from roformer.config.wmt import FilesParallel, FilterConfig, Parallel
from roformer.data.bpe import Bpe, split_pairs
from roformer.data.sources import Example, Source
from roformer.data.sources.pairs import SPLITS, open_parallel
from roformer.data.store import Builder, Prepared, Spool, settings
from roformer.data.text import use_threads
from roformer.data.translation_batches import Pairs
from roformer.data.work import batches, in_order, stage, tell_skipped, worker_pool
from roformer.errors import InputError

IDS, TEXTS = ("source", "target"), ("source_text", "target_text")
CHUNK = 5_000
"""Pairs that go through each step at once."""
ALONE = 10
"""Chunks that this process does before it starts others, which takes seconds."""


class PreparedPairs(Prepared):
    """A prepared parallel text: three splits and their tokenizer."""

    kind = "wmt"

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        super().__init__(folder, manifest)
        self.tokenizer = Bpe.load(folder / "tokenizer")
        self.train, self.valid, self.test = (
            Pairs(*(self.tokens(split, side) for side in IDS)) for split in SPLITS
        )

    @property
    def summary(self) -> str:
        """The size of the text and its folder, in one line."""
        facts, limit = self.manifest, self.manifest["max_train_pairs"]
        tokenizer, rows, name = facts["tokenizer"], facts["rows"], "-".join(facts["languages"])
        reached = (
            f", data.max_train_pairs={limit} reached" if facts["filter"]["read"] == limit else ""
        )
        return (
            f"{name}: {_kept_pairs(facts['filter'])}{reached}, {rows['valid']:,} validation and "
            f"{rows['test']:,} test pairs; {tokenizer['merges']:,} merges, vocabulary of "
            f"{tokenizer['size']:,}, {tokenizer['size_used']:,} of it in the training text: {self.folder}"
        )

    def texts(self, split: Literal["valid", "test"]) -> tuple[list[str], list[str]]:
        """Return the source and target sentences of a held-out split as they were read."""
        values = self.values(split)
        return values["source_text"], values["target_text"]


def prepare_parallel(
    config: Parallel, cache_dir: str | Path, *, workers: int | None = None, progress: bool = True
) -> PreparedPairs:
    """Open a parallel text's tokens in `<cache_dir>/wmt/<key>`, making them first if need be.

    `workers` are processes for Moses and threads that encode (null: one a core); the result is the
    same.
    """
    source = open_parallel(config)
    given = _given_tokenizer(config)
    use_threads(workers)
    data = settings(config, *(["path"] if isinstance(config, FilesParallel) else []))
    if given is not None:
        data["tokenizer"] = given.fingerprint
    if config.tokenizer.words == "moses":
        data["words"] = f"sacremoses {metadata.version('sacremoses')}"
    return PreparedPairs.prepare(
        {"data": data, "source": source.key()},
        cache_dir,
        lambda builder: _build(config, source, given, builder, workers, progress),
        progress,
    )


def _given_tokenizer(config: Parallel) -> Bpe | None:
    """Read the tokenizer that the config names; None where it is to be learnt."""
    if config.tokenizer.source == "train":
        return None
    bpe = Bpe.load(Path(config.tokenizer.source))
    for name, found, wanted in (
        ("source_language", bpe.source_language, config.source_language),
        ("target_language", bpe.target_language, config.target_language),
        ("tokenizer.words", bpe.words, config.tokenizer.words),
    ):
        if found != wanted:
            raise InputError(
                f"data.tokenizer.source={config.tokenizer.source} was made with {name}={found}, not "
                f"{wanted}: set data.{name}={found}, or data.tokenizer.source=train"
            )
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
    name, words = "-".join(languages), config.tokenizer.words
    spools = {split: Spool(builder.folder) for split in SPLITS}
    work = partial(split_pairs, words=words, languages=languages)
    with stage("reading", "pairs", None, progress, name) as bar:
        for split, spool in spools.items():
            chunks = batches((row.texts for row in source.rows(split)), CHUNK)
            for rows in _in_processes(work, chunks, 1 if words == "bytes" else workers):
                for row in rows:
                    spool.append(row[:2] if split == "train" else row)
                bar.update(len(rows))
    text = chain.from_iterable((row[side] for row in spools["train"]) for side in (0, 1))
    bpe = given or Bpe.learn(text, config.tokenizer, *languages, progress=progress)
    bpe.save(builder.folder / "tokenizer")

    account, bad = source.describe(), source.bad["train"]
    tell_skipped(name, account)
    left_out = Counter(empty=source.skipped["train"] - bad, too_long=0, ratio=0)
    used = {}
    with stage("encoding", "pairs", sum(s.rows for s in spools.values()), progress, name) as bar:
        for split, spool in spools.items():
            limits = config.filter if split == "train" else None
            used[split] = _encode(split, spool, bpe, builder, limits, left_out, bar)
    read, kept = source.rows_read["train"], builder.writers["train"].rows
    counts = plain(config.filter) | {"read": read, "kept": kept, "left_out": left_out}
    if not kept:
        remedy = "raise data.filter.max_length or data.filter.max_ratio"
        raise InputError(f"{name}: {_kept_pairs(counts)}: {remedy}")
    return {
        "languages": languages,
        "source": account,
        "max_train_pairs": config.max_train_pairs,
        "filter": counts,
        "tokenizer": {
            "source": "train" if given is None else Path(config.tokenizer.source).name,
            "words": bpe.words,
            "merges": bpe.merges,
            "size": bpe.size,
            "size_used": int(used["train"].sum()),
            "fingerprint": bpe.fingerprint,
        },
    }


def _kept_pairs(counts: Mapping[str, Any]) -> str:
    """Return in words how many training pairs are kept, and why others are not."""
    reasons = {"empty": "empty", "too_long": f"longer than {counts['max_length']} tokens"}
    if counts["max_ratio"] is not None:
        reasons["ratio"] = f"length ratio over {counts['max_ratio']}"
    skipped = ", ".join(f"{words}: {counts['left_out'][why]:,}" for why, words in reasons.items())
    return f"{counts['kept']:,} of {counts['read']:,} training pairs kept ({skipped})"


def _in_processes(work: Any, chunks: Iterable[Any], workers: int | None) -> Iterator[Any]:
    """Yield what `work` makes of each chunk, in their order, few of them held at once."""
    workers, chunks = workers or os.cpu_count() or 1, iter(chunks)
    yield from map(work, islice(chunks, ALONE if workers > 1 else None))
    with worker_pool(workers) as pool:
        yield from in_order(pool, work, chunks, ahead=2 * workers)


def _encode(
    split: str,
    spool: Spool,
    bpe: Bpe,
    builder: Builder,
    limits: FilterConfig | None,
    left_out: Counter[str],
    bar: Any,
) -> NDArray[np.bool_]:
    """Write the pairs of a split within the limits; return which ids occur, (vocabulary,)."""
    writer = builder.split(split, source=np.int32, target=np.int32)
    used = np.zeros(bpe.size, bool)
    for rows in batches(spool, CHUNK):
        source, target, *texts = zip(*rows, strict=True)
        ids = [bpe.encode_words(side) for side in (source, target)]
        if limits is not None:
            kept = _kept(ids, limits, left_out)
            ids = [list(compress(side, kept)) for side in ids]
        for sentence in chain.from_iterable(ids):
            sentence.append(bpe.end_id)
            used[sentence] = True
        writer.append(**dict(zip(IDS, ids, strict=True)), **dict(zip(TEXTS, texts, strict=False)))
        bar.update(len(rows))
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
