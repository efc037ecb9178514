"""What each form of length extension promises, and that it does nothing where it has nothing to do."""

import math

import pytest
import torch

from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.nn import rotary
from roformer.nn.position import Positions, RotaryPosition
from roformer.nn.rotary_scaling import (
    ScaledRotaryEmbedding,
    dynamic_factor,
    linear_frequencies,
    ntk_frequencies,
    yarn_amplitude,
    yarn_frequencies,
)

BASE, TRAINED = 10000.0, 128
DIMS = [8, 64, 128]


def scalings(factor: float) -> dict[str, encodings.Scaling]:
    return {
        "linear": encodings.LinearScaling(factor=factor),
        "ntk": encodings.NtkScaling(factor=factor),
        "dynamic_ntk": encodings.DynamicNtkScaling(factor=factor, trained_length=TRAINED),
        "yarn": encodings.YarnScaling(factor=factor, trained_length=TRAINED),
    }


KINDS = list(scalings(1.0))


def embedding(kind: str, factor: float, dim: int = 64, **options) -> ScaledRotaryEmbedding:
    return ScaledRotaryEmbedding(dim, scaling=scalings(factor)[kind], **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", rotary.LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_factor_one_is_the_paper_bitwise(kind, layout, dtype):
    positions, x = torch.arange(TRAINED), torch.randn(2, 3, TRAINED, 64).to(dtype)
    plain = rotary.RotaryEmbedding(64, layout=layout)
    scaled = embedding(kind, 1.0, layout=layout)
    for ours, expected in zip(scaled.table(positions), plain.table(positions), strict=True):
        assert torch.equal(ours, expected)
    expected = plain(x, plain.table(positions))
    assert torch.equal(scaled(x, scaled.table(positions)), expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dynamic_ntk"])
def test_factor_one_is_the_paper_at_any_length(kind):
    positions = torch.arange(8 * TRAINED)
    expected = rotary.rotary_table(positions, 64)
    assert all(map(torch.equal, embedding(kind, 1.0).table(positions), expected))


@pytest.mark.parametrize("factor", [1.0, 1.1, 4.0])
def test_dynamic_does_nothing_up_to_the_trained_length(factor):
    dynamic = embedding("dynamic_ntk", factor)
    plain = rotary.rotary_frequencies(64)
    assert torch.equal(dynamic.frequencies(torch.arange(TRAINED)), plain)
    assert not torch.equal(dynamic.frequencies(torch.arange(TRAINED + 1)), plain)


@pytest.mark.parametrize("times", [2, 8])
def test_dynamic_with_factor_one_is_the_fixed_form_at_the_length_read(times):
    assert dynamic_factor(times * TRAINED, 1.0, TRAINED) == times
    assert dynamic_factor(times * TRAINED, 3.0, TRAINED) == 3 * times - 2
    ours = embedding("dynamic_ntk", 1.0).frequencies(torch.arange(times * TRAINED))
    assert torch.equal(ours, ntk_frequencies(64, BASE, float(times)))


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_linear_puts_positions_among_those_of_the_training(dim, factor):
    """A power of two divides without rounding, so this is exact."""
    positions = torch.arange(TRAINED)
    scaled = (factor * positions)[:, None] * linear_frequencies(dim, BASE, factor)
    assert torch.equal(scaled, rotary.rotary_angles(positions, dim))


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("factor", [2.0, 3.0, 8.0])
def test_ntk_keeps_the_fastest_pair_and_interpolates_the_slowest(dim, factor):
    plain, scaled = rotary.rotary_frequencies(dim), ntk_frequencies(dim, BASE, factor)
    assert scaled[0] == plain[0]
    torch.testing.assert_close(scaled[-1] * factor, plain[-1], rtol=2e-7, atol=0)
    ratio = scaled / plain
    assert (ratio.diff() < 0).all()


@pytest.mark.parametrize("trained_length", [128, 2048])
@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_yarn_keeps_the_fast_interpolates_the_slow_and_is_monotone_between(trained_length, factor):
    plain = rotary.rotary_frequencies(64)
    ratio = yarn_frequencies(64, BASE, factor, trained_length) / plain
    turns = trained_length * plain / (2 * math.pi)
    # Up to a pair at each end: the ends of the ramp are rounded outwards.
    assert (ratio[:-1][turns[1:] >= 32] == 1.0).all() and ratio[0] == 1.0
    torch.testing.assert_close(
        ratio[1:][turns[:-1] <= 1] * factor,
        torch.ones(()).expand(int((turns[:-1] <= 1).sum())),
        rtol=1e-6,
        atol=0,
    )
    between = (ratio < 1.0) & (ratio > 1.0 / factor + 1e-6)
    assert between.sum() >= 8 and (ratio.diff() <= 1e-7).all()
    assert (ratio[between].diff() < 0).all()


def test_yarn_of_pairs_that_all_turn_often_changes_nothing():
    plain = rotary.rotary_frequencies(16, 2.0)
    assert torch.equal(yarn_frequencies(16, 2.0, 4.0, 10**6), plain)


@pytest.mark.parametrize("layout", rotary.LAYOUTS)
def test_yarn_makes_queries_and_keys_longer_by_the_root_of_the_temperature(layout):
    x, positions = torch.randn(5, 2, 9, 64), torch.arange(9) * 50
    yarn = embedding("yarn", 4.0, layout=layout)
    y = yarn(x, yarn.table(positions))
    assert yarn.amplitude == yarn_amplitude(4.0) == pytest.approx(1.1386294)
    torch.testing.assert_close(y.norm(dim=-1), yarn.amplitude * x.norm(dim=-1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", rotary.LAYOUTS)
def test_products_depend_on_the_distance_only(kind, layout):
    """All positions of a pass moved together; the dynamic form, which sees the last one, is told."""
    q, k = torch.randn(2, 64, dtype=torch.float64)
    scaled = embedding(kind, 4.0, layout=layout)
    last = torch.tensor([4 * TRAINED - 1])

    def products(shift: int) -> torch.Tensor:
        positions = torch.cat((torch.arange(12) + shift, last))
        table = scaled.table(positions)
        turned = [scaled(v.expand(13, 64), table)[:12] for v in (q, k)]
        return turned[0] @ turned[1].T

    first = products(0)
    assert first[0].std() > 0.1
    torch.testing.assert_close(products(300), first, atol=2e-3, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", rotary.LAYOUTS)
def test_fast_paths_and_their_gradients_equal_the_definition(kind, layout):
    x = torch.randn(2, 3, 5, 16, requires_grad=True)
    scaled = embedding(kind, 4.0, dim=16, layout=layout)
    table = scaled.table(torch.arange(5) * 100)
    y, expected = scaled(x, table), rotary.rotate(x.double(), table, layout)
    torch.testing.assert_close(y.double(), expected, atol=2e-6, rtol=0)
    weight = torch.randn_like(x)
    ours, theirs = (torch.autograd.grad(z, x, weight.to(z.dtype))[0] for z in (y, expected))
    torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_fp32_whatever_the_module_is_cast_to(kind):
    positions = torch.arange(600)
    scaled = embedding(kind, 4.0)
    expected = scaled.table(positions)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, scaled.table(positions), expected))
    assert all(map(torch.equal, scaled.to(torch.bfloat16).table(positions), expected))
    assert expected.cos.dtype == torch.float32
    assert not scaled.state_dict() and not list(scaled.buffers())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_positions_and_partial_rotation(kind):
    scaled = embedding(kind, 4.0, dim=32, rotary_dim=16)
    rows = torch.stack((torch.arange(600), torch.arange(600).flip(0)))
    x = torch.randn(2, 3, 600, 32)
    y = scaled(x, scaled.table(rows))
    assert torch.equal(y[..., 16:], x[..., 16:])
    for row in range(2):
        torch.testing.assert_close(y[row], scaled(x[row], scaled.table(rows[row])))


@pytest.mark.parametrize("kind", KINDS)
def test_compiles_without_a_break(kind):
    scaled, x, positions = embedding(kind, 4.0, dim=16), torch.randn(2, 6, 16), torch.arange(6) * 90
    compiled = torch.compile(
        lambda x, p: scaled(x, scaled.table(p)), fullgraph=True, backend="aot_eager"
    )
    expected = scaled(x, scaled.table(positions))
    torch.testing.assert_close(compiled(x, positions), expected)


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_the_config_reaches_the_layer(kind):
    scaling = scalings(4.0).get(kind, encodings.NoScaling())
    sizes = schema.EncoderConfig(
        name="test",
        size="test",
        layers=1,
        hidden_size=32,
        heads=2,
        intermediate_size=32,
        position=encodings.Rotary(scaling=scaling, base=500.0, layout="half", fraction=0.5),
        attention=SoftmaxAttention(),
    )
    layer = RotaryPosition(sizes.position, sizes)
    q, positions = torch.randn(1, 2, 600, 16), torch.arange(600)
    expected = rotary.RotaryEmbedding(16, rotary_dim=8, base=500.0, layout="half")
    if kind != "none":
        expected = ScaledRotaryEmbedding(
            16, scaling=scaling, rotary_dim=8, base=500.0, layout="half"
        )
    turned, _ = layer.rotate(q, q, Positions(positions))
    assert torch.equal(turned, expected(q, expected.table(positions)))
    assert type(layer.rotary) is type(expected)


def test_one_pair_cannot_be_spread_over():
    with pytest.raises(ValueError, match="two rotary pairs, not head_dim=2"):
        ntk_frequencies(2, BASE, 4.0)
