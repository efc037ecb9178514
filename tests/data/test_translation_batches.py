"""Batches by tokens: every pair once an epoch, no bucket over its budget, ranks that share all."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roformer.data import translation_batches
from roformer.data.store import RaggedTokens
from roformer.data.translation_batches import (
    Pairs,
    Steps,
    TranslationBatches,
    epoch_buckets,
    evaluation_buckets,
    share,
)
from roformer.errors import InputError

PAD, END = 0, 1
LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=300)


def sides(lengths):
    source, target = np.array(lengths, dtype=np.int64).reshape(-1, 2).T
    return source, target


def many(count):
    """Lengths as of real text: a target about as long as its source."""
    random = np.random.default_rng(0)
    source = np.clip(random.gamma(3, 6, count), 2, 100).astype(np.int64)
    return source, np.clip(source * random.normal(1.05, 0.2, count), 2, 100).astype(np.int64)


def with_lengths(source, target):
    return Pairs(*(RaggedTokens.of([[7] * n for n in side]) for side in (source, target)))


def tokens(bucket, source, target):
    return len(bucket) * max(source[bucket].max(), target[bucket].max())


def padding(buckets, lengths):
    return 1 - lengths.sum() / sum(len(bucket) * lengths[bucket].max() for bucket in buckets)


def lists(buckets):
    return [bucket.tolist() for bucket in buckets]


# --- buckets -------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(40, 400), st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_every_pair_once_an_epoch_and_no_bucket_over_its_budget(lengths, budget, seed, epoch):
    source, target = sides(lengths)
    buckets = epoch_buckets((source, target), budget, seed, epoch)
    assert sorted(np.concatenate(buckets).tolist()) == list(range(len(lengths)))
    assert all(0 < tokens(bucket, source, target) <= budget for bucket in buckets)


def test_buckets_are_a_function_of_seed_and_epoch():
    def made(seed, epoch):
        return lists(epoch_buckets(many(3000), 1000, seed, epoch))

    assert made(0, 0) == made(0, 0)
    orders = [made(0, 0), made(0, 1), made(1, 0), made(1, 1)]
    # Not the same buckets in another order either.
    assert len({frozenset(map(frozenset, order)) for order in orders}) == 4


def test_buckets_are_full_pad_little_and_come_in_random_order():
    source, target = many(20_000)
    buckets = epoch_buckets((source, target), 2048, 0, 0)
    assert np.mean([tokens(bucket, source, target) for bucket in buckets]) > 0.97 * 2048
    assert padding(buckets, source) < 0.1 and padding(buckets, target) < 0.1
    longest = np.array([max(source[b].max(), target[b].max()) for b in buckets])
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.2


def test_the_last_bucket_is_no_single_pair():
    # 4 to a bucket: 4 + 4 + 1 would be the greedy cut.
    source = target = np.full(9, 10)
    for epoch in range(5):
        assert sorted(map(len, epoch_buckets((source, target), 40, 0, epoch))) == [2, 3, 4]


def test_a_pair_longer_than_a_bucket_is_refused():
    with pytest.raises(InputError, match=r"pair of 50 tokens .* bucket of 49: .*bucket_tokens"):
        epoch_buckets(sides([(3, 4), (50, 2)]), 49, 0, 0)


@given(LENGTHS, st.integers(1, 400))
def test_evaluation_takes_every_pair_once_longest_first(lengths, budget):
    source, target = sides(lengths)
    buckets = evaluation_buckets((source, target), budget)
    assert sorted(np.concatenate(buckets).tolist()) == list(range(len(lengths)))
    for bucket in buckets:
        assert tokens(bucket, source, target) <= budget or len(bucket) == 1
    longest = np.maximum(source, target)[np.concatenate(buckets)]
    assert (np.diff(longest) <= 0).all()


# --- steps ---------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(100, 1000), st.integers(80, 400))
def test_steps_are_the_epochs_one_after_the_other(lengths, per_step, bucket):
    source, target = sides(lengths)
    steps = Steps(with_lengths(source, target), per_step, bucket, seed=3)
    k = -(-per_step // bucket)
    assert (steps.buckets, steps.bucket_tokens) == (k, per_step // k)
    step = 0
    for epoch in range(3):
        left = epoch_buckets((source, target), per_step // k, 3, epoch)
        for place in range(-(-len(left) // k)):
            step += 1
            assert steps.locate(step) == (epoch, place)
            assert lists(steps[step]) == lists(left[place * k : (place + 1) * k])
            assert sum(tokens(bucket, source, target) for bucket in steps[step]) <= per_step


def test_two_readers_around_the_end_of_an_epoch_cut_each_once(monkeypatch):
    """Of millions of pairs a cut takes seconds."""
    cut = []
    monkeypatch.setattr(
        translation_batches,
        "epoch_buckets",
        lambda *given: cut.append(given[-1]) or epoch_buckets(*given),
    )
    steps = Steps(with_lengths(*many(500)), 900, 300, seed=0)
    first = next(step for step in range(1, 100) if steps.locate(step)[0] == 1)
    for step in range(first - 4, first + 4):
        steps[step + 4], steps[step]
    assert cut == [0, 1]


# --- ranks ---------------------------------------------------------------------------------------


@given(LENGTHS, st.integers(40, 200), st.integers(1, 8))
def test_shares_of_all_ranks_are_the_step(lengths, budget, world_size):
    """A rank has an empty share only where the step has fewer pairs than there are ranks."""
    buckets = epoch_buckets(sides(lengths), budget, 0, 0)
    shares = [share(buckets, rank, world_size) for rank in range(world_size)]
    empty = [rank for rank, shared in enumerate(shares) if not sum(map(len, shared))]
    assert all(shares) and empty == [*range(sum(map(len, buckets)), world_size)]
    shared = np.concatenate([part for shared in shares for part in shared])
    assert sorted(shared) == list(range(len(lengths)))
    if len(buckets) >= world_size:
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_the_batch_of_no_pair_is_that_of_the_first():
    batches = TranslationBatches(with_lengths([250, 3], [250, 3]), PAD, END)
    assert {name: values.tolist() for name, values in batches[[]].items()} == {
        name: values.tolist() for name, values in batches[[0]].items()
    }


def test_fewer_buckets_than_ranks_are_cut_in_slices():
    buckets = [np.arange(5), np.array([9, 8])]
    shares = [lists(share(buckets, rank, 3)) for rank in range(3)]
    assert shares == [[[0, 1], [9]], [[2, 3], [8]], [[4]]]


# --- batches -------------------------------------------------------------------------------------


def test_a_batch_in_full():
    pairs = Pairs(
        RaggedTokens.of([[5, 6, END], [7, END], [8, 9, END]]),
        RaggedTokens.of([[15, END], [16, 17, 18, END], [19, 20, END]]),
    )
    batch = TranslationBatches(pairs, PAD, END)[[1, 0]]
    wanted = {
        "input_ids": [[7, END, PAD], [5, 6, END]],
        "attention_mask": [[True, True, False], [True, True, True]],
        "decoder_input_ids": [[END, 16, 17, 18], [END, 15, PAD, PAD]],
        "labels": [[16, 17, 18, END], [15, END, -100, -100]],
        "predict": [0, 1, 2, 3, 4, 5],
    }
    assert {field: values.tolist() for field, values in batch.items()} == wanted
    types = {field: values.dtype for field, values in batch.items()}
    assert types.pop("attention_mask") == torch.bool
    assert set(types.values()) == {torch.int64}
