"""Pairs of segments: the sources of A and B, and their relation, which nothing else reveals."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roformer.config.schema import MaskingConfig
from roformer.data.mlm import MaskedBatches
from roformer.data.random import random_stream
from roformer.data.segments import SegmentPairs
from roformer.data.store import RaggedTokens, TokenStream
from roformer.errors import InputError

LENGTH, SPECIAL, SIZE = 32, 5, 4000
GENERATOR = np.random.default_rng(0)
PIECES = GENERATOR.choice(["word", "##piece", "."], SIZE, p=[0.6, 0.3, 0.1]).tolist()
VOCABULARY = SimpleNamespace(
    size=SIZE,
    **dict(zip(("pad_id", "unk_id", "cls_id", "sep_id", "mask_id"), range(5), strict=True)),
    special_ids=range(SPECIAL),
    vocabulary=PIECES,
    continuation=np.array([piece.startswith("##") for piece in PIECES]),
)
OBJECTIVES = ["mlm_nsp", "mlm_sop"]


def documents(*lengths):
    """Return documents in which no token occurs twice: one says which it is of, and where."""
    ends = np.cumsum(lengths) + SPECIAL
    assert ends[-1] <= SIZE
    lists = [[*range(e - n, e), VOCABULARY.sep_id] for e, n in zip(ends, lengths, strict=True)]
    return TokenStream(RaggedTokens.of(lists))


MANY = documents(*([100, 9, 29, 300, 57] * 8))


def pairs_of(stream=MANY, objective="mlm_nsp", seed=0, rounds=1):
    """Return all pairs, with as many draws of each."""
    pairs = SegmentPairs(stream, VOCABULARY, LENGTH, objective)
    return [
        pairs.pair(n, random_stream(seed, 10, epoch, n))
        for epoch in range(rounds)
        for n in range(len(pairs))
    ]


def parts(pair):
    """Return A and B as the first and second [SEP] end them."""
    ends = np.flatnonzero(pair.input_ids == VOCABULARY.sep_id)
    assert len(ends) == 2 and ends[1] == LENGTH - 1 and pair.input_ids[0] == VOCABULARY.cls_id
    return pair.input_ids[1 : ends[0]], pair.input_ids[ends[0] + 1 : -1]


def check_laws(pairs, stream, objective):
    """Check that each pair is what its relation says, by documents whose tokens are all different."""
    place = np.full(SIZE, -1)
    for number, tokens in enumerate(stream.lists):
        place[tokens[:-1]] = number
    for pair in pairs:
        a, b = parts(pair)
        assert len(pair.input_ids) == LENGTH == len(a) + len(b) + 3 and len(a) and len(b)
        types = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert pair.token_type_ids.tolist() == types
        for segment in (a, b):
            assert (segment >= SPECIAL).all() and (np.diff(segment) == 1).all()
            assert len(set(place[segment])) == 1
        same = place[a[0]] == place[b[0]]
        if pair.relation == 0:
            assert same and b[0] == a[-1] + 1
        elif objective == "mlm_sop":
            assert same and a[0] == b[-1] + 1
        else:
            assert not same


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(lengths=st.lists(st.integers(1, 120), min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_the_laws_of_pairs(objective, lengths, seed):
    stream = documents(*lengths, LENGTH - 3, LENGTH - 2)
    check_laws(pairs_of(stream, objective, seed), stream, objective)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_half_are_negative_and_lengths_do_not_tell_which(objective):
    """Within four standard errors; catches a B that is cut shorter where it does not follow."""
    found = pairs_of(objective=objective, rounds=12)
    relation = np.array([pair.relation for pair in found])
    lengths = np.array([len(parts(pair)[0]) for pair in found])
    assert len(found) > 1000
    assert abs(relation.mean() - 0.5) < 4 * 0.5 / len(found) ** 0.5
    means = [lengths[relation == which].mean() for which in (0, 1)]
    assert abs(means[0] - means[1]) < 4 * lengths.std() * 2 / len(found) ** 0.5
    assert {lengths.min(), lengths.max()} <= {1, 2, LENGTH - 5, LENGTH - 4}


def test_next_sentences_begin_as_sentences_where_there_are_some():
    """B of either relation begins a word, mostly after a full stop; the text before is no clue."""
    found = pairs_of(rounds=4)
    shares = []
    for which in (0, 1):
        begins = np.array([parts(pair)[1][0] for pair in found if pair.relation == which])
        assert not VOCABULARY.continuation[begins].any()
        after_stop = np.array([PIECES[token - 1] == "." for token in begins])
        shares.append(after_stop.mean())
    assert min(shares) > 0.7 and abs(shares[0] - shares[1]) < 0.1


def test_every_token_of_a_document_is_read_in_some_epoch():
    stream = documents(29 + 20, 29)
    seen = np.concatenate([pair.input_ids for pair in pairs_of(stream, "mlm_sop", rounds=200)])
    assert set(seen) >= set(range(SPECIAL, SPECIAL + 29 + 20 + 29))


def test_short_documents_are_left_out_and_too_few_refused():
    pairs = SegmentPairs(MANY, VOCABULARY, LENGTH, "mlm_nsp")
    assert (pairs.left_out, len(pairs)) == (8, 8 * (3 + 1 + 10 + 1))
    alone = documents(28, 29)
    assert len(SegmentPairs(alone, VOCABULARY, LENGTH, "mlm_sop")) == 1
    told = "objective=mlm_nsp needs 2 documents of at least 29 tokens, and the split has 1"
    with pytest.raises(InputError, match=told):
        SegmentPairs(alone, VOCABULARY, LENGTH, "mlm_nsp")


def batches(objective="mlm_nsp", seed=0, **masking):
    training = SimpleNamespace(sequence_length=LENGTH, documents="cross", first_epoch=0)
    return MaskedBatches(MANY, VOCABULARY, MaskingConfig(**masking), training, seed, objective)


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("seed", [0, None])
def test_batches_are_a_function_of_seed_epoch_and_index(seed):
    """However a step is cut, and whatever was made before."""
    data = batches(seed=seed)
    count = len(data.blocks)
    whole = data[range(8)]
    assert whole.keys() == {"input_ids", "predict", "labels", "token_type_ids", "relation"}
    halves = [batches(seed=seed)[range(4, 8)], batches(seed=seed)[range(4)]]
    assert equal(whole, {k: torch.cat([h[k] for h in reversed(halves)]) for k in whole})
    keys = [range(i, i + 4) for i in range(0, 16, 4)]
    made = torch.utils.data.DataLoader(data, sampler=keys, batch_size=None, num_workers=2)
    assert all(equal(data[key], batch) for key, batch in zip(keys, made, strict=True))
    assert not equal(batches(seed=1)[range(8)], batches(seed=2)[range(8)])
    orders = [[data.block_of(epoch * count + i) for i in range(count)] for epoch in range(2)]
    again = [orders[0].index(0), count + orders[1].index(0)]
    assert equal(data[again[:1]], data[again[1:]]) == (seed is None)
