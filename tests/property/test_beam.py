"""Beam search against a plain search.

The decoders here have no network: their logits are drawn for each sentence and prefix. They keep the
prefixes they have read as a model keeps its caches, so a beam with the wrong cache, or a sentence that
leaves with another's, gets other logits.
"""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.config.wmt import SearchConfig
from roformer.errors import Diverged
from roformer.evaluation import beam as beam_module
from roformer.evaluation.beam import beam_search, largest, length_limits, length_penalty

BEGIN, END = 0, 1
SEEDS = st.integers(0, 10_000)
PENALTIES = st.tuples(st.sampled_from(("fairseq", "gnmt")), st.sampled_from((0.0, 0.6, 1.0, 2.0)))


class Table:
    """Logits of a sentence after a prefix: random, the same whenever they are asked for.

    `given` are probabilities written out by prefix; any other prefix then has the end and word 2,
    equally likely.
    """

    def __init__(self, seed=0, vocabulary=5, spread=2.0, end_bonus=0.0, given=None):
        self.seed, self.vocabulary, self.spread = seed, vocabulary, spread
        self.end_bonus, self.given = end_bonus, given

    def logits(self, sentence, prefix):
        words = range(self.vocabulary)
        if self.given is not None:
            row = self.given.get(prefix, {END: 0.5, 2: 0.5})
            return [math.log(row[word]) if word in row else -math.inf for word in words]
        draw = random.Random(repr((self.seed, sentence, prefix)))
        return [draw.gauss(0, self.spread) + self.end_bonus * (word == END) for word in words]

    def log_p(self, sentence, prefix):
        return torch.tensor(self.logits(sentence, prefix)).double().log_softmax(0).tolist()


class TableDecoding:
    """The decoder of a table; its caches are the prefixes. Counts what is asked of it."""

    def __init__(self, table, sentences, beam):
        self.table = table
        self.rows = [(sentence, [() for _ in range(beam)]) for sentence in sentences]
        self.advanced, self.kept = [], []

    def advance(self, tokens):
        self.advanced.append(len(self.rows))
        logits = []
        for (sentence, prefixes), fed in zip(self.rows, tokens.tolist(), strict=True):
            prefixes[:] = [(*p, token) for p, token in zip(prefixes, fed, strict=True)]
            logits.append([self.table.logits(sentence, prefix[1:]) for prefix in prefixes])
        return torch.tensor(logits, dtype=torch.float64)

    def reorder(self, parents):
        assert any(row != list(range(len(row))) for row in parents.tolist())
        for (_, prefixes), row in zip(self.rows, parents.tolist(), strict=True):
            prefixes[:] = [prefixes[parent] for parent in row]

    def keep(self, sentences):
        self.kept.append(sentences.tolist())
        assert self.kept[-1] == sorted(set(self.kept[-1]))
        self.rows = [self.rows[row] for row in self.kept[-1]]


def search(table, sentences, limits, beam, penalty=("fairseq", 0.6), **options):
    """Return the hypotheses of the sentences and the decoding, which counted."""
    decoding = TableDecoding(table, sentences, beam)
    config = SearchConfig(beam=beam, length_penalty=penalty[0], alpha=penalty[1])
    ids = {"begin_id": BEGIN, "end_id": END, "forbidden": (BEGIN,)}
    found = beam_search(decoding, config, max_lengths=torch.tensor(limits), **(ids | options))
    return found, decoding


def log_probability(table, sentence, tokens):
    """Return the log-probability of a sequence, its end included."""
    steps = [table.log_p(sentence, tokens[:i]) for i in range(len(tokens) + 1)]
    return sum(row[token] for row, token in zip(steps, (*tokens, END), strict=True))


def plain(table, sentence, limit, beam, penalty, n_best):
    """Return what beam search finds, one sentence in lists, stopped only by K finished ones.

    That is (score, log-probability, tokens) of the N best.
    """
    live, finished = [(0.0, ())], []
    for length in range(1, limit + 1):
        candidates = []
        for total, prefix in live:
            for token, log_p in enumerate(table.log_p(sentence, prefix)):
                if token != BEGIN and (length < limit or token == END):
                    candidates.append((total + log_p, (*prefix, token)))
        candidates.sort(reverse=True)
        for total, tokens in candidates[:beam]:
            if tokens[-1] == END:
                score = total / length_penalty(length, *penalty)
                finished.append((score, total, list(tokens[:-1])))
        if len(finished) >= beam:
            break
        live = [c for c in candidates[: 2 * beam] if c[1][-1] != END][:beam]
    return sorted(finished, reverse=True)[:n_best]


@settings(max_examples=60)
@given(
    SEEDS,
    PENALTIES,
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from((-2.0, 0.0, 2.0)),
    st.data(),
)
def test_it_equals_the_plain_search(seed, penalty, beam, limit, end_bonus, data):
    """Catches: ends taken from all 2K candidates instead of the first K, ended beams that go on, a
    second start from the same beam, history read along the wrong parents, the wrong caches after a
    reorder, scores of beams added up wrongly, a penalty of another length, an end not counted or free
    at the limit, a limit off by one; and, since the plain search never stops early, any early stop
    that changes a result."""
    n_best = data.draw(st.integers(1, beam))
    table = Table(seed, end_bonus=end_bonus)
    (found,), _ = search(table, [3], [limit], beam, penalty, n_best=n_best)
    expected = plain(table, 3, limit, beam, penalty, n_best)
    assert [hypothesis.tokens for hypothesis in found] == [tokens for *_, tokens in expected]
    numbers = [(hypothesis.score, hypothesis.log_probability) for hypothesis in found]
    for ours, theirs in zip(numbers, expected, strict=True):
        assert ours == pytest.approx(theirs[:2], abs=1e-4, rel=1e-5)


@given(
    SEEDS,
    PENALTIES,
    st.integers(1, 4),
    st.lists(st.integers(1, 12), min_size=2, max_size=16),
    st.sampled_from((-1.0, 0.0, 1.0)),
)
def test_sentences_do_not_see_each_other(seed, penalty, beam, limits, end_bonus):
    """Catches: rows mixed up by `keep`, a state that was not compacted with the others, a limit
    forced on the whole batch, results that change after their sentence is done."""
    table, n_best = Table(seed, end_bonus=end_bonus), (beam + 1) // 2
    together, _ = search(table, range(len(limits)), limits, beam, penalty, n_best=n_best)
    for sentence, limit in enumerate(limits):
        alone, _ = search(table, [sentence], [limit], beam, penalty, n_best=n_best)
        assert alone == [together[sentence]]


def test_a_sentence_that_stays_keeps_its_own_bound():
    """By hand: after the first sentence left, [2] ends with log 0.55 / 2^0.6 = −0.394; the rest,
    log 0.45 = −0.799, can still come to −0.799 / 6^0.6 = −0.272, but over the penalty of the
    sentence that left, 1, it could not. Catches: penalties that are not compacted."""
    given = {(): {2: 1 - 1e-6, END: 1e-6}, (2,): {END: 0.55, 3: 0.45}}
    given |= {(2, *[3] * n): {3: 1.0} for n in (1, 2, 3)} | {(2, 3, 3, 3, 3): {END: 1.0}}
    (_, (found,)), decoding = search(Table(given=given), [0, 1], [1, 6], 3, forbidden=())
    assert decoding.kept == [[1]]
    assert found.tokens == [2, 3, 3, 3, 3]


@pytest.mark.parametrize(
    ("length", "kind", "alpha", "value"),
    [
        (10, "fairseq", 0.6, 3.98107),  # 10^0.6
        (10, "gnmt", 0.6, 1.73286),  # 2.5^0.6
        (1, "gnmt", 0.6, 1.0),
        (7, "fairseq", 0.0, 1.0),
    ],
)
def test_both_length_penalties(length, kind, alpha, value):
    assert length_penalty(length, kind, alpha) == pytest.approx(value, abs=1e-5)


def test_forbidden_tokens_are_never_chosen_and_keep_their_probability():
    """Catches: a distribution made anew without them, which would change every score."""
    table = Table(spread=1.0, end_bonus=-2.0)
    ((free, *_),), _ = search(table, [0], [5], 4, forbidden=(), n_best=4)
    ((bound, *_),), _ = search(table, [0], [5], 4, forbidden=(BEGIN, 2, 3), n_best=4)
    assert {BEGIN, 2, 3} & set(free.tokens) and not {BEGIN, 2, 3} & set(bound.tokens)
    expected = log_probability(table, 0, tuple(bound.tokens))
    assert bound.log_probability == pytest.approx(expected, abs=1e-4)


def test_done_sentences_leave_and_the_search_ends_with_them(monkeypatch):
    """Catches: a batch that never shrinks, that shrinks at every sentence, or that computes on."""
    table, limits = Table(end_bonus=-30.0), [1, 2, 2, 3, 8, 8, 8, 8]
    _, decoding = search(table, range(8), limits, 2)
    # 1 of 8 done: all stay. 3 of 8: they leave. Then 1 of 5 stays among the others to the end.
    assert decoding.kept == [[3, 4, 5, 6, 7]]
    assert decoding.advanced == [8, 8, 5, 5, 5, 5, 5, 5]
    monkeypatch.setattr(beam_module, "LEAVE_FRACTION", 0.01)
    _, decoding = search(table, range(8), limits, 2)
    assert decoding.advanced == [8, 7, 5, 4, 4, 4, 4, 4]


def test_a_search_stops_when_nothing_can_win_any_more():
    """Catches: an early stop that is lost: it would only cost time, so no result shows it."""
    table = Table(given={(): {END: 0.9, 2: 0.05, 3: 0.05}})
    ((found,),), decoding = search(table, [0], [30], 3, forbidden=())
    assert found.tokens == []
    # At best log 0.05 / 30^0.6 = −0.39 against log 0.9 = −0.105: the first step decides.
    assert len(decoding.advanced) == 1


def test_empty_batches_and_nan_logits():
    assert search(Table(), [], [], 2)[0] == []
    with pytest.raises(Diverged, match="sentence 0 of the batch has no translation"):
        search(Table(spread=math.nan), [0], [3], 2)


def test_limits_of_translations():
    lengths = torch.tensor([1, 7, 100])
    for ratio, extra, expected in (
        *((1.0, 50, [51, 57, 150]), (1.5, 0, [1, 10, 150])),
        (0.0, 0, [1, 1, 1]),
    ):
        config = SearchConfig(max_length_ratio=ratio, max_length_extra=extra)
        assert length_limits(lengths, config).tolist() == expected


@given(SEEDS, st.integers(1, 4000), st.integers(1, 6), st.booleans())
def test_largest_equals_topk(seed, size, k, ties):
    """Catches: entries left over after whole groups, indices of the wrong group."""
    values = torch.randn(3, 2, size, generator=torch.Generator().manual_seed(seed))
    values = values.round() if ties else values
    k = min(k, size)
    found, index = largest(values, k)
    assert torch.equal(found, values.topk(k).values)
    assert torch.equal(values.gather(-1, index), found)
    assert all(len(set(row)) == k for row in index.flatten(0, 1).tolist())
