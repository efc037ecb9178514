"""Beam search over any decoder, many sentences at a time.

Once a step, of every sentence's K beams: the 2K best continuations of all beams together; those of
the first K that end are finished; the K best that do not end go on. A sentence is done when K
hypotheses are finished, as in fairseq, or when none of its beams can change the result any more.

Everything stays on the device: a step waits for it once, to learn which sentences are done.

Letters of shapes: S sentences, K beams, V vocabulary, N best.
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
"""Sentences that are done leave the batch when they are this part of it. To leave copies all caches
of those that stay, about the cost of a step; not to leave computes their rows in vain."""
GROUP = 8
"""Entries of a group in `largest`; the fastest of 4 … 100 for 10,000 entries on a CPU."""


class Decoding(Protocol):
    """A decoder in the middle of S sentences with K beams each; it holds the caches.

    At the start all beams of a sentence are alike.
    """

    def advance(self, tokens: Tensor) -> Tensor:
        """Feed the next token of every beam, (S, K) int64; return the logits of the one after it,
        (S, K, V), of any floating type, not normalised."""
        ...

    def reorder(self, parents: Tensor) -> None:
        """Let beam k of sentence s go on from beam parents[s, k]; (S, K) int64 in [0, K)."""
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
    """`log_probability` over the length penalty; what hypotheses are ranked by."""
    log_probability: float
    """Natural logarithm, the end included."""


def length_penalty(length: int, kind: Penalty, alpha: float) -> float:
    """Return what a hypothesis of `length` tokens, its end included, divides its log-probability by.

    `fairseq`: L^α, also of Hugging Face transformers. `gnmt`: ((5 + L) / 6)^α, Wu et al. 2016,
    Eq. 14, which Vaswani et al. 2017 used. The same α favours long hypotheses more under `fairseq`.
    """
    base = length if kind == "fairseq" else (5 + length) / 6
    return float(base**alpha)


def length_limits(source_lengths: Tensor, config: SearchConfig) -> Tensor:
    """Return the most tokens that each translation may have, its end included; at least 1.

    Args:
        source_lengths: tokens of the sources, their end included, (S,) int64.
    """
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
        decoding: S sentences with `config.beam` beams each, nothing fed yet.
        config: a beam of 1 is greedy search: the most probable token until that is the end.
        max_lengths: most tokens of each hypothesis, the end included, (S,) int64, at least 1. At
            the last one only the end is allowed, with the probability that the model gives it.
        begin_id: what the decoder is fed first.
        end_id: what ends a hypothesis.
        forbidden: never chosen, as padding; their probability is not given to the others.
        n_best: hypotheses of each sentence, at most `config.beam`. There are fewer where fewer
            have a probability above 0.
        device: of what `decoding` takes and returns.

    Raises:
        Diverged: a sentence has no hypothesis, because the logits are NaN or leave no way out.
        ValueError: `n_best` or a limit is out of range.
    """
    beam, limits = config.beam, max_lengths.tolist()
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best={n_best} is not in 1 … {beam}, the beam")
    if not limits:
        return []
    if min(limits) < 1:
        raise ValueError(f"a limit of {min(limits)} tokens has no place for the end")

    def penalty(length: int) -> float:
        return length_penalty(length, config.length_penalty, config.alpha)

    rows = torch.arange(len(limits), device=device)  # row of the batch → sentence
    own = torch.arange(beam, device=device)
    ranks = torch.arange(2 * beam, device=device)
    scores = torch.full((len(limits), beam), -math.inf, device=device)
    scores[:, 0] = 0.0  # the beams are still alike: one goes on
    tokens = torch.full((len(limits), beam), begin_id, device=device)
    finished = _Finished(len(limits), n_best, beam, device)
    history = _History(max(limits), len(limits), beam, device)
    count = torch.zeros(len(limits), dtype=torch.int64, device=device)
    done = torch.zeros(len(limits), dtype=torch.bool, device=device)
    largest_penalty = torch.tensor([penalty(limit) for limit in limits], device=device)
    buffer: Tensor | None = None

    for step in range(max(limits)):
        logits = decoding.advance(tokens)
        if buffer is None:  # memory that is new at every step takes longer to get than to fill
            buffer = torch.empty(logits.shape, dtype=torch.float32, device=device)
        log_p = buffer[: len(rows)]
        torch.log_softmax(logits, -1, dtype=torch.float32, out=log_p)
        if forbidden:
            log_p[..., list(forbidden)] = -math.inf
        last = [row for row, limit in enumerate(limits) if limit == step + 1]
        if last:
            _allow_only(log_p, torch.tensor(last, device=device), end_id)
        candidates, chosen, origins = _candidates(scores, log_p)
        ends = chosen == end_id

        ended = (ends & (candidates > -math.inf))[:, :beam] & ~done[:, None]
        log_probability = candidates[:, :beam].masked_fill(~ended, -math.inf)
        finished.add(rows, log_probability, penalty(step + 1), step, origins[:, :beam])
        count += ended.sum(1)

        going_on = (ranks[: ends.shape[1]] + 2 * beam * ends).topk(beam, largest=False).indices
        scores, tokens = candidates.gather(1, going_on), chosen.gather(1, going_on)
        parents = origins.gather(1, going_on)
        history.add(rows, step, tokens, parents)

        # Log-probabilities only fall. So the most that the best beam (the first) can come to is
        # what it has now, over the penalty of the longest hypothesis; at its limit, to −∞.
        done |= (count >= beam) | (finished.worst(rows) >= scores[:, 0] / largest_penalty)
        moved = ((parents != own).any(1) & ~done).any()
        *over, must_reorder = torch.cat([done, moved[None]]).tolist()
        staying = [row for row, is_over in enumerate(over) if not is_over]
        if not staying:
            break
        if len(over) - len(staying) >= LEAVE_FRACTION * len(over):
            kept = torch.tensor(staying, device=device)
            decoding.keep(kept)
            rows, scores, tokens, parents = rows[kept], scores[kept], tokens[kept], parents[kept]
            count, done, largest_penalty = count[kept], done[kept], largest_penalty[kept]
            limits = [limits[row] for row in staying]
        if must_reorder:
            decoding.reorder(parents)
    return finished.hypotheses(history, step + 1)


def largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest entries along the last dimension, in falling order, and their indices.

    As `topk`, which it speeds up by half or more: the k largest entries lie in the k groups with
    the largest maxima, and maxima are cheap.
    """
    size = values.shape[-1]
    groups = size // GROUP
    if groups < 64 * k:  # to find so many among so few, `topk` takes another way, and a slower one
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


def _allow_only(log_p: Tensor, rows: Tensor, token: int) -> None:
    """Take their probability from all other tokens of these sentences, in place."""
    kept = log_p[rows, :, token]
    log_p[rows] = -math.inf
    log_p[rows, :, token] = kept


def _candidates(scores: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the 2K best continuations, best first: log-probabilities, tokens and beams, (S, 2K).

    Args:
        scores: log-probabilities of the beams, (S, K).
        log_p: of the next token, (S, K, V).
    """
    beam = scores.shape[1]
    # A beam has at most K places among those that go on, and one end.
    each = min(beam + 1, log_p.shape[-1])
    values, tokens = largest(log_p, each)
    total = (scores[..., None] + values).flatten(1)
    top = total.topk(min(2 * beam, total.shape[1]))
    return top.values, tokens.flatten(1).gather(1, top.indices), top.indices // each


class _History:
    """The token of every beam at every step, and the beam that it came from."""

    def __init__(self, steps: int, sentences: int, beam: int, device: torch.device | str) -> None:
        self._tokens = torch.zeros((steps, sentences, beam), dtype=torch.int64, device=device)
        self._parents = torch.zeros_like(self._tokens)

    def add(self, sentences: Tensor, step: int, tokens: Tensor, parents: Tensor) -> None:
        """Note a step of these sentences, (S',); tokens and parents (S', K)."""
        self._tokens[step, sentences] = tokens
        self._parents[step, sentences] = parents

    def read(self, steps: int) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
        """Return tokens and parents of the first steps: step → sentence → beam."""
        return self._tokens[:steps].tolist(), self._parents[:steps].tolist()


class _Finished:
    """The N best finished hypotheses of every sentence, each as the step and beam it ended from."""

    def __init__(self, sentences: int, n_best: int, beam: int, device: torch.device | str) -> None:
        self._beam = beam
        self._score = torch.full((sentences, n_best), -math.inf, device=device)
        self._log_probability = torch.full_like(self._score, -math.inf)
        self._place = torch.zeros((sentences, n_best), dtype=torch.int64, device=device)

    def add(
        self, sentences: Tensor, log_probability: Tensor, penalty: float, step: int, beams: Tensor
    ) -> None:
        """Take in what ended at a step, (S', K); −∞ where nothing did."""
        score = torch.cat([self._score[sentences], log_probability / penalty], 1)
        best = score.topk(self._score.shape[1])
        self._score[sentences] = best.values
        for kept, new in (
            (self._log_probability, log_probability),
            (self._place, step * self._beam + beams),
        ):
            kept[sentences] = torch.cat([kept[sentences], new], 1).gather(1, best.indices)

    def worst(self, sentences: Tensor) -> Tensor:
        """Return the score that a hypothesis must exceed to be among the N best, (S',)."""
        return self._score[sentences, -1]

    def hypotheses(self, history: _History, steps: int) -> list[list[Hypothesis]]:
        """Return all of them as lists of tokens; see `beam_search` for what is raised."""
        tokens, parents = history.read(steps)
        score, log_probability = self._score.tolist(), self._log_probability.tolist()
        result: list[list[Hypothesis]] = []
        for sentence, places in enumerate(self._place.tolist()):
            found = []
            for n, place in enumerate(places):
                if score[sentence][n] == -math.inf:
                    break
                step, beam = divmod(place, self._beam)
                path = []
                for before in reversed(range(step)):
                    path.append(tokens[before][sentence][beam])
                    beam = parents[before][sentence][beam]
                scores = score[sentence][n], log_probability[sentence][n]
                found.append(Hypothesis(path[::-1], *scores))
            if not found:
                raise Diverged(
                    f"sentence {sentence} of the batch has no translation with a probability above "
                    "0: the model's logits are NaN or infinite"
                )
            result.append(found)
        return result
