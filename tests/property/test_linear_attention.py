"""Laws of linear attention: the equations, what it may see, its random vectors."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from roformer.config import position as encodings
from roformer.config.attention import (
    EluAttention,
    PerformerAttention,
    SoftmaxAttention,
    check_documents,
)
from roformer.config.schema import EncoderConfig
from roformer.models.cost import attention_flops
from roformer.nn.attention import additive_mask, linear
from roformer.nn.attention.features import FavorFeatures, random_vectors
from roformer.nn.position import Positions
from roformer.training.steps import begin_step
from tests.property import laws, models

FAVOR, ELU = PerformerAttention(features=24), EluAttention()
both = pytest.mark.parametrize("config", [FAVOR, ELU], ids=["favor", "elu"])


@both
@pytest.mark.parametrize("rope_position", ["post", "pre"])
@pytest.mark.parametrize("causal", [False, True])
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
@pytest.mark.parametrize("causal", [False, True])
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
@pytest.mark.parametrize("causal", [False, True])
def test_features_and_sums_are_fp32_under_autocast(config, causal, monkeypatch):
    """Sums of bf16 stop growing at some hundred keys."""
    layer, encoding = laws.linear_layer(config)
    name, seen = "attend_to_earlier" if causal else "attend_to_all", []
    original = getattr(linear, name)

    def watch(*tensors, **rest):
        seen.append({t.dtype for t in tensors if isinstance(t, torch.Tensor)})
        return original(*tensors, **rest)

    monkeypatch.setattr(linear, name, watch)
    x, where = torch.randn(1, 700, 32), Positions(torch.arange(700))
    exact = layer(x, where, encoding, None, causal=causal)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x, where, encoding, None, causal=causal)
    assert found.dtype == torch.bfloat16 and seen == [{torch.float32}] * 2
    assert (found - exact).abs().mean() < 0.02 * exact.abs().mean() + 0.01


def test_random_vectors_are_orthogonal_with_the_lengths_of_normal_ones():
    generator = torch.Generator().manual_seed(0)
    vectors = random_vectors(40, 16, generator, orthogonal=True)
    for group in vectors.split(16):
        products = group @ group.T
        off = products - products.diagonal().diag()
        assert off.abs().max() < 1e-4 * products.max()
    lengths = random_vectors(4096, 16, generator, orthogonal=True).square().sum(-1)
    assert abs(lengths.mean() - 16) < 0.5 and abs(lengths.var() - 32) < 4
    free = random_vectors(32, 16, generator, orthogonal=False)
    assert (free @ free.T - (free @ free.T).diagonal().diag()).abs().max() > 1


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
    """So that a resumed run, and any rank, has those of an uninterrupted run."""
    config = dataclasses.replace(FAVOR, redraw_interval=10)

    def vectors(net, seed, update, rank=0):
        begin_step(net, seed, update, rank)
        return [net.encoder.blocks[n].attention.feature_map.vectors.clone() for n in (0, 1)]

    one = models.build("encoder", "rotary", attention=config)
    first = vectors(one, 0, 1)
    assert not torch.equal(*first)
    assert all(map(torch.equal, vectors(one, 0, 9, rank=1), first))
    second = vectors(one, 0, 10)
    assert not any(map(torch.equal, second, first)) and not torch.equal(*second)
    resumed = models.build("encoder", "rotary", attention=config)
    assert all(map(torch.equal, vectors(resumed, 0, 17), second))
    assert not any(map(torch.equal, vectors(resumed, 1, 17), second))
    fixed = dataclasses.replace(FAVOR, redraw_interval=None)
    kept = models.build("encoder", "rotary", attention=fixed)
    start = kept.encoder.blocks[0].attention.feature_map.vectors.clone()
    assert torch.equal(vectors(kept, 0, 5000)[0], start)


@both
@pytest.mark.parametrize("causal", [False, True])
def test_operations_are_those_that_torch_counts(config, causal):
    """Up to the denominators, which the estimate leaves out, and whole chunks, which torch counts."""
    layer, encoding = laws.linear_layer(config)
    sizes = EncoderConfig(**models.settings("rotary", heads=2, attention=config))
    x, where = torch.randn(1, 512, 32), Positions(torch.arange(512))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x, where, encoding, None, causal=causal)
    counted = counter.get_total_flops() / 512 - 2 * 4 * 32 * 32
    assert 1.0 <= counted / attention_flops(sizes, 512, causal=causal) < (3.0 if causal else 1.1)


ODD, YARN = PerformerAttention(features=33), encodings.YarnScaling(factor=2, trained_length=128)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": ODD}, "rotate pairs of features"),
        ({"attention": FAVOR, "position": encodings.Shaw()}, "no matrix of logits"),
        ({"attention": ELU, "position": encodings.T5Bias()}, "no matrix of logits"),
        ({"attention": ELU, "position": encodings.Alibi()}, "no matrix of logits"),
        ({"attention": ELU, "attention_dropout": 0.1}, "set model.attention_dropout=0"),
        ({"attention": ELU, "position": encodings.Rotary(scaling=YARN)}, "kind=yarn"),
    ],
)
def test_configurations_that_need_logits_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        EncoderConfig(**models.settings("rotary", **changes))


@pytest.mark.parametrize("position", ["rotary", "learned", "sinusoidal", "none"])
@pytest.mark.parametrize("attention", [FAVOR, ELU, dataclasses.replace(ODD, rope_position="pre")])
def test_other_positions_are_accepted(attention, position):
    EncoderConfig(**models.settings(position, attention=attention))


def test_isolated_documents_and_masks_of_each_query_are_refused():
    check_documents(SoftmaxAttention(), "isolate")
    with pytest.raises(ValueError, match="documents=cross"):
        check_documents(FAVOR, "isolate")
    layer, encoding = laws.linear_layer(ELU)
    mask = additive_mask(torch.ones(1, 5, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="differs between queries"):
        layer(torch.randn(1, 5, 32), Positions(torch.arange(5)), encoding, mask)
