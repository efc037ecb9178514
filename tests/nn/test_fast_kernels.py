"""The fast kernels equal torch's own."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from roformer.nn import cross_entropy
from roformer.nn import linear as nn_linear
from roformer.nn.attention.softmax import Attention
from roformer.nn.dropout import Dropout, keep_mask
from tests.property.models import SOFTMAX, build, tokens


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_by_convolution_equals_linear(monkeypatch, shape, bias):
    monkeypatch.setattr(nn_linear, "BY_CONVOLUTION", True)
    x = torch.randn(*shape, requires_grad=True)
    weight = torch.randn(5, 7, requires_grad=True)
    offset = torch.randn(5, requires_grad=True) if bias else None
    inputs = [t for t in (x, weight, offset) if t is not None]
    results = []
    for product in (nn_linear.linear, functional.linear):
        y = product(x, weight, offset)
        results.append((y, *torch.autograd.grad((y * y.detach()).sum(), inputs)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_linear_leaves_autocast_to_torch(monkeypatch):
    monkeypatch.setattr(nn_linear, "BY_CONVOLUTION", True)
    with torch.autocast("cpu", torch.bfloat16):
        assert nn_linear.Linear(4, 4)(torch.randn(2, 4)).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_keeps_the_right_share_and_scale(dtype, p):
    x = torch.ones(1000, 999, dtype=dtype, requires_grad=True)
    y = Dropout(p)(x)
    kept = y != 0
    # Five standard deviations of a million draws.
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=5 * (p * (1 - p) / 1e6) ** 0.5)
    assert torch.equal(y[kept], torch.full_like(y[kept], 1 / (1 - p)))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)  # the same mask and scale in the backward pass


def test_dropout_elements_are_independent():
    mask = keep_mask(torch.Size((200_000, 8)), 0.3).float() - 0.7
    correlation = mask.T @ mask / len(mask) / 0.21
    off_diagonal = correlation - torch.diag(correlation.diagonal())
    assert off_diagonal.abs().max() < 5 / 200_000**0.5


def test_dropout_follows_the_seed_and_eval_mode():
    dropout, x = Dropout(0.4), torch.randn(33, 7)
    torch.manual_seed(3)
    first = dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(dropout(x), first)
    assert torch.equal(dropout.eval()(x), x)


@given(
    rows=st.integers(0, 20),
    size=st.integers(2, 30),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    scale=st.sampled_from([0.1, 1.0, 100.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    ignoring=st.booleans(),
)
def test_cross_entropy_equals_torchs_in_float64(rows, size, smoothing, scale, dtype, ignoring):
    """In pieces of some rows; catches rows that a piece skips, and ignored ones that count."""
    generator = torch.Generator().manual_seed(rows * size)
    logits = (scale * torch.randn(rows, size, generator=generator)).to(dtype)
    labels = torch.randint(size, (rows,), generator=generator)
    if ignoring:
        labels[torch.rand(rows, generator=generator) < 0.4] = -100
    ours, theirs = logits.clone().requires_grad_(), logits.double().requires_grad_()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cross_entropy.PIECE, "cpu", 3 * size)
        ignored = -100 if ignoring else None
        loss = cross_entropy.smoothed_cross_entropy(ours, labels, smoothing, ignored=ignored)
        with torch.no_grad():
            again = cross_entropy.smoothed_cross_entropy(ours, labels, smoothing, ignored=ignored)
    expected = functional.cross_entropy(
        theirs, labels, label_smoothing=smoothing, reduction="sum", ignore_index=-100
    )
    assert loss.dtype == torch.float32 and loss.item() == again.item()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-4)
    (2 * loss).backward(retain_graph=True)
    (2 * expected).backward()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=tolerance, rtol=tolerance)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_cross_entropy_in_fp16_keeps_small_probabilities_for_the_loss_scale():
    logits = torch.tensor([[0.0, -20.0]], dtype=torch.float16, requires_grad=True)
    loss = cross_entropy.smoothed_cross_entropy(logits, torch.tensor([0]))
    (2.0**16 * loss).backward()
    assert logits.grad[0, 1].item() == pytest.approx(2**16 * math.exp(-20), rel=1e-2)


@pytest.mark.parametrize("name", SOFTMAX)
def test_masks_are_what_fused_attention_takes_on_a_gpu(name, monkeypatch):
    """Others fall back to kernels that keep the matrix of logits, without a word."""
    strides, attention = [], functional.scaled_dot_product_attention

    def spy(*given, attn_mask=None, **named):
        strides.append(1 if attn_mask is None else attn_mask.stride(-1))
        return attention(*given, attn_mask=attn_mask, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    monkeypatch.setattr(Attention, "fused", lambda *given: True)
    there = torch.arange(9) < torch.tensor([[9], [4]])
    for attention_mask in (None, there):
        build("encoder", name)(tokens(rows=2, length=9), attention_mask=attention_mask)
    assert set(strides) <= {1}  # Shaw and NEZHA, with vectors on the values, use none
