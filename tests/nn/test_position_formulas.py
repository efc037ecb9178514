"""Every encoding equals its paper's formula, forward and backward."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.config import position as encodings
from roformer.config.lm import CausalConfig
from roformer.nn.attention import SelfAttention
from roformer.nn.position import Positions, base, build_position
from tests.nn.position_formulas import LOGITS, VALUES
from tests.property import models

CONFIGS = models.POSITIONS | {
    "fire": encodings.Fire(width=8, threshold=5.0),
    "tupe causal": encodings.Tupe(max_positions=500, buckets=8, max_distance=12, untie_cls=False),
}
WAYS = ("counted", "from seven", "with gaps", "by row")


def positions(way, length):
    """Return (for the layer, ids of each of two rows)."""
    if way in ("counted", "from seven"):
        where = Positions.counted(7 * (way != "counted"), 7 * (way != "counted") + length, None)
        return where, where.ids.expand(2, -1)
    ids = torch.stack((torch.arange(length) * 2 + 1, torch.arange(length) // 2))
    return (Positions(ids), ids) if way == "by row" else (Positions(ids[0]), ids[:1].expand(2, -1))


def deviation(name, way="counted", length=9):
    """Return the largest difference to the formula, of outputs and of all gradients."""
    torch.manual_seed(length)
    # A causal config has no opinion on the direction, and the layer is called without its mask.
    config = CONFIGS[name]
    family = CausalConfig if name in ("xpos", "tupe causal") else models.FAMILIES["encoder"][1]
    sizes = family(**models.settings(name, layers=1, position=config))
    encoding = build_position(config, sizes)
    for parameter in encoding.parameters():
        torch.nn.init.uniform_(parameter, 0.1, 0.9)
    encoding, attention = encoding.double(), SelfAttention(32, 4, 0.0).double()
    x = torch.randn(2, length, 32, dtype=torch.float64, requires_grad=True)
    (where, ids), layer = positions(way, length), encoding.for_layer(0)
    with mock.patch.object(base, "BLOCK", 4):
        ours = attention(encoding.embed(x, where), where, layer, None)
    q, k, v = attention.split(attention.projection(x), 3)
    rows = []
    for row, m in enumerate(ids):
        weights = LOGITS[name](encoding, layer, q[row], k[row], m, m).softmax(-1)
        y = weights @ v[row]
        rows.append(y + VALUES[name](encoding, layer, weights, m, m) if name in VALUES else y)
    theirs = attention.join(torch.stack(rows))
    aim, inputs = torch.randn_like(ours), [x, *encoding.parameters()]
    unused = {"materialize_grads": True}  # [CLS], where no token is at position 0
    gradients = [torch.autograd.grad((y * aim).sum(), inputs, **unused) for y in (ours, theirs)]
    differences = [(a - b).abs().max().item() for a, b in zip(*gradients, strict=True)]
    return max((ours - theirs).abs().max().item(), *differences)


def test_every_relative_encoding_has_its_formula():
    kinds = {CONFIGS[name].kind for name in LOGITS}
    assert kinds == {cls.kind for cls in base.ENCODINGS} - {"learned", "sinusoidal"}


@pytest.mark.parametrize("name", LOGITS)
@settings(max_examples=6, deadline=None)
@given(st.sampled_from(WAYS), st.integers(1, 17))
def test_it_equals_the_formula_of_its_paper(name, way, length):
    """At any positions, in blocks of queries where there are more than four; tables of angles are fp32."""
    assert deviation(name, way, length) < 1e-4
