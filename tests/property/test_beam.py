"""Beam search against an exhaustive and a plain search.

The decoders here have no network: their logits are drawn for each sentence and prefix. They keep the
prefixes they have read as a model keeps its caches, so a beam with the wrong cache, or a sentence that
leaves with another's, gets other logits.
"""

import itertools
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
ALPHAS = st.sampled_from((0.0, 0.6, 1.0, 2.0))
PENALTIES = st.sampled_from(("fairseq", "gnmt"))


class Table:
    """Logits of a sentence after a prefix: random, the same whenever they are asked for."""

    def __init__(self, seed, vocabulary=5, spread=2.0, end_bonus=0.0):
        self.seed, self.vocabulary, self.spread = seed, vocabulary, spread
        self.end_bonus = end_bonus
        self.known = {}

    def logits(self, sentence, prefix):
        if (key := (sentence, *prefix)) not in self.known:
            draw = random.Random(repr((self.seed, key)))
            row = [draw.gauss(0, self.spread) for _ in range(self.vocabulary)]
            row[END] += self.end_bonus
            self.known[key] = row
        return self.known[key]

    def log_p(self, sentence, prefix):
        row = self.logits(sentence, prefix)
        total = math.log(sum(math.exp(x) for x in row))
        return [x - total for x in row]


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


def search(table, sentences, limits, beam, **options):
    config = SearchConfig(
        beam=beam,
        length_penalty=options.pop("penalty", "fairseq"),
        alpha=options.pop("alpha", 0.6),
    )
    decoding = options.pop("decoding", None) or TableDecoding(table, sentences, beam)
    return beam_search(
        decoding,
        config,
        max_lengths=torch.tensor(limits),
        begin_id=BEGIN,
        end_id=END,
        **({"forbidden": (BEGIN,)} | options),
    )


def log_probability(table, sentence, tokens):
    """Return that of a sequence, its end included."""
    steps = [table.log_p(sentence, tokens[:i]) for i in range(len(tokens) + 1)]
    return sum(row[token] for row, token in zip(steps, (*tokens, END), strict=True))


def score_of(table, sentence, tokens, penalty, alpha):
    return log_probability(table, sentence, tokens) / length_penalty(
        len(tokens) + 1, penalty, alpha
    )


def exhaustive(table, sentence, limit, penalty, alpha, n_best):
    """Return the n best of all sequences of at most `limit` tokens with their end."""
    words = [token for token in range(table.vocabulary) if token not in (BEGIN, END)]
    every = [
        tokens for length in range(limit) for tokens in itertools.product(words, repeat=length)
    ]
    every.sort(key=lambda tokens: -score_of(table, sentence, tokens, penalty, alpha))
    return [list(tokens) for tokens in every[:n_best]]


def plain(table, sentence, limit, beam, penalty, alpha, n_best):
    """Return what beam search finds, one sentence in lists, stopped by K finished ones alone."""
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
                finished.append((total / length_penalty(length, penalty, alpha), tokens[:-1]))
        if len(finished) >= beam:
            break
        live = [c for c in candidates[: 2 * beam] if c[1][-1] != END][:beam]
    return [list(tokens) for _, tokens in sorted(finished, reverse=True)[:n_best]]


@given(SEEDS, PENALTIES, ALPHAS, st.integers(1, 3), st.integers(1, 4))
def test_a_wide_beam_finds_the_best_of_all_sequences(seed, penalty, alpha, n_best, limit):
    """Catches: scores of beams added up wrongly, a penalty of another length, an end not counted,
    the wrong caches after a reorder, a bound that stops too early, a limit off by one."""
    table = Table(seed, vocabulary=4)
    # 2^4 sequences can end by then: no beam is ever cut, and ends are within the first K.
    (found,) = search(table, [7], [limit], 40, penalty=penalty, alpha=alpha, n_best=n_best)
    expected = exhaustive(table, 7, limit, penalty, alpha, n_best)
    assert [hypothesis.tokens for hypothesis in found] == expected
    for hypothesis in found:
        log_p = log_probability(table, 7, hypothesis.tokens)
        assert hypothesis.log_probability == pytest.approx(log_p, abs=1e-4)
        score = score_of(table, 7, hypothesis.tokens, penalty, alpha)
        assert hypothesis.score == pytest.approx(score, abs=1e-4)


@settings(max_examples=100)
@given(
    SEEDS,
    PENALTIES,
    ALPHAS,
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from((-2.0, 0.0, 2.0)),
    st.data(),
)
def test_a_narrow_beam_equals_the_plain_search(seed, penalty, alpha, beam, limit, end_bonus, data):
    """Catches: ends taken from all 2K candidates instead of the first K, ended beams that go on, a
    second start from the same beam, history read along the wrong parents; and, since the plain
    search never stops early, any early stop that changes a result."""
    n_best = data.draw(st.integers(1, beam))
    table = Table(seed, end_bonus=end_bonus)
    (found,) = search(table, [3], [limit], beam, penalty=penalty, alpha=alpha, n_best=n_best)
    expected = plain(table, 3, limit, beam, penalty, alpha, n_best)
    assert [hypothesis.tokens for hypothesis in found] == expected


@given(
    SEEDS,
    PENALTIES,
    ALPHAS,
    st.integers(1, 4),
    st.lists(st.integers(1, 12), min_size=2, max_size=16),
    st.sampled_from((-1.0, 0.0, 1.0)),
)
def test_sentences_do_not_see_each_other(seed, penalty, alpha, beam, limits, end_bonus):
    """Catches: rows mixed up by `keep`, a state that was not compacted with the others, a limit
    forced on the whole batch, results that change after their sentence is done."""
    table = Table(seed, end_bonus=end_bonus)
    sentences = list(range(len(limits)))
    options = {"penalty": penalty, "alpha": alpha, "n_best": (beam + 1) // 2}
    together = search(table, sentences, limits, beam, **options)
    alone = [
        search(table, [sentence], [limit], beam, **options)[0]
        for sentence, limit in zip(sentences, limits, strict=True)
    ]
    assert together == alone


def test_a_sentence_that_stays_keeps_its_own_bound():
    """By hand: after the first sentence left, [2] ends with log 0.55 / 2^0.6 = −0.394; the rest,
    log 0.45 = −0.799, can still come to −0.799 / 6^0.6 = −0.272, but over the penalty of the
    sentence that left, 1, it could not. Catches: penalties that are not compacted."""
    table = Fixed({(): {2: 1 - 1e-6, END: 1e-6}, (2,): {END: 0.55, 3: 0.45}})
    table.probabilities |= {(2, *[3] * n): {3: 1.0} for n in (1, 2, 3)}
    table.probabilities[2, 3, 3, 3, 3] = {END: 1.0}
    decoding = TableDecoding(table, [0, 1], 3)
    _, (found,) = search(table, [0, 1], [1, 6], 3, decoding=decoding, forbidden=())
    assert decoding.kept == [[1]]
    assert found.tokens == [2, 3, 3, 3, 3]


class Fixed(Table):
    """Probabilities written out; after any other prefix, the end and word 2 are equally likely."""

    def __init__(self, probabilities):
        super().__init__(0, vocabulary=4)
        self.probabilities = probabilities

    def logits(self, sentence, prefix):
        row = self.probabilities.get(prefix, {END: 0.5, 2: 0.5})
        return [math.log(row[t]) if t in row else -math.inf for t in range(self.vocabulary)]


@pytest.mark.parametrize(
    ("length", "kind", "alpha", "value"),
    [
        (10, "fairseq", 0.6, 3.98107),  # 10^0.6
        (10, "gnmt", 0.6, 1.73286),  # 2.5^0.6
        (1, "fairseq", 0.6, 1.0),
        (1, "gnmt", 0.6, 1.0),
        (7, "fairseq", 1.0, 7.0),
        (7, "gnmt", 1.0, 2.0),
        (7, "fairseq", 0.0, 1.0),
    ],
)
def test_both_length_penalties(length, kind, alpha, value):
    assert length_penalty(length, kind, alpha) == pytest.approx(value, abs=1e-5)


def test_at_its_limit_a_hypothesis_ends_with_the_models_probability():
    """Catches: a limit that drops what has not ended, an end that costs nothing."""
    table = Table(0, end_bonus=-30.0)
    ((found,),) = search(table, [0], [4], 2)
    assert len(found.tokens) == 3
    expected = log_probability(table, 0, tuple(found.tokens))
    assert expected < -25
    assert found.log_probability == pytest.approx(expected, rel=1e-5)


def test_forbidden_tokens_are_never_chosen_and_keep_their_probability():
    """Catches: a distribution made anew without them, which would change every score."""
    table = Table(5, spread=1.0)
    ((free, *_),) = search(table, [0], [5], 4, forbidden=(), n_best=4)
    ((bound, *_),) = search(table, [0], [5], 4, forbidden=(BEGIN, 2, 3), n_best=4)
    assert {BEGIN, 2, 3} & set(free.tokens) and not {BEGIN, 2, 3} & set(bound.tokens)
    expected = log_probability(table, 0, tuple(bound.tokens))
    assert bound.log_probability == pytest.approx(expected, abs=1e-4)


def test_done_sentences_leave_and_the_search_ends_with_them(monkeypatch):
    """Catches: a batch that never shrinks, that shrinks at every sentence, or that computes on."""
    limits = [1, 2, 2, 3, 8, 8, 8, 8]
    decoding = TableDecoding(Table(0, end_bonus=-30.0), range(8), 2)
    search(None, None, limits, 2, decoding=decoding)
    # 1 of 8 done: all stay. 3 of 8: they leave. Then 1 of 5 stays among the others to the end.
    assert decoding.kept == [[3, 4, 5, 6, 7]]
    assert decoding.advanced == [8, 8, 5, 5, 5, 5, 5, 5]
    monkeypatch.setattr(beam_module, "LEAVE_FRACTION", 0.01)
    decoding = TableDecoding(Table(0, end_bonus=-30.0), range(8), 2)
    search(None, None, limits, 2, decoding=decoding)
    assert decoding.advanced == [8, 7, 5, 4, 4, 4, 4, 4]


def test_a_search_stops_when_nothing_can_win_any_more():
    """Catches: an early stop that is lost: it would only cost time, so no result shows it."""
    table = Fixed({(): {END: 0.9, 2: 0.05, 3: 0.05}})
    decoding = TableDecoding(table, [0], 3)
    ((found,),) = search(table, [0], [30], 3, decoding=decoding, forbidden=())
    assert found.tokens == []
    # At best log 0.05 / 30^0.6 = −0.39 against log 0.9 = −0.105: the first step decides.
    assert len(decoding.advanced) == 1


def test_an_empty_batch_has_no_results():
    assert search(Table(0), [], [], 2) == []


def test_nan_logits_are_an_error():
    class Broken(Table):
        def logits(self, sentence, prefix):
            return [math.nan] * 5

    with pytest.raises(Diverged, match="sentence 0 of the batch has no translation"):
        search(Broken(0), [0], [3], 2)


@pytest.mark.parametrize(("n_best", "limit"), [(3, 4), (0, 4), (1, 0)])
def test_impossible_arguments_are_refused(n_best, limit):
    with pytest.raises(ValueError, match=r"n_best|no place for the end"):
        search(Table(0), [0], [limit], 2, n_best=n_best)


def test_limits_of_translations():
    lengths = torch.tensor([1, 7, 100])
    limits = [
        length_limits(lengths, SearchConfig(max_length_ratio=ratio, max_length_extra=extra))
        for ratio, extra in ((1.0, 50), (1.5, 0), (0.0, 0))
    ]
    assert [limit.tolist() for limit in limits] == [[51, 57, 150], [1, 10, 150], [1, 1, 1]]


@given(SEEDS, st.integers(1, 4000), st.integers(1, 6), st.booleans())
def test_largest_equals_topk(seed, size, k, ties):
    """Catches: entries left over beside whole groups, indices of the wrong group."""
    values = torch.randn(3, 2, size, generator=torch.Generator().manual_seed(seed))
    if ties:
        values = values.round()
    k = min(k, size)
    found, index = largest(values, k)
    assert torch.equal(found, values.topk(k).values)
    assert torch.equal(values.gather(-1, index), found)
    assert all(len(set(row)) == k for row in index.flatten(0, 1).tolist())
