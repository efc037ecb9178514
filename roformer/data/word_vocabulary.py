"""A vocabulary of Chinese words, as WoBERT has: words, the characters beneath them, and the rest.

    [PAD] … [MASK]            the five special tokens
    WordPieces                of all that is not Chinese: at most a quarter of the entries
    Chinese characters        that occur twice, the most frequent first: at most half of what is left
    Chinese words             of two characters or more, as jieba cuts them, that occur twice, the
                              most frequent first: all that is left

(WoBERT itself added the 20,000 most frequent words to BERT's Chinese vocabulary.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from roformer.config.schema import TokenizerConfig
from roformer.data.jieba_words import Segmentation
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece, train_wordpiece
from roformer.data.vocabularies import CHINESE
from roformer.errors import InputError

FEWEST = 2
"""Times that an entry must occur in the training text."""
CHARACTER, WORD = re.compile(CHINESE), re.compile(f"{CHINESE}{{2,}}")


def train_tokenizer(documents: Iterable[str], config: TokenizerConfig) -> WordPiece:
    """Learn the vocabulary that a config asks for, of `config.vocab_size` entries at most.

    Args:
        documents: read more than once, so not an iterator.
        config: of a tokenizer that is trained.

    Raises:
        InputError: the documents hold no text; or no Chinese, where words of it are wanted.
    """
    if config.words == "none":
        return train_wordpiece(documents, config.vocab_size, config.lowercase)
    return train_words(documents, config.vocab_size, config.lowercase)


def train_words(documents: Iterable[str], vocab_size: int, lowercase: bool) -> WordPiece:
    """Learn a vocabulary of Chinese words; a function of the words and their counts alone.

    Args:
        documents: read three times, so not an iterator.
        vocab_size: entries at most, the five special tokens included.
        lowercase: see `WordPiece`.

    Raises:
        InputError: the documents hold no Chinese.
    """
    if iter(documents) is documents:
        raise TypeError("documents are read again: give a list, or an object with __iter__")
    counts: Counter[str] = Counter()
    for found in Segmentation(lowercase).each(documents):
        counts.update(found)
    characters: Counter[str] = Counter()
    words: Counter[str] = Counter()
    others = False
    for word, count in counts.items():
        for character in word:
            if CHARACTER.match(character):
                characters[character] += count
            others |= not (CHARACTER.match(character) or character.isspace())
        if WORD.fullmatch(word):
            words[word] += count
    if not characters:
        raise InputError(
            "the training documents hold no Chinese to find words in: set data.tokenizer.words=none"
        )
    entries = list(SPECIAL_TOKENS)
    if others:
        entries = list(
            train_wordpiece(_Rest(documents), max(64, vocab_size // 4), lowercase).vocabulary
        )
    entries += _most_frequent(characters, (vocab_size - len(entries)) // 2)
    entries += _most_frequent(words, vocab_size - len(entries))
    return WordPiece(entries, lowercase, "jieba")


class _Rest:
    """Documents without their Chinese characters."""

    def __init__(self, documents: Iterable[str]) -> None:
        self.documents = documents

    def __iter__(self) -> Iterator[str]:
        return (CHARACTER.sub(" ", text) for text in self.documents)


def _most_frequent(counts: Counter[str], limit: int) -> list[str]:
    """Return at most `limit` entries, equally frequent ones in the order of their code points."""
    found = [entry for entry, count in counts.items() if count >= FEWEST]
    return sorted(found, key=lambda entry: (-counts[entry], entry))[: max(0, limit)]
