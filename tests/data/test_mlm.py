"""Masked blocks: what is chosen, what it becomes, and that (seed, epoch, index) decides alone."""

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


class Vocabulary:
    """As much of a tokenizer as masking reads: 5 special tokens, odd ids continue a word."""

    size = SIZE
    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
    special_ids = (0, 1, 2, 3, 4)
    continuation = np.array([i >= 5 and i % 2 == 1 for i in range(SIZE)])


def stream(count: int, seed: int = 0) -> np.ndarray:
    """Documents of random length, each ending in [SEP]."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(5, SIZE, size=count)
    tokens[generator.random(count) < 0.05] = Vocabulary.sep_id
    return tokens


def batches(*, seed=0, count=3000, documents="cross", frozen=False, **masking) -> MaskedBatches:
    training = SimpleNamespace(sequence_length=LENGTH, documents=documents, first_epoch=0)
    config = MaskingConfig(**masking)
    return MaskedBatches(stream(count), Vocabulary(), config, training, None if frozen else seed)


def test_blocks_hold_the_stream_in_order():
    tokens = stream(1000)
    blocks = PackedBlocks(tokens, Vocabulary(), LENGTH)
    assert len(blocks) == 1000 // (LENGTH - 2)
    assert all(
        b[0] == Vocabulary.cls_id and b[-1] == Vocabulary.sep_id
        for b in map(blocks.__getitem__, range(len(blocks)))
    )
    body = np.concatenate([blocks[i][1:-1] for i in range(len(blocks))])
    assert np.array_equal(body, tokens[: len(body)])


def test_a_split_shorter_than_a_block_is_refused():
    with pytest.raises(InputError, match="10 tokens, less than one block of 64"):
        PackedBlocks(stream(10), Vocabulary(), LENGTH)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    probability=st.floats(0.02, 0.6),
    whole_word=st.booleans(),
)
def test_masking_laws(seed, probability, whole_word):
    masker = Masker(
        MaskingConfig(probability=probability, whole_word=whole_word), Vocabulary(), LENGTH
    )
    block = PackedBlocks(stream(500, seed), Vocabulary(), LENGTH)[seed % 8]
    original = block.copy()
    example = masker(block, random_stream(seed, 1))
    assert np.array_equal(block, original)
    assert len(example.predict) == len(example.labels) == max(1, round(probability * LENGTH))
    real = example.labels != IGNORED
    where = example.predict[real]
    assert len(set(where)) == len(where)
    assert np.array_equal(example.labels[real], block[where])
    assert not set(block[where]) & set(Vocabulary.special_ids)
    untouched = np.setdiff1d(np.arange(LENGTH), where)
    assert np.array_equal(example.input_ids[untouched], block[untouched])
    if whole_word:
        chosen = set(where)
        for i in range(2, LENGTH - 1):
            joined = (
                Vocabulary.continuation[block[i]] and block[i - 1] not in Vocabulary.special_ids
            )
            if joined:
                assert (i in chosen) == (i - 1 in chosen)


def test_eighty_ten_ten():
    data = batches(count=40_000, probability=0.2)
    labels, ids = [], []
    for number in range(len(data.blocks)):
        example = data[[number]]
        chosen = example["input_ids"][0, example["predict"][0]]
        keep = example["labels"][0] != IGNORED
        labels.append(example["labels"][0][keep])
        ids.append(chosen[keep])
    labels, ids = torch.cat(labels), torch.cat(ids)
    masked = (ids == Vocabulary.mask_id).float().mean().item()
    kept = (ids == labels).float().mean().item()
    assert masked == pytest.approx(0.8, abs=0.02)
    assert kept == pytest.approx(0.1, abs=0.02)  # and a random token is the original 1 in 100 times


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


def test_every_epoch_holds_every_block_once_in_another_order_with_other_masks():
    data = batches()
    count = len(data.blocks)
    orders = [[data.block_of(epoch * count + i) for i in range(count)] for epoch in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(count))
    assert orders[0] != orders[1]
    first, second = orders[0].index(0), count + orders[1].index(0)
    assert not equal(data[[first]], data[[second]])


def test_validation_is_frozen():
    assert equal(batches(seed=0, frozen=True)[range(8)], batches(seed=7, frozen=True)[range(8)])
    assert not equal(batches(frozen=True)[range(8)], batches()[range(8)])


def test_workers_make_the_same_batches():
    data = batches()
    keys = [range(i, i + 4) for i in range(0, 24, 4)]
    made = torch.utils.data.DataLoader(data, sampler=keys, batch_size=None, num_workers=2)
    assert all(equal(data[key], batch) for key, batch in zip(keys, made, strict=True))


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
    assert torch.equal(
        starts, torch.stack([torch.unique(m, dim=0).shape[0] * torch.ones(()) for m in mask]).long()
    )
