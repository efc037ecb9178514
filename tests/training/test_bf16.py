"""bf16 products in fp32: the values of bf16 instructions, and nothing else changes."""

from unittest.mock import Mock

import pytest
import torch
from torch.nn.functional import linear

from roformer.training import bf16
from roformer.training.hardware import autocast_of


@pytest.fixture
def without_instructions(monkeypatch):
    """A processor without bf16; torch's own products come back afterwards."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    # Most processors that run this test have the instructions, with equal results.
    monkeypatch.setattr(bf16, "in_fp32", counted := Mock(wraps=bf16.in_fp32))
    bf16.multiply_in_fp32.cache_clear()
    yield counted
    bf16.multiply_in_fp32()._destroy()
    bf16.multiply_in_fp32.cache_clear()


def test_products_are_rounded_once(without_instructions):
    x, weight, bias = torch.randn(3, 5, 64), torch.randn(7, 64), torch.randn(7)
    single = linear(x, weight, bias), x @ weight.T.expand(3, 64, 7)
    half = [t.bfloat16().requires_grad_() for t in (x, weight, bias)]
    with autocast_of(torch.device("cpu"), "bf16"):
        by_autocast = linear(x, weight, bias)
    again = linear(x, weight, bias), x @ weight.T.expand(3, 64, 7)
    assert all(a.equal(b) for a, b in zip(single, again, strict=True)), "fp32 is unchanged"

    x, weight, bias = half
    wide, rows, columns = (t.detach().float() for t in (bias, x, weight))
    exact = rows @ columns.T
    assert by_autocast.equal((exact + wide).bfloat16())
    assert linear(x, weight, bias).equal((exact + wide).bfloat16())
    assert linear(x, weight).equal(exact.bfloat16())
    assert (x @ weight.T.expand(3, 64, 7)).equal(exact.bfloat16())
    linear(x, weight, bias).sum().backward()
    assert weight.grad.equal(rows.sum((0, 1)).expand(7, 64).bfloat16())
    assert without_instructions.call_count == 8 + 2, "each product, and two of the backward pass"


@pytest.mark.parametrize("multiply", [torch.mm, torch.bmm, linear])
def test_mixed_types_are_still_an_error(without_instructions, multiply):
    rows, columns = torch.randn(2, 64, 64), torch.randn(64, 64).bfloat16()
    with autocast_of(torch.device("cpu"), "bf16"):
        pass  # this turns the products on
    with pytest.raises(RuntimeError):
        multiply(rows[0] if multiply is torch.mm else rows, columns)
