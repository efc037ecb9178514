"""A trained language model, ready to use: a prompt in, its continuation out, piece by piece."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, overload

import torch

from roformer.data.tokenizers import CONTINUATION, WordPiece
from roformer.errors import InputError
from roformer.evaluation.sampling import Sampling, draw
from roformer.inference.open import open_model
from roformer.inference.texts import answer, check_text
from roformer.models.causal import CausalDecoding, CausalLM


class ByteCodec:
    """Text as UTF-8 bytes, at least one; what is no UTF-8 is shown as U+FFFD."""

    end_id: int | None = None

    def encode(self, prompt: str) -> list[int]:
        return list(prompt.encode() or b"\n")

    def decode(self, ids: Iterator[int]) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for byte in ids:
            yield decoder.decode(bytes([byte]))
        yield decoder.decode(b"", final=True)


class WordPieceCodec:
    """A document from its beginning: the end of the one before it, then the prompt."""

    def __init__(self, tokenizer: WordPiece):
        self.tokenizer, self.end_id = tokenizer, tokenizer.sep_id

    def encode(self, prompt: str) -> list[int]:
        return [self.tokenizer.sep_id, *self.tokenizer.encode(prompt)]

    def decode(self, ids: Iterator[int]) -> Iterator[str]:
        for number in ids:
            piece = self.tokenizer.vocabulary[number]
            continues = piece.startswith(CONTINUATION)
            yield piece.removeprefix(CONTINUATION) if continues else f" {piece}"


class Generator:
    """A language model that continues texts.

    Args:
        model: in evaluation mode.
        codec: text to ids and back, as in the training.
        length: tokens that the model was trained to read at once.
    """

    def __init__(self, model: CausalLM, codec: ByteCodec | WordPieceCodec, length: int):
        self.model, self.codec, self.length = model, codec, length

    def trained_on(self, prompt: str, max_tokens: int) -> bool:
        """Return whether a prompt and its continuation are no longer than a text of the training."""
        return len(self.codec.encode(prompt)) + max_tokens <= self.length

    # To a type checker a str is a collection of strs; the first signature that fits is taken.
    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: str, sampling: Sampling, *, max_tokens: int, seed: int = 0
    ) -> Iterator[str]: ...
    @overload
    def generate(  # type: ignore[overload-overlap]
        self, prompts: Iterator[str], sampling: Sampling, *, max_tokens: int, seed: int = 0
    ) -> Iterator[Iterator[str]]: ...
    @overload
    def generate(
        self, prompts: Iterable[str], sampling: Sampling, *, max_tokens: int, seed: int = 0
    ) -> list[Iterator[str]]: ...
    def generate(
        self, prompts: str | Iterable[str], sampling: Sampling, *, max_tokens: int, seed: int = 0
    ) -> Any:
        """Yield the continuation of a prompt, piece by piece as it is drawn; a seed gives one text.

        It ends at the end of the document, where the model has one, or after `max_tokens`.

        Args:
            prompts: one text (a str), or a list or iterator of texts, which has a list or iterator of
                such continuations, each drawn as if it were alone.
            sampling: how a token is drawn.
            max_tokens: tokens or bytes of a continuation, at least 1.
            seed: of the draws.

        Raises:
            InputError: a prompt is no str; a prompt and what is wanted do not fit into a learned
                table, or nothing is wanted.
        """

        rest = (sampling, max_tokens, seed)
        return answer(prompts, check_text, lambda each: (self._generate(p, *rest) for p in each))

    def _generate(
        self, prompt: str, sampling: Sampling, max_tokens: int, seed: int
    ) -> Iterator[str]:
        ids = self.codec.encode(prompt)
        longest, wanted = self.model.config.position.longest, len(ids) + max_tokens
        if max_tokens < 1:
            raise InputError(f"max_tokens={max_tokens} must be at least 1")
        if longest is not None and wanted > longest + 1:
            raise InputError(
                f"a prompt of {len(ids)} and {max_tokens} more are beyond the learned table of "
                f"{longest} positions: shorten the prompt, or lower max_tokens"
            )
        return self.codec.decode(self.draw(ids, sampling, max_tokens, seed))

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
    """Open a language model: a run under runs/charlm/ or runs/clm/, at its last checkpoint.

    Args:
        path: a run's folder, its id (of a run below runs/), or a checkpoint's folder in it.
        device: where the model goes.

    Raises:
        InputError: nothing complete is there, it is no language model, or its tokenizer is missing or
            another one.
    """
    opened = open_model(path)
    if opened.kind != "causal":
        raise InputError(
            f"{path} is no causal language model: give a run under runs/charlm/ or runs/clm/"
        )
    tokenizer = opened.tokenizer
    codec = WordPieceCodec(tokenizer) if isinstance(tokenizer, WordPiece) else ByteCodec()
    model = opened.build()
    assert isinstance(model, CausalLM)
    return Generator(model.to(device), codec, opened.description["length"])
