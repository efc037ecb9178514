"""Tokenised sentences as files: written once, memory-mapped by every process that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from roformer.data.files import first_line
from roformer.errors import InputError


class Sentences:
    """Tokenised sentences of one language, N of them; each ends in `</s>`.

    Pickles as file names where it was read from files, so it is cheap to hand to the workers of a
    DataLoader.

    Args:
        tokens: all sentences one after the other, int32.
        offsets: where each begins and the last one ends, int64 (N + 1,).
    """

    def __init__(self, tokens: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        self.tokens, self.offsets = tokens, offsets
        self.lengths: NDArray[np.int64] = np.diff(offsets)
        """Tokens of each sentence, `</s>` included, (N,)."""
        self._stem: str | None = None

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Sentences:
        """Return sentences in memory from their ids, `</s>` included."""
        lengths = [len(sentence) for sentence in sentences]
        tokens = [np.asarray(sentence, np.int32) for sentence in sentences]
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        return cls(np.concatenate([np.empty(0, np.int32), *tokens]), offsets)

    @classmethod
    def open(cls, stem: str | Path) -> Sentences:
        """Map `<stem>.tokens.npy` and `<stem>.offsets.npy`.

        Raises:
            InputError: a file is missing or is not what was written.
        """
        tokens, offsets = (_map(Path(f"{stem}.{name}.npy")) for name in ("tokens", "offsets"))
        typed = tokens.dtype == np.int32 and offsets.dtype == np.int64
        if not typed or not len(offsets):
            raise InputError(f"{stem}.tokens.npy and {stem}.offsets.npy do not fit each other")
        offsets = np.array(offsets)
        if offsets[0] != 0 or offsets[-1] != len(tokens) or (offsets[1:] < offsets[:-1]).any():
            raise InputError(f"{stem}.tokens.npy and {stem}.offsets.npy do not fit each other")
        sentences = cls(tokens, offsets)
        sentences._stem = str(stem)
        return sentences

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self._stem is not None:
            return Sentences.open, (self._stem,)
        return Sentences, (self.tokens, self.offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        """Return the ids of one sentence, `</s>` included: a copy of shape (lengths[index],)."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return np.array(self.tokens[self.offsets[index] : self.offsets[index + 1]])


@dataclass(frozen=True)
class Pairs:
    """The pairs of one split: sentence i of `target` translates sentence i of `source`."""

    source: Sentences
    target: Sentences

    def __len__(self) -> int:
        return len(self.source)


class SentenceWriter:
    """Writes `<stem>.tokens.npy` and `<stem>.offsets.npy`, for `Sentences.open`, bit by bit.

    with SentenceWriter(stem) as writer:
        writer.append(sentences)
    """

    def __init__(self, stem: str | Path) -> None:
        self.stem = stem
        self.tokens = 0
        self._lengths: list[NDArray[np.int64]] = []
        self._stream: IO[bytes]

    def __enter__(self) -> SentenceWriter:
        self._stream = open(f"{self.stem}.tokens.npy", "wb")
        self._header()
        return self

    def append(self, sentences: Sequence[Sequence[int]]) -> NDArray[np.int32]:
        """Add sentences, `</s>` included; returns their tokens one after the other."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        tokens = np.fromiter(chain.from_iterable(sentences), np.int32, int(lengths.sum()))
        self._stream.write(tokens.tobytes())
        self._lengths.append(lengths)
        self.tokens += len(tokens)
        return tokens

    def _header(self) -> None:
        # NumPy leaves room for the largest number here, so that a header can be written again
        # over itself when the length is known.
        shape = {"descr": "<i4", "fortran_order": False, "shape": (self.tokens,)}
        np.lib.format.write_array_header_1_0(self._stream, shape)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stream:
            if error is None:
                self._stream.seek(0)
                self._header()
                offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *self._lengths]))
                np.save(f"{self.stem}.offsets.npy", offsets)

    def __len__(self) -> int:
        return sum(map(len, self._lengths))


def _map(file: Path) -> NDArray[Any]:
    """Map a .npy file; unlike `numpy.load`, never unpack an archive or unpickle."""
    try:
        array = np.lib.format.open_memmap(file, mode="r")
        if array.ndim != 1:
            raise ValueError(f"an array of {array.ndim} dimensions")
    # Of a header that is no Python literal NumPy passes on whatever the parser raises, from
    # SyntaxError over tokenize.TokenError to MemoryError.
    except Exception as error:
        raise InputError(f"{file} is damaged ({first_line(error)})") from error
    return cast(NDArray[Any], array)
