"""The rotary layer obeys its laws for any position, length, type, layout and scaling."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import roformer
from roformer.config import position as encodings
from roformer.config.schema import EncoderConfig
from roformer.nn import rotary
from roformer.nn.position import Positions, build_position
from roformer.nn.rotary_scaling import ScaledRotaryEmbedding
from tests.property import models

TRAINED = 128
SCALINGS = {
    "linear": encodings.LinearScaling,
    "ntk": encodings.NtkScaling,
    "dynamic_ntk": encodings.DynamicNtkScaling,
    "yarn": encodings.YarnScaling,
}
layouts = pytest.mark.parametrize("layout", rotary.LAYOUTS)
all_kinds = pytest.mark.parametrize("kind", ["none", *SCALINGS])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def embedding(kind="none", factor=4.0, dim=16, **options):
    if kind == "none":
        return roformer.RotaryEmbedding(dim, **options)
    trained = {"trained_length": TRAINED} if kind in ("dynamic_ntk", "yarn") else {}
    return ScaledRotaryEmbedding(dim, scaling=SCALINGS[kind](factor=factor, **trained), **options)


# --- the rotation --------------------------------------------------------------------------------


def rotation_matrix(position, dim, base=10000.0, layout="interleaved"):
    """Return R of Eq. 15 in float64, built block by block from its definition."""
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    for i in range(dim // 2):
        angle = torch.tensor(position, dtype=torch.float64) * base ** (-2.0 * i / dim)
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + dim // 2)
        matrix[a, a] = matrix[b, b] = angle.cos()
        matrix[b, a], matrix[a, b] = angle.sin(), -angle.sin()
    return matrix


@given(
    dim=st.sampled_from([8, 16, 64, 128]),
    layout=st.sampled_from(rotary.LAYOUTS),
    base=st.sampled_from([10000.0, 500.0]),
    positions=st.lists(st.integers(-50, 2000), min_size=1, max_size=12),
)
def test_a_vector_is_rotated_by_its_own_position(dim, layout, base, positions):
    """Forward and backward; catches a swapped pairing, a wrong exponent or sign, angles in bf16."""
    x = torch.randn(3, 2, len(positions), dim, requires_grad=True)
    weight = torch.randn_like(x)
    y = roformer.apply_rotary(x, torch.tensor(positions), base=base, layout=layout)
    (gradient,) = torch.autograd.grad((y * weight).sum(), x)
    matrices = torch.stack([rotation_matrix(m, dim, base, layout) for m in positions])
    expected = torch.einsum("tij,bntj->bnti", matrices, x.detach().double())
    expected_gradient = torch.einsum("tji,bntj->bnti", matrices, weight.double())
    tolerance = 5e-6 + 5e-7 * max(map(abs, positions))  # of the angles in fp32
    assert (y - expected).abs().max() < tolerance
    assert (gradient - expected_gradient).abs().max() < tolerance


@layouts
@all_kinds
def test_products_depend_on_the_distance_only_and_norms_and_offsets_are_kept(kind, layout):
    """YaRN makes queries and keys longer, by the root of its temperature."""
    module, last = embedding(kind, layout=layout), torch.tensor([4 * TRAINED - 1])

    def rotate(x, positions):
        table = module.table(torch.cat((positions, last)))  # the dynamic form reads the last one
        return module(x, rotary.RotaryTable(*(part[:-1] for part in table)))

    def products(shift):
        """q_m · k_n for one q and one k at all positions, (T, T)."""
        vectors = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(1))
        q, k = (rotate(v.expand(12, 16), torch.arange(12) + shift) for v in vectors)
        return q @ k.T

    assert products(0)[0].std() > 0.5
    assert max((products(shift) - products(0)).abs().max() for shift in (1, 37, 300)) < 2e-3
    x, positions = torch.randn(5, 9, 16), torch.arange(9) * 7
    y, factor = rotate(x, positions), 1.1386294 if kind == "yarn" else 1.0
    torch.testing.assert_close(y.norm(dim=-1), factor * x.norm(dim=-1), atol=1e-5, rtol=0)
    assert torch.equal(rotate(x[:, 6:], positions[6:]), y[:, 6:])


@layouts
@all_kinds
@dtypes
def test_fast_paths_and_their_gradients_equal_the_definition(kind, layout, dtype):
    x = torch.randn(2, 3, 5, 16).to(dtype).requires_grad_()
    module = embedding(kind, layout=layout)
    table = module.table(torch.arange(5) * 100)
    y, expected = module(x, table), rotary.rotate(x.double(), table, layout)
    assert y.dtype == dtype
    tolerance = 2e-6 if dtype == torch.float32 else 0.04
    torch.testing.assert_close(y.double(), expected, atol=tolerance, rtol=0)
    weight = torch.randn_like(x)
    ours, theirs = (torch.autograd.grad(z, x, weight.to(z.dtype))[0] for z in (y, expected))
    torch.testing.assert_close(ours.double(), theirs.double(), atol=tolerance, rtol=0.01)


@layouts
def test_trained_frequencies_get_their_gradient(layout):
    """Catches a fast path that gives the table none."""
    x, gradients = torch.randn(3, 5, 8), []
    weight = torch.randn_like(x)
    for rotated in (
        lambda p: roformer.apply_rotary(x, p, layout=layout),
        lambda p: rotary.rotate(x, rotary.rotary_table(p, 8), layout),
    ):
        positions = torch.arange(5.0, requires_grad=True)
        gradients += torch.autograd.grad((rotated(positions) * weight).sum(), positions)
    torch.testing.assert_close(*gradients)


@layouts
@dtypes
def test_transforms_of_functions_go_through_the_rotation(layout, dtype):
    """torch.func: a map over a batch, gradients, one per row, and directional derivatives."""
    positions, x = torch.arange(5), torch.randn(4, 3, 5, 8).to(dtype)
    weight, along = torch.randn(2, 3, 5, 8).to(dtype)
    table = rotary.rotary_table(positions, 8)
    results = []
    for turn in (
        lambda one: roformer.apply_rotary(one, positions, layout=layout),
        lambda one: rotary.rotate(one, table, layout),
    ):
        gradient = torch.func.grad(lambda one, turn=turn: (turn(one) * weight).sum())
        results.append(
            (
                torch.func.vmap(turn)(x),
                torch.func.vmap(gradient)(x),
                torch.func.jvp(turn, (x[0],), (along,))[1],
            )
        )
    tolerance = 2e-6 if dtype == torch.float32 else 0.04
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0.01)


MEMORY = {
    "transposed": lambda: torch.randn(2, 5, 4, 16).transpose(1, 2),
    "slice": lambda: torch.randn(2, 5, 3, 4, 16)[:, :, 0].transpose(1, 2),
    "odd offset": lambda: torch.randn(2 * 4 * 5 * 16 + 1)[1:].view(2, 4, 5, 16),
    "odd stride": lambda: torch.randn(2, 4, 5, 17)[..., :16],
}


@pytest.mark.parametrize("made", MEMORY.values(), ids=MEMORY)
def test_any_memory_layout(made):
    x = made()
    expected = rotary.rotate(x.contiguous(), rotary.rotary_table(torch.arange(5), 16))
    torch.testing.assert_close(roformer.apply_rotary(x, torch.arange(5)), expected)


@all_kinds
def test_rows_of_positions_and_partial_rotation(kind):
    module, x = embedding(kind, dim=32, rotary_dim=16), torch.randn(2, 3, 600, 32)
    rows = torch.stack((torch.arange(600), torch.arange(600).flip(0)))
    y = module(x, module.table(rows))
    assert torch.equal(y[..., 16:], x[..., 16:])
    both = roformer.apply_rotary(x[..., :16], rows)
    for row in range(2):
        torch.testing.assert_close(y[row], module(x[row], module.table(rows[row])))
        torch.testing.assert_close(both[row], roformer.apply_rotary(x[row, ..., :16], rows[row]))


@all_kinds
def test_the_table_is_fp32_grows_with_the_length_and_is_no_weight(kind):
    """In bf16, half of 1,024 positions would share an angle with a neighbour."""
    positions, module = torch.arange(1024), embedding(kind, dim=64)
    table = module.table(positions)
    assert [part.shape for part in table] == [(1024, 32)] * 2
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, module.table(positions), table))
    module = module.to(torch.bfloat16)
    assert all(map(torch.equal, module.table(positions), table))
    assert table.cos.dtype == torch.float32
    assert not module.state_dict() and not list(module.buffers())
    rotated = module(torch.ones(1024, 64, dtype=torch.bfloat16), table)
    assert kind != "none" or len(torch.unique(rotated.float(), dim=0)) == 1024


@pytest.mark.parametrize(
    ("kind", "layout"), [("none", "half"), ("none", "interleaved"), ("dynamic_ntk", "interleaved")]
)
def test_compiles_without_a_break(kind, layout):
    module, x = embedding(kind, layout=layout), torch.randn(2, 6, 16)

    def function(x, positions):
        return module(x, module.table(positions))

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    positions = torch.arange(6) * 90
    torch.testing.assert_close(compiled(x, positions), function(x, positions))


REFUSED = {
    "even head_dim, not 7": lambda: rotary.rotary_angles(torch.arange(3), 7),
    "above 1": lambda: rotary.rotary_angles(torch.arange(3), 8, base=1.0),
    "choose an even size": lambda: roformer.apply_rotary(torch.ones(3, 7), torch.arange(3)),
    "seq = 3": lambda: roformer.apply_rotary(torch.ones(3, 8), torch.arange(4)),
    "does not start with that batch": lambda: roformer.apply_rotary(
        torch.ones(2, 3, 8), torch.zeros(5, 3)
    ),
    "choose one of interleaved, half": lambda: embedding(layout="neox"),
    "between 2 and head_dim=16": lambda: embedding(rotary_dim=18),
    "two rotary pairs, not head_dim=2": lambda: embedding("ntk", dim=2).table(torch.arange(3)),
}


X, POSITIONS = torch.ones(3, 8), torch.arange(3)
WRONG_TYPES = {
    "positions must be a tensor, not int": lambda: roformer.apply_rotary(X, 5),
    "positions must be a tensor, not ndarray": lambda: rotary.rotary_angles(POSITIONS.numpy(), 8),
    "x must be a tensor, not ndarray": lambda: roformer.apply_rotary(X.numpy(), POSITIONS),
    "x must have real floats, not torch.int64": lambda: roformer.apply_rotary(X.long(), POSITIONS),
}


@pytest.mark.parametrize("message", [*REFUSED, *WRONG_TYPES])
def test_bad_input_is_refused_with_the_fix(message):
    """Catches a rotation in integers."""
    with pytest.raises(ValueError if message in REFUSED else TypeError, match=message):
        (REFUSED | WRONG_TYPES)[message]()


@all_kinds
def test_the_config_reaches_the_layer(kind):
    scaling = getattr(embedding(kind), "scaling", encodings.NoScaling())
    options = {"base": 500.0, "layout": "half"}
    position = encodings.Rotary(scaling=scaling, fraction=0.5, **options)
    sizes = EncoderConfig(**models.settings("rotary", heads=2, position=position))
    q, positions = torch.randn(1, 2, 600, 16), torch.arange(600)
    expected = embedding(kind, rotary_dim=8, **options)
    rotated, _ = build_position(position, sizes).rotate(q, q, Positions(positions))
    assert torch.equal(rotated, expected(q, expected.table(positions)))


# --- scaled frequencies (their values are held to transformers' in tests/parity) -----------------


@pytest.mark.parametrize("kind", SCALINGS)
@dtypes
def test_factor_one_is_the_paper_bitwise(kind, dtype):
    length = TRAINED if kind == "dynamic_ntk" else 8 * TRAINED
    positions, x = torch.arange(length), torch.randn(2, 3, length, 64).to(dtype)
    plain, scaled = embedding(dim=64), embedding(kind, 1.0, dim=64)
    table = plain.table(positions)
    assert all(map(torch.equal, scaled.table(positions), table))
    assert torch.equal(scaled(x, scaled.table(positions)), plain(x, table))


# --- formulas that circulate with errors (docs/position-encoding.md) -----------------------------


@layouts
@pytest.mark.parametrize(("m", "n"), [(2, 9), (9, 2), (5, 5)])
def test_the_product_has_the_rotation_by_n_minus_m(m, n, layout):
    """(R_m q)ᵀ(R_n k) = qᵀ R_(n-m) k = Re Σ q k* e^(i(m-n)θ) (Eq. 12, 16), with this sign."""
    q, k = torch.randn(2, 8, dtype=torch.float64)
    rotated = [
        roformer.apply_rotary(x[None], torch.tensor([place]), layout=layout)[0]
        for x, place in ((q, m), (k, n))
    ]
    product = math.prod(rotated).sum()
    matrix = rotation_matrix(n - m, 8, layout=layout)
    torch.testing.assert_close(product, q @ matrix @ k, atol=1e-4, rtol=0)
    parts = (
        x.unflatten(-1, (-1, 2)).T if layout == "interleaved" else x.view(2, -1) for x in (q, k)
    )
    a, b = (torch.complex(*part) for part in parts)
    theta = 10000.0 ** (-2 * torch.arange(4, dtype=torch.float64) / 8)
    score = (a * b.conj() * torch.polar(torch.ones_like(theta), (m - n) * theta)).sum().real
    torch.testing.assert_close(product, score, atol=1e-4, rtol=0)
    assert m == n or abs(product - q @ matrix.T @ k) > 0.1


def test_one_pair_does_not_decay():
    """cos((m-n)θ) with θ = 1 is back at 1 after 44 ≈ 7·2π positions, and at -1 after 22."""
    x = torch.tensor([[1.0, 0.0]])
    scores = [
        float((x * roformer.apply_rotary(x, torch.tensor([place]))).sum()) for place in (0, 22, 44)
    ]
    assert scores == pytest.approx([1, -1, 1], abs=1e-3)
    assert roformer.decay_bound(torch.arange(300), 2).tolist() == pytest.approx([1.0] * 300)


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
    """For h_i = q_i k_i*, h_{d/2} = 0: |q·k| ≤ max |h_{i+1} - h_i| · Σ |S_{i+1}| (Eq. 36, 37)."""
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
    assert kind != "worst" or score >= bound * (1 - 1e-3)
