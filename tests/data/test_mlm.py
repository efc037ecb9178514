"""Masked blocks: what is chosen, what it becomes, and that only (seed, epoch, index) decides."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.config.schema import MaskingConfig
from roformer.data.mlm import MaskedBatches, Masker, PackedBlocks, document_positions
from roformer.data.random import IGNORED, random_stream
from roformer.errors import InputError

SIZE, LENGTH = 100, 64
VOCABULARY = SimpleNamespace(
    size=SIZE,
    **dict(zip(("pad_id", "unk_id", "cls_id", "sep_id", "mask_id"), range(5), strict=True)),
    special_ids=(0, 1, 2, 3, 4),
    continuation=np.array([i >= 5 and i % 2 == 1 for i in range(SIZE)]),
)
"""As much of a tokenizer as masking reads: odd ids continue a word."""


def stream(count: int, seed: int = 0) -> np.ndarray:
    """Documents of random length, each ending in [SEP]."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(5, SIZE, size=count)
    tokens[generator.random(count) < 0.05] = VOCABULARY.sep_id
    return tokens


def batches(*, seed=0, count=3000, documents="cross", **masking) -> MaskedBatches:
    """`seed` None: frozen."""
    training = SimpleNamespace(sequence_length=LENGTH, documents=documents, first_epoch=0)
    return MaskedBatches(stream(count), VOCABULARY, MaskingConfig(**masking), training, seed)


def test_blocks_hold_the_stream_in_order():
    tokens = stream(1000)
    packed = PackedBlocks(tokens, VOCABULARY, LENGTH)
    blocks = np.stack([packed[i] for i in range(len(packed))])
    assert blocks.shape == (1000 // (LENGTH - 2), LENGTH)
    assert set(blocks[:, 0]) == {VOCABULARY.cls_id} and set(blocks[:, -1]) == {VOCABULARY.sep_id}
    body = blocks[:, 1:-1].flatten()
    assert np.array_equal(body, tokens[: len(body)])
    with pytest.raises(InputError, match="10 tokens, less than one block of 64"):
        PackedBlocks(stream(10), VOCABULARY, LENGTH)


@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.1), (0.5, 0.5), (0.6, 0.0), (1.0, 0.0)])
def test_the_least_loss_without_context_is_that_of_counting_what_is_seen(mask, random):
    """Counted in a sample, which is a little too sure: the entropy of the target given what is seen."""
    masker = Masker(MaskingConfig(mask=mask, random=random, probability=0.9), VOCABULARY, 200_000)
    frequent = np.random.default_rng(0).zipf(1.5, 200_000) + 4
    text = np.where(frequent < SIZE, frequent, 5)
    example = masker(text, random_stream(0, 1))
    pairs = np.zeros((SIZE, SIZE))
    np.add.at(pairs, (example.input_ids[example.predict], example.labels), 1)
    seen = pairs.sum(1, keepdims=True)
    there = pairs > 0
    counted = -(pairs * np.log(np.where(there, pairs, 1) / np.maximum(seen, 1))).sum() / pairs.sum()
    assert masker.context_free_loss(example.labels) == pytest.approx(counted, abs=0.03)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), probability=st.floats(0.02, 0.6), whole_word=st.booleans())
def test_masking_laws(seed, probability, whole_word):
    masking = MaskingConfig(probability=probability, whole_word=whole_word)
    block = PackedBlocks(stream(500, seed), VOCABULARY, LENGTH)[seed % 8]
    original = block.copy()
    example = Masker(masking, VOCABULARY, LENGTH)(block, random_stream(seed, 1))
    assert np.array_equal(block, original)
    assert len(example.predict) == len(example.labels) == max(1, round(probability * LENGTH))
    real = example.labels != IGNORED
    where = example.predict[real]
    assert len(set(where)) == len(where)
    assert np.array_equal(example.labels[real], block[where])
    assert not set(block[where]) & set(VOCABULARY.special_ids)
    untouched = np.setdiff1d(np.arange(LENGTH), where)
    assert np.array_equal(example.input_ids[untouched], block[untouched])
    if whole_word:
        chosen = set(where)
        for i in range(2, LENGTH - 1):
            if VOCABULARY.continuation[block[i]] and block[i - 1] not in VOCABULARY.special_ids:
                assert (i in chosen) == (i - 1 in chosen)


def test_eighty_ten_ten():
    data = batches(count=40_000, probability=0.2)
    batch = data[range(len(data.blocks))]
    kept = batch["labels"] != IGNORED
    ids, labels = batch["input_ids"].gather(1, batch["predict"])[kept], batch["labels"][kept]
    assert (ids == VOCABULARY.mask_id).float().mean().item() == pytest.approx(0.8, abs=0.02)
    # A random token is the original 1 in 100 times.
    assert (ids == labels).float().mean().item() == pytest.approx(0.1, abs=0.02)


def equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_samples_are_a_function_of_seed_epoch_and_index():
    data, again = batches(), batches()
    count = len(data.blocks)
    later = again[[count + 3]]  # asked in another order, from a fresh object
    assert equal(data[[1, 2]], again[[1, 2]])
    assert equal(data[[count + 3]], later)
    whole = data[range(6)]
    halves = [data[range(3)], data[range(3, 6)]]
    assert equal(whole, {k: torch.cat([h[k] for h in halves]) for k in whole})
    assert not equal(data[[1]], batches(seed=1)[[1]])
    assert equal(batches(seed=None)[range(8)], batches(seed=None)[range(8)])
    assert not equal(batches(seed=None)[range(8)], data[range(8)])


def test_every_epoch_holds_every_block_once_in_another_order_with_other_masks():
    data = batches()
    count = len(data.blocks)
    orders = [[data.block_of(epoch * count + i) for i in range(count)] for epoch in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(count))
    assert orders[0] != orders[1]
    first, second = orders[0].index(0), count + orders[1].index(0)
    assert not equal(data[[first]], data[[second]])


def test_isolated_documents():
    block = np.array([2, 10, 11, 3, 12, 13, 14, 3, 15, 3])
    positions, document = document_positions(block, sep_id=3)
    assert positions.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert document.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    batch = batches(documents="isolate")[range(3)]
    mask = batch["attention_mask"]
    assert mask.shape == (3, LENGTH, LENGTH)
    assert torch.equal(mask, mask.transpose(1, 2)) and mask.diagonal(dim1=1, dim2=2).all()
    starts = (batch["positions"] == 0).sum(1)
    assert starts.tolist() == [len(torch.unique(one, dim=0)) for one in mask]
