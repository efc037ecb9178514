"""The rotary layer obeys its laws (laws.py), for any position, length, type, layout and scaling."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import roformer
from roformer.config import position as encodings
from roformer.config.schema import EncoderConfig
from roformer.interop.layout import convert_layout
from roformer.nn import rotary
from roformer.nn.position import Positions, build_position
from roformer.nn.rotary_scaling import ScaledRotaryEmbedding, dynamic_factor
from tests.property import laws, models

TRAINED = 128
KINDS = ("linear", "ntk", "dynamic_ntk", "yarn")
layouts = pytest.mark.parametrize("layout", rotary.LAYOUTS)
scalings = pytest.mark.parametrize("kind", KINDS)
all_kinds = pytest.mark.parametrize("kind", ["none", *KINDS])


def scaling(kind, factor=4.0):
    return {
        "none": encodings.NoScaling(),
        "linear": encodings.LinearScaling(factor=factor),
        "ntk": encodings.NtkScaling(factor=factor),
        "dynamic_ntk": encodings.DynamicNtkScaling(factor=factor, trained_length=TRAINED),
        "yarn": encodings.YarnScaling(factor=factor, trained_length=TRAINED),
    }[kind]


def embedding(kind="none", factor=4.0, dim=64, **options):
    if kind == "none":
        return roformer.RotaryEmbedding(dim, **options)
    return ScaledRotaryEmbedding(dim, scaling=scaling(kind, factor), **options)


def frequencies(kind, factor, length=TRAINED, **options):
    return embedding(kind, factor, **options).frequencies(torch.arange(length))


# --- the rotation --------------------------------------------------------------------------------


@given(
    dim=st.sampled_from([8, 16, 64, 128]),
    layout=st.sampled_from(rotary.LAYOUTS),
    base=st.sampled_from([10000.0, 500.0]),
    positions=st.lists(st.integers(-50, 2000), min_size=1, max_size=12),
)
def test_equals_the_rotation_matrix(dim, layout, base, positions):
    positions = torch.tensor(positions)
    # fp32 angles of up to 2000 radians are known to 1e-4.
    assert laws.matrix_error(rotary, positions, dim, layout=layout, base=base) < 1e-3


@layouts
def test_equals_the_rotation_matrix_closely_at_short_range(layout):
    assert laws.matrix_error(rotary, torch.arange(16), 8, layout=layout) < 5e-6


@settings(max_examples=10)
@given(shift=st.integers(0, 500))
def test_product_depends_on_the_distance_only(shift):
    assert laws.shift_error(rotary, shift) < 2e-3


def test_product_depends_on_the_distance_and_norms_offsets_and_values_are_kept():
    assert laws.distance_sensitivity(rotary) > 0.5
    assert laws.norm_error(rotary) < 1e-5
    assert laws.offset_error(rotary) == 0.0
    assert laws.value_error() < 1e-6


@layouts
@all_kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fast_paths_and_their_gradients_equal_the_definition(kind, layout, dtype):
    x = torch.randn(2, 3, 5, 16).to(dtype).requires_grad_()
    module = embedding(kind, dim=16, layout=layout)
    table = module.table(torch.arange(5) * 100)
    y, expected = module(x, table), rotary.rotate(x.double(), table, layout)
    assert y.dtype == dtype
    tolerance = 2e-6 if dtype == torch.float32 else 0.04
    torch.testing.assert_close(y.double(), expected, atol=tolerance, rtol=0)
    weight = torch.randn_like(x)
    ours, theirs = (torch.autograd.grad(z, x, weight.to(z.dtype))[0] for z in (y, expected))
    torch.testing.assert_close(ours.double(), theirs.double(), atol=tolerance, rtol=0.01)


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


@all_kinds
def test_rows_of_positions_and_partial_rotation(kind):
    module = embedding(kind, dim=32, rotary_dim=16)
    rows = torch.stack((torch.arange(600), torch.arange(600).flip(0)))
    x = torch.randn(2, 3, 600, 32)
    y = module(x, module.table(rows))
    assert torch.equal(y[..., 16:], x[..., 16:])
    for row in range(2):
        torch.testing.assert_close(y[row], module(x[row], module.table(rows[row])))
        if kind == "none":
            alone = roformer.apply_rotary(x[row, ..., :16], rows[row])
            torch.testing.assert_close(y[row, ..., :16], alone)
            both = roformer.apply_rotary(x[..., :16], rows)
            torch.testing.assert_close(both[row], alone)


@all_kinds
def test_tables_are_fp32_and_never_weights(kind):
    """In bf16, half of 1,024 positions would share an angle with a neighbour."""
    positions, module = torch.arange(1024), embedding(kind)
    table = module.table(positions)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, module.table(positions), table))
    module = module.to(torch.bfloat16)
    assert all(map(torch.equal, module.table(positions), table))
    assert table.cos.dtype == torch.float32
    assert not module.state_dict() and not list(module.buffers())
    if kind == "none":
        rotated = module(torch.ones(1024, 64, dtype=torch.bfloat16), table)
        assert len(torch.unique(rotated.float(), dim=0)) == 1024


def test_the_table_grows_with_the_length_and_is_no_weight():
    assert not embedding().state_dict()
    entries = [sum(t.numel() for t in embedding().table(torch.arange(n))) for n in (10, 1000)]
    assert entries == [10 * 64, 1000 * 64]


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


@pytest.mark.parametrize(
    ("kind", "layout"), [("none", "half"), *((kind, "interleaved") for kind in ("none", *KINDS))]
)
def test_compiles_without_a_break(kind, layout):
    module, x = embedding(kind, dim=16, layout=layout), torch.randn(2, 6, 16)

    def function(x, positions):
        return module(x, module.table(positions))

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    positions = torch.arange(6) * 90
    torch.testing.assert_close(compiled(x, positions), function(x, positions))


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
        (lambda: frequencies("ntk", 4.0, dim=2), "two rotary pairs, not head_dim=2"),
    ],
)
def test_bad_input_is_refused_with_the_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- formulas that circulate with errors (docs/position-encoding.md) -----------------------------


@layouts
def test_a_key_turns_by_its_own_position(layout):
    """f_k(x_n, n) is R_n k (Eq. 14), whatever position the query has."""
    k = torch.randn(8, dtype=torch.float64)
    for n in (0, 3, 11):
        rotated = roformer.apply_rotary(k[None], torch.tensor([n]), layout=layout)[0]
        expected = laws.rotation_matrix(n, 8, 10000.0, layout) @ k
        torch.testing.assert_close(rotated, expected, atol=1e-5, rtol=0)


@layouts
@pytest.mark.parametrize(("m", "n"), [(2, 9), (9, 2), (5, 5)])
def test_the_product_has_the_rotation_by_n_minus_m(m, n, layout):
    """(R_m q)ᵀ(R_n k) = qᵀ R_(n-m) k = Re Σ q k* e^(i(m-n)θ) (Eq. 12, 16), with this sign."""
    q, k = torch.randn(2, 8, dtype=torch.float64)
    rotated_q, rotated_k = (
        roformer.apply_rotary(x[None], torch.tensor([place]), layout=layout)[0]
        for x, place in ((q, m), (k, n))
    )
    product = rotated_q @ rotated_k
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
    rotated = roformer.apply_rotary(torch.eye(8), torch.full((8,), 3))
    torch.testing.assert_close(rotated.diagonal(), angles.cos().repeat_interleave(2))


# --- the bound of section 3.4.3 ------------------------------------------------------------------


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


@settings(max_examples=40)
@given(
    head_dim=st.sampled_from([2, 8, 32, 64, 128]),
    m=st.integers(0, 300),
    n=st.integers(0, 300),
    kind=st.sampled_from(["random", "smooth", "worst"]),
)
def test_no_score_is_above_the_bound_and_the_worst_attains_it(head_dim, m, n, kind):
    """With h_i = q_i k_i*, h_{d/2} = 0: |q·k| ≤ max |h_{i+1} - h_i| · Σ |S_{i+1}| (Eq. 36, 37)."""
    q, k = torch.randn(2, head_dim, dtype=torch.float64)
    if kind == "smooth":  # pairs that hardly differ, where the bound is close
        q, k = (x[:2].repeat(head_dim // 2) + 0.01 * x for x in (q, k))
    elif kind == "worst":  # steps of h that turn every S_{i+1} to the real axis
        theta = 10000.0 ** (-2 * torch.arange(head_dim // 2, dtype=torch.float64) / head_dim)
        partial = torch.polar(torch.ones_like(theta), (m - n) * theta).cumsum(0)
        h = (partial.conj() / partial.abs()).flip(0).cumsum(0).flip(0)
        q, k = torch.view_as_real(h).flatten(), torch.tensor([1.0, 0.0]).repeat(head_dim // 2)
    rotated = (
        roformer.apply_rotary(x[None].double(), torch.tensor([at])) for x, at in ((q, m), (k, n))
    )
    score = abs(float(math.prod(rotated).sum()))
    q, k = (torch.view_as_complex(x.double().unflatten(-1, (-1, 2))) for x in (q, k))
    steps = torch.cat((q * k.conj(), torch.zeros(1, dtype=q.dtype))).diff().abs().max()
    bound = float(steps) * head_dim / 2 * float(roformer.decay_bound(torch.tensor(m - n), head_dim))
    assert score <= bound * (1 + 1e-3)
    if kind == "worst":
        assert score >= bound * (1 - 1e-3)


# --- scaled frequencies (their values are held to transformers' in tests/parity) -----------------


@scalings
@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_factor_one_is_the_paper_bitwise(kind, layout, dtype):
    length = TRAINED if kind == "dynamic_ntk" else 8 * TRAINED
    positions, x = torch.arange(length), torch.randn(2, 3, length, 64).to(dtype)
    plain, scaled = embedding(layout=layout), embedding(kind, 1.0, layout=layout)
    table = plain.table(positions)
    assert all(map(torch.equal, scaled.table(positions), table))
    assert torch.equal(scaled(x, scaled.table(positions)), plain(x, table))


@scalings
@layouts
def test_scaled_products_depend_on_the_distance_only(kind, layout):
    """All positions move together; the dynamic form, which reads the last one, is given it."""
    q, k = torch.randn(2, 64, dtype=torch.float64)
    scaled, last = embedding(kind, layout=layout), torch.tensor([4 * TRAINED - 1])

    def products(shift: int) -> torch.Tensor:
        table = scaled.table(torch.cat((torch.arange(12) + shift, last)))
        rotated = [scaled(v.expand(13, 64), table)[:12] for v in (q, k)]
        return rotated[0] @ rotated[1].T

    first = products(0)
    assert first[0].std() > 0.1
    torch.testing.assert_close(products(300), first, atol=2e-3, rtol=0)


@pytest.mark.parametrize("dim", [8, 64, 128])
@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_linear_and_ntk_interpolate_by_the_factor(dim, factor):
    plain, ntk = rotary.rotary_frequencies(dim), frequencies("ntk", factor, dim=dim)
    assert torch.equal(frequencies("linear", factor, dim=dim) * factor, plain)
    assert ntk[0] == plain[0]  # the fastest pair keeps its frequency
    torch.testing.assert_close(ntk[-1] * factor, plain[-1], rtol=2e-7, atol=0)
    assert ((ntk / plain).diff() < 0).all()


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_dynamic_ntk_starts_at_the_trained_length(factor):
    plain = rotary.rotary_frequencies(64)
    assert torch.equal(frequencies("dynamic_ntk", factor), plain)
    assert not torch.equal(frequencies("dynamic_ntk", factor, TRAINED + 1), plain)
    assert dynamic_factor(8 * TRAINED, factor, TRAINED) == 1 + 7 * factor
    longer = frequencies("dynamic_ntk", factor, 8 * TRAINED)
    assert torch.equal(longer, frequencies("ntk", 1 + 7 * factor))


def test_yarn_keeps_fast_pairs_interpolates_slow_ones_and_falls_between():
    plain, factor = rotary.rotary_frequencies(64), 8.0
    ratio, turns = frequencies("yarn", factor) / plain, TRAINED * plain / (2 * math.pi)
    # Up to a pair at each end: the ends of the ramp are rounded outwards.
    assert (ratio[:-1][turns[1:] >= 32] == 1.0).all() and ratio[0] == 1.0
    slow = ratio[1:][turns[:-1] <= 1]
    torch.testing.assert_close(slow * factor, torch.ones_like(slow), rtol=1e-6, atol=0)
    between = (ratio < 1.0) & (ratio > 1.0 / factor + 1e-6)
    assert between.sum() >= 8 and (ratio[between].diff() < 0).all()
    assert (ratio.diff() <= 1e-7).all()


@layouts
def test_yarn_makes_queries_and_keys_longer_by_the_root_of_the_temperature(layout):
    x, yarn = torch.randn(5, 2, 9, 64), embedding("yarn", 4.0, layout=layout)
    y = yarn(x, yarn.table(torch.arange(9) * 50))
    assert yarn.amplitude == pytest.approx(1.1386294)
    torch.testing.assert_close(y.norm(dim=-1), yarn.amplitude * x.norm(dim=-1))


@all_kinds
def test_the_config_reaches_the_layer(kind):
    options = {"base": 500.0, "layout": "half"}
    position = encodings.Rotary(scaling=scaling(kind), fraction=0.5, **options)
    sizes = EncoderConfig(**models.settings("rotary", heads=2, position=position))
    q, positions = torch.randn(1, 2, 600, 16), torch.arange(600)
    expected = embedding(kind, dim=16, rotary_dim=8, **options)
    rotated, _ = build_position(position, sizes).rotate(q, q, Positions(positions))
    assert torch.equal(rotated, expected(q, expected.table(positions)))
