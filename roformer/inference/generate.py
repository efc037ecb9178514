"""A trained language model, ready to use: a prompt in, its continuation out, piece by piece."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from roformer.data.tokenizers import CONTINUATION, WordPiece
from roformer.errors import InputError
from roformer.evaluation.sampling import Sampling, draw
from roformer.inference.resolve import resolve
from roformer.inference.texts import answer, check_text
from roformer.models.causal import CausalDecoding, CausalLM
from roformer.training.hardware import check_device


class ByteCodec:
    """Text as UTF-8 bytes, at least one; in a continuation, bytes that are not UTF-8 are U+FFFD.

    A prompt of any bytes is `prompt.decode(errors="surrogateescape")`.
    """

    end_id: int | None = None

    def check(self, prompt: object) -> str:
        whole = re.sub("[\udc80-\udcff]", "", prompt) if isinstance(prompt, str) else prompt
        check_text(whole)
        return str(prompt)

    def encode(self, prompt: str) -> list[int]:
        return list(prompt.encode(errors="surrogateescape") or b"\n")

    def show(self, prompt: str) -> str:
        """Return a prompt as it is printed; `decode` prints a character that it only begins."""
        return _utf8().decode(prompt.encode(errors="surrogateescape"))

    def decode(self, ids: Iterator[int], prompt: str = "") -> Iterator[str]:
        decoder = _utf8()
        decoder.decode(prompt.encode(errors="surrogateescape"))
        for byte in ids:
            yield decoder.decode(bytes([byte]))
        yield decoder.decode(b"", final=True)


def _utf8() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


class WordPieceCodec:
    """A document from its beginning: the end of the document before, then the prompt."""

    def __init__(self, tokenizer: WordPiece):
        self.tokenizer, self.end_id = tokenizer, tokenizer.sep_id

    def check(self, prompt: object) -> str:
        return check_text(prompt)

    def encode(self, prompt: str) -> list[int]:
        return [self.tokenizer.sep_id, *self.tokenizer.encode(prompt)]

    def show(self, prompt: str) -> str:
        return prompt

    def decode(self, ids: Iterator[int], prompt: str = "") -> Iterator[str]:
        for number in ids:
            piece = self.tokenizer.vocabulary[number]
            continues = piece.startswith(CONTINUATION)
            yield piece.removeprefix(CONTINUATION) if continues else f" {piece}"


class Generator:
    """A language model that continues texts; it was trained to read `length` tokens at once."""

    def __init__(self, model: CausalLM, codec: ByteCodec | WordPieceCodec, length: int):
        self.model, self.codec, self.length = model, codec, length

    def trained_on(self, prompt: str, max_tokens: int) -> bool:
        """Return whether a prompt and its continuation are no longer than a text of the training."""
        return len(self.codec.encode(prompt)) + max_tokens <= self.length

    def generate(
        self, prompts: str | Iterable[str], sampling: Sampling, *, max_tokens: int, seed: int = 0
    ) -> Any:
        """Return an iterator of the pieces of a prompt's continuation, drawn as they are taken.

        Many prompts have a list of iterators. A continuation ends with the document, where the model knows
        its end, or after `max_tokens` tokens or bytes. The same seed gives the same text.
        """

        def continued(prompt: str) -> Iterator[str]:
            ids, longest = self.codec.encode(prompt), self.model.config.position.longest
            if max_tokens < 1:
                raise InputError(f"max_tokens={max_tokens} must be at least 1")
            if longest is not None and len(ids) + max_tokens > longest + 1:
                raise InputError(
                    f"a prompt of {len(ids)} and {max_tokens} more are beyond the learned table of "
                    f"{longest} positions: shorten the prompt, or lower max_tokens"
                )
            return self.codec.decode(self.draw(ids, sampling, max_tokens, seed), prompt)

        return answer(prompts, self.codec.check, lambda each: list(map(continued, each)))

    @torch.no_grad()
    def draw(self, ids: list[int], sampling: Sampling, max_tokens: int, seed: int) -> Iterator[int]:
        """Yield ids after those given; see `generate`."""
        device = next(self.model.parameters()).device
        generator = torch.Generator().manual_seed(seed)
        decoding = CausalDecoding(self.model)
        following = ids
        for _ in range(max_tokens):
            logits = decoding.advance(torch.tensor([following], device=device))
            chosen = draw(logits[0], sampling, generator)
            if chosen == self.codec.end_id:
                return
            yield chosen
            following = [chosen]


def load_generator(path: str | Path, *, device: str = "cpu") -> Generator:
    """Open a run of charlm or clm by its folder or id, a checkpoint's folder, or an export."""
    check_device(device)
    stored = resolve(path, ["causal"])
    model: Any = stored.build().to(device)
    words = stored.tokenizer
    codec = WordPieceCodec(words) if isinstance(words, WordPiece) else ByteCodec()
    return Generator(model, codec, stored.description["length"])
