"""Batches of sentence pairs by a budget of tokens, addressed by the number of the step.

    epoch    permutation of all pairs → windows, each sorted by length → buckets, in random order
    bucket   pairs that are padded together: pairs × longest side ≤ its tokens
    step     so many buckets that their tokens are training.tokens_per_update

Everything is a pure function of (lengths, seed, epoch): no state to save, and every process finds
the same buckets before it takes its share of them.

Shapes: B pairs, S source tokens, T target tokens, both with `</s>`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roformer.data.random import IGNORED, Purpose, random_stream
from roformer.data.store import RaggedTokens
from roformer.errors import InputError

WINDOW = 64
"""Buckets whose pairs are sorted together: more of them pad less, but group pairs
less at random. On Multi30k, buckets of 4,096 tokens, the share of padding is 0.10 for 16, 0.05 for
64 and 0.03 for 128."""

Numbers = NDArray[np.int64]
Lengths = tuple[Numbers, Numbers]


@dataclass(frozen=True)
class Pairs:
    """The pairs of one split: target i translates source i; every sentence ends in `</s>`."""

    source: RaggedTokens
    target: RaggedTokens

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> Lengths:
        """Tokens of each source and of each target, (N,)."""
        return self.source.lengths, self.target.lengths


# --- buckets -------------------------------------------------------------------------------------


def epoch_buckets(lengths: Lengths, bucket_tokens: int, seed: int, epoch: int) -> list[Numbers]:
    """Return the buckets of an epoch: the numbers of the pairs in each, every pair once.

    Within a window pairs are sorted by the longer side, then by target minus source; each key turns
    round whenever the one before it goes up a step, so that neighbours stay alike. Padding on
    Multi30k, share of source and of target tokens, in buckets of 4,096: 0.05 and 0.04; by target,
    then source 0.15 and 0.01; by source, then target 0.01 and 0.13; at random 0.53 and 0.55.
    `bucket_tokens` is the most that pairs of a bucket × its longest side may be; lengths are (N,).
    """
    longest = np.maximum(*lengths)
    if len(longest) and longest.max() > bucket_tokens:
        raise InputError(
            f"a training pair of {longest.max():,} tokens does not fit into a bucket of "
            f"{bucket_tokens:,}: raise training.bucket_tokens and training.tokens_per_update, or "
            "lower data.filter.max_length"
        )
    random = random_stream(seed, Purpose.BUCKET_ORDER, epoch)
    order = random.permutation(len(longest))
    window = max(1, int(WINDOW * bucket_tokens / longest.mean())) if len(longest) else 1
    order = order[np.argsort(_keys((lengths[0][order], lengths[1][order]), window), kind="stable")]
    buckets = _cut(order, longest[order], bucket_tokens)
    return [buckets[place] for place in random.permutation(len(buckets))]


def evaluation_buckets(lengths: Lengths, bucket_tokens: int) -> list[Numbers]:
    """Return buckets of every pair once, longest first: what does not fit shows at once.

    A pair longer than a bucket is a bucket by itself: unlike training pairs these are not filtered.
    """
    keys = _keys(lengths, max(1, len(lengths[0])))
    order = np.argsort(keys, kind="stable")[::-1]
    return _cut(order, np.maximum(*lengths)[order], bucket_tokens)


def _keys(lengths: Lengths, window: int) -> Numbers:
    """Return one sort key a pair: (window, longer side, target - source), turning round."""
    longest, difference = np.maximum(*lengths), lengths[1] - lengths[0]
    span = int(longest.max(initial=0)) + 1
    windows = np.arange(len(longest)) // window
    longest = np.where(windows % 2, span - 1 - longest, longest)
    difference = np.where(longest % 2, -difference, difference)
    return (windows * span + longest) * 2 * span + difference + span


def _cut(order: Numbers, longest: Numbers, bucket_tokens: int) -> list[Numbers]:
    """Cut a sequence of pairs into buckets, each as large as fits; `longest` is in that order."""
    ends = [0]
    while ends[-1] < len(order):
        start = ends[-1]
        # No bucket has more pairs than if all were as long as its first.
        running = np.maximum.accumulate(longest[start : start + bucket_tokens // longest[start]])
        tokens = running * np.arange(1, len(running) + 1)
        ends.append(start + max(1, int(np.searchsorted(tokens, bucket_tokens, "right"))))
    # The rest at the end may be a single pair, which several processes cannot share.
    if len(ends) > 2:
        first, last = ends[-3], ends[-1]
        middle = (first + last) // 2
        halves = (longest[first:middle], longest[middle:last])
        if ends[-2] > middle and all(len(h) * h.max() <= bucket_tokens for h in halves):
            ends[-2] = middle
    return np.split(order, ends[1:-1]) if len(order) else []


# --- steps ---------------------------------------------------------------------------------------


class Steps:
    """The buckets of step 1, 2, …, one epoch after the other.

    A step of so many tokens has ⌈tokens / bucket_tokens⌉ of them, of equal budgets, the last one of
    an epoch what is left.
    """

    def __init__(self, pairs: Pairs, tokens: int, bucket_tokens: int, seed: int) -> None:
        self.lengths, self.seed = pairs.lengths, seed
        self.buckets = -(-tokens // bucket_tokens)
        """Buckets of a step."""
        self.bucket_tokens = tokens // self.buckets
        self._ends = [0]
        """The last step of each epoch whose buckets were cut so far, after a 0."""
        self._epochs: dict[int, list[Numbers]] = {}

    def __getitem__(self, step: int) -> list[Numbers]:
        """Return the buckets of a step, from 1; see `epoch_buckets`."""
        epoch, place = self.locate(step)
        start = place * self.buckets
        return self._buckets(epoch)[start : start + self.buckets]

    def locate(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step and its place in that epoch, both from 0."""
        # Cutting an epoch gives its number of buckets: a few seconds for millions of pairs.
        while self._ends[-1] < step:
            buckets = self._buckets(len(self._ends) - 1)
            self._ends.append(self._ends[-1] - (-len(buckets) // self.buckets))
        epoch = bisect_left(self._ends, step) - 1
        return epoch, step - 1 - self._ends[epoch]

    def _buckets(self, epoch: int) -> list[Numbers]:
        if epoch not in self._epochs:
            # The last one stays: around its end workers are an epoch ahead of the loop.
            last = dict([*self._epochs.items()][-1:])
            buckets = epoch_buckets(self.lengths, self.bucket_tokens, self.seed, epoch)
            self._epochs = last | {epoch: buckets}
        return self._epochs[epoch]


def share(buckets: Sequence[Numbers], rank: int, world_size: int) -> list[Numbers]:
    """Return what a rank takes of a step: whole buckets; where they are fewer, a part of each, or where
    these have too few pairs, a part of all their pairs, which may be empty.
    """
    if len(buckets) >= world_size:
        return list(buckets[rank::world_size])
    if max(map(len, buckets)) < world_size:
        return [np.array_split(np.concatenate(buckets), world_size)[rank]]
    parts = [np.array_split(bucket, world_size)[rank] for bucket in buckets]
    return [part for part in parts if len(part)]


# --- batches -------------------------------------------------------------------------------------


class TranslationBatches(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Padded batches, addressed by the numbers of the pairs they hold."""

    def __init__(self, pairs: Pairs, pad_id: int, end_id: int) -> None:
        self.pairs, self.pad_id, self.end_id = pairs, pad_id, end_id

    def __getitem__(self, numbers: Sequence[int] | Numbers) -> dict[str, Tensor]:
        """Return the batch of these pairs, or of the first pair if there are no numbers.

        Returns:
            input_ids (B, S), int64; attention_mask (B, S), bool, True on tokens, missing if
            no source is padded; decoder_input_ids (B, T), `</s>` and the target without its own;
            labels (B, T), the target, IGNORED on padding; predict (K,), the places of the K tokens of
            the target in flattened (B·T), found here because on a GPU finding them is a wait.
        """
        chosen = np.asarray(numbers if len(numbers) else [0], np.int64)
        source, there = self._padded(self.pairs.source, chosen)
        target, real = self._padded(self.pairs.target, chosen)
        decoder = np.roll(target, 1, axis=1)
        decoder[:, 0] = self.end_id
        decoder[~real] = self.pad_id
        batch = {
            "input_ids": source,
            "decoder_input_ids": decoder,
            "labels": np.where(real, target, IGNORED),
            "predict": np.flatnonzero(real),
        }
        if not there.all():
            batch["attention_mask"] = there
        return {field: torch.from_numpy(values) for field, values in batch.items()}

    def _padded(
        self, sentences: RaggedTokens, chosen: Numbers
    ) -> tuple[Numbers, NDArray[np.bool_]]:
        """Return the tokens of these sentences, (B, longest), and where they are no padding."""
        lengths = sentences.lengths[chosen]
        ends = np.cumsum(lengths)
        # Place of each token in its sentence, all sentences one after the other.
        within = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        tokens = sentences.tokens[np.repeat(sentences.offsets[chosen], lengths) + within]
        there = np.arange(lengths.max()) < lengths[:, None]
        padded = np.full(there.shape, self.pad_id, np.int64)
        padded[there] = tokens
        return padded, there
