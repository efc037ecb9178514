"""Which text a model is pre-trained on, and how it is cut into tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from roformer.config.typed import Fraction, Name, schema

Words = Literal["none", "jieba"]


@schema
class TokenizerConfig:
    """WordPiece, trained on the corpus or read from somewhere."""

    source: Name = "train"
    """`train`, a vocab.txt, a folder with tokenizer files, or a Hub id."""
    revision: str | None = None
    """Pinned revision of a Hub id."""
    vocab_size: Annotated[int, Field(ge=64, le=2**31)] = 8192
    """Entries to train; ignored when the vocabulary is read."""
    lowercase: bool = True
    words: Words = "none"
    """Chinese words of the vocabulary as one token each, found by `jieba`; `none`: its characters,
    as BERT."""


@schema
class HubSource:
    """One data set of the Hub, namespaced and pinned to a commit.

    A null revision is looked up once, at preparation, and the commit found is written into the
    manifest, so that a record always names what was read.
    """

    path: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    name: str | None = None
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None
    split: str = "train"
    text_field: str = "text"
    rows_per_document: PositiveInt = 1
    """Consecutive rows that are joined, for data sets of one sentence a row."""


@schema
class TextData:
    """What all text corpora share."""

    tokenizer: TokenizerConfig = TokenizerConfig()
    valid_fraction: Fraction = 0.2
    """Share of the documents held out (the paper: 8:2), decided by each document's own hash."""
    max_documents: PositiveInt | None = None
    """Read no more than this many documents."""


@schema
class BuiltinText(TextData):
    """English documentation: the docstrings of the pinned scientific packages."""

    kind: Literal["builtin"] = "builtin"


@schema
class FilesText(TextData):
    """Local .txt, .jsonl(.gz) or .parquet: a file, a folder or a glob."""

    kind: Literal["files"] = "files"
    path: Name
    text_field: str = "text"
    document_separator: Literal["blank_line", "line_break"] = "blank_line"
    """Of a .txt: what stands between two documents."""
    max_bad_rows: NonNegativeInt = 0
    """Rows that may be skipped (counted and reported) before the run stops."""


@schema
class HubText(TextData):
    """Data sets of the Hugging Face Hub, downloaded or streamed."""

    kind: Literal["hub"] = "hub"
    sources: Annotated[list[HubSource], Field(min_length=1)]
    streaming: bool = False


@schema
class ChineseBuiltinText(TextData):
    """Chinese legal cases of a grammar, made here; see `roformer.data.toy.cases`."""

    kind: Literal["chinese_builtin"] = "chinese_builtin"
    documents: PositiveInt = 4000
    """How many are made, of some 500 characters each; `max_documents` reads fewer of them."""
    documents_seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Another one gives others."""


Text = Annotated[
    BuiltinText | ChineseBuiltinText | FilesText | HubText, Field(discriminator="kind")
]
