"""WordPiece: trained on a corpus, read from a vocabulary, saved as `transformers` expects it.

Everything but the vocabulary is BERT's (Devlin et al. 2019): its normaliser, its pre-tokeniser,
`##` for pieces that continue a word, words beyond 100 characters unknown. Chinese is cut into
characters, or into words first: `roformer.data.jieba_words`.
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

from roformer.config.schema import TokenizerConfig, Words
from roformer.data.jieba_words import Segmentation, WordIds
from roformer.data.sources.hub import told
from roformer.data.vocabularies import (
    CHINESE,
    CLASSES,
    CLS,
    CONTINUATION,
    PAD,
    SEP,
    UNK,
    check_words,
    read_vocabulary,
    share_of_capitals,
    stated_case,
    stated_words,
)
from roformer.data.vocabularies import MASK as MASK
from roformer.data.vocabularies import SPECIAL_TOKENS as SPECIAL_TOKENS
from roformer.errors import InputError

MAX_ALPHABET, MAX_CHINESE_ALPHABET = 1000, 8000
"""Characters a trained vocabulary may know, the most frequent ones; the rest is [UNK]. The second
holds where most of the text is Chinese; bert-base-chinese has 7,322 of its characters."""


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
        ids = {entry: index for index, entry in enumerate(self.vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            ids[token] for token in SPECIAL_TOKENS
        )
        model = models.WordPiece(ids, unk_token=UNK)
        self._segmentation = Segmentation(lowercase) if words == "jieba" else None
        self._word_ids = WordIds(model, self.vocabulary)
        self._tokenizer = _bert(model, lowercase)
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
        """Entries of the vocabulary: one more than the largest id."""
        return len(self.vocabulary)

    @property
    def special_ids(self) -> tuple[int, int, int, int, int]:
        """The ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        return self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id

    @cached_property
    def continuation(self) -> NDArray[np.bool_]:
        """Which ids continue the word of the piece before them; shape (size,).

        A Chinese token, word or character, is a word of its own: that jieba had found a word in
        characters which the vocabulary does not have together is not in the ids.
        """
        return np.array([entry.startswith(CONTINUATION) for entry in self.vocabulary])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the ordered vocabulary, the case rule and how words are cut: equal ids."""
        rules = [self.lowercase, self.vocabulary]
        if self.words != "none":  # those of characters keep the fingerprint that they had
            rules.append(self.words)
        text = json.dumps(rules, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids, without [CLS] and [SEP]."""
        if self._segmentation is not None:
            return [i for word in self._segmentation(text) for i in self._word_ids[word]]
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each text, on all threads; see `encode`."""
        if self._segmentation is not None:
            return [
                [i for word in words for i in self._word_ids[word]]
                for words in self._segmentation.each(texts)
            ]
        with all_threads():
            # "fast": without character offsets, which take half of the time and nobody reads.
            encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

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
        settings = {
            "tokenizer_class": CLASSES[self.words],
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
        folder = Path(folder)
        vocabulary, lowercase = read_vocabulary(folder), stated_case(folder, otherwise=True)
        return cls(vocabulary, lowercase, stated_words(folder) or "none")


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
    # text some Chinese ones have a continuation, never used: vocabularies are to stay as they were.)
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
    """Count the characters after normalisation, spaces left out."""
    raw: Counter[str] = Counter()
    for text in documents:
        raw.update(text)
    counts: Counter[str] = Counter()
    for character, count in raw.items():
        for normal in normalizer.normalize_str(character):
            if not normal.isspace():
                counts[normal] += count
    return counts


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
    vocabulary = read_vocabulary(path)
    if path.is_dir() and stated_case(path, otherwise=config.lowercase) != config.lowercase:
        fitting = str(not config.lowercase).lower()
        raise InputError(f"{named} is made otherwise: set data.tokenizer.lowercase={fitting}")
    if config.lowercase and share_of_capitals(vocabulary) > 0.01:
        raise InputError(
            f"{named} has entries in capitals, which lower-cased text never meets: set "
            "data.tokenizer.lowercase=false"
        )
    check_words(vocabulary, config.words, path, named)
    return WordPiece(vocabulary, config.lowercase, config.words)


def is_hub_id(source: str) -> bool:
    """Tell whether a source that is no local path can be a Hub id, `owner/name`."""
    return re.fullmatch(r"\w[\w.-]*/[\w.-]+", source) is not None and not source.endswith(".txt")


def _download(config: TokenizerConfig) -> Path:
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(config.source, "vocab.txt", revision=config.revision))
    except (
        Exception
    ) as error:  # the Hub's errors have no common base; see roformer.data.sources.hub
        raise InputError(
            f"vocab.txt of {config.source} cannot be had from the Hugging Face Hub: "
            f"{told(error)}; without a network set data.tokenizer.source to a local vocab.txt or to "
            "train"
        ) from error


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
