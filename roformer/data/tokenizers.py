"""WordPiece: trained on a corpus, read from a vocabulary, saved as `transformers` expects it.

Everything but the vocabulary is BERT's (Devlin et al. 2019): its normaliser, its pre-tokeniser,
`##` for pieces that continue a word, words beyond 100 characters unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from roformer.config.schema import TokenizerConfig
from roformer.data.documents import told
from roformer.data.files import readable
from roformer.errors import InputError
from roformer.json_files import read_object

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
MAX_ALPHABET = 1000
"""Characters a trained vocabulary may know, the most frequent ones; the rest is [UNK]."""


class WordPiece:
    """A WordPiece vocabulary and how text becomes its ids.

    The spelling of a special token inside a text is text: `[MASK]` in a document gives the pieces
    of "[", "mask" and "]", never `mask_id`.

    Args:
        vocabulary: the entries in the order of their ids, the five special tokens among them.
        lowercase: lower the case and strip accents before anything else.
    """

    def __init__(self, vocabulary: Sequence[str], lowercase: bool) -> None:
        self.vocabulary, self.lowercase = tuple(vocabulary), lowercase
        ids = {entry: index for index, entry in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            ids[token] for token in SPECIAL_TOKENS
        )
        self._tokenizer = _bert(models.WordPiece(ids, unk_token=UNK), lowercase)
        self._tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
        self._tokenizer.post_processor = processors.BertProcessing(
            (SEP, self.sep_id), (CLS, self.cls_id)
        )
        self._tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        self._tokenizer.encode_special_tokens = True

    def __reduce__(self) -> tuple[type[WordPiece], tuple[tuple[str, ...], bool]]:
        return WordPiece, (self.vocabulary, self.lowercase)  # encode_special_tokens is not pickled

    @property
    def size(self) -> int:
        """Entries of the vocabulary: one more than the largest id."""
        return len(self.vocabulary)

    @property
    def special_ids(self) -> tuple[int, int, int, int, int]:
        """The ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        return self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id

    @cached_property
    def continuation(self) -> NDArray[np.bool_]:
        """Which ids continue the word of the piece before them; shape (size,)."""
        return np.array([entry.startswith(CONTINUATION) for entry in self.vocabulary])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the ordered vocabulary and the case rule: equal means equal ids."""
        text = json.dumps([self.lowercase, self.vocabulary], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids, without [CLS] and [SEP]."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text, on all threads; see `encode`."""
        with all_threads():
            # "fast": without character offsets, which take half of the time and nobody reads.
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into readable text, special tokens spelt out; spacing is not recovered."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, vocab.txt and tokenizer_config.json.

        `transformers.AutoTokenizer.from_pretrained(folder)` reads them as a BERT tokenizer.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": None,
            "tokenize_chinese_chars": True,
            "pad_token": PAD,
            "unk_token": UNK,
            "cls_token": CLS,
            "sep_token": SEP,
            "mask_token": MASK,
        }
        _write(folder / "tokenizer.json", self._tokenizer.to_str(pretty=True))
        _write(folder / "vocab.txt", "".join(f"{entry}\n" for entry in self.vocabulary))
        _write(folder / "tokenizer_config.json", json.dumps(settings, indent=2) + "\n")

    def to_transformers(self) -> Any:
        """Return the tokenizer of `transformers` that gives the same ids."""
        from transformers import AutoTokenizer

        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            return AutoTokenizer.from_pretrained(folder)

    @classmethod
    def load(cls, folder: str | Path) -> WordPiece:
        """Read what `save` or `transformers` wrote.

        Raises:
            InputError: no vocabulary there, or one that is not a sound WordPiece vocabulary.
        """
        return cls(_read_vocabulary(Path(folder)), _case(Path(folder), otherwise=True))


# --- training ------------------------------------------------------------------------------------


def train_wordpiece(documents: Iterable[str], vocab_size: int, lowercase: bool) -> WordPiece:
    """Learn a vocabulary of at most `vocab_size` entries; a small corpus may give fewer.

    A function of the words and their counts alone. Left to itself the trainer is not: it numbers
    the continuation pieces (`##a`) and cuts the alphabet in the random order of a hash table, and
    ties between merges are broken by those numbers. So the alphabet is counted and cut here, and
    its continuations are given in order, as if they were special tokens.

    Args:
        documents: read twice, so not an iterator.
        vocab_size: entries, the five special tokens included.
        lowercase: see `WordPiece`.

    Raises:
        InputError: the documents hold no text.
    """
    if iter(documents) is documents:
        raise TypeError("documents are read twice: give a list, or an object with __iter__")
    tokenizer = _bert(models.WordPiece(unk_token=UNK), lowercase)
    # Each character may need two entries; never more of them than the vocabulary has.
    limit = min(MAX_ALPHABET, (vocab_size - len(SPECIAL_TOKENS)) // 2)
    alphabet = _alphabet(documents, tokenizer.normalizer, limit)
    if not alphabet:
        raise InputError("the training documents hold no text to train a tokenizer on")
    # Punctuation and Chinese characters are words of their own and never continue one.
    inside = [c for c in alphabet if len(tokenizer.pre_tokenizer.pre_tokenize_str(f"a{c}a")) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS, *(CONTINUATION + character for character in inside)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    with all_threads():
        tokenizer.train_from_iterator(documents, trainer=trainer)
    ids = tokenizer.get_vocab()
    return WordPiece(sorted(ids, key=ids.__getitem__), lowercase)


def _alphabet(documents: Iterable[str], normalizer: Any, limit: int) -> list[str]:
    """Return the `limit` most frequent characters after normalisation, sorted."""
    raw: Counter[str] = Counter()
    for text in documents:
        raw.update(text)
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for normal in normalizer.normalize_str(character):
            if not normal.isspace():
                counts[normal] += count
    return sorted(sorted(counts, key=lambda c: (-counts[c], c))[:limit])


# --- reading -------------------------------------------------------------------------------------


def load_wordpiece(config: TokenizerConfig) -> WordPiece:
    """Read the vocabulary that `config.source` names: a vocab.txt, a folder or a Hub id.

    Raises:
        InputError: nothing there, not reachable, not a WordPiece vocabulary, or a case rule that
            contradicts the vocabulary.
    """
    path, named = Path(config.source).expanduser(), f"data.tokenizer.source={config.source}"
    if not path.exists():
        if not is_hub_id(config.source):
            raise InputError(
                f"{named} does not exist: give a vocab.txt, a folder, a Hub id or train"
            )
        path = _download(config)
    vocabulary = _read_vocabulary(path)
    if path.is_dir() and _case(path, otherwise=config.lowercase) != config.lowercase:
        fitting = str(not config.lowercase).lower()
        raise InputError(f"{named} is made otherwise: set data.tokenizer.lowercase={fitting}")
    if config.lowercase and _share_of_capitals(vocabulary) > 0.01:
        raise InputError(
            f"{named} has entries in capitals, which lower-cased text never meets: set "
            "data.tokenizer.lowercase=false"
        )
    return WordPiece(vocabulary, config.lowercase)


def is_hub_id(source: str) -> bool:
    """Tell whether a source that is no local path can be a Hub id, `owner/name`."""
    return re.fullmatch(r"\w[\w.-]*/[\w.-]+", source) is not None and not source.endswith(".txt")


def _read_vocabulary(path: Path) -> list[str]:
    """Read the entries of a vocab.txt or of a tokenizer folder, in the order of their ids."""
    if not path.is_dir():
        file, entries = path, _read_lines(path)
    elif (file := path / "vocab.txt").is_file():
        entries = _read_lines(file)
    elif (file := path / "tokenizer.json").is_file():
        entries = _read_model(file)
    else:
        raise InputError(f"{path} has neither vocab.txt nor tokenizer.json: no tokenizer folder")
    lines: dict[str, int] = {}
    for line, entry in enumerate(entries, 1):
        if not entry:
            raise InputError(f"{file}:{line}: empty entry: remove the line")
        if entry in lines:
            raise InputError(f"{file}:{line}: {entry!r} is on line {lines[entry]} too: remove one")
        lines[entry] = line
    if missing := [token for token in SPECIAL_TOKENS if token not in lines]:
        raise InputError(
            f"{file}:{len(entries)}: the vocabulary ends without {', '.join(missing)}: add a line "
            "for each, or use another vocabulary"
        )
    return entries


def _read_lines(file: Path) -> list[str]:
    entries = []
    with readable(file):
        content = file.read_bytes()
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            entries.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise InputError(f"{file}:{number}: not UTF-8: is this a vocab.txt?") from error
    return entries


def _read_model(file: Path) -> list[str]:
    model = _object(file, _read_json(file).get("model"), "model")
    kind, prefix = model.get("type"), model.get("continuing_subword_prefix")
    if kind != "WordPiece" or prefix != CONTINUATION:
        raise InputError(f"{file} is a {kind} tokenizer: only BERT's WordPiece is read")
    ids = _object(file, model.get("vocab"), "model.vocab")
    entries = {index: entry for entry, index in ids.items() if type(index) is int}
    if sorted(entries) != [*range(len(ids))]:
        raise InputError(f"{file} does not number its entries 0, 1, …: use another vocabulary")
    return [entries[index] for index in range(len(ids))]


def _case(folder: Path, otherwise: bool) -> bool:
    """Return the case rule that a tokenizer folder states, if it states one."""
    stated: object = otherwise
    if (file := folder / "tokenizer_config.json").is_file():
        stated = _read_json(file).get("do_lower_case", otherwise)
    elif (file := folder / "tokenizer.json").is_file():
        normalizer = _object(file, _read_json(file).get("normalizer") or {}, "normalizer")
        stated = normalizer.get("lowercase", otherwise)
    if not isinstance(stated, bool):
        raise InputError(f"{file} lower-cases {stated!r}: write true or false")
    return stated


def _read_json(file: Path) -> dict[str, Any]:
    with readable(file):
        try:
            return read_object(file)
        except ValueError as error:
            raise InputError(f"{file} is not JSON that can be read: {error}") from error


def _object(file: Path, content: object, key: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise InputError(f"{file} has no JSON object under {key!r}: use another tokenizer")
    return content


def _download(config: TokenizerConfig) -> Path:
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(config.source, "vocab.txt", revision=config.revision))
    except Exception as error:  # the Hub's errors have no common base; see roformer.data.documents
        raise InputError(
            f"vocab.txt of {config.source} cannot be had from the Hugging Face Hub: "
            f"{told(error)}; without a network set data.tokenizer.source to a local vocab.txt or to "
            "train"
        ) from error


def _share_of_capitals(vocabulary: list[str]) -> float:
    words = [entry for entry in vocabulary if not entry.startswith("[")]
    return sum(re.search("[A-Z]", word) is not None for word in words) / max(1, len(words))


# --- the library beneath -------------------------------------------------------------------------


def _bert(model: models.Model, lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


_PARALLELISM = os.environ.get("TOKENIZERS_PARALLELISM", "true")


@contextmanager
def all_threads() -> Iterator[None]:
    """Use the library's threads for one call, and leave them switched off after it.

    Otherwise each process forked later (the workers of a DataLoader) prints a warning about them.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = _PARALLELISM
    try:
        yield
    finally:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="\n")
