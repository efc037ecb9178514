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
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib import metadata
from itertools import islice
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

from roformer.config.schema import TokenizerConfig, Words
from roformer.data.sources.files import readable
from roformer.data.sources.hub import describe_error
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
MIN_COUNT = 2
"""Times that a Chinese word or character must occur in the training text."""
REMEMBERED = 2**19
"""Words whose tokens are cached; of Chinese text alone there are no more in the dictionary."""
WAITING = 64
"""Texts that are cut ahead of the one whose tokens are looked up."""


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
        self._ids = {entry: index for index, entry in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[token] for token in SPECIAL_TOKENS
        )
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

    @property
    def size(self) -> int:
        """Return the number of entries: one more than the largest id."""
        return len(self.vocabulary)

    @property
    def special_ids(self) -> tuple[int, int, int, int, int]:
        """Return the ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        return self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id

    @cached_property
    def continuation(self) -> NDArray[np.bool_]:
        """Return which ids continue the word of the piece before them, (size,).

        A Chinese token, word or character, is a word of its own.
        """
        return np.array([entry.startswith(CONTINUATION) for entry in self.vocabulary])

    @cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the ordered vocabulary, the case rule and how words are cut."""
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


def train_wordpiece(documents: Iterable[str], vocab_size: int, lowercase: bool) -> WordPiece:
    """Learn a vocabulary of at most `vocab_size` entries, a function of the words and their counts.

    The trainer alone is not: it numbers the continuation pieces (`##a`) and cuts the alphabet in the
    random order of a hash table, and ties between merges are broken by those numbers. So the
    alphabet is counted and cut here, and its continuations are given in order, as if they were
    special tokens.
    """
    tokenizer = _bert(models.WordPiece(unk_token=UNK), lowercase)
    characters = _characters(documents, tokenizer.normalizer)
    chinese = {character for character in characters if re.match(CHINESE, character)}
    mostly_chinese = 2 * sum(characters[c] for c in chinese) > characters.total()
    # Each character may need two entries; never more of them than the vocabulary has.
    limit = min(
        MAX_CHINESE_ALPHABET if mostly_chinese else MAX_ALPHABET,
        (vocab_size - len(SPECIAL_TOKENS)) // 2,
    )
    alphabet = sorted(sorted(characters, key=lambda c: (-characters[c], c))[:limit])
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
    counts: Counter[str] = Counter()
    for found in cut_words(documents, lowercase):
        counts.update(found)
    characters: Counter[str] = Counter()
    words: Counter[str] = Counter()
    others = False
    for word, count in counts.items():
        for character in word:
            chinese = re.match(CHINESE, character)
            if chinese:
                characters[character] += count
            others |= not (chinese or character.isspace())
        if re.fullmatch(f"{CHINESE}{{2,}}", word):
            words[word] += count
    if not characters:
        raise InputError(
            "the training documents hold no Chinese to find words in: set data.tokenizer.words=none"
        )
    entries = list(SPECIAL_TOKENS)
    if others:
        pieces = train_wordpiece(_WithoutChinese(documents), max(64, vocab_size // 4), lowercase)
        entries = list(pieces.vocabulary)
    entries += _most_frequent(characters, (vocab_size - len(entries)) // 2)
    entries += _most_frequent(words, vocab_size - len(entries))
    return WordPiece(entries, lowercase, "jieba")


class _WithoutChinese:
    """Documents without their Chinese characters, to be read more than once."""

    def __init__(self, documents: Iterable[str]) -> None:
        self.documents = documents

    def __iter__(self) -> Iterator[str]:
        return (re.sub(CHINESE, " ", text) for text in self.documents)


def _most_frequent(counts: Counter[str], limit: int) -> list[str]:
    """Return at most `limit` entries, equally frequent ones in the order of their code points."""
    found = [entry for entry, count in counts.items() if count >= MIN_COUNT]
    return sorted(found, key=lambda entry: (-counts[entry], entry))[: max(0, limit)]


# --- reading -------------------------------------------------------------------------------------


def load_wordpiece(config: TokenizerConfig) -> WordPiece:
    """Read the vocabulary that `config.source` names: a vocab.txt, a folder or a Hub id.

    Raises:
        InputError: nothing there, not reachable, not a WordPiece vocabulary, or a rule that
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
    lowercase, words = _stated_rules(path) if path.is_dir() else (None, None)
    if lowercase not in (None, config.lowercase):
        raise InputError(
            f"{named} is made otherwise: set data.tokenizer.lowercase={str(lowercase).lower()}"
        )
    if config.lowercase and _share_of_capitals(vocabulary) > 0.01:
        raise InputError(
            f"{named} has entries in capitals, which lower-cased text never meets: set "
            "data.tokenizer.lowercase=false"
        )
    if words is None and any(re.match(CHINESE, entry) for entry in vocabulary):
        words = "jieba" if has_words(vocabulary) else "none"
    if words not in (None, config.words):
        what = "of Chinese words" if words == "jieba" else "without Chinese words"
        raise InputError(f"{named} is a vocabulary {what}: set data.tokenizer.words={words}")
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
            f"vocab.txt of {config.source} cannot be had from the Hugging Face Hub: "
            f"{describe_error(error)}; without a network set data.tokenizer.source to a local "
            "vocab.txt or to train"
        ) from error


def _read_vocabulary(path: Path) -> list[str]:
    """Read the entries of a vocab.txt or of a tokenizer folder, in the order of their ids."""
    file = path
    if path.is_dir():
        found = [name for name in ("vocab.txt", "tokenizer.json") if (path / name).is_file()]
        if not found:
            raise InputError(
                f"{path} has neither vocab.txt nor tokenizer.json: no tokenizer folder"
            )
        file = path / found[0]
    in_folder = path.is_dir() and file.name == "tokenizer.json"
    entries = _read_model(file) if in_folder else _read_lines(file)
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
    model = _read_json(file).get("model")
    model = model if isinstance(model, dict) else {}
    kind, prefix, ids = (model.get(key) for key in ("type", "continuing_subword_prefix", "vocab"))
    if kind != "WordPiece" or prefix != CONTINUATION or not isinstance(ids, dict):
        raise InputError(f"{file} is a {kind} tokenizer: only BERT's WordPiece is read")
    entries = {index: entry for entry, index in ids.items() if type(index) is int}
    if sorted(entries) != [*range(len(ids))]:
        raise InputError(f"{file} does not number its entries 0, 1, …: use another vocabulary")
    return [entries[index] for index in range(len(ids))]


def _stated_rules(folder: Path) -> tuple[bool | None, Words | None]:
    """Return the case rule and how words are cut, as far as a tokenizer folder states them."""
    lowercase: object = None
    words: Words | None = None
    if (file := folder / "tokenizer_config.json").is_file():
        settings = _read_json(file)
        lowercase, named = settings.get("do_lower_case"), str(settings.get("tokenizer_class"))
        words = next((words for words, name in CLASSES.items() if named.startswith(name)), None)
    elif (file := folder / "tokenizer.json").is_file():
        normalizer = _read_json(file).get("normalizer")
        lowercase = normalizer.get("lowercase") if isinstance(normalizer, dict) else None
    if not isinstance(lowercase, bool | None):
        raise InputError(f"{file} lower-cases {lowercase!r}: write true or false")
    return lowercase, words


def _read_json(file: Path) -> dict[str, Any]:
    with readable(file):
        try:
            return read_object(file)
        except ValueError as error:
            raise InputError(f"{file} is not JSON that can be read: {error}") from error


def _share_of_capitals(vocabulary: list[str]) -> float:
    words = [entry for entry in vocabulary if not entry.startswith("[")]
    return sum(re.search("[A-Z]", word) is not None for word in words) / max(1, len(words))


# --- the libraries beneath -----------------------------------------------------------------------

SPACED = normalizers.BertNormalizer(
    clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
)
"""Puts spaces around Chinese characters."""


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
    remaining, waiting = iter(texts), deque[Future[list[str]]]()
    with ThreadPoolExecutor(threads) as pool:  # jieba computes without Python's lock
        waiting.extend(pool.submit(words_of, text) for text in islice(remaining, WAITING))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(words_of, text) for text in islice(remaining, 1))


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
