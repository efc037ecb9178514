"""A trained translation model, ready to use: lines in, translations out, in the order of the lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from roformer.config.build import build
from roformer.config.wmt import SearchConfig
from roformer.data.bpe import Bpe
from roformer.data.work import progress_bar
from roformer.errors import InputError
from roformer.evaluation.beam import beam_search, length_limits
from roformer.inference.resolve import resolve
from roformer.inference.texts import answer, check_text
from roformer.models.seq2seq import BeamDecoding, Seq2Seq
from roformer.training.hardware import autocast_of, check_device

BATCH_TOKENS = 2048
"""Source tokens of a batch, padding included."""

Ids = NDArray[np.integer]


class Translation(NamedTuple):
    """One hypothesis for a line."""

    text: str
    score: float  # log-probability over the length penalty, see `roformer.evaluation.beam`
    cut: bool  # True if the source was longer than the model reads, and its end was cut


class Translator:
    """A model with its tokenizer and a way to search.

    Args:
        model: put into evaluation mode when it translates.
        n_best: hypotheses per line, at most the beam.
        max_length: longer sources are cut, the end token not counted; None: no limit.
        precision: `fp32`, or `bf16` for autocast.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Bpe,
        search: SearchConfig,
        *,
        n_best: int = 1,
        max_length: int | None = None,
        precision: str = "fp32",
    ):
        if not 1 <= n_best <= search.beam:
            raise InputError(f"n_best={n_best} is not from 1 to beam={search.beam}: widen the beam")
        if precision not in ("fp32", "bf16"):
            raise InputError(f"precision={precision}: choose fp32 or bf16")
        self.model, self.tokenizer, self.search = model, tokenizer, search
        self.n_best, self.max_length, self.precision = n_best, max_length, precision

    def translate(self, lines: str | Iterable[str], *, progress: bool = False) -> Any:
        """Return the `n_best` translations of a line, the best first, or a list of these for many lines.

        An empty line is translated to empty ones.
        """
        return answer(lines, check_text, lambda each: self._translate(each, progress))

    def _translate(self, lines: list[str], progress: bool) -> list[list[Translation]]:
        encoded = self.tokenizer.encode_batch(lines, self.tokenizer.source_language)
        end, longest = [self.tokenizer.end_id], self.max_length
        sources = [np.array(ids[:longest] + end) for ids in encoded]
        outputs = self.translate_ids(sources, progress=progress)
        cut = [len(source) <= len(ids) for ids, source in zip(encoded, sources, strict=True)]
        rows = zip(outputs, cut, strict=True)
        return [[each._replace(cut=cut) for each in translations] for translations, cut in rows]

    def translate_ids(
        self, sources: Sequence[Ids], *, progress: bool = False
    ) -> list[list[Translation]]:
        """Return the best translations of encoded sources, each with its end, in their order."""
        lengths = np.array([len(source) for source in sources], dtype=np.int64)
        results = [[Translation("", 0.0, False)] * self.n_best for _ in sources]
        wanted = np.flatnonzero(lengths > 1)
        left = wanted[np.argsort(-lengths[wanted], kind="stable")]
        self.model.eval()
        with progress_bar("translating", "lines", len(left), progress) as bar:
            while len(left):
                count = max(1, BATCH_TOKENS // int(lengths[left[0]]))
                numbers, left = left[:count], left[count:]
                beams = self._search([sources[number] for number in numbers])
                for number, hypotheses in zip(numbers, beams, strict=True):
                    results[number] = hypotheses
                bar.update(len(numbers))
        return results

    @torch.no_grad()
    def _search(self, sources: Sequence[Ids]) -> list[list[Translation]]:
        device, tokenizer = next(self.model.parameters()).device, self.tokenizer
        rows = [torch.from_numpy(np.asarray(source, np.int64)) for source in sources]
        lengths = torch.tensor([len(row) for row in rows])
        ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_id).to(device)
        mask = None if len(set(lengths.tolist())) == 1 else ids.ne(tokenizer.pad_id)
        limits, longest = length_limits(lengths, self.search), self.model.config.position.longest
        with autocast_of(device, self.precision):
            decoding = BeamDecoding(self.model, ids, mask, self.search.beam)
            beams = beam_search(
                decoding,
                self.search,
                max_lengths=limits if longest is None else limits.clamp(max=longest),
                begin_id=tokenizer.end_id,
                end_id=tokenizer.end_id,
                forbidden=(tokenizer.pad_id,),
                n_best=self.n_best,
                device=device,
            )
        tokens = [hypothesis.tokens for hypotheses in beams for hypothesis in hypotheses]
        # A model of bytes may write line breaks, which files of lines cannot hold.
        texts = (
            text.replace("\r", " ").replace("\n", " ")
            for text in tokenizer.decode_batch(tokens, tokenizer.target_language)
        )
        return [[Translation(next(texts), h.score, False) for h in best] for best in beams]


def load_translator(
    path: str | Path,
    *,
    changes: Mapping[str, Any] | None = None,
    n_best: int = 1,
    precision: str = "fp32",
    device: str = "cpu",
) -> Translator:
    """Open a translation run: its averaged checkpoint if it has one, else its last.

    `path` is a run's folder, its id (of a run below runs/), a checkpoint's folder in it, or an export.
    `changes` are keys of `SearchConfig` that differ from the run's.
    """
    check_device(device)
    stored = resolve(path, ["translation"])
    model: Any = stored.build().to(device)
    description = stored.description
    search = build(SearchConfig, {**description["search"], **(changes or {})})
    longest, words = description["max_length"], stored.tokenizer
    return Translator(model, words, search, n_best=n_best, max_length=longest, precision=precision)
