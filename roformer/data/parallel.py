"""Parallel text: read, encoded and filtered once, memory-mapped by every run.

    <cache_dir>/wmt/<key>/<split>.{source,target}.npy    token lists, each ends in </s>
                          {valid,test}.json              source_text, target_text

Only training pairs are filtered (`data.filter`); every pair of valid and test is scored.

The text streams: memory holds some thousands of pairs, the word counts of the tokenizer and 16 bytes
per pair that is kept. Moses takes longer than all other steps, so it runs once; its words wait on disk
while merges are learnt on them. Moses and the encoding each run in several processes.

Pairs are built in, from local files or from the Hub. A training pair with an empty side is skipped and
counted. In valid and test an empty side would falsify the score and is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import metadata
from itertools import chain, compress, islice, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from roformer.config.build import plain
from roformer.config.wmt import BuiltinParallel, FilesParallel, FilterConfig, HubParallel, Parallel
from roformer.data.bpe import Bpe, split_words
from roformer.data.files import (
    JSON_LINES,
    TABLES,
    BadRow,
    Columns,
    Example,
    Rows,
    Source,
    absent,
    file_rows,
    has_suffix,
    named_file,
    text_lines,
)
from roformer.data.hub import HubTable
from roformer.data.store import Builder, Prepared, RaggedTokens, Spool, settings
from roformer.data.tokenizers import use_threads
from roformer.data.toy.translation import TRANSLATION_GRAMMAR, builtin_pairs
from roformer.data.translation_batches import Pairs
from roformer.data.work import batches, imap_ordered, print_skipped, progress_bar, worker_pool
from roformer.errors import InputError

SPLITS = ("train", "valid", "test")
ROWS = (*TABLES, *JSON_LINES, ".parquet")
"""Suffixes of files with both languages in a row."""
IDS, TEXTS = ("source", "target"), ("source_text", "target_text")
CHUNK = 5_000
"""Pairs that go through each step at once."""
FIRST_CHUNKS = 10
"""Chunks that this process does before it starts others, which takes seconds."""


class PreparedPairs(Prepared):
    """A prepared parallel text: three splits and their tokenizer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
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
            f"{tokenizer['size']:,}: {self.folder}"
        )

    def texts(self, split: Literal["valid", "test"]) -> tuple[list[str], list[str]]:
        """Return the source and target sentences of a held-out split as they were read."""
        values = self.values(split)
        return values["source_text"], values["target_text"]


def prepare_parallel(
    config: Parallel, cache_dir: str | Path, *, workers: int | None = None, progress: bool = True
) -> PreparedPairs:
    """Open a parallel text's tokens in `<cache_dir>/wmt/<key>`, making them first if they are missing.

    `workers` are processes that split words and encode, or for `bytes` threads (null: one per core).
    """
    source = open_parallel(config)
    given = _given_tokenizer(config)
    use_threads(workers)
    data = settings(config)
    if given is not None:
        data["tokenizer"] = given.fingerprint
    if config.tokenizer.words == "moses":
        data["words"] = f"sacremoses {metadata.version('sacremoses')}"
    return PreparedPairs.prepare(
        "wmt",
        {"data": data, "source": source.key},
        cache_dir,
        lambda builder: _build(config, source, given, builder, workers, progress),
        progress,
    )


def _given_tokenizer(config: Parallel) -> Bpe | None:
    """Read the tokenizer that the config names; None where it is to be learnt."""
    if config.tokenizer.source == "train":
        return None
    bpe = Bpe.load(Path(config.tokenizer.source))
    for key in ("source_language", "target_language", "tokenizer.words"):
        found, wanted = getattr(bpe, key.removeprefix("tokenizer.")), attrgetter(key)(config)
        if found != wanted:
            raise InputError(
                f"data.tokenizer.source={config.tokenizer.source} was made with {key}={found}, not "
                f"{wanted}: set data.{key}={found}, or data.tokenizer.source=train"
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
    tokenizer = builder.folder / "tokenizer"
    workers = 1 if words == "bytes" else workers  # the library has threads for these
    spools = {split: Spool(builder.folder) for split in SPLITS}
    left_out = Counter(empty=0, too_long=0, ratio=0)
    with progress_bar("reading", "pairs", None, progress, name) as bar:
        for split, spool in spools.items():
            chunks = batches((row.texts for row in source.rows(split)), CHUNK)
            cut = partial(_split, words=words, languages=languages, train=split == "train")
            for lines in _in_processes(cut, chunks, workers):
                left_out["empty"] += lines.count(None)
                spool.extend(filter(None, lines))
                bar.update(len(lines))
    text = chain.from_iterable(spools["train"])
    bpe = given or Bpe.learn(text, config.tokenizer, *languages, progress=progress)
    bpe.save(tokenizer)

    account = source.describe()
    print_skipped(name, account)
    total = sum(spool.rows for spool in spools.values())
    with progress_bar("encoding", "pairs", total, progress, name) as bar:
        for split, spool in spools.items():
            writer = builder.split(split, source=np.int32, target=np.int32)
            limits = config.filter if split == "train" else None
            encode = partial(_encode, tokenizer=tokenizer, limits=limits)
            for columns, reasons in _in_processes(encode, batches(spool.lines(), CHUNK), workers):
                writer.append(**columns)
                left_out.update(filter(None, reasons))
                bar.update(len(reasons))
    _loaded.cache_clear()  # its table of words can take 0.1 GB
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
            "fingerprint": bpe.fingerprint,
        },
    }


def _kept_pairs(counts: Mapping[str, Any]) -> str:
    """Return how many training pairs are kept and why others are not, for a message."""
    reasons = {"empty": "empty", "too_long": f"longer than {counts['max_length']} tokens"}
    if counts["max_ratio"] is not None:
        reasons["ratio"] = f"length ratio over {counts['max_ratio']}"
    skipped = ", ".join(f"{words}: {counts['left_out'][why]:,}" for why, words in reasons.items())
    return f"{counts['kept']:,} of {counts['read']:,} training pairs kept ({skipped})"


def _in_processes(work: Any, chunks: Iterable[Any], workers: int | None) -> Iterator[Any]:
    """Map `work` over chunks, in their order, few of them held at once."""
    workers, chunks = workers or os.cpu_count() or 1, iter(chunks)
    yield from map(work, islice(chunks, FIRST_CHUNKS if workers > 1 else None))
    with worker_pool(workers) as pool:
        yield from imap_ordered(pool, work, chunks, ahead=2 * workers)


def _split(
    pairs: Sequence[tuple[str, str]], words: str, languages: tuple[str, str], train: bool
) -> list[bytes | None]:
    """Return lines of a spool: the words of each pair, and of held-out pairs the texts as well.

    A training pair with an empty side has None.
    """
    sides = [list(side) for side in zip(*pairs, strict=True)]
    cut = [split_words(side, words, code) for side, code in zip(sides, languages, strict=True)]
    rows = zip(*cut, *([] if train else sides), strict=True)
    kept = (not train or all(map(str.strip, pair)) for pair in pairs)
    return [Spool.line(row) if keep else None for row, keep in zip(rows, kept, strict=True)]


def _encode(
    lines: Sequence[bytes], tokenizer: Path, limits: FilterConfig | None
) -> tuple[dict[str, Any], list[str | None]]:
    """Return the columns of a spool's rows, and for each row why it is excluded; None: it is kept."""
    bpe = _loaded(tokenizer)
    source_words, target_words, *texts = zip(*map(json.loads, lines), strict=True)
    ids = [bpe.encode_words(side) for side in (source_words, target_words)]
    reasons = [_why_not(a, b, limits) if limits else None for a, b in zip(*ids, strict=True)]
    kept = [reason is None for reason in reasons]
    for sentence in chain.from_iterable(ids):
        sentence.append(bpe.end_id)
    tokens = [RaggedTokens.of(list(compress(side, kept))) for side in ids]
    return dict(zip((*IDS, *TEXTS), (*tokens, *texts), strict=False)), reasons


_loaded = lru_cache(maxsize=1)(Bpe.load)
"""Read a tokenizer, in each process once."""


def _why_not(source: Sequence[int], target: Sequence[int], limits: FilterConfig) -> str | None:
    """Return why a training pair is excluded; None: it is kept."""
    shorter, longer = sorted((len(source), len(target)))
    if not shorter:
        return "empty"  # only control characters, which Moses drops
    if longer > limits.max_length:
        return "too_long"
    return "ratio" if limits.max_ratio and longer > shorter * limits.max_ratio else None


# --- sources -------------------------------------------------------------------------------------


def open_parallel(config: Parallel) -> Source[Example]:
    """Open the source that the config names; only local files are listed yet, nothing is read."""
    if isinstance(config, BuiltinParallel):
        return _builtin_pairs(config)
    return _file_pairs(config) if isinstance(config, FilesParallel) else _hub_pairs(config)


def _builtin_pairs(config: BuiltinParallel) -> Source[Example]:
    languages = config.source_language, config.target_language
    if sorted(languages) != ["de", "en"]:
        raise InputError(
            f"the built-in text is English and German, not {' and '.join(languages)}: take "
            "data=files, or en and de"
        )

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        most = config.max_train_pairs if split == "train" else None
        pairs = islice(builtin_pairs(split, getattr(config, f"{split}_pairs")), most)
        step = 1 if languages[0] == "en" else -1
        return source.count((Example(n, pair[::step]) for n, pair in enumerate(pairs)), split)

    return Source(read, SPLITS, key={"grammar": TRANSLATION_GRAMMAR}, kind="builtin")


def _checked(
    source: Source[Example], split: str, rows: Rows, columns: Columns, limit: int | None
) -> Iterator[Example]:
    """Yield the pairs of a split, of training pairs the first `limit`."""
    if split == "train":  # empty sides are excluded and counted later
        return source.checked(islice(rows, limit), split, replace(columns, min_nonempty=0))
    remedy = f"it would falsify the {split} score: fix it, or take it out of both languages"
    return source.checked(rows, split, columns, remedy)


def _file_pairs(config: FilesParallel) -> Source[Example]:
    """Open local files: per split two files, `<path>/<name>.<language>`, aligned by line, one file of rows,
    `<path>/<name>.tsv` or of another kind, or a share of the training pairs.
    """
    path = Path(config.path)
    if path.is_file() and not has_suffix(path, ROWS):
        raise InputError(
            f"data.path={path} is not a file of {', '.join(ROWS)} with a column per language: convert "
            "it, or give a folder of two aligned files, train.en and train.de"
        )
    root = path.parent if path.is_file() else path
    fractions = {"valid": config.valid_fraction, "test": config.test_fraction}
    shares = {split: share for split, share in fractions.items() if share is not None}
    files = {"train": [path] if path.is_file() else _find_pairs(config, root, "train")}
    for split in fractions:
        files[split] = files["train"] if split in shares else _find_pairs(config, root, split)

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        columns = _columns(config, aligned=len(files[split]) == 2)
        return _checked(source, split, rows(split, columns), columns, config.max_train_pairs)

    def rows(split: str, columns: Columns) -> Rows:
        count = 0
        for where, number, row in _pair_rows(files[split], columns):
            if not shares or split not in ("train", *shares) or split_of(row, columns) == split:
                count += 1
                yield where, number, row
        if not count:
            raise InputError(
                f"{files[split][0]} has no pair for {split} with data.valid_fraction="
                f"{config.valid_fraction} and data.test_fraction={config.test_fraction}: "
                "change them, or give more text"
            )

    def split_of(row: dict[Any, Any] | str, columns: Columns) -> str:
        """Return the split of a row of the training file; rows that cannot be used are not held out."""
        try:
            texts = columns.check(0, row).texts
        except BadRow:
            return "train"
        # The same language in both directions, so that the split is the same.
        languages = config.source_language, config.target_language
        text = texts[languages.index(min(languages))]
        place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
        for split, share in shares.items():
            if place < share:
                return split
            place -= share
        return "train"

    names = {file: file.relative_to(root).as_posix() for paths in files.values() for file in paths}
    return Source(read, SPLITS, files=names, max_bad_rows=config.max_bad_rows, kind="files")


def _find_pairs(config: FilesParallel, root: Path, split: str) -> list[Path]:
    """Return the two aligned files of a split, or its one file of rows."""
    place = root / getattr(config, split)
    languages = config.source_language, config.target_language
    names = [f"{place.name}.{language}" for language in languages]
    aligned = [named_file(place.parent, [name], ("", ".gz")) for name in names]
    rows = named_file(place.parent, [place.name], ROWS)
    if rows is not None and any(aligned):
        raise InputError(f"{root} has {names[0]} and {rows.name}: keep one of them")
    files = [file for file in (rows, *aligned) if file is not None]
    if len(files) == (1 if rows else 2):
        return files
    wanted = (
        f"{' and '.join(names)}, aligned by line, nor {place.name} with {', '.join(ROWS)} and a "
        "column per language"
    )
    remedy = f"put them there (convert a TMX), or set the languages and data.{split}"
    if split != "train":
        remedy += f", or hold out pairs with data.{split}_fraction=0.01"
    raise absent(place.parent, wanted, remedy)


def _columns(config: FilesParallel, aligned: bool) -> Columns:
    """Return the columns of the two languages."""
    languages = config.source_language, config.target_language
    if aligned:
        return Columns(languages, min_nonempty=2)
    fields = config.source_field, config.target_field
    texts = [
        name if field is None else field for field, name in zip(fields, languages, strict=True)
    ]
    numbers = "by number in a .tsv or .csv without a header"
    set_by = f"data.source_field and .target_field, {numbers}"
    return Columns(texts, min_nonempty=2, set_by=set_by)


def _pair_rows(files: list[Path], columns: Columns) -> Rows:
    """Yield all rows of one file, or of two aligned files."""
    if len(files) == 1:
        for where, number, row in file_rows(files[0], columns):
            if isinstance(row, dict):
                nested = row.get("translation")
                row = nested if isinstance(nested, dict) else row
                row = {name: _one_line(text) for name, text in row.items()}
            yield where, number, row
        return
    place, number = f"{files[0]} and {files[1].name}", 0
    for lines in zip_longest(*map(text_lines, files)):
        if None in lines:
            counts = [f"{sum(1 for _ in text_lines(file)):,}" for file in files]
            raise InputError(
                f"{files[0]} has {counts[0]} lines and {files[1]} {counts[1]}: line n of one "
                "must translate line n of the other, so find where they part"
            )
        (number, source), (_, target) = lines
        yield place, number, dict(zip(columns.texts, (source, target), strict=True))
    if not number:
        raise InputError(f"{place} are empty: give text")


def _hub_pairs(config: HubParallel) -> Source[Example]:
    """Open a WMT set of the Hub: a column `translation` of {language: sentence}."""
    languages = config.source_language, config.target_language

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        columns = Columns(languages, min_nonempty=2)
        return _checked(source, split, rows(split), columns, config.max_train_pairs)

    def rows(split: str) -> Rows:
        official = "validation" if split == "valid" else split
        columns = Columns(("translation",), set_by="the data.path of a WMT set")
        hub = HubTable(config.path, config.name, config.revision, official, columns)
        feature, lines = hub.table.features["translation"], len(hub.table)
        available = sorted(getattr(feature, "languages", None) or feature)
        for side, language in zip(("source_language", "target_language"), languages, strict=True):
            if language not in available:
                raise InputError(
                    f"{hub.where} has the languages {', '.join(available)}, not {language}: give "
                    f"data.{side}, or another data.name"
                )
        if split == "test" and config.test_lines not in (None, lines):
            raise InputError(
                f"{hub.where} has {lines:,} lines, not {config.test_lines:,}: scores on the two cannot "
                f"be compared; data.test_lines={lines} or null takes it all the same"
            )
        for where, number, row in hub.rows():
            assert isinstance(row, dict)
            sides = row["translation"].items()
            yield where, number, {side: _one_line(text or "") for side, text in sides}

    facts = {name: getattr(config, name) for name in ("path", "name", "revision")}
    return Source(read, SPLITS, max_bad_rows=None, kind="hub", **facts)


def _one_line(text: Any) -> Any:
    return text.rstrip("\r\n").replace("\n", " ") if isinstance(text, str) else text
