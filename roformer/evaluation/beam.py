"""Beam search over any decoder, many sentences at a time.

Each step takes the 2K best continuations of a sentence's K beams together. Those among the first K
that end are finished; the K best that do not end continue. A sentence is done when K hypotheses are finished,
as in fairseq, or when none of its beams can change the result any more.

Everything stays on the device; a step waits for it once, to learn which sentences are done.

Shapes: S sentences, K beams, V vocabulary, N best, L longest hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from roformer.config.wmt import SearchConfig
from roformer.errors import Diverged

Penalty = Literal["fairseq", "gnmt"]

LEAVE_FRACTION = 0.25
"""Share of done sentences at which they leave the batch. Leaving copies all caches of the others, about
the cost of a step; staying computes their rows in vain."""
GROUP = 8
"""Entries of a group in `largest`; the fastest of 4 … 100 for 10,000 entries on a CPU."""


class Decoding(Protocol):
    """Incremental decoding of S sentences with K beams each, which start alike; it holds the caches."""

    def advance(self, tokens: Tensor) -> Tensor:
        """Read the next token of every beam, (S, K) int64; return the logits of the one after it,
        (S, K, V), of any floating type, not normalised."""
        ...

    def reorder(self, parents: Tensor) -> None:
        """Let beam k of sentence s continue beam parents[s, k]; (S, K) int64 in [0, K)."""
        ...

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these; (S',) int64 indices in increasing order."""
        ...


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation."""

    tokens: list[int]
    """Without the end."""
    score: float
    """`log_probability` over the length penalty; hypotheses are ranked by it."""
    log_probability: float
    """Natural logarithm, the end included."""


def length_penalty(length: int, kind: Penalty, alpha: float) -> float:
    """Return the divisor of the log-probability of `length` tokens, the end included.

    `fairseq`: L^α, also of Hugging Face transformers. `gnmt`: ((5 + L) / 6)^α, Wu et al. 2016,
    Eq. 14, which Vaswani et al. 2017 used. The same α favours long hypotheses more under `fairseq`.
    """
    base = length if kind == "fairseq" else (5 + length) / 6
    return float(base**alpha)


def length_limits(source_lengths: Tensor, config: SearchConfig) -> Tensor:
    """Return the most tokens of each translation, at least 1; lengths (S,) int64 include the end."""
    scaled = (source_lengths.double() * config.max_length_ratio).long()  # rounded down
    return (scaled + config.max_length_extra).clamp(min=1)


@torch.no_grad()
def beam_search(
    decoding: Decoding,
    config: SearchConfig,
    *,
    max_lengths: Tensor,
    begin_id: int,
    end_id: int,
    forbidden: Sequence[int] = (),
    n_best: int = 1,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of every sentence, best first.

    Args:
        decoding: S sentences with `config.beam` beams each, nothing read yet.
        config: a beam of 1 is greedy search: the most probable token until that is the end.
        max_lengths: most tokens of each hypothesis, the end included, (S,) int64, at least 1. The
            last token can only be the end, with the probability that the model gives it.
        begin_id: the first input of the decoder.
        end_id: the token that ends a hypothesis.
        forbidden: tokens never chosen, such as padding; the others do not get their probability.
        n_best: hypotheses of each sentence, at most `config.beam`. There are fewer where fewer
            have a probability above 0.
        device: of the tensors that `decoding` takes and returns.

    Raises:
        Diverged: a sentence has no hypothesis, because the logits are NaN or leave no way out.
    """
    beam, limits = config.beam, max_lengths.tolist()
    if not limits:
        return []
    penalties = [
        length_penalty(length, config.length_penalty, config.alpha)
        for length in range(1, max(limits) + 1)
    ]
    finished = _Finished(len(limits), n_best, max(limits), device)
    # The state of the sentences in the batch, one row each.
    sentences = torch.arange(len(limits), device=device)
    texts = torch.full((len(limits), beam, max(limits) + 1), begin_id, device=device)
    scores = torch.full((len(limits), beam), -math.inf, device=device)
    scores[:, 0] = 0.0  # the beams are still equal: one continues
    count = torch.zeros(len(limits), dtype=torch.int64, device=device)
    done = torch.zeros(len(limits), dtype=torch.bool, device=device)
    largest_penalty = torch.tensor([penalties[limit - 1] for limit in limits], device=device)
    own, ranks = torch.arange(beam, device=device), torch.arange(2 * beam, device=device)
    hidden = torch.tensor(forbidden, dtype=torch.int64, device=device)
    buffer: Tensor | None = None

    for length, penalty in enumerate(penalties, start=1):
        logits = decoding.advance(texts[..., length - 1])
        if buffer is None:  # new memory at every step takes longer to get than to fill
            buffer = torch.empty(logits.shape, dtype=torch.float32, device=device)
        log_p = buffer[: len(limits)]
        torch.log_softmax(logits, -1, dtype=torch.float32, out=log_p)
        log_p.index_fill_(-1, hidden, -math.inf)
        if length in limits:
            last = torch.tensor([limit == length for limit in limits], device=device)
            ends = log_p[last, :, end_id]
            log_p[last] = -math.inf
            log_p[last, :, end_id] = ends
        candidates, tokens, parents = _continuations(scores, log_p)
        is_end = tokens == end_id

        ended = (is_end & (candidates > -math.inf))[:, :beam] & ~done[:, None]
        log_probability = candidates[:, :beam].masked_fill(~ended, -math.inf)
        finished.add(sentences, log_probability, penalty, _rows(texts, parents[:, :beam]), length)
        count += ended.sum(1)

        going_on = (ranks[: is_end.shape[1]] + 2 * beam * is_end).topk(beam, largest=False).indices
        scores, parents = candidates.gather(1, going_on), parents.gather(1, going_on)
        texts = _rows(texts, parents)
        texts[..., length] = tokens.gather(1, going_on)

        # Log-probabilities only fall, so the best beam (the first) can reach at most its present one
        # over the penalty of the longest hypothesis; at its limit, −∞.
        done |= (count >= beam) | (finished.worst(sentences) >= scores[:, 0] / largest_penalty)
        moved = ((parents != own).any(1) & ~done).any()
        *over, must_reorder = torch.cat([done, moved[None]]).tolist()
        staying = [row for row, is_over in enumerate(over) if not is_over]
        if not staying:
            break
        if len(over) - len(staying) >= LEAVE_FRACTION * len(over):
            kept = torch.tensor(staying, device=device)
            decoding.keep(kept)
            sentences, texts, scores, parents, count, done, largest_penalty = (
                state[kept]
                for state in (sentences, texts, scores, parents, count, done, largest_penalty)
            )
            limits = [limits[row] for row in staying]
        if must_reorder:
            decoding.reorder(parents)
    return finished.hypotheses()


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest entries along the last dimension, in falling order, and their indices.

    `topk` in half of its time or less: the k largest entries are in the k groups with the largest
    maxima, and maxima are cheap.
    """
    size = values.shape[-1]
    groups = size // GROUP
    if groups < 64 * k:  # `topk` of so many among so few is slower
        top = values.topk(k)
        return top.values, top.indices
    # Group g holds entries g, g + groups, g + 2·groups, …: so a maximum goes over whole rows.
    maxima = values[..., : groups * GROUP].unflatten(-1, (GROUP, groups)).amax(-2)
    best = maxima.topk(k, sorted=False).indices
    members = torch.arange(GROUP, device=values.device)[:, None] * groups
    index = (best[..., None, :] + members).flatten(-2)
    rest = torch.arange(groups * GROUP, size, device=values.device)
    index = torch.cat([index, rest.expand(*index.shape[:-1], -1)], -1)
    top = values.gather(-1, index).topk(k)
    return top.values, index.gather(-1, top.indices)


def _continuations(scores: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the 2K best continuations, best first: log-probabilities, tokens and beams, (S, 2K).

    `scores` (S, K) are the log-probabilities of the beams, `log_p` (S, K, V) of the next token.
    """
    beam = scores.shape[1]
    each = min(beam + 1, log_p.shape[-1])  # of a beam, at most K continue and one ends
    values, tokens = largest(log_p, each)
    total = (scores[..., None] + values).flatten(1)
    top = total.topk(min(2 * beam, total.shape[1]))
    return top.values, tokens.flatten(1).gather(1, top.indices), top.indices // each


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """Return values[s, index[s, k]] for values (S, R, L) and index (S, K): (S, K, L)."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))


class _Finished:
    """The N best finished hypotheses of every sentence, in falling order."""

    def __init__(self, sentences: int, n_best: int, longest: int, device: torch.device | str):
        self.score = torch.full((sentences, n_best), -math.inf, device=device)
        self.log_probability = torch.full_like(self.score, -math.inf)
        self.length = torch.zeros((sentences, n_best), dtype=torch.int64, device=device)
        shape = (sentences, n_best, longest + 1)
        self.texts = torch.zeros(shape, dtype=torch.int64, device=device)

    def add(
        self, rows: Tensor, log_probability: Tensor, penalty: float, texts: Tensor, length: int
    ) -> None:
        """Add the hypotheses that end with `length` tokens; log_probability (S', K) is −∞ elsewhere."""
        score = torch.cat([self.score[rows], log_probability / penalty], 1)
        best = score.topk(self.score.shape[1])
        self.score[rows] = best.values
        for kept, new in (
            (self.log_probability, log_probability),
            (self.length, torch.full_like(log_probability, length, dtype=torch.int64)),
        ):
            kept[rows] = torch.cat([kept[rows], new], 1).gather(1, best.indices)
        self.texts[rows] = _rows(torch.cat([self.texts[rows], texts], 1), best.indices)

    def worst(self, rows: Tensor) -> Tensor:
        """Return the score that a hypothesis must exceed to be among the N best, (S',)."""
        return self.score[rows, -1]

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of every sentence, best first; see `beam_search` for what is raised."""
        columns = (self.texts, self.length, self.score, self.log_probability)
        result = [
            [
                Hypothesis(text[1:length], score, log_probability)
                for text, length, score, log_probability in zip(*sentence, strict=True)
                if score > -math.inf
            ]
            for sentence in zip(*(tensor.tolist() for tensor in columns), strict=True)
        ]
        if [] in result:
            raise Diverged(
                f"sentence {result.index([])} of the batch has no translation with a probability "
                "above 0: the model's logits are NaN or infinite"
            )
        return result
