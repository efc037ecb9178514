"""Documents: read once, tokenized, split into train and valid, and memory-mapped by every run.

`prepare_text` reads the source once, drops exact duplicates, sorts each document into train or
valid by its own hash, trains the tokenizer on train (or reads one) and keeps it with the tokens.
A document is its pieces followed by [SEP], so that [SEP] occurs at the end of documents only.

Documents come from installed packages, synthetic cases, local files or the Hugging Face Hub. A document of a
local file is

* a row of `.jsonl` `.json` (one JSON object per line) or `.parquet`, its text in `data.text_field`;
* a run of lines between blank lines of a `.txt`, as in BERT's own input format. A file without blank lines
  is one document. With `data.document_separator=line_break` each line that is not blank is a document, with
  `heading` each article of a WikiText file.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from roformer.config.build import plain
from roformer.config.schema import BuiltinText, ChineseBuiltinText, FilesText, HubText, Text
from roformer.data.files import (
    JSON_LINES,
    PLAIN,
    Columns,
    Example,
    Rows,
    Source,
    articles,
    file_rows,
    find_files,
    has_suffix,
    local,
    synthetic,
)
from roformer.data.hub import HubTable, current_revision
from roformer.data.store import Builder, Prepared, Spool, TokenStream, settings
from roformer.data.tokenizers import WordPiece, load_wordpiece, segmenter, train_tokenizer
from roformer.data.toy.cases import case_documents
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.data.work import batches, stage, tell_skipped
from roformer.errors import InputError

MANY_UNKNOWN, MOST_UNKNOWN = 0.02, 0.5
"""Shares of [UNK] in a text beyond which the vocabulary is likely, and surely, made for other text."""
CHARACTERS = 2**22
"""Characters tokenized at once: enough to keep all threads busy."""


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


# --- sources -------------------------------------------------------------------------------------


def open_documents(config: Text, *, workers: int | None = None) -> Source[Example]:
    """Open the source that the config names; only local files are listed yet, nothing is read."""
    if isinstance(config, BuiltinText):
        skipped = list[str]()
        return synthetic(
            _documents(lambda: docstring_documents(workers=workers, skipped=skipped)),
            {"packages": docstring_packages()},
            kind="builtin",
            files_skipped=skipped,
        )
    if isinstance(config, ChineseBuiltinText):
        seed = config.documents_seed
        # Changed templates must not find the text of the templates before.
        sample = "\n".join(case_documents(20, seed))
        return synthetic(
            _documents(lambda: case_documents(config.documents, seed)),
            {"sample": hashlib.sha256(sample.encode()).hexdigest()},
            kind="chinese_builtin",
            documents_seed=seed,
        )
    return _file_documents(config) if isinstance(config, FilesText) else _hub_documents(config)


def _documents(texts: Callable[[], Iterable[str]]) -> Callable[[str], Iterable[Example]]:
    return lambda _: (Example(number, (text,)) for number, text in enumerate(texts()))


def _file_documents(config: FilesText) -> Source[Example]:
    """Open local files, in the order of their names."""
    files, others = find_files(config.path, (*PLAIN, *JSON_LINES, ".parquet"))
    columns = Columns((config.text_field,), set_by="data.text_field")

    def rows(split: str) -> Iterator[Example]:
        read = (file_rows(file, columns, config.document_separator) for file in files)
        return source.valid_rows(chain.from_iterable(read), split, columns)

    source = local(rows, files, others, config.max_bad_rows)
    return source


def _hub_documents(config: HubText) -> Source[Example]:
    """Open data sets of the Hub, one after the other; rows without a text are skipped.

    A null revision is looked up when the reading starts and is written into the account. The cache key has
    the null, so that prepared data is found again without a network.
    """
    sources: list[dict[str, Any]] = []

    def rows(_: str) -> Iterator[Example]:
        sources.clear()
        for number, part in enumerate(config.sources, 1):
            revision = part.revision or current_revision(part.path)
            columns = Columns((part.text_field,), set_by="the source's text_field")
            place = part.path, part.name, revision, part.split
            table = HubTable(*place, columns, streaming=config.streaming)
            read = table.rows() if part.document_separator is None else _articles(table, columns)
            sources.append(account := plain(part) | {"revision": revision})
            name = f"source {number}"
            texts = source.checked(read, name, columns, None, "")
            while joined := list(islice(texts, part.rows_per_document)):
                account["rows_read"] = source.rows_read[name]
                yield Example(joined[0].number, ("\n".join(row.texts[0] for row in joined),))
            account["rows_read"] = source.rows_read[name]

    source = Source(rows, key={}, kind="hub", sources=sources)
    return source


def _articles(table: HubTable, columns: Columns) -> Rows:
    """Yield the articles of a table of one line per row."""
    (field,) = columns.texts
    lines = ((number, row[field] or "") for _, number, row in table.rows() if isinstance(row, dict))
    return ((table.where, number, {field: text}) for number, text in articles(lines))


def _separation(config: Text, source: Source[Example]) -> str:
    """Return how a .txt is cut into documents, for a message about too few."""
    plain_text = any(has_suffix(file, PLAIN) for file in source.files())
    if not plain_text or getattr(config, "document_separator", "") != "blank_line":
        return ""
    return (
        " (blank lines part the documents of a .txt: put them there, or read each line as a "
        "document with data.document_separator=line_break)"
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
    return {"data": data, "source": source.key}


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


def check_unknown(share: float, source: str, name: str = "text") -> None:
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
        raise InputError(f"{name}: {problem}")
    print(f"warning: {name}: {problem}", file=sys.stderr)


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
            separation = _separation(config, source)
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
