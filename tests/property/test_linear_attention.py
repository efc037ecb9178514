"""Laws of linear attention: the equations, what it may see, what is random in it."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from roformer.cli import compose
from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import EluAttention, PerformerAttention, SoftmaxAttention
from roformer.config.build import build
from roformer.config.schema import PretrainConfig
from roformer.errors import InputError
from roformer.models.cost import attention_flops
from roformer.models.encoder import MaskedLM
from roformer.nn.attention import additive_mask, linear
from roformer.nn.attention.features import FavorFeatures, random_vectors
from roformer.nn.position import Positions
from roformer.training.updates import begin_update
from tests.property import laws

FAVOR, ELU = PerformerAttention(features=24), EluAttention()
both = pytest.mark.parametrize("config", [FAVOR, ELU], ids=["favor", "elu"])
VOCABULARY = 50


def model(config, position=None, **changes) -> MaskedLM:
    torch.manual_seed(0)
    sizes = {"layers": 2, "hidden_size": 32, "heads": 2, "intermediate_size": 48, "init_std": 0.3}
    encoder = schema.EncoderConfig(
        name="x",
        size="x",
        position=position or encodings.Rotary(),
        attention=config,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        **sizes,
    )
    return MaskedLM(encoder, VOCABULARY, **changes).eval()


@both
@pytest.mark.parametrize("rope_position", ["post", "pre"])
@pytest.mark.parametrize("causal", [False, True])
@settings(deadline=None, max_examples=8)
@given(st.integers(1, 40), st.integers(1, 17), st.sampled_from(["none", "left", "right", "holes"]))
def test_it_equals_the_explicit_form(config, rope_position, causal, length, chunk, padding):
    """Forward and gradient, at any length, chunk and padding."""
    config = dataclasses.replace(config, rope_position=rope_position, chunk_length=chunk)
    keep = None
    if padding != "none":
        keep = torch.ones(2, length, dtype=torch.bool)
        padded = {"left": slice(0, length // 3), "right": slice(length // 2 + 1, None)}
        keep[1, padded.get(padding, slice(1, None, 2))] = False
    assert laws.linear_error(config, length=length, causal=causal, keep=keep) < 1e-4


@both
def test_padding_changes_nothing(config):
    net, ids = model(config), torch.randint(VOCABULARY, (1, 9))
    padded = torch.cat((torch.zeros(1, 3).long(), ids, torch.zeros(1, 2).long()), dim=1)
    mask = torch.tensor([[0, 0, 0, *[1] * 9, 0, 0]]).bool()
    found = net(padded, attention_mask=mask, positions=torch.arange(14) - 3)
    torch.testing.assert_close(found[:, 3:12], net(ids), atol=1e-5, rtol=1e-4)


@both
def test_a_row_without_any_key_is_a_number(config):
    layer, encoding = laws.linear_layer(config)
    mask = additive_mask(torch.zeros(1, 5, dtype=torch.bool))
    for causal in (False, True):
        y = layer(torch.randn(1, 5, 32), Positions(torch.arange(5)), encoding, mask, causal=causal)
        assert y.isfinite().all()


@both
@settings(deadline=None, max_examples=5)
@given(shift=st.integers(1, 300))
def test_rotated_after_the_map_it_does_not_see_where_the_text_starts(config, shift):
    """RoFormer's Eq. 19 depends on distances alone, for any map."""
    net, ids = model(config), torch.randint(VOCABULARY, (2, 9))
    moved = net(ids, positions=torch.arange(9) + shift)
    torch.testing.assert_close(moved, net(ids), atol=2e-3, rtol=1e-3)


def test_rotated_before_the_map_it_does():
    """elu(R_m q) + 1 is no function of the distance: why `post` is the default."""
    net = model(dataclasses.replace(ELU, rope_position="pre"))
    ids = torch.randint(VOCABULARY, (2, 9))
    assert (net(ids, positions=torch.arange(9) + 50) - net(ids)).abs().max() > 0.05


@both
def test_word_order_matters_by_the_rotation_alone(config):
    ids, order = torch.randint(VOCABULARY, (1, 9)), torch.randperm(9)
    for position, least, most in (
        (encodings.Rotary(), 1e-2, 99),
        (encodings.NoPosition(), 0, 1e-4),
    ):
        net = model(config, position)
        change = (net(ids)[:, order] - net(ids[:, order])).abs().max()
        assert least <= change <= most


@both
@torch.no_grad()
def test_what_comes_later_changes_nothing(config):
    """Not even a key so large that all features are taken relative to it."""
    layer, encoding = laws.linear_layer(dataclasses.replace(config, chunk_length=4))
    x, where = torch.randn(1, 11, 32), Positions(torch.arange(11))
    before = layer(x, where, encoding, None, causal=True)
    x[:, 7:] *= 30
    after = layer(x, where, encoding, None, causal=True)
    assert torch.equal(before[:, :4], after[:, :4])  # another chunk
    torch.testing.assert_close(before[:, :7], after[:, :7], atol=1e-6, rtol=1e-5)
    assert (before[:, 7:] - after[:, 7:]).abs().max() > 0.1


@both
def test_no_gradient_goes_to_what_comes_later(config):
    layer, encoding = laws.linear_layer(dataclasses.replace(config, chunk_length=4))
    x = torch.randn(1, 11, 32, requires_grad=True)
    y = layer(x, Positions(torch.arange(11)), encoding, None, causal=True)
    (gradient,) = torch.autograd.grad(y[:, :6].square().sum(), x)
    assert (gradient[:, 6:] == 0).all() and (gradient[:, :6] != 0).any(-1).all()


@both
@pytest.mark.parametrize("rope_position", ["post", "pre"])
@torch.no_grad()
def test_a_cache_read_in_pieces_is_the_whole_pass(config, rope_position):
    """With a row of padding at its start, through a dropped and a copied row."""
    layer, encoding = laws.linear_layer(
        dataclasses.replace(config, rope_position=rope_position, chunk_length=3)
    )
    x, ids = torch.randn(3, 13, 32), torch.arange(13)
    keep = torch.ones(3, 13, dtype=torch.bool)
    keep[1, :2] = False
    whole = layer(x, Positions(ids), encoding, additive_mask(keep), causal=True)
    cache, rows = layer.new_cache(), torch.arange(3)
    for here in (slice(0, 5), slice(5, 6), slice(6, 10), *(slice(n, n + 1) for n in (10, 11, 12))):
        y = layer(
            x[rows, here],
            Positions(ids[here]),
            encoding,
            additive_mask(keep[rows, : here.stop]),
            causal=True,
            cache=cache,
            seen=Positions(ids[: here.stop]),
        )
        torch.testing.assert_close(y, whole[rows, here], atol=1e-5, rtol=1e-4)
        assert cache.length == here.stop
        if here.stop == 6:
            cache.move(torch.tensor([0]), torch.tensor([2]))
            rows = torch.tensor([2, 1, 2])
        if here.stop == 10:
            cache.keep(torch.tensor([1, 2]))
            rows = rows[1:]


@both
def test_features_and_sums_are_fp32_under_autocast(config, monkeypatch):
    """Sums of bf16 stop growing at some hundred keys."""
    layer, encoding = laws.linear_layer(config)
    seen = []

    def watch(name):
        original = getattr(linear, name)

        def call(*tensors, **rest):
            result = original(*tensors, **rest)
            y, sums = result if isinstance(result, tuple) else (result, ())
            seen.append({t.dtype for t in (*tensors, y, *sums) if isinstance(t, torch.Tensor)})
            return result

        monkeypatch.setattr(linear, name, call)

    watch("attend_to_all")
    watch("attend_to_earlier")
    x, where = torch.randn(1, 700, 32), Positions(torch.arange(700))
    for causal in (False, True):
        exact = layer(x, where, encoding, None, causal=causal)
        with torch.autocast("cpu", torch.bfloat16):
            found = layer(x, where, encoding, None, causal=causal)
        assert found.dtype == torch.bfloat16
        assert (found - exact).abs().mean() < 0.02 * exact.abs().mean() + 0.01
    assert seen == [{torch.float32}] * 4


def test_random_vectors_are_orthogonal_with_the_lengths_of_normal_ones():
    generator = torch.Generator().manual_seed(0)
    vectors = random_vectors(40, 16, generator, orthogonal=True)
    for group in vectors.split(16):
        products = group @ group.T
        off = products - products.diagonal().diag()
        assert off.abs().max() < 1e-4 * products.max()
    lengths = random_vectors(4096, 16, generator, orthogonal=True).square().sum(-1)
    assert abs(lengths.mean() - 16) < 0.5 and abs(lengths.var() - 32) < 4
    free = random_vectors(32, 16, generator, orthogonal=False)
    assert (free @ free.T - (free @ free.T).diagonal().diag()).abs().max() > 1


@pytest.mark.parametrize("orthogonal", [True, False])
def test_favor_comes_closer_to_softmax_with_more_features(orthogonal):
    """The error of the mean of M unbiased terms falls with the root of M."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 20, 16)
    q, k = q / 2, k / 2  # the variance grows with exp(|q + k|²)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)

    def error(features: int, draws: int) -> float:
        config = PerformerAttention(features=features, orthogonal=orthogonal, feature_eps=1e-9)
        found = []
        for _ in range(draws):
            torch.rand(1)  # another seed
            favor = FavorFeatures(config, 16)
            phi_k, _ = favor.keys(k, None, None, causal=False)
            phi_q = favor.queries(q)
            y = linear.attend_to_all(phi_q, phi_k, v, phi_q, phi_k, eps=1e-9)
            found.append((y - exact).square().mean().sqrt().item())
        return sum(found) / draws

    errors = [error(16, 8), error(256, 8), error(4096, 4)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2] and errors[2] < 0.1


def test_one_seed_gives_the_weights_of_softmax_attention_and_each_layer_its_own_vectors():
    ours, softmax = model(FAVOR).state_dict(), model(SoftmaxAttention()).state_dict()
    assert all(torch.equal(ours[name], tensor) for name, tensor in softmax.items())
    one, other = (ours[f"encoder.blocks.{n}.attention.feature_map.vectors"] for n in (0, 1))
    assert one.shape == (24, 16) and not torch.equal(one, other)
    assert len(ours) == len(softmax) + 2


def test_the_vectors_of_an_update_are_a_function_of_seed_layer_and_interval():
    """So that a resumed run, and any process, has those of the run never stopped."""
    config = dataclasses.replace(FAVOR, redraw_interval=10)

    def vectors(net, seed, update, rank=0):
        begin_update(net, seed, update, rank)
        return [net.encoder.blocks[n].attention.feature_map.vectors.clone() for n in (0, 1)]

    one = model(config)
    first = vectors(one, 0, 1)
    assert all(map(torch.equal, vectors(one, 0, 9, rank=1), first))
    second = vectors(one, 0, 10)
    assert not any(map(torch.equal, second, first)) and not torch.equal(*second)
    torch.manual_seed(5)
    resumed = MaskedLM(one.encoder.config, VOCABULARY)
    assert all(map(torch.equal, vectors(resumed, 0, 17), second))
    assert not any(map(torch.equal, vectors(resumed, 1, 17), second))
    kept = model(dataclasses.replace(FAVOR, redraw_interval=None))
    start = kept.encoder.blocks[0].attention.feature_map.vectors.clone()
    assert torch.equal(vectors(kept, 0, 5000)[0], start)


def test_saved_weights_hold_the_vectors():
    """A model that is opened elsewhere computes the same."""
    net, ids = model(FAVOR), torch.randint(VOCABULARY, (2, 9))
    begin_update(net, 3, 1, 0)
    with torch.device("meta"):
        empty = MaskedLM(net.encoder.config, VOCABULARY).eval()
    empty.load_state_dict(net.state_dict(), assign=True)
    assert torch.equal(empty(ids), net(ids))


@both
def test_recomputed_blocks_give_the_same_gradients(config):
    plain, recomputed = model(config).train(), model(config, gradient_checkpointing=True).train()
    ids, found = torch.randint(VOCABULARY, (2, 9)), []
    for net in (plain, recomputed):
        begin_update(net, 0, 1, 0)
        net(ids, token_type_ids=ids % 2).square().sum().backward()
        found.append([p.grad for p in net.parameters()])
    assert all(map(torch.equal, *found)) and all(g.abs().sum() > 0 for g in found[0])


@both
@pytest.mark.parametrize("causal", [False, True])
def test_operations_are_what_torch_counts(config, causal):
    """Up to the denominators, which the estimate leaves out, and whole chunks, which torch counts."""
    layer, encoding = laws.linear_layer(config)
    net = model(config).encoder.config
    x, where = torch.randn(1, 512, 32), Positions(torch.arange(512))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x, where, encoding, None, causal=causal)
    counted = counter.get_total_flops() / 512 - 2 * 4 * 32 * 32
    assert 1.0 <= counted / attention_flops(net, 512, causal=causal) < (3.0 if causal else 1.1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model/attention=performer", "model.attention.features=33"], "rotate pairs of features"),
        (["model/attention=performer", "model/position=shaw"], "no matrix of logits"),
        (["model/attention=elu", "model/position=t5"], "no matrix of logits"),
        (["model/attention=elu", "model/position=alibi"], "no matrix of logits"),
        (["model/attention=elu", "model.attention_dropout=0.1"], "set model.attention_dropout=0"),
        (["model/attention=performer", "training.documents=isolate"], "documents=cross"),
        (
            [
                "model/attention=elu",
                "+model.position.scaling={kind: yarn, factor: 2, trained_length: 128}",
            ],
            "kind=yarn",
        ),
    ],
)
def test_what_needs_logits_is_refused_when_composed(overrides, message):
    with pytest.raises(InputError, match=message):
        build(PretrainConfig, compose("pretrain", overrides))


@pytest.mark.parametrize("attention", ["performer", "elu"])
@pytest.mark.parametrize("position", ["rotary", "learned", "sinusoidal", "none"])
def test_other_positions_compose(attention, position):
    overrides = [f"model/attention={attention}", f"model/position={position}"]
    config = build(PretrainConfig, compose("pretrain", overrides))
    assert config.model.attention.kind == attention


@pytest.mark.parametrize("changes", [{"rope_position": "pre"}, {"features": 34}])
def test_odd_features_are_refused_only_where_they_are_turned(changes):
    overrides = ["model/attention=performer", "model.attention.features=33"]
    overrides += [f"model.attention.{key}={value}" for key, value in changes.items()]
    assert build(PretrainConfig, compose("pretrain", overrides))


def test_a_mask_of_each_query_is_refused():
    layer, encoding = laws.linear_layer(ELU)
    mask = additive_mask(torch.ones(1, 5, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="differs between queries"):
        layer(torch.randn(1, 5, 32), Positions(torch.arange(5)), encoding, mask)
