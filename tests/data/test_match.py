"""Turns of plain text: shapes, each row read once per epoch, only a number decides a sample."""

from itertools import islice

import numpy as np
import pytest
import torch

from roformer.data.match import SHAPES, Turns
from tests.data.test_segments import MANY, VOCABULARY

LENGTH, ROWS = 128, 3


def turns(seed=0):
    return Turns(MANY, VOCABULARY, LENGTH, ROWS, seed)


def test_turns_have_equally_many_tokens_in_rows_of_each_shape():
    found = turns()
    for number in range(2 * len(SHAPES)):
        shape, part = SHAPES[number % len(SHAPES)]
        batch = found[found.turn(number)]
        rows = batch["input_ids"]
        assert rows.shape == (ROWS * part, LENGTH // part)
        assert (rows[:, 0] == VOCABULARY.cls_id).all() and (rows[:, -1] == VOCABULARY.sep_id).all()
        assert ("token_type_ids" in batch) == (shape == "pair")
        if shape == "pair":
            types, separators = batch["token_type_ids"], rows == VOCABULARY.sep_id
            assert (separators.sum(1) == 2).all()
            first = separators.float().argmax(1)
            assert torch.equal(types, (torch.arange(rows.shape[1]) > first[:, None]).long())


def test_an_epoch_reads_every_row_once():
    found = turns()
    for kind, reader in enumerate(found.readers):
        numbers = (n for cycle in range(200) for n in found.turn(kind + cycle * len(SHAPES)))
        places = [found.place(number) for number in islice(numbers, len(reader))]
        assert {(where, epoch) for where, epoch, _ in places} == {(kind, 0)}
        assert sorted(index for *_, index in places) == [*range(len(reader))]


@pytest.mark.parametrize("seed", [0, 7, None])
def test_a_number_decides_alone_what_a_sample_is(seed):
    """However it is cut into batches, and whatever was read before."""
    found = turns(seed)
    for number in range(len(SHAPES)):
        samples = found.turn(number)
        parts = [turns(seed)[samples[i : i + 1]] for i in range(len(samples))]
        for name, tensor in found[samples].items():
            assert torch.equal(tensor, torch.cat([part[name] for part in parts]))
    other = turns(1)
    assert not np.array_equal(found[found.turn(1)]["input_ids"], other[other.turn(1)]["input_ids"])
