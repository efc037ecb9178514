"""Blocks of a language model: every token is predicted once, from those before it; and their order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.data.causal import CausalBatches, CausalBlocks, validation_sample
from roformer.data.random import IGNORED
from roformer.data.store import RaggedTokens, TokenStream
from roformer.errors import InputError


@pytest.fixture(scope="session")
def numbered():
    """Return a function that makes a stream of the numbers 0 … count-1."""

    def make(count):
        return TokenStream(RaggedTokens.of([range(count)]))

    return make


@given(count=st.integers(20, 300), length=st.integers(8, 19))
@settings(max_examples=60, deadline=None)
def test_every_token_but_the_first_is_predicted_once_from_the_one_before(numbered, count, length):
    """Also the last, shorter block. Catches a stride of T+1, a lost end, a shifted label."""
    blocks = CausalBlocks(numbered(count), length)
    predicted = []
    for index in range(len(blocks)):
        inputs, labels = blocks[index]
        kept = labels != IGNORED
        assert inputs.shape == labels.shape == (length,)
        assert (labels[kept] == inputs[kept] + 1).all()
        assert kept.all() or index == len(blocks) - 1
        predicted += labels[kept].tolist()
    assert predicted == list(range(1, count))
    assert blocks.predicted == count - 1


def test_an_epoch_has_every_block_once_in_its_own_order(numbered):
    blocks = CausalBlocks(numbered(100), 9)
    batches = CausalBatches(blocks, seed=1)
    epochs = [[batches.block_of(n) for n in range(11 * e, 11 * e + 11)] for e in range(3)]
    assert all(sorted(epoch) == list(range(11)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    other = CausalBatches(blocks, seed=2)
    assert [other.block_of(n) for n in range(11)] != epochs[0]
    # Asked out of order, as after a resume: the same.
    assert CausalBatches(blocks, seed=1).block_of(25) == epochs[2][3]


def test_a_batch_is_its_blocks(numbered):
    blocks = CausalBlocks(numbered(100), 9)
    batches = CausalBatches(blocks, seed=1)
    batch = batches[range(4, 7)]
    for row, number in enumerate(range(4, 7)):
        inputs, labels = blocks[batches.block_of(number)]
        assert (batch["input_ids"][row].numpy() == inputs).all()
        assert (batch["labels"][row].numpy() == labels).all()


@pytest.mark.parametrize("longest", [1, 4])
def test_the_validation_sample_is_windows_of_whole_blocks(numbered, longest):
    """Frozen, without the last block where the stream ends, and the same text at every length."""
    stream = numbered(1000)
    sample = validation_sample(stream, 10, 21, longest)
    assert len(sample) == 21 // longest * longest == len(set(sample))
    assert sample == validation_sample(stream, 10, 21, longest) == sorted(sample)
    assert max(sample) < 99 // longest * longest
    for multiple in (1, 2, 4)[: 3 if longest == 4 else 1]:
        longer = CausalBlocks(stream, 10 * multiple)
        numbers = sorted({block // multiple for block in sample})
        read = np.concatenate([longer[number][1] for number in numbers])
        base = CausalBlocks(stream, 10)
        assert (read == np.concatenate([base[block][1] for block in sample])).all()


def test_too_little_text_is_one_line(numbered):
    with pytest.raises(InputError, match="has 20 tokens, less than one block of 20"):
        CausalBlocks(numbered(20), 20)
    with pytest.raises(InputError, match="less than one block of 40"):
        validation_sample(numbered(40), 10, 8, 4)
    assert len(CausalBlocks(numbered(21), 20)) == 1
