"""Laws of linear attention: the equations, what it may see, its random vectors."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.config.attention import EluAttention, PerformerAttention
from roformer.nn.attention import additive_mask, linear
from roformer.nn.attention.features import FavorFeatures, random_vectors
from roformer.nn.position import Positions
from roformer.training.steps import begin_step
from tests.property import laws, models

FAVOR, ELU = PerformerAttention(features=24), EluAttention()
both = pytest.mark.parametrize("config", [FAVOR, ELU], ids=["favor", "elu"])
either_way = pytest.mark.parametrize("causal", [False, True])


@both
@pytest.mark.parametrize("rope_position", ["post", "pre"])
@either_way
@settings(max_examples=8)
@given(st.integers(1, 40), st.integers(1, 17), st.sampled_from(["none", "left", "right", "holes"]))
def test_it_equals_the_explicit_form(config, rope_position, causal, length, chunk, padding):
    """Forward and gradient, at any length, chunk and padding."""
    config = dataclasses.replace(config, rope_position=rope_position, chunk_length=chunk)
    keep = None
    if padding != "none":
        keep = torch.ones(2, length, dtype=torch.bool)
        padded = {"left": slice(0, length // 3), "right": slice(length // 2 + 1, None)}
        keep[1, padded.get(padding, slice(1, None, 2))] = False
    assert laws.linear_error(config, length=length, causal=causal, keep=keep) < 1e-4


@both
@either_way
def test_a_row_without_any_key_is_finite(config, causal):
    layer, encoding = laws.linear_layer(config)
    mask = additive_mask(torch.zeros(1, 5, dtype=torch.bool))
    y = layer(torch.randn(1, 5, 32), Positions(torch.arange(5)), encoding, mask, causal=causal)
    assert y.isfinite().all()


@both
@torch.no_grad()
def test_a_later_key_changes_nothing_however_large(config):
    """All features are taken relative to the largest key so far."""
    layer, encoding = laws.linear_layer(dataclasses.replace(config, chunk_length=4))
    x, where = torch.randn(1, 11, 32), Positions(torch.arange(11))
    before = layer(x, where, encoding, None, causal=True)
    x[:, 7:] *= 30
    after = layer(x, where, encoding, None, causal=True)
    assert torch.equal(before[:, :4], after[:, :4])  # another chunk
    torch.testing.assert_close(before[:, :7], after[:, :7], atol=1e-6, rtol=1e-5)
    assert (before[:, 7:] - after[:, 7:]).abs().max() > 0.1


@both
@either_way
def test_features_and_sums_are_fp32_under_autocast(config, causal, monkeypatch):
    """Sums of bf16 stop growing at some hundred keys."""
    layer, encoding = laws.linear_layer(config)
    name, seen = "attend_to_earlier" if causal else "attend_to_all", []
    original = getattr(linear, name)

    def watch(*tensors, **rest):
        seen.append({t.dtype for t in tensors if isinstance(t, torch.Tensor)})
        return original(*tensors, **rest)

    monkeypatch.setattr(linear, name, watch)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(torch.randn(1, 9, 32), Positions(torch.arange(9)), encoding, None, causal=causal)
    assert y.dtype == torch.bfloat16 and seen == [{torch.float32}]


def test_random_vectors_are_orthogonal_with_the_lengths_of_normal_ones():
    generator = torch.Generator().manual_seed(0)

    def off_diagonal(vectors):
        products = vectors @ vectors.T
        return (products - products.diagonal().diag()).abs().max() / products.max()

    groups = random_vectors(40, 16, generator, orthogonal=True).split(16)
    assert max(map(off_diagonal, groups)) < 1e-4
    assert off_diagonal(random_vectors(16, 16, generator, orthogonal=False)) > 0.1
    lengths = random_vectors(4096, 16, generator, orthogonal=True).square().sum(-1)
    assert abs(lengths.mean() - 16) < 0.5 and abs(lengths.var() - 32) < 4


@pytest.mark.parametrize("orthogonal", [True, False])
def test_favor_comes_closer_to_softmax_with_more_features(orthogonal):
    """The error of the mean of M unbiased terms falls with the root of M."""
    q, k, v = torch.randn(3, 1, 4, 20, 16)
    q, k = q / 2, k / 2  # the variance grows with exp(|q + k|²)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def error(features: int) -> float:
        config = PerformerAttention(features=features, orthogonal=orthogonal, feature_eps=1e-9)
        found = []
        for _ in range(8):
            torch.rand(1)  # another seed
            favor = FavorFeatures(config, 16)
            phi_q, (phi_k, _) = favor.queries(q), favor.keys(k, None, None, causal=False)
            y = linear.attend_to_all(phi_q, phi_k, v, phi_q, phi_k, eps=1e-9)
            found.append((y - exact).square().mean().sqrt().item())
        return sum(found) / 8

    errors = [error(16), error(256), error(4096)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2] and errors[2] < 0.1


def test_the_vectors_of_a_step_are_a_function_of_seed_layer_and_interval():
    """So that a resumed run, and any rank, has the same vectors as an uninterrupted run."""

    def vectors(seed, *steps, interval=10, rank=0):
        config = dataclasses.replace(FAVOR, redraw_interval=interval)
        net = models.build("encoder", "rotary", attention=config)
        for step in steps:
            begin_step(net, seed, step, rank)
        return [block.attention.feature_map.vectors.clone() for block in net.encoder.blocks]

    first, second = vectors(0, 1), vectors(0, 1, 9, 11)
    assert not torch.equal(*first) and not torch.equal(*second)
    # The tenth step, after which a run may end, is no new beginning.
    assert all(map(torch.equal, vectors(0, 1, 10, rank=1), first))
    assert not any(map(torch.equal, second, first))
    assert all(map(torch.equal, vectors(0, 17), second))  # resumed
    assert not any(map(torch.equal, vectors(1, 17), second))
    assert all(map(torch.equal, vectors(0, 5000, interval=None), vectors(0, interval=None)))


def test_dropout_has_other_streams_than_the_vectors(monkeypatch):
    """Step 3 of rank 0 and interval 0 of layer 3 have the same numbers in their keys."""
    drawn = []
    draw = FavorFeatures._draw
    monkeypatch.setattr(
        FavorFeatures,
        "_draw",
        lambda map, seed, *size: [drawn.append(seed), draw(map, seed, *size)][1],
    )
    net = models.build("encoder", "rotary", attention=FAVOR, layers=4)
    for step in (1, 2, 3):
        begin_step(net, 0, step, rank=0)
        assert torch.initial_seed() not in drawn
    plain = models.build("encoder", "rotary")
    begin_step(plain, 0, 3, rank=0)
    assert torch.initial_seed() in drawn  # as recorded runs have it


def test_loaded_vectors_stay_for_the_first_interval():
    """A fine-tuning begins with the vectors that its weights were trained on, whatever its seed."""
    config = dataclasses.replace(FAVOR, redraw_interval=10)
    trained, net = (models.build("encoder", "rotary", attention=config) for _ in range(2))
    begin_step(trained, 0, 15, rank=0)
    net.load_state_dict(trained.state_dict())
    kept, vectors = (one.encoder.blocks[0].attention.feature_map.vectors for one in (trained, net))
    for step, same in ((1, True), (10, True), (11, False)):
        begin_step(net, 3, step, rank=0)
        assert torch.equal(kept, vectors) == same


def test_elu_features_of_very_low_products_are_no_division_by_zero():
    net = models.build("encoder", "elu")
    attention = net.encoder.blocks[0].attention
    low = torch.full((1, 2, 3, 4), -40.0)
    features, _ = attention.feature_map.keys(low, None, None, causal=False)
    assert (features > 0).all() and torch.equal(attention.feature_map.queries(low), features)
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    found = attention.feature_map.queries(x)
    torch.testing.assert_close(found, torch.nn.functional.elu(x) + 1)
    (slope,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(slope, torch.tensor([math.exp(-1), 1.0, 1.0]))


def test_masks_that_differ_between_queries_are_refused():
    layer, encoding = laws.linear_layer(ELU)
    mask = additive_mask(torch.ones(1, 5, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="differs between queries"):
        layer(torch.randn(1, 5, 32), Positions(torch.arange(5)), encoding, mask)
