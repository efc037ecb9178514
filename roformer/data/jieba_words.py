"""Chinese cut into words before WordPiece, as WoBERT and RoFormer read it.

    text → BERT's normaliser, Chinese characters left together
         → jieba's words: its dictionary alone, its hidden Markov model off
         → a word of the vocabulary is one token; any other text is cut as BERT does it: Chinese
           into characters, the rest into WordPieces

The same ids as `RoFormerTokenizer` of `transformers` and RoFormer_pytorch's.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from itertools import islice
from typing import Any

from tokenizers import models, normalizers

KEPT = 2**19
"""Words whose tokens are remembered; of Chinese text alone there are no more in the dictionary."""
WAITING = 64
"""Texts that are cut ahead of the one whose tokens are looked up."""


def segmenter() -> str:
    """Name what cuts, for caches and manifests: another dictionary gives other words."""
    return f"rjieba {metadata.version('rjieba')}"


class Segmentation:
    """Normalised texts as jieba's words.

    Args:
        lowercase: lower the case and strip accents, as BERT does.
    """

    def __init__(self, lowercase: bool) -> None:
        # jieba must see Chinese characters side by side: no spaces around them here.
        self.normalizer = normalizers.BertNormalizer(
            lowercase=lowercase, handle_chinese_chars=False
        )

    def __call__(self, text: str) -> list[str]:
        """Cut one text; the words in a row are the normalised text, spaces included."""
        # Only here: it reads its dictionary, which takes a fifth of a second.
        from rjieba import cut

        words: list[str] = cut(self.normalizer.normalize_str(text), False)
        return words

    def each(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """Cut texts, in order, on all threads; jieba computes without Python's lock."""
        threads = int(os.environ.get("RAYON_NUM_THREADS") or 0) or os.cpu_count() or 1
        remaining, waiting = iter(texts), deque[Future[list[str]]]()
        with ThreadPoolExecutor(threads) as pool:
            waiting.extend(pool.submit(self, text) for text in islice(remaining, WAITING))
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(self, text) for text in islice(remaining, 1))


class WordIds(dict[str, list[int]]):
    """Word of a segmentation → its ids, worked out where it is first met.

    Args:
        model: WordPiece with the whole vocabulary.
    """

    def __init__(self, model: models.WordPiece, vocabulary: Iterable[str]) -> None:
        super().__init__()
        self.model, self.vocabulary = model, frozenset(vocabulary)
        self.apart: Any = normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
        )

    def __missing__(self, word: str) -> list[int]:
        whole = word in self.vocabulary
        parts = [word] if whole else self.apart.normalize_str(word).split()
        ids = [token.id for part in parts for token in self.model.tokenize(part)]
        if len(self) < KEPT:
            self[word] = ids
        return ids
