"""Laws of linear attention: the equations, what it may see, its random vectors."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.config.attention import EluAttention, PerformerAttention
from roformer.config.schema import EncoderConfig
from roformer.nn.attention import additive_mask, linear
from roformer.nn.attention.features import random_vectors
from roformer.nn.position import Positions, build_position
from roformer.training.state import begin_step
from tests.property import models

FAVOR, ELU = PerformerAttention(features=24), EluAttention()
both = pytest.mark.parametrize("config", [FAVOR, ELU], ids=["favor", "elu"])
either_way = pytest.mark.parametrize("causal", [False, True])


def linear_layer(config):
    """Return a linear attention layer of two heads of 16 dimensions, and its encoding."""
    sizes = EncoderConfig(**models.settings("rotary", heads=2, attention=config))
    layer = linear.LinearSelfAttention(config, 32, 2)
    layer.projection.weight.data.mul_(3)
    return layer, build_position(sizes.position, sizes)


def explicit_linear_attention(layer, encoding, x, ids, keep, causal):
    """Return RoFormer's Eq. 19 in float64, with every query's weight on every key written down.

    FAVOR+ as in Choromanski et al. 2021, Eq. 5. Levels only multiply eps: a query's own largest
    product, and the largest product of the keys it may see.
    """
    config, where = layer.config, Positions(ids)
    q, k, v = (part.double() for part in layer.split(layer.projection(x), 3))
    if config.rope_position == "pre":
        q, k = encoding.rotate(q, k, where)
    length = q.shape[-2]
    allowed = torch.ones(len(x), length, dtype=torch.bool) if keep is None else keep
    level_k = torch.zeros(len(x), layer.heads, length, 1, dtype=torch.float64)
    if config.kind == "elu":
        q, k = (torch.where(t > 0, t + 1, t.exp()) for t in (q, k))
    else:
        w = layer.feature_map.vectors.double()
        q, k = (t * t.shape[-1] ** -0.25 for t in (q, k))
        for_q, for_k = q @ w.T, k @ w.T
        level_q = for_q.detach().max(-1, keepdim=True).values
        largest = for_k.detach().max(-1, keepdim=True).values
        largest = largest.masked_fill(~allowed[:, None, :, None], -80.0)
        ends = [n + 1 if causal else length for n in range(length)]
        level_k = torch.stack([largest[:, :, :end].max(2).values for end in ends], dim=2)
        q, k = (
            (p - t.square().sum(-1, keepdim=True) / 2).exp() + config.feature_eps * level.exp()
            for p, t, level in ((for_q, q, level_q), (for_k, k, level_k))
        )
        q, k = q / len(w) ** 0.5, k / len(w) ** 0.5
    rotated_q, rotated_k = (q, k) if config.rope_position == "pre" else encoding.rotate(q, k, where)
    seen = allowed[:, None, None].expand(-1, 1, length, -1)
    seen = seen & torch.ones(length, length, dtype=torch.bool).tril() if causal else seen
    numerator = (rotated_q @ rotated_k.mT * seen) @ v
    eps = config.denominator_eps * level_k.exp() * q.sum(-1, keepdim=True)
    denominator = (q @ k.mT * seen).sum(-1, keepdim=True)
    denominator = denominator + eps if causal else denominator.maximum(eps)
    return layer.join((numerator / denominator).float())


def linear_error(config, length, causal, keep):
    """Largest difference to `explicit_linear_attention`, of outputs and of the input's gradient."""
    torch.manual_seed(length)
    layer, encoding = linear_layer(config)
    ids, x = torch.arange(length) + 3, torch.randn(2, length, 32, requires_grad=True)
    real = torch.ones(2, length, 1) if keep is None else keep[..., None].float()
    mask = None if keep is None else additive_mask(keep)
    weight = torch.randn(2, length, 32)
    y = layer(x, Positions(ids), encoding, mask, causal=causal) * real
    expected = explicit_linear_attention(layer, encoding, x, ids, keep, causal) * real
    gradient, expected_gradient = (
        torch.autograd.grad((z * weight).sum(), x)[0] for z in (y, expected)
    )
    scale = max(1.0, expected_gradient.abs().max().item())
    difference = (gradient - expected_gradient).abs().max().item() / scale
    return max((y - expected).abs().max().item(), difference)


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
    assert linear_error(config, length, causal, keep) < 1e-4


@both
@either_way
def test_a_row_without_any_key_is_finite(config, causal):
    layer, encoding = linear_layer(config)
    mask = additive_mask(torch.zeros(1, 5, dtype=torch.bool))
    y = layer(torch.randn(1, 5, 32), Positions(torch.arange(5)), encoding, mask, causal=causal)
    assert y.isfinite().all()


@both
@torch.no_grad()
def test_a_later_key_changes_nothing_however_large(config):
    """All features are taken relative to the largest key so far."""
    layer, encoding = linear_layer(dataclasses.replace(config, chunk_length=4))
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
    layer, encoding = linear_layer(config)
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
