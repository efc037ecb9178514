"""The benchmarks: without the peer, and what they measure."""

import pytest
import torch

from benchmarks import linear, peers
from benchmarks.timing import in_child


def test_a_peer_that_is_not_installed_is_left_out_with_a_line(monkeypatch, capsys):
    monkeypatch.setattr(peers, "PERFORMER", "performer_that_is_not_installed")
    assert peers.performer() is None
    assert "performer-pytorch is left out" in capsys.readouterr().err


def test_what_is_set_beside_the_peer_has_its_vectors_and_one_level():
    """The peer's formula written out: outputs equal, though later keys reach earlier tokens by it."""
    vectors, (q, k, v) = torch.randn(12, 64), torch.randn(3, 1, 8, 20, 64)
    scaled = [t * 64**-0.25 for t in (q, k)]
    products = [t @ vectors.T for t in scaled]
    levels = products[0].amax(-1, keepdim=True), products[1].amax((-1, -2), keepdim=True)
    phi_q, phi_k = (
        ((p - t.square().sum(-1, keepdim=True) / 2 - level).exp() + 1e-4) / 12**0.5
        for p, t, level in zip(products, scaled, levels, strict=True)
    )
    for causal in (False, True):
        weights = phi_q @ phi_k.mT
        total = phi_k.sum(-2, keepdim=True)
        if causal:
            weights, total = weights.tril(), phi_k.cumsum(-2) + 1e-6
        expected = (weights @ v) / (phi_q * total).sum(-1, keepdim=True)
        found = linear.like_the_peer(vectors, causal)(q, k, v)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_memory_is_that_of_the_child_alone():
    """Not of the process that started it, as `getrusage` would have it."""
    held = torch.ones(100_000_000)  # 400 MB
    request = {"name": "elu+1", "length": 512, "causal": True}
    (found,) = in_child(linear.measure_linear, **request)["bytes"]
    # At least the gradients of three inputs, at most what features of all tokens could take.
    assert 3 * 512 * 8 * 64 * 4 <= found < held.nbytes / 4
