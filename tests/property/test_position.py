"""Laws of all position encodings in whole models: what the logits may depend on, and on what not."""

from typing import get_args

import pytest
import torch

from roformer.config.position import Capability
from roformer.models.causal import CausalDecoding
from roformer.models.encoder import MaskedLM
from roformer.models.seq2seq import BeamDecoding
from roformer.nn.attention.softmax import Attention
from roformer.nn.dropout import Dropout
from roformer.nn.layers import Residual
from roformer.nn.position import ENCODINGS, Positions
from roformer.nn.position.rotary import RotaryPosition
from tests.property.models import (
    FAMILIES,
    NAMES,
    POSITIONS,
    SEE_BOTH_WAYS,
    SOFTMAX,
    VOCABULARY,
    build,
    read,
    tokens,
)

of_encoders = pytest.mark.parametrize("name", SEE_BOTH_WAYS)
"""Those that see keys on both sides."""
softmax_alone = pytest.mark.parametrize("name", SOFTMAX)
families = pytest.mark.parametrize("family", FAMILIES)
CASES = [
    (family, n) for family in FAMILIES for n in (NAMES if family == "causal" else SEE_BOTH_WAYS)
]
of_families = pytest.mark.parametrize(("family", "name"), CASES)


def with_norms(names):
    """Every encoding in pre-norm, and one in post-norm: encodings ignore the norms' place."""
    cases = [*((name, "pre") for name in names), ("rotary", "post")]
    return pytest.mark.parametrize(("name", "norm"), cases)


ABSOLUTE = (
    *("learned", "sinusoidal", "elu rotated before", "tupe", "rotary+learned"),
    "rotary values",
)
TRAINED = (
    *("learned", "shaw", "shaw keys only", "t5", "performer", "shaw per head", "transformer_xl"),
    *("tupe", "deberta", "deberta buckets", "fire", "kerple", "kerple power", "rotary+learned"),
)


def assert_close(found, expected, atol=1e-5):
    torch.testing.assert_close(found, expected, atol=atol, rtol=1e-4)


@pytest.fixture
def fused(monkeypatch):
    """The fused kernel at any length."""
    monkeypatch.setattr("roformer.nn.attention.softmax.LONGEST_PLAIN", {})


@pytest.fixture
def small_cache(monkeypatch):
    """A cache that has to grow."""
    monkeypatch.setattr("roformer.nn.attention.softmax.FIRST_CAPACITY", 4)


def test_every_config_class_has_an_encoding():
    assert set(ENCODINGS) == {type(config) for config in POSITIONS.values()}


def test_what_a_config_declares_is_what_its_encoding_does():
    for cls in ENCODINGS:
        assert cls.can("longer") == (cls().longest is None), cls
        assert set(cls.cannot) <= set(get_args(Capability)), cls
        for family, capability in (("encoder", "bidirectional"), ("causal", "causal")):
            changes = {"untie_cls": False} if cls.kind == "tupe" and family == "causal" else {}
            try:
                build(family, "", position=cls(**changes))
                built = True
            except ValueError as error:
                built, reason = False, cls.why(capability)
                assert reason and reason in str(error)
            assert built == cls.can(capability), cls
        try:
            build("encoder", "elu", position=cls())
            assert cls.can("linear"), cls
        except ValueError as error:
            assert not cls.can("linear") and "model/attention=elu" in str(error), cls


# --- what the logits depend on -------------------------------------------------------------------


@of_encoders
@torch.no_grad()
def test_word_order_matters_except_without_positions(name):
    """In an encoder and a translation's source; catches a lost rotation, bias or embedding."""
    order = torch.tensor([3, 0, 1, 2, 8, 4, 5, 6, 7])  # no mirror: ALiBi has that symmetry
    encoder, translation, ids = build("encoder", name), build("translation", name), tokens(2, 9)
    if name == "t5":  # biases as small as at the start hardly differ
        torch.nn.init.normal_(translation.encoder_position.biases)
    changes = [
        (encoder(ids)[:, order] - encoder(ids[:, order])).abs().max(),
        (translation(ids, ids) - translation(ids[:, order], ids)).abs().max(),
    ]
    assert max(changes) < 1e-4 if name == "none" else min(changes) > 1e-3 and changes[0] > 1e-2


@of_encoders
@torch.no_grad()
def test_relative_encodings_alone_do_not_see_where_the_sequence_starts(name):
    """elu(R_m q) + 1 is no function of the distance: why `post` is the default."""
    net, ids = build("encoder", name), tokens(2, 9)
    near, far = (net(ids, positions=torch.arange(9) + shift) for shift in (1, 150))
    if name in ABSOLUTE:
        assert (far - net(ids)).abs().max() > 0.05
    else:
        for shifted in (near, far, net(ids, positions=torch.arange(9) + 300)):
            torch.testing.assert_close(shifted, net(ids), atol=2e-3, rtol=1e-3)


@of_encoders
@torch.no_grad()
def test_padding_changes_nothing(name):
    """On either side of an encoder's text, and after the source of a translation."""
    net, ids = build("encoder", name), tokens(1, 7)
    padded = torch.cat((ids, torch.zeros(1, 3).long()), dim=1)
    mask, positions = torch.arange(10)[None] < 7, torch.arange(10)
    assert_close(net(padded, attention_mask=mask, positions=positions)[:, :7], net(ids))
    padded, mask, positions = padded.roll(3, 1), mask.roll(3, 1), (positions - 3).clamp(min=0)
    assert_close(net(padded, attention_mask=mask, positions=positions)[:, 3:], net(ids))
    model, source, target = build("translation", name), tokens(3, 9), tokens(3, 10)
    mask = (torch.arange(9) < 5).expand(3, 9)
    assert_close(model(source, target, attention_mask=mask), model(source[:, :5], target))


@softmax_alone
@torch.no_grad()
def test_isolated_documents_equal_separate_passes(name):
    """Positions restart and attention stops at the boundary: packing changes nothing."""
    net, ids = build("encoder", name), tokens(1, 9)
    document = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    same = document[:, :, None] == document[:, None, :]
    packed = net(ids, positions=positions, attention_mask=same)
    assert_close(packed, torch.cat((net(ids[:, :4]), net(ids[:, 4:])), dim=1))


@softmax_alone
@torch.no_grad()
def test_the_fused_kernel_equals_the_plain_one(name, request):
    net, ids = build("encoder", name), tokens(2, 9)
    mask = torch.arange(9) < torch.tensor([[9], [6]])
    plain = net(ids, attention_mask=mask)
    request.getfixturevalue("fused")
    assert_close(net(ids, attention_mask=mask), plain)


def test_rotary_has_no_length_limit_and_a_learned_table_has():
    """Right after a short pass, one far beyond any table of 512."""
    net = build("encoder", "rotary")
    net(tokens(1, 4))
    assert net(tokens(1, 700)).isfinite().all()
    with pytest.raises(ValueError, match="position 160 is beyond the learned table of 160"):
        build("encoder", "learned")(tokens(1, 161))


# --- causal models and incremental decoding ------------------------------------------------------


@pytest.mark.parametrize("pieces", [(5, 3), (4, 4)], ids=["plain", "fused"])
@with_norms(NAMES)
@torch.no_grad()
def test_reading_a_text_in_pieces_equals_reading_it_at_once(
    name, norm, pieces, request, small_cache
):
    """Catches a wrong position, bias or value term, and a causal mask that is lost, shifted, or starts
    at the first key instead of ending at the last."""
    if pieces == (4, 4):
        request.getfixturevalue("fused")
    model, ids, first = build("causal", name, norm=norm), tokens(3, 20), 0
    wanted, decoding = model(ids), CausalDecoding(model)
    for count in (*pieces, *(1,) * (20 - sum(pieces))):
        found = decoding.advance(ids[:, first : first + count])
        first += count
        assert (found - wanted[:, first - 1]).abs().max() <= 1e-5 * wanted.abs().max()


@with_norms(SEE_BOTH_WAYS)
@torch.no_grad()
def test_the_cached_decoder_equals_the_uncached_one(name, norm, small_cache):
    """Through reordered beams and dropped sentences.

    Catches a cache that is not reordered, a query at position 0, a bias or value term of the wrong
    keys, a mask of a dropped sentence.
    """
    model, source = build("translation", name, norm=norm), tokens(3, 9)
    mask = torch.arange(9) < torch.tensor([[9], [2], [5]])
    beams = tokens(6, 12).view(3, 2, 12)
    decoding = BeamDecoding(model, source, mask, beams=2)
    for step in range(12):
        found = decoding.advance(beams[:, :, step])
        sources, masks = (both.repeat_interleave(2, 0) for both in (source, mask))
        wanted = model(sources, beams[..., : step + 1].flatten(0, 1), attention_mask=masks)
        wanted = wanted[:, -1].unflatten(0, (-1, 2))
        assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()
        if step % 3 == 1:
            parents = torch.randint(0, 2, (len(beams), 2))
            decoding.reorder(parents)
            beams = beams.gather(1, parents[..., None].expand_as(beams)).clone()
            beams[:, :, step + 1 :] = torch.randint(3, VOCABULARY, (11 - step,))
        if step == 6:
            kept = torch.tensor([0, 2])
            decoding.keep(kept)
            beams, source, mask = beams[kept], source[kept], mask[kept]


@torch.no_grad()
def test_rotation_acts_once_a_block_and_never_between_the_two_texts(monkeypatch):
    seen, rotate = [], RotaryPosition.rotate

    def spy(self, q, k, positions):
        seen.append((q.shape[-2], k.shape[-2]))
        return rotate(self, q, k, positions)

    monkeypatch.setattr(RotaryPosition, "rotate", spy)
    build("translation", "rotary")(tokens(3, 9), tokens(3, 10))
    assert seen == [(9, 9)] * 2 + [(10, 10)] * 3


# --- weights -------------------------------------------------------------------------------------


@of_families
def test_one_seed_gives_equal_weights_besides_the_encoding(family, name):
    """And nothing that is derived, such as a table of angles, is among the weights."""
    ours, plain = build(family, name).state_dict(), build(family, "none").state_dict()
    assert all(torch.equal(ours[key], tensor) for key, tensor in plain.items())
    own = ours.keys() - plain.keys()
    assert all("position." in key or key.endswith("feature_map.vectors") for key in own)
    assert bool(own) == (name in TRAINED)


@of_encoders
def test_weights_loaded_into_a_meta_model_give_the_same_logits(name):
    net, ids = build("encoder", name), tokens(2, 9)
    with torch.device("meta"):
        empty = MaskedLM(net.encoder.config, VOCABULARY).eval()
    empty.load_state_dict(net.state_dict(), assign=True)
    assert torch.equal(empty(ids), net(ids))


@families
@pytest.mark.parametrize("name", ["rotary", "deberta", "performer"])
def test_recomputed_blocks_give_the_same_gradients(family, name):
    """Dropout must be drawn alike. Catches a pass that is recomputed without its mask."""
    gradients = []
    for recompute in (False, True):
        model = build(family, name, recompute=recompute, hidden_dropout=0.2).train()
        torch.manual_seed(1)
        padded = torch.arange(12) < torch.tensor([[12], [7], [9]])
        mask = {} if family == "causal" else {"attention_mask": padded}
        texts = (tokens(), tokens()) if family == "translation" else (tokens(),)
        model(*texts, **mask).logsumexp(-1).sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(map(torch.equal, *gradients))


@of_families
@torch.no_grad()
def test_a_model_in_half_precision_reads(family, name):
    """`model.to(dtype)`, without autocast: every sum and product is of one type."""
    model, ids = build(family, name), tokens()
    wanted, found = read(model, ids), read(model.bfloat16(), ids)
    assert found.isfinite().all()
    assert (found - wanted).norm() < 0.1 * wanted.norm()


@families
def test_dropout_stands_where_a_model_says(family):
    """On embeddings, every residual sum and every attention's probabilities; none goes unused."""
    model = build(family, "rotary", hidden_dropout=0.2, attention_dropout=0.3).train()
    used = {}
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            module.register_forward_pre_hook(lambda m, _, name=name: used.update({name: m.p}))
    read(model, tokens())
    expected = {}
    for name, module in model.named_modules():
        if isinstance(module, Residual):
            expected[f"{name}.dropout"] = 0.2
        elif isinstance(module, Attention):
            expected[f"{name}.dropout"] = 0.3
    (embedding,) = used.keys() - expected.keys()
    assert used == expected | {embedding: 0.2}
    assert len(expected) == {"encoder": 6, "causal": 6, "translation": 6 + 15}[family]


@pytest.mark.parametrize(("family", "scale"), [("encoder", 2**0.5 * 0.02), ("translation", 1.0)])
def test_sinusoids_start_at_the_size_of_what_they_are_added_to(family, scale):
    model = build(family, "sinusoidal", **({} if family == "translation" else {"init_std": 0.02}))
    found = model.encoder.position if family == "encoder" else model.encoder_position
    added = found.embed(torch.zeros(1, 9, 32), Positions.counted(0, 9, None))[0]
    angles = torch.arange(9)[:, None] * 10000.0 ** (-torch.arange(16) / 16)
    assert_close(added, scale * torch.stack((angles.sin(), angles.cos()), -1).flatten(1))


def test_causal_weights_are_drawn_as_gpt2s():
    """N(0, 0.02²), those that end in a residual sum smaller by 1/√(2·layers); one embedding."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "layers": 8}
    model = build("causal", "learned", **sizes)
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            into_sum = name.endswith(("attention.output.weight", "feed_forward.outer.weight"))
            assert weight.std().item() == pytest.approx(0.02 / (4 if into_sum else 1), rel=0.05)
        assert (VOCABULARY in weight.shape) == (name == "tokens.weight")
        assert not (name.endswith("bias") and weight.any())


def test_one_embedding_serves_source_target_and_output():
    """Unit variance where it is read (× √D), and its gradient comes from all three places."""
    model = build("translation", "rotary", hidden_size=64)
    names = [name for name, p in model.named_parameters() if VOCABULARY in p.shape]
    assert names == ["tokens.weight"]
    assert (model.tokens.weight * 8).var().item() == pytest.approx(1.0, rel=0.1)
    model(torch.tensor([[3, 4]]), torch.tensor([[5, 6]]))[0, 0, 7].backward()
    gradient = model.tokens.weight.grad.abs().sum(1)
    assert all(gradient[i] > 0 for i in (3, 4, 5, 7)) and gradient[6] == 0


def test_predicting_some_tokens_equals_predicting_all_and_selecting():
    model, source, target = build("translation", "rotary"), tokens(3, 9), tokens(3, 10)
    places = torch.tensor([0, 7, 12, 29])
    assert_close(model(source, target, predict=places), model(source, target).flatten(0, 1)[places])
