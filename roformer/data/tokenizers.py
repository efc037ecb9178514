"""WordPiece: trained on a corpus, read from a vocabulary, saved as `transformers` expects it.

Everything but the vocabulary is BERT's (Devlin et al. 2019): its normalizer, its pre-tokenizer,
`##` for pieces that continue a word, words beyond 100 characters unknown.

With `words=jieba` Chinese is cut into words before, as WoBERT and RoFormer read it:

    text → BERT's normalizer, Chinese characters left together
         → jieba's words: its dictionary alone, its hidden Markov model off
         → a word of the vocabulary is one token; any other text is cut as BERT does it: Chinese
           into characters, the rest into WordPieces

The ids are those of `RoFormerTokenizer` of `transformers` and of RoFormer_pytorch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from roformer.config.schema import TokenizerConfig, Words
from roformer.data.sources.files import readable
from roformer.data.sources.hub import describe_error
from roformer.data.work import in_order
from roformer.errors import InputError
from roformer.json_files import read_object

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
CHINESE = "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ebef]"
"""A Chinese character, as a regular expression."""
CLASSES: dict[Words, str] = {"none": "BertTokenizer", "jieba": "RoFormerTokenizer"}
"""The class in `transformers` of a tokenizer, by how it cuts words."""
MAX_ALPHABET, MAX_CHINESE_ALPHABET = 1000, 8000
"""Characters a trained vocabulary may know, the most frequent ones; the rest is [UNK]. The second
holds where most of the text is Chinese; bert-base-chinese has 7,322 of its characters."""
REMEMBERED = 2**19
"""Words whose tokens are cached; of Chinese text alone there are no more in the dictionary."""
SPACED = normalizers.BertNormalizer(
    clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
)
"""Puts spaces around Chinese characters."""


class WordPiece:
    """A WordPiece vocabulary and how text becomes its ids.

    The spelling of a special token inside a text is text: `[MASK]` in a document gives the pieces
    of "[", "mask" and "]", never `mask_id`.

    Args:
        vocabulary: the entries in the order of their ids, the five special tokens among them.
        lowercase: lower the case and strip accents before anything else.
        words: `jieba`: Chinese words of the vocabulary are tokens; `none`: each character is one.
    """

    def __init__(self, vocabulary: Sequence[str], lowercase: bool, words: Words = "none") -> None:
        self.vocabulary, self.lowercase, self.words = tuple(vocabulary), lowercase, words
        self.size = len(self.vocabulary)
        self._ids = {entry: index for index, entry in enumerate(self.vocabulary)}
        self.special_ids = tuple(self._ids[token] for token in SPECIAL_TOKENS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self._model = models.WordPiece(self._ids, unk_token=UNK)
        self._word_ids = lru_cache(REMEMBERED)(self._encode_word)
        self._tokenizer = _bert(self._model, lowercase)
        self._tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)
        self._tokenizer.post_processor = processors.BertProcessing(
            (SEP, self.sep_id), (CLS, self.cls_id)
        )
        self._tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        self._tokenizer.encode_special_tokens = True

    def __reduce__(self) -> tuple[type[WordPiece], tuple[tuple[str, ...], bool, Words]]:
        # encode_special_tokens is not pickled
        return WordPiece, (self.vocabulary, self.lowercase, self.words)

    @cached_property
    def continuation(self) -> NDArray[np.bool_]:
        """Which ids continue the word of the piece before them, (size,); no Chinese one does."""
        return np.array([entry.startswith(CONTINUATION) for entry in self.vocabulary])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the ordered vocabulary, the case rule and how words are cut."""
        rules = [self.lowercase, self.vocabulary, *([self.words] if self.words != "none" else [])]
        return hashlib.sha256(json.dumps(rules, ensure_ascii=True).encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids, without [CLS] and [SEP]."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text, on all threads; see `encode`."""
        if self.words == "jieba":
            return [
                [index for word in words for index in self._word_ids(word)]
                for words in cut_words(texts, self.lowercase)
            ]
        with all_threads():
            # "fast": without character offsets, which nobody reads and take half of the time.
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _encode_word(self, word: str) -> list[int]:
        parts = [word] if word in self._ids else SPACED.normalize_str(word).split()
        return [token.id for part in parts for token in self._model.tokenize(part)]

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into readable text, special tokens spelt out; spacing is not recovered."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json, vocab.txt and tokenizer_config.json.

        `transformers.AutoTokenizer.from_pretrained(folder)` reads them as a BERT tokenizer, or as
        RoFormer's where Chinese is cut into words.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
        settings = {
            "tokenizer_class": CLASSES[self.words],
            "do_lower_case": self.lowercase,
            "strip_accents": None,
            "tokenize_chinese_chars": True,
            **dict(zip(names, SPECIAL_TOKENS, strict=True)),
        }
        for name, text in {
            "tokenizer.json": self._tokenizer.to_str(pretty=True),
            "vocab.txt": "".join(f"{entry}\n" for entry in self.vocabulary),
            "tokenizer_config.json": json.dumps(settings, indent=2) + "\n",
        }.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")

    def to_transformers(self) -> Any:
        """Return the tokenizer of `transformers` that gives the same ids.

        What spells a special token is that token to it, unless it is called with
        `split_special_tokens=True`.
        """
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
        lowercase, words = _stated_rules(Path(folder))
        return cls(_read_vocabulary(Path(folder)), lowercase is not False, words or "none")


class ByteVocabulary:
    """The vocabulary of bytes, in place of a tokenizer: 256 entries, each its own id."""

    size = 256
    fingerprint = "bytes"
    FILE = "bytes.json"

    def save(self, folder: Path) -> None:
        """Write the file by which a run's folder says that it reads bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"vocabulary": self.fingerprint, "size": self.size}
        (folder / self.FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


# --- training ------------------------------------------------------------------------------------


def train_tokenizer(documents: Iterable[str], config: TokenizerConfig) -> WordPiece:
    """Learn the vocabulary that a config asks for; `documents` are read more than once.

    Raises:
        InputError: the documents hold no text; or no Chinese, where words of it are wanted.
    """
    train = train_wordpiece if config.words == "none" else train_words
    return train(documents, config.vocab_size, config.lowercase)


def train_wordpiece(
    documents: Iterable[str], vocab_size: int, lowercase: bool, without_chinese: bool = False
) -> WordPiece:
    """Learn a vocabulary of at most `vocab_size` entries, a function of the words and their counts.

    The trainer alone is not: it numbers the continuation pieces (`##a`) and cuts the alphabet in the
    random order of a hash table, and ties between merges are broken by those numbers. So the
    alphabet is counted and cut here, and its continuations are given in order, as if they were
    special tokens.
    """
    tokenizer = _bert(models.WordPiece(unk_token=UNK), lowercase)
    if without_chinese:
        blanked = normalizers.Replace(Regex(CHINESE), " ")
        tokenizer.normalizer = normalizers.Sequence([blanked, tokenizer.normalizer])
    characters = _characters(documents, tokenizer.normalizer)
    chinese = {character for character in characters if re.match(CHINESE, character)}
    mostly_chinese = 2 * sum(characters[c] for c in chinese) > characters.total()
    # Each character may need two entries; never more of them than the vocabulary has.
    limit = min(
        MAX_CHINESE_ALPHABET if mostly_chinese else MAX_ALPHABET,
        (vocab_size - len(SPECIAL_TOKENS)) // 2,
    )
    alphabet = sorted(_most_frequent(characters, limit))
    if not alphabet:
        raise InputError("the training documents hold no text to train a tokenizer on")
    # Punctuation and Chinese characters are words of their own and never continue one. (Among other
    # text some Chinese ones have a continuation, never used: vocabularies stay as they were.)
    apart = chinese if mostly_chinese else set[str]()
    inside = [
        c
        for c in alphabet
        if c not in apart and len(tokenizer.pre_tokenizer.pre_tokenize_str(f"a{c}a")) == 1
    ]
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


def _characters(documents: Iterable[str], normalizer: Any) -> Counter[str]:
    """Count the characters after normalization, spaces left out."""
    raw: Counter[str] = Counter()
    for text in documents:
        raw.update(text)
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for normal in normalizer.normalize_str(character):
            if not normal.isspace():
                counts[normal] += count
    return counts


def train_words(documents: Iterable[str], vocab_size: int, lowercase: bool) -> WordPiece:
    """Learn a vocabulary of Chinese words, as WoBERT has; a function of the words and their counts.

    [PAD] … [MASK]       the five special tokens
    WordPieces           of all that is not Chinese: at most a quarter of the entries
    Chinese characters   that occur twice, the most frequent first: at most half of the rest
    Chinese words        of two characters or more, as jieba cuts them, that occur twice, the
                         most frequent first: all that is left
    """
    found: Counter[str] = Counter()
    for cut in cut_words(documents, lowercase):
        found.update(cut)
    characters: Counter[str] = Counter()
    for word, count in found.items():
        characters.update({character: count * word.count(character) for character in set(word)})
    chinese = Counter({c: count for c, count in characters.items() if re.match(CHINESE, c)})
    if not chinese:
        raise InputError(
            "the training documents hold no Chinese to find words in: set data.tokenizer.words=none"
        )
    entries = list(SPECIAL_TOKENS)
    if any(not c.isspace() for c in characters.keys() - chinese.keys()):
        size = max(64, vocab_size // 4)
        entries = list(train_wordpiece(documents, size, lowercase, True).vocabulary)
    words = Counter({w: n for w, n in found.items() if re.fullmatch(f"{CHINESE}{{2,}}", w)})
    entries += _most_frequent(chinese, (vocab_size - len(entries)) // 2, at_least=2)
    entries += _most_frequent(words, vocab_size - len(entries), at_least=2)
    return WordPiece(entries, lowercase, "jieba")


def _most_frequent(counts: Counter[str], limit: int, at_least: int = 1) -> list[str]:
    """Return at most `limit` entries, equally frequent ones in the order of their code points."""
    found = [entry for entry, count in counts.items() if count >= at_least]
    return sorted(found, key=lambda entry: (-counts[entry], entry))[: max(0, limit)]


# --- reading -------------------------------------------------------------------------------------


def load_wordpiece(config: TokenizerConfig) -> WordPiece:
    """Read the vocabulary that `config.source` names: a vocab.txt, a folder or a Hub id.

    Raises:
        InputError: nothing there, not reachable, not a WordPiece vocabulary, or a rule that
            contradicts the vocabulary.
    """
    path, named = Path(config.source), f"data.tokenizer.source={config.source}"
    if not path.exists():
        if not is_hub_id(config.source):
            raise InputError(
                f"{named} does not exist: give a vocab.txt, a folder, a Hub id or train"
            )
        path = _download(config)
    vocabulary = _read_vocabulary(path)
    lowercase, words = _stated_rules(path) if path.is_dir() else (None, None)
    files = (path / "tokenizer_config.json", path / "tokenizer.json")
    stated, library = (read_json(file) if file.is_file() else dict[str, Any]() for file in files)
    if rule := unread_rule(stated, library, config.lowercase, config.words):
        raise InputError(f"{named} has {rule}, which is not built here: use another vocabulary")
    plain = [entry for entry in vocabulary if not entry.startswith("[")]
    if sum(bool(re.search("[A-Z]", entry)) for entry in plain) > 0.01 * len(plain):
        lowercase = False  # lower-cased text never meets these entries
    if words is None and any(re.match(CHINESE, entry) for entry in vocabulary):
        words = "jieba" if has_words(vocabulary) else "none"
    for key, found in (("lowercase", lowercase), ("words", words)):
        if found not in (None, getattr(config, key)):
            rule = f"{key}={str(found).lower()}"
            raise InputError(f"{named} was made with {rule}: set data.tokenizer.{rule}")
    return WordPiece(vocabulary, config.lowercase, config.words)


def is_hub_id(source: str) -> bool:
    """Tell whether a source that is no local path can be a Hub id, `owner/name`."""
    return re.fullmatch(r"\w[\w.-]*/[\w.-]+", source) is not None and not source.endswith(".txt")


def has_words(vocabulary: Iterable[str]) -> bool:
    """Tell whether a vocabulary was made for words of Chinese: an entry has two characters of it."""
    return any(re.match(CHINESE + "{2}", entry) for entry in vocabulary)


def _download(config: TokenizerConfig) -> Path:
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(config.source, "vocab.txt", revision=config.revision))
    except Exception as error:  # the Hub's errors have no common base class
        raise InputError(
            f"vocab.txt of {config.source} cannot be downloaded from the Hugging Face Hub: "
            f"{describe_error(error)}; without a network set data.tokenizer.source to a local "
            "vocab.txt or to train"
        ) from error


def _read_vocabulary(path: Path) -> list[str]:
    """Read the entries of a vocab.txt or of a tokenizer folder, in the order of their ids."""
    file = path
    if path.is_dir():
        file = path / "vocab.txt"
        file = file if file.is_file() else path / "tokenizer.json"
        if not file.is_file():
            raise InputError(
                f"{path} has neither vocab.txt nor tokenizer.json: no tokenizer folder"
            )
    entries = _read_model(file) if file.name == "tokenizer.json" else _read_lines(file)
    lines: dict[str, int] = {}
    for line, entry in enumerate(entries, 1):
        if not entry or lines.setdefault(entry, line) < line:
            wrong = f"{entry!r} is on line {lines[entry]} too" if entry else "empty entry"
            raise InputError(f"{file}:{line}: {wrong}: remove the line")
    if missing := [token for token in SPECIAL_TOKENS if token not in lines]:
        raise InputError(
            f"{file}:{len(entries)}: the vocabulary ends without {', '.join(missing)}: add a line "
            "for each, or use another vocabulary"
        )
    return entries


def _read_lines(file: Path) -> list[str]:
    with readable(file):
        content = file.read_bytes()
    try:
        lines = content.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file}:{line}: not UTF-8: is this a vocab.txt?") from error
    return [line.removesuffix("\r") for line in lines]


def _read_model(file: Path) -> list[str]:
    model = read_json(file).get("model")
    model = model if isinstance(model, dict) else {}
    ids = model.get("vocab") if model.get("type") == "WordPiece" else None
    entries: dict[int, str] = {}
    if isinstance(ids, dict) and model.get("continuing_subword_prefix") == CONTINUATION:
        entries = {index: entry for entry, index in ids.items() if type(index) is int}
    if not entries or sorted(entries) != [*range(len(ids or ()))]:
        raise InputError(
            f"{file} is not BERT's WordPiece with entries numbered 0, 1, …: use another vocabulary"
        )
    return [entries[index] for index in range(len(entries))]


def _stated_rules(folder: Path) -> tuple[bool | None, Words | None]:
    """Return the case rule and how words are cut, as far as a tokenizer folder states them."""
    config, library = folder / "tokenizer_config.json", folder / "tokenizer.json"
    stated = read_json(config) if config.is_file() else {}
    lowercase, named = stated.get("do_lower_case"), str(stated.get("tokenizer_class"))
    if not stated and library.is_file():
        normalizer = read_json(library).get("normalizer")
        lowercase = normalizer.get("lowercase") if isinstance(normalizer, dict) else None
    if not isinstance(lowercase, bool | None):
        raise InputError(f"{folder}: lowercase is {lowercase!r}: write true or false")
    return lowercase, next((w for w, name in CLASSES.items() if named.startswith(name)), None)


def unread_rule(
    stated: dict[str, Any], library: dict[str, Any], lowercase: bool, words: Words
) -> str | None:
    """Return a rule of BERT's tokenizer that its files state and `WordPiece` has not; None: there is none.

    Args:
        stated: its tokenizer_config.json, empty without one.
        library: its tokenizer.json, likewise.
        lowercase: of the `WordPiece`.
        words: of the `WordPiece`; RoFormer's tokenizer does not read all keys.
    """
    normalizer = library.get("normalizer") or {}
    accents = stated.get("strip_accents", normalizer.get("strip_accents"))
    if accents not in (None, lowercase):
        return f"strip_accents={accents}"
    apart = stated.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True))
    if words == "none" and not apart:
        return "tokenize_chinese_chars=false"
    if words == "none" and not stated.get("do_basic_tokenize", True):
        return "do_basic_tokenize=false"
    return None


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a tokenizer; raise InputError where there is none."""
    with readable(file):
        try:
            return read_object(file)
        except ValueError as error:
            raise InputError(f"{file} is not JSON that can be read: {error}") from error


# --- the libraries beneath -----------------------------------------------------------------------


def segmenter() -> str:
    """Return name and version of what cuts words: another dictionary gives other words."""
    return f"rjieba {metadata.version('rjieba')}"


def cut_words(texts: Iterable[str], lowercase: bool) -> Iterator[list[str]]:
    """Yield jieba's words of each text, on all threads; joined they are the normalized text."""
    from rjieba import cut  # reads its dictionary, which takes a fifth of a second

    # jieba must see Chinese characters side by side: no spaces around them here.
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=False)

    def words_of(text: str) -> list[str]:
        words: list[str] = cut(normalizer.normalize_str(text), False)
        return words

    threads = int(os.environ.get("RAYON_NUM_THREADS") or 0) or os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:  # jieba computes without Python's lock
        yield from in_order(pool, words_of, texts, ahead=64)


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
