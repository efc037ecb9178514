"""Batches of labelled texts: what a model reads, in which order, with how much padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from roformer.data.classification import WINDOW, Inputs, epoch_batches, evaluation_batches
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece

WORDS = WordPiece.bert([*SPECIAL_TOKENS, *(f"w{i}" for i in range(60))], lowercase=True)
TEXTS = st.lists(st.integers(5, WORDS.size - 1), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    WORDS.save(folder)
    return BertTokenizerFast.from_pretrained(folder)


@given(pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), length=st.integers(8, 50))
def test_pairs_are_cut_padded_and_typed_as_by_transformers(theirs, pairs, length):
    """Catches: another truncation side or order, types of the wrong part, a missing [SEP]."""
    first, second = zip(*pairs, strict=True)
    inputs = Inputs([first, second], None, WORDS, length)
    ours = inputs[range(len(pairs))]
    for row, (a, b) in enumerate(pairs):
        texts = [" ".join(WORDS.vocabulary[i] for i in ids) for ids in (a, b)]
        expected = theirs(*texts, truncation="longest_first", max_length=length)
        count = int(inputs.lengths[row])
        ids = ours["input_ids"][row, :count].tolist()
        types = ours["token_type_ids"][row, :count].tolist()
        assert ids == expected["input_ids"]
        assert types == expected["token_type_ids"]
        assert bool(inputs.too_long[row]) == (len(a) + len(b) + 3 > length)


def test_single_texts_lose_their_end():
    inputs = Inputs([[list(range(5, 25)), [7]]], np.array([1, 0]), WORDS, 8)
    batch = inputs[[0, 1]]
    assert batch["input_ids"].tolist() == [
        [WORDS.cls_id, 5, 6, 7, 8, 9, 10, WORDS.sep_id],
        [WORDS.cls_id, 7, WORDS.sep_id, *[WORDS.pad_id] * 5],
    ]
    assert batch["token_type_ids"].sum() == 0
    assert batch["attention_mask"].sum(1).tolist() == [8, 3]
    assert batch["labels"].tolist() == [1, 0]
    assert inputs.too_long.tolist() == [True, False]


LENGTHS = st.lists(st.integers(3, 128), min_size=1, max_size=300).map(np.array)


@given(LENGTHS, st.integers(1, 40), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_is_every_example_once_in_equal_batches(lengths, batch_size, seed, epoch):
    batches = epoch_batches(lengths, batch_size, seed, epoch)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1
    assert len(batches) == -(-len(lengths) // batch_size)


def test_the_order_is_a_function_of_seed_and_epoch():
    lengths = np.random.default_rng(0).integers(3, 128, 500)

    def made(seed, epoch):
        return [batch.tolist() for batch in epoch_batches(lengths, 32, seed, epoch)]

    assert made(0, 0) == made(0, 0)
    assert made(1, 0) != made(0, 0) != made(0, 1)


def test_batches_hold_similar_lengths_in_random_order():
    """Less than 3 % is padding where random batches have more than 40 %; short ones do not come first."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(3.45, 0.55, WINDOW * 32), 3, 128).astype(np.int64)

    def padding(batches):
        read = sum(len(batch) * lengths[batch].max() for batch in batches)
        return 1 - lengths.sum() / read

    bucketed = epoch_batches(lengths, 32, 0, 0)
    shuffled = np.array_split(random.permutation(len(lengths)), WINDOW)
    assert padding(bucketed) < 0.05 < 0.4 < padding(shuffled)
    means = np.array([lengths[batch].mean() for batch in bucketed])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4


@given(LENGTHS, st.integers(1, 40))
def test_evaluation_covers_every_example_once_longest_first(lengths, batch_size):
    batches = evaluation_batches(lengths, batch_size)
    numbers = np.concatenate(batches)
    assert sorted(numbers) == list(range(len(lengths)))
    assert (np.diff(lengths[numbers]) <= 0).all()
