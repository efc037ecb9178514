"""sacremoses' tokenizer and detokenizer by language.

Its import takes a third of a second, so only functions that cut words import this module.
"""

from functools import cache

from sacremoses import MosesDetokenizer, MosesTokenizer


class _Moses(MosesTokenizer):  # type: ignore[misc]  # sacremoses has no types
    """sacremoses' tokenizer, which at every full stop within a line makes a set of 2,000 letters or
    more; made once here, such lines take a third of the time."""

    def __init__(self, language: str) -> None:
        super().__init__(language)
        self._alphabetic, self._lower = frozenset(self.IsAlpha), frozenset(self.IsLower)

    def isanyalpha(self, text: str) -> bool:
        return not self._alphabetic.isdisjoint(text)

    def islower(self, text: str) -> bool:
        return self._lower.issuperset(text)


tokenizer_of, detokenizer_of = cache(_Moses), cache(MosesDetokenizer)
