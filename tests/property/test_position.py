"""Every encoding obeys the seam's laws: what it depends on, and what it leaves alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.models.encoder import MaskedLM
from roformer.nn import position as nn_position
from roformer.nn.position import ENCODINGS, Positions, build_position

CONFIGS = {
    "rotary": encodings.Rotary(),
    "rotary half": encodings.Rotary(layout="half"),
    "rotary partial": encodings.Rotary(fraction=0.5),
    "learned": encodings.Learned(max_positions=64),
    "sinusoidal": encodings.Sinusoidal(),
    "shaw": encodings.Shaw(clip=4),
    "shaw keys only": encodings.Shaw(clip=4, values=False),
    "t5": encodings.T5Bias(),
    "alibi": encodings.Alibi(),
    "none": encodings.NoPosition(),
}
RELATIVE = [name for name in CONFIGS if name not in ("learned", "sinusoidal")]
VOCABULARY = 50
SIZES = {"layers": 2, "hidden_size": 32, "heads": 4, "intermediate_size": 64, "init_std": 0.3}


def model(position, **changes) -> MaskedLM:
    torch.manual_seed(0)
    sizes = SIZES | changes
    config = schema.EncoderConfig(
        name="test", size="test", position=position, attention=SoftmaxAttention(), **sizes
    )
    return MaskedLM(config, VOCABULARY).eval()


def test_every_schema_entry_has_a_class():
    assert set(ENCODINGS) == {type(config) for config in CONFIGS.values()}


@pytest.mark.parametrize("name", CONFIGS)
def test_word_order_matters_except_without_positions(name):
    net, ids = model(CONFIGS[name]), torch.randint(VOCABULARY, (1, 9))
    order = torch.randperm(9)
    change = (net(ids)[:, order] - net(ids[:, order])).abs().max()
    if name == "none":
        assert change < 1e-4
    else:
        assert change > 1e-2


@pytest.mark.parametrize("name", RELATIVE)
@settings(deadline=None, max_examples=5)
@given(shift=st.integers(1, 300))
def test_relative_encodings_do_not_see_where_the_sequence_starts(name, shift):
    net, ids = model(CONFIGS[name]), torch.randint(VOCABULARY, (2, 9))
    moved = net(ids, positions=torch.arange(9) + shift)
    torch.testing.assert_close(moved, net(ids), atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("name", CONFIGS)
def test_positions_by_row_equal_shared_ones(name):
    net, ids = model(CONFIGS[name]), torch.randint(VOCABULARY, (2, 9))
    rows = torch.stack((torch.arange(9), torch.arange(9) * 2))
    together = net(ids, positions=rows)
    for row in range(2):
        alone = net(ids[row : row + 1], positions=rows[row])
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_changes_nothing(name, side):
    net, ids, padding = (
        model(CONFIGS[name]),
        torch.randint(VOCABULARY, (1, 7)),
        torch.zeros(1, 3).long(),
    )
    mask = torch.cat((torch.ones(1, 7), torch.zeros(1, 3)), dim=1).bool()
    padded, positions = torch.cat((ids, padding), dim=1), torch.arange(10)
    real = slice(0, 7)
    if side == "left":
        padded, mask = padded.roll(3, 1), mask.roll(3, 1)
        positions, real = (positions - 3).clamp(min=0), slice(3, 10)
    logits = net(padded, attention_mask=mask, positions=positions)[:, real]
    torch.testing.assert_close(logits, net(ids), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_isolated_documents_equal_separate_passes(name):
    """Positions restart and attention stops at the boundary: packing changes nothing."""
    net, ids = model(CONFIGS[name]), torch.randint(VOCABULARY, (1, 9))
    document = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    packed = net(
        ids, positions=positions, attention_mask=document[:, :, None] == document[:, None, :]
    )
    separate = torch.cat((net(ids[:, :4]), net(ids[:, 4:])), dim=1)
    torch.testing.assert_close(packed, separate, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_fused_kernel_equals_the_plain_one(name, monkeypatch):
    net, ids = model(CONFIGS[name]), torch.randint(VOCABULARY, (2, 9))
    mask = torch.ones(2, 9).bool()
    mask[1, 6:] = False
    plain = net(ids, attention_mask=mask)
    monkeypatch.setattr("roformer.nn.attention.softmax.LONGEST_PLAIN", {})
    torch.testing.assert_close(net(ids, attention_mask=mask), plain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_one_seed_gives_equal_weights_besides_the_encoding(name):
    ours, plain = model(CONFIGS[name]).state_dict(), model(encodings.NoPosition()).state_dict()
    for key, tensor in plain.items():
        assert torch.equal(ours[key], tensor), key
    own = ours.keys() - plain.keys()
    assert all(key.startswith("encoder.position.") for key in own)
    trained = ("learned", "shaw", "shaw keys only", "t5")
    assert bool(own) == (name in trained)  # nothing derived is among the weights


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_loaded_into_a_meta_model_give_the_same_logits(name):
    net, ids = model(CONFIGS[name]), torch.randint(VOCABULARY, (2, 9))
    with torch.device("meta"):
        empty = MaskedLM(net.encoder.config, VOCABULARY).eval()
    empty.load_state_dict(net.state_dict(), assign=True)
    assert torch.equal(empty(ids), net(ids))


@pytest.mark.parametrize("name", CONFIGS)
def test_all_parameters_get_a_gradient(name):
    net = model(CONFIGS[name]).train()
    types = torch.randint(2, (2, 9))
    net(torch.randint(VOCABULARY, (2, 9)), token_type_ids=types).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_rotary_has_no_length_limit():
    """Right after a short pass, one far beyond any table of 512."""
    net = model(encodings.Rotary())
    net(torch.randint(VOCABULARY, (1, 4)))
    assert net(torch.randint(VOCABULARY, (1, 700))).isfinite().all()


def test_a_sequence_beyond_the_learned_table_is_refused():
    with pytest.raises(ValueError, match="position 64 is beyond the learned table of 64"):
        model(CONFIGS["learned"])(torch.zeros(1, 65).long())


def test_sinusoidal_table():
    """Vaswani et al. 2017, section 3.5, written out for one position."""
    encoding = build_position(
        encodings.Sinusoidal(scale=1.0), model(encodings.NoPosition()).encoder.config
    )
    table = encoding.embed(torch.zeros(1, 8, 32), Positions(torch.arange(8)))[0]
    for i in (0, 3, 15):
        angle = 5 / 10000 ** (2 * i / 32)
        assert table[5, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[5, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_shaw_equals_its_equations():
    """Eq. 3 and 4 with the (T, S, H) tensors that the implementation avoids."""
    net = model(CONFIGS["shaw"])
    layer, attention = net.encoder.position.for_layer(0), net.encoder.blocks[0].attention
    x = torch.randn(2, 9, 32)
    q, k, v = attention.projection(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
    apart = torch.arange(9)[None] - torch.arange(9)[:, None]
    index = apart.clamp(-4, 4) + 4
    keys = k[:, :, None] + layer.keys[index]
    logits = torch.einsum("bntd,bntsd->bnts", q, keys) / math.sqrt(8)
    values = v[:, :, None] + layer.values[index]
    y = torch.einsum("bnts,bntsd->bntd", logits.softmax(-1), values)
    expected = attention.output(y.transpose(1, 2).flatten(-2))
    actual = attention(x, Positions(torch.arange(9)), layer, None)
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


def test_t5_buckets_equal_those_of_transformers():
    attention = T5Attention(T5Config(), has_relative_attention_bias=True, layer_idx=0)
    distance = torch.arange(-600, 601)
    theirs = attention._relative_position_bucket(distance, True, 32, 128)
    assert torch.equal(nn_position.t5_bucket(distance, 32, 128), theirs)


def test_alibi_slopes():
    assert nn_position.alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    # Twelve heads, by the authors' rule: those of 8, then every other one of 16.
    assert nn_position.alibi_slopes(12)[8:] == [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]


def test_alibi_is_symmetric():
    net = model(encodings.Alibi())
    where = Positions(torch.arange(6))
    bias = net.encoder.position.bias(torch.zeros(1, 4, 6, 8), where, where)
    assert torch.equal(bias, bias.transpose(-1, -2))
    assert (bias.diagonal(dim1=-2, dim2=-1) == 0).all()
    assert bias[0, 0, 3].item() == -3 * 2.0**-2
