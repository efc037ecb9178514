"""The bound of section 3.4.3 holds for queries and keys that our own code rotates, and is attained.

With h_i the product of pair i of the query and the conjugate of the key's, and h_{d/2} = 0, Eq. 36
and 37 say |q·k| ≤ max |h_{i+1} - h_i| · Σ |S_{i+1}|, which is d/2 times `decay_bound`.
"""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import roformer

HEADS = st.sampled_from([2, 8, 32, 64, 128])
PLACES = st.integers(0, 300)


def rotated_score(q, k, m, n):
    """Return the product of q at m and k at n, by the public function, in fp64."""
    q, k = (roformer.apply_rotary(x[None], torch.tensor([place])) for x, place in ((q, m), (k, n)))
    return float((q * k).sum())


def largest_step(q, k):
    """Return max |h_{i+1} - h_i|, h_{d/2} = 0 included."""
    q, k = (torch.view_as_complex(x.unflatten(-1, (-1, 2))) for x in (q, k))
    h = torch.cat((q * k.conj(), torch.zeros(1, dtype=q.dtype)))
    return float(h.diff().abs().max())


def bound(m, n, head_dim):
    return head_dim / 2 * float(roformer.decay_bound(torch.tensor(m - n), head_dim))


@settings(deadline=None, max_examples=100)
@given(head_dim=HEADS, m=PLACES, n=PLACES, seed=st.integers(0, 10**6), smooth=st.booleans())
def test_no_score_is_above_the_bound(head_dim, m, n, seed, smooth):
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, head_dim, dtype=torch.float64, generator=generator)
    if smooth:  # pairs that hardly differ, as where the bound is close
        q, k = (x[:2].repeat(head_dim // 2) + 0.01 * x for x in (q, k))
    assert abs(rotated_score(q, k, m, n)) <= largest_step(q, k) * bound(m, n, head_dim) * (1 + 1e-4)


@settings(deadline=None, max_examples=50)
@given(head_dim=HEADS, m=PLACES, n=PLACES)
def test_the_bound_is_attained(head_dim, m, n):
    """By the steps of h that turn every S_{i+1} of Eq. 36 to the real axis; no smaller bound holds."""
    theta = 10000.0 ** (-2 * torch.arange(head_dim // 2, dtype=torch.float64) / head_dim)
    partial = torch.polar(torch.ones_like(theta), (m - n) * theta).cumsum(0)
    h = (partial.conj() / partial.abs()).flip(0).cumsum(0).flip(0)
    q = torch.view_as_real(h).flatten()
    k = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(head_dim // 2)
    assert abs(largest_step(q, k) - 1) < 1e-9
    expected = bound(m, n, head_dim)
    assert abs(rotated_score(q, k, m, n) - expected) <= 1e-3 * expected
