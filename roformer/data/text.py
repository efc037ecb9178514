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
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from roformer.config.build import plain
from roformer.config.schema import BuiltinText, FilesText, HubText, Text
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
)
from roformer.data.hub import HubTable, current_revision
from roformer.data.store import Builder, Prepared, Spool, TokenStream, folder_of, settings
from roformer.data.tokenizers import (
    WordPiece,
    check_unknown,
    load_wordpiece,
    segmenter,
    tokenizer_facts,
    train_tokenizer,
    use_threads,
)
from roformer.data.toy.cases import case_documents
from roformer.data.toy.docstrings import docstring_documents, docstring_packages
from roformer.data.work import batches, print_skipped, progress_bar
from roformer.errors import InputError

CHARACTERS = 2**22
"""Characters tokenized at once: enough to keep all threads busy."""


class PreparedText(Prepared):
    """A prepared corpus: two token streams and their tokenizer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
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
    if isinstance(config, FilesText):
        return _file_documents(config)
    if isinstance(config, HubText):
        return _hub_documents(config)
    if isinstance(config, BuiltinText):
        skipped = list[str]()
        return _builtin_documents(
            lambda: docstring_documents(workers=workers, skipped=skipped),
            {"packages": docstring_packages()},
            kind="builtin",
            files_skipped=skipped,
        )
    seed = config.documents_seed
    # Changed templates must not find the text of the templates before.
    sample = "\n".join(case_documents(20, seed))
    return _builtin_documents(
        lambda: case_documents(config.documents, seed),
        {"sample": hashlib.sha256(sample.encode()).hexdigest()},
        kind="chinese_builtin",
        documents_seed=seed,
    )


def _builtin_documents(
    texts: Callable[[], Iterable[str]], key: dict[str, Any], **account: Any
) -> Source[Example]:
    def read(source: Source[Example], split: str) -> Iterator[Example]:
        return source.count((Example(n, (text,)) for n, text in enumerate(texts())), split)

    return Source(read, key=key, **account)


def _file_documents(config: FilesText) -> Source[Example]:
    files, others = find_files(config.path, (*PLAIN, *JSON_LINES, ".parquet"))
    columns = Columns((config.text_field,), set_by="data.text_field")

    def read(source: Source[Example], split: str) -> Iterator[Example]:
        rows = (file_rows(file, columns, config.document_separator) for file in files)
        return source.checked(chain.from_iterable(rows), split, columns)

    bad = config.max_bad_rows
    return Source(read, files=files, max_bad_rows=bad, kind="files", other_files=others)


def _hub_documents(config: HubText) -> Source[Example]:
    """Open data sets of the Hub, one after the other; rows without a text are skipped.

    A null revision is looked up when the reading starts, for the account; the cache key has the null, so
    that prepared data is found again without a network.
    """
    sources: list[dict[str, Any]] = []

    def read(source: Source[Example], _: str) -> Iterator[Example]:
        sources.clear()
        for number, part in enumerate(config.sources, 1):
            revision = part.revision or current_revision(part.path)
            columns = Columns((part.text_field,), set_by="the source's text_field")
            place = part.path, part.name, revision, part.split
            table = HubTable(*place, columns, streaming=config.streaming)
            rows = table.rows() if part.document_separator is None else _articles(table, columns)
            sources.append(account := plain(part) | {"revision": revision})
            name = f"source {number}"
            texts = source.checked(rows, name, columns)
            while joined := list(islice(texts, part.rows_per_document)):
                account["rows_read"] = source.rows_read[name]
                yield Example(joined[0].number, ("\n".join(row.texts[0] for row in joined),))
            account["rows_read"] = source.rows_read[name]

    return Source(read, max_bad_rows=None, kind="hub", sources=sources)


def _articles(table: HubTable, columns: Columns) -> Rows:
    """Yield the articles of a table of one line per row."""
    (field,) = columns.texts
    lines = ((number, row[field] or "") for _, number, row in table.rows() if isinstance(row, dict))
    return ((table.where, number, {field: text}) for number, text in articles(lines))


# --- tokens --------------------------------------------------------------------------------------


def prepare_text(
    config: Text,
    cache_dir: str | Path,
    *,
    tokenizer: WordPiece | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> PreparedText:
    """Open a corpus's tokens in `<cache_dir>/text/<key>`, making them first if they are missing.

    `tokenizer` replaces the tokenizer of the config. `workers` are processes that parse the built-in
    corpus and threads that tokenize (null: one per core).
    """
    source = open_documents(config, workers=workers)
    use_threads(workers)
    if tokenizer is not None:
        # The tokenizer of a run may have been trained on this very text.
        folder = folder_of("text", text_identity(config, source), cache_dir)
        own = PreparedText(folder) if folder.exists() else None
        if own is not None and own.tokenizer.fingerprint == tokenizer.fingerprint:
            return own

    def build(builder: Builder) -> dict[str, Any]:
        given = config.tokenizer.source if tokenizer is None else "init_from"
        pieces = tokenizer
        if pieces is None and given != "train":
            pieces = load_wordpiece(config.tokenizer)  # fails early
        facts, spools = _read(config, source, builder.folder, progress)
        if pieces is None:
            with progress_bar("training the tokenizer", "entries", None, progress) as bar:
                pieces = train_tokenizer(spools["train"], config.tokenizer)
                bar.update(pieces.size)
        pieces.save(builder.folder / "tokenizer")

        unknown = 0
        dtype = np.uint16 if pieces.size < 2**16 else np.uint32
        with progress_bar("tokenizing", "B", sum(facts["bytes"].values()), progress) as bar:
            for split, spool in spools.items():
                writer = builder.split(split, ids=dtype)
                for texts in batches(spool, CHARACTERS, weight=len):
                    ids = pieces.encode_batch(texts)
                    writer.append(ids=[[*document, pieces.sep_id] for document in ids])
                    unknown += sum(document.count(pieces.unk_id) for document in ids)
                    bar.update(sum(len(text.encode()) for text in texts))
        written = builder.writers.values()
        share = unknown / max(1, sum(writer.tokens - writer.rows for writer in written))
        check_unknown(share, given)
        facts["unknown_share"] = share
        facts["tokenizer"] = {
            "source": Path(given).name if Path(given).exists() else given,
            "revision": config.tokenizer.revision,
            **tokenizer_facts(pieces),
            **({"words": segmenter()} if pieces.words != "none" else {}),
        }
        return facts

    identity = text_identity(config, source, tokenizer)
    return PreparedText.prepare("text", identity, cache_dir, build, progress)


def text_identity(
    config: Text, source: Source[Example], tokenizer: WordPiece | None = None
) -> dict[str, Any]:
    """Return everything that decides the tokens of a corpus."""
    data, wanted = settings(config), config.tokenizer
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


def _read(
    config: Text, source: Source[Example], folder: Path, progress: bool
) -> tuple[dict[str, Any], dict[str, Spool]]:
    """Sort the documents into train and valid; return what was read, and these on disk."""
    spools = {split: Spool(folder) for split in ("train", "valid")}
    sizes = dict.fromkeys(spools, 0)
    seen: set[bytes] = set()
    duplicates = 0
    with progress_bar("reading", "documents", config.max_documents, progress) as bar:
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
            raise InputError(
                f"data.valid_fraction={config.valid_fraction} puts none of {len(seen)} documents into "
                f"{split}: give more documents, or change data.valid_fraction; in a .txt blank lines part "
                "them, or with data.document_separator=line_break all lines do"
            )
    account = source.describe()
    print_skipped("text", account)
    return {
        "source": account,
        "max_documents": config.max_documents,
        "duplicates_dropped": duplicates,
        "split_rule": "valid where the first 8 bytes of sha256(text) / 2^64 < valid_fraction",
        "valid_fraction": config.valid_fraction,
        "bytes": sizes,
    }, spools
