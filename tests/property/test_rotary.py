"""The rotary layer obeys its laws (laws.py), for any position, length, type and layout."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import roformer
from roformer.interop.layout import convert_layout
from roformer.nn import rotary
from tests.property import laws

LAYOUTS = st.sampled_from(rotary.LAYOUTS)


@settings(deadline=None, max_examples=40)
@given(
    dim=st.sampled_from([8, 16, 64, 128]),
    layout=LAYOUTS,
    base=st.sampled_from([10000.0, 500.0]),
    positions=st.lists(st.integers(-50, 2000), min_size=1, max_size=12),
)
def test_equals_the_rotation_matrix(dim, layout, base, positions):
    positions = torch.tensor(positions)
    # fp32 angles of up to 2000 radians are known to 1e-4.
    assert laws.matrix_error(rotary, positions, dim, layout=layout, base=base) < 1e-3


@pytest.mark.parametrize("layout", rotary.LAYOUTS)
def test_equals_the_rotation_matrix_closely_at_short_range(layout):
    assert laws.matrix_error(rotary, torch.arange(16), 8, layout=layout) < 5e-6


@settings(deadline=None, max_examples=20)
@given(shift=st.integers(0, 500))
def test_product_depends_on_the_distance_only(shift):
    assert laws.shift_error(rotary, shift) < 2e-3


def test_product_depends_on_the_distance():
    assert laws.distance_sensitivity(rotary) > 0.5


def test_norm_is_kept():
    assert laws.norm_error(rotary) < 1e-5


def test_offset_equals_the_whole_pass():
    assert laws.offset_error(rotary) == 0.0


def test_values_are_not_rotated():
    assert laws.value_error() < 1e-6


@pytest.mark.parametrize("layout", rotary.LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fast_paths_equal_the_definition(layout, dtype):
    x = torch.randn(2, 3, 5, 16).to(dtype).requires_grad_()
    embedding = roformer.RotaryEmbedding(16, layout=layout)
    table = embedding.table(torch.arange(5))
    expected = rotary.rotate(x.double(), table, layout)
    y = embedding(x, table)
    assert y.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 0.04
    torch.testing.assert_close(y.double(), expected, atol=tolerance, rtol=0)
    weight = torch.randn_like(x)
    ours, theirs = (torch.autograd.grad(z, x, weight.to(z.dtype))[0] for z in (y, expected))
    torch.testing.assert_close(ours.double(), theirs.double(), atol=tolerance, rtol=0.01)


@pytest.mark.parametrize("layout", rotary.LAYOUTS)
def test_gradient_in_float64(layout):
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda v: roformer.apply_rotary(v, torch.arange(5), layout=layout), x
    )


@pytest.mark.parametrize(
    "strided", ["contiguous", "transposed", "slice", "odd offset", "odd stride"]
)
def test_any_memory_layout(strided):
    base = torch.randn(2, 5, 3, 4, 16)
    x = {
        "contiguous": base[:, :, 0].transpose(1, 2).contiguous(),
        "transposed": base[:, :, 0].contiguous().transpose(1, 2),
        "slice": base[:, :, 0].transpose(1, 2),
        "odd offset": torch.randn(2 * 4 * 5 * 16 + 1)[1:].view(2, 4, 5, 16),
        "odd stride": torch.randn(2, 4, 5, 17)[..., :16],
    }[strided]
    expected = rotary.rotate(x.contiguous(), rotary.rotary_table(torch.arange(5), 16))
    torch.testing.assert_close(roformer.apply_rotary(x, torch.arange(5)), expected)


def test_positions_by_row():
    x = torch.randn(3, 2, 4, 8)
    positions = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8], [0, 0, 1, 2]])
    y = roformer.apply_rotary(x, positions)
    for row in range(3):
        torch.testing.assert_close(y[row], roformer.apply_rotary(x[row], positions[row]))


def distinct_positions(y: torch.Tensor) -> int:
    return len(torch.unique(y.float(), dim=0))


def test_angles_stay_fp32_in_bf16():
    """In bf16, half of these 1,024 positions would share an angle with a neighbour."""
    assert rotary.rotary_angles(torch.arange(4).to(torch.bfloat16), 8).dtype == torch.float32
    x = torch.ones(1024, 64, dtype=torch.bfloat16)
    positions = torch.arange(1024)
    assert distinct_positions(roformer.apply_rotary(x, positions)) == 1024
    with torch.autocast("cpu", torch.bfloat16):
        assert distinct_positions(roformer.apply_rotary(x, positions)) == 1024
        angles = rotary.rotary_angles(positions, 64)
    assert torch.equal(angles, rotary.rotary_angles(positions, 64))
    embedding = roformer.RotaryEmbedding(64).to(torch.bfloat16)
    assert distinct_positions(embedding(x, embedding.table(positions))) == 1024


def test_order_of_calls_does_not_matter():
    """No cache is poisoned by a bf16 call, a short call or another base."""
    x, positions = torch.randn(40, 16), torch.arange(40)
    before = roformer.apply_rotary(x, positions)
    roformer.apply_rotary(x.bfloat16(), positions)
    roformer.apply_rotary(x[:3], positions[:3], base=100.0)
    assert torch.equal(roformer.apply_rotary(x, positions), before)


def test_layouts_agree_after_permuting_the_projection():
    heads, dim, hidden = 2, 8, 16
    weights, biases = torch.randn(2, heads * dim, hidden), torch.randn(2, heads * dim)
    x, positions = torch.randn(6, hidden), torch.arange(6)

    def scores(weights, biases, layout):
        q, k = (x @ w.T + b for w, b in zip(weights, biases, strict=True))
        q, k = (v.unflatten(-1, (heads, dim)).transpose(0, 1) for v in (q, k))
        q, k = (roformer.apply_rotary(v, positions, layout=layout) for v in (q, k))
        return q @ k.transpose(-1, -2)

    half = [
        [convert_layout(t, heads, "half", rotary_dim=dim) for t in ts] for ts in (weights, biases)
    ]
    expected = scores(weights, biases, "interleaved")
    torch.testing.assert_close(scores(*half, "half"), expected)
    assert (scores(weights, biases, "half") - expected).abs().max() > 1  # the permutation is needed
    back = [convert_layout(t, heads, "interleaved", rotary_dim=dim) for t in half[0]]
    assert torch.equal(torch.stack(back), weights)


@pytest.mark.parametrize("layout", rotary.LAYOUTS)
def test_partial_rotation_leaves_the_rest(layout):
    embedding = roformer.RotaryEmbedding(16, rotary_dim=8, layout=layout)
    x, positions = torch.randn(2, 5, 16), torch.arange(5)
    y = embedding(x, embedding.table(positions))
    assert torch.equal(y[..., 8:], x[..., 8:])
    turned = roformer.apply_rotary(x[..., :8], positions, layout=layout)
    torch.testing.assert_close(y[..., :8], turned)


@pytest.mark.parametrize("layout", rotary.LAYOUTS)
def test_compiles_without_a_break(layout):
    x, positions = torch.randn(2, 4, 6, 16), torch.arange(6)
    compiled = torch.compile(roformer.apply_rotary, fullgraph=True, backend="aot_eager")
    expected = roformer.apply_rotary(x, positions, layout=layout)
    torch.testing.assert_close(compiled(x, positions, layout=layout), expected)


@pytest.mark.parametrize("layout", rotary.LAYOUTS)
def test_a_key_turns_by_its_own_position(layout):
    """f_k(x_n, n) is R_n k (Eq. 14), whatever position the query has."""
    k = torch.randn(8, dtype=torch.float64)
    for n in (0, 3, 11):
        turned = roformer.apply_rotary(k[None], torch.tensor([n]), layout=layout)[0]
        expected = laws.rotation_matrix(n, 8, 10000.0, layout) @ k
        torch.testing.assert_close(turned, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("layout", rotary.LAYOUTS)
@pytest.mark.parametrize(("m", "n"), [(2, 9), (9, 2), (5, 5)])
def test_the_product_has_the_rotation_by_n_minus_m(m, n, layout):
    """(R_m q)ᵀ(R_n k) = qᵀ R_(n-m) k = Re Σ q k* e^(i(m-n)θ) (Eq. 12, 16), of which the sign is told."""
    q, k = torch.randn(2, 8, dtype=torch.float64)
    turned_q, turned_k = (
        roformer.apply_rotary(x[None], torch.tensor([place]), layout=layout)[0]
        for x, place in ((q, m), (k, n))
    )
    product = turned_q @ turned_k
    matrix = laws.rotation_matrix(n - m, 8, 10000.0, layout)
    torch.testing.assert_close(product, q @ matrix @ k, atol=1e-4, rtol=0)
    parts = (x.unflatten(-1, (-1, 2) if layout == "interleaved" else (2, -1)) for x in (q, k))
    axis = -1 if layout == "interleaved" else 0
    a, b = (torch.complex(*part.unbind(axis)) for part in parts)
    theta = 10000.0 ** (-2 * torch.arange(4, dtype=torch.float64) / 8)
    score = (a * b.conj() * torch.polar(torch.ones_like(theta), (m - n) * theta)).sum().real
    torch.testing.assert_close(product, score, atol=1e-4, rtol=0)
    if m != n:
        other = q @ laws.rotation_matrix(m - n, 8, 10000.0, layout) @ k
        assert abs(product - other) > 0.1


def test_one_pair_does_not_decay():
    """cos((m-n)θ) with θ = 1 is back at 1 after 44 ≈ 7·2π positions, and at -1 after 22."""
    x = torch.tensor([[1.0, 0.0]])
    scores = [
        float((x * roformer.apply_rotary(x, torch.tensor([place]))).sum()) for place in (0, 22, 44)
    ]
    assert scores == pytest.approx([1, -1, 1], abs=1e-3)
    assert roformer.decay_bound(torch.arange(300), 2).tolist() == pytest.approx([1.0] * 300)


def test_each_angle_turns_both_of_its_pair():
    """cos mθ_1, cos mθ_1, cos mθ_2, cos mθ_2, … are the diagonal of R_m (Eq. 34)."""
    angles = roformer.rotary_angles(torch.tensor([3]), 8)[0]
    turned = roformer.apply_rotary(torch.eye(8), torch.full((8,), 3))
    torch.testing.assert_close(turned.diagonal(), angles.cos().repeat_interleave(2))


def test_the_table_grows_with_the_length_and_is_no_weight():
    embedding = roformer.RotaryEmbedding(16)
    assert not embedding.state_dict() and not list(embedding.buffers())
    entries = [sum(t.numel() for t in embedding.table(torch.arange(n))) for n in (10, 1000)]
    assert entries == [10 * 16, 1000 * 16]


@pytest.mark.parametrize(
    ("head_dim", "expected"),
    [
        (128, [32.5, 17.95, 12.63, 10.23, 7.59, 6.55]),
        (64, [16.5, 8.81, 5.73, 7.47, 4.22, 3.67]),
    ],
)
def test_decay_bound_of_figure_2(head_dim, expected):
    bound = roformer.decay_bound(torch.tensor([0, 10, 50, 100, 150, 250]), head_dim)
    torch.testing.assert_close(bound, torch.tensor(expected), atol=0.006, rtol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rotary.rotary_angles(torch.arange(3), 7), "even head_dim, not 7"),
        (lambda: rotary.rotary_angles(torch.arange(3), 8, base=1.0), "above 1"),
        (lambda: roformer.apply_rotary(torch.ones(3, 7), torch.arange(3)), "choose an even size"),
        (lambda: roformer.apply_rotary(torch.ones(3, 8), torch.arange(4)), "seq = 3"),
        (lambda: roformer.apply_rotary(torch.ones(8), torch.arange(8)), r"\(seq,\)"),
        (
            lambda: roformer.apply_rotary(torch.ones(2, 3, 8), torch.zeros(5, 3)),
            r"does not start with that batch",
        ),
        (
            lambda: roformer.apply_rotary(torch.ones(3, 8), torch.arange(3), layout="neox"),
            "choose one of interleaved, half",
        ),
        (lambda: roformer.RotaryEmbedding(8, rotary_dim=10), "between 2 and head_dim=8"),
        (lambda: roformer.RotaryEmbedding(8, rotary_dim=3), "even"),
    ],
)
def test_bad_input_is_refused_with_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()
