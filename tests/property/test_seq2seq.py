"""Laws of the encoder-decoder: what it may see, where positions act, what the caches must keep."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from roformer.config import position as encodings
from roformer.config.attention import EluAttention, PerformerAttention, SoftmaxAttention
from roformer.config.wmt import Seq2SeqConfig
from roformer.models.seq2seq import BeamDecoding, Seq2Seq
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.nn.position import Positions, RotaryPosition, t5_bucket

VOCABULARY = 40
POSITIONS = {
    "rotary": encodings.Rotary(),
    "rotary-half": encodings.Rotary(layout="half", fraction=0.5),
    "learned": encodings.Learned(max_positions=32),
    "sinusoidal": encodings.Sinusoidal(),
    "shaw": encodings.Shaw(clip=3),
    "t5": encodings.T5Bias(buckets=8, max_distance=12),
    "alibi": encodings.Alibi(),
    "none": encodings.NoPosition(),
    "rotary-performer": encodings.Rotary(),
    "rotary-elu": encodings.Rotary(),
}
PERFORMER = PerformerAttention(features=32, feature_eps=1e-6, chunk_length=7)
ATTENTION = {
    "rotary-performer": PERFORMER,
    "rotary-elu": EluAttention(chunk_length=7),
}
"""Of the names above whose attention is not softmax."""


def config(position, **changes):
    return Seq2SeqConfig(
        **{
            "name": "x",
            "size": "x",
            "layers": 2,
            "decoder_layers": 3,
            "hidden_size": 32,
            "heads": 4,
            "intermediate_size": 48,
            "norm": "post",
            "position": POSITIONS[position],
            "attention": ATTENTION.get(position, SoftmaxAttention()),
            **({"attention_dropout": 0.0} if position in ATTENTION else {}),
            **changes,
        }
    )


def build(position, seed=0, **changes):
    torch.manual_seed(seed)
    return Seq2Seq(config(position, **changes), VOCABULARY).eval()


def texts(rows=3, source=9, target=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, source + 1, (rows, 1), generator=generator)
    lengths[0] = source
    return (
        torch.randint(3, VOCABULARY, (rows, source), generator=generator),
        torch.arange(source) < lengths,
        torch.randint(3, VOCABULARY, (rows, target), generator=generator),
    )


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_the_cached_decoder_is_the_uncached_one(position, norm):
    """At every step, through reordered beams and dropped sentences.

    Catches a cache that is not reordered, a query at position 0, a bias or value term of the wrong
    keys, a mask of a dropped sentence.
    """
    model = build(position, norm=norm)
    source, mask, _ = texts()
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, VOCABULARY, (3, 2, 40), generator=generator)
    steps = 30 if position == "learned" else 40  # beyond the first capacity of a cache
    decoding = BeamDecoding(model, source, mask, beams=2)
    for step in range(steps):
        found = decoding.advance(tokens[:, :, step])
        texts_of_beams = tokens[..., : step + 1].flatten(0, 1)
        sources, masks = (both.repeat_interleave(2, 0) for both in (source, mask))
        wanted = model(sources, texts_of_beams, attention_mask=masks)[:, -1].unflatten(0, (-1, 2))
        assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()
        if step % 3 == 1:
            parents = torch.randint(0, 2, (len(tokens), 2), generator=generator)
            decoding.reorder(parents)
            tokens = tokens.gather(1, parents[..., None].expand_as(tokens)).clone()
            tokens[:, :, step + 1 :] = torch.randint(3, VOCABULARY, (39 - step,))
        if step == 6:
            kept = torch.tensor([0, 2])
            decoding.keep(kept)
            tokens, source, mask = tokens[kept], source[kept], mask[kept]


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_the_decoder_does_not_see_what_comes_later(position):
    model = build(position)
    source, mask, target = texts()
    changed = target.clone()
    changed[:, 6:] = (changed[:, 6:] + 5) % VOCABULARY
    before, after = (model(source, t, attention_mask=mask) for t in (target, changed))
    assert torch.allclose(before[:, :6], after[:, :6], atol=1e-6)
    assert not torch.allclose(before[:, 6:], after[:, 6:], atol=1e-2)


@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_padding_changes_nothing(position):
    model = build(position)
    source, _, target = texts()
    wanted = model(source[:, :5], target)
    mask = (torch.arange(9) < 5).expand(3, 9)
    assert torch.allclose(model(source, target, attention_mask=mask), wanted, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("position", POSITIONS)
def test_only_none_reads_the_source_as_a_bag_of_words(position):
    """Catches a lost rotation (or bias, or embedding) of the encoder."""
    model = build(position)
    if position == "t5":  # its biases must differ to tell anything
        torch.nn.init.normal_(model.encoder_position.biases)
    source, _, target = texts()
    moved = source[
        :, torch.tensor([3, 0, 1, 2, 8, 4, 5, 6, 7])
    ]  # no mirror: ALiBi has that symmetry
    same = torch.allclose(model(source, target), model(moved, target), atol=1e-4)
    assert same == (position == "none")


@torch.no_grad()
def test_rotation_acts_in_self_attention_alone(monkeypatch):
    """Once a block on either side; the attention between the sides has texts of other lengths."""
    seen = []
    rotate = RotaryPosition.rotate

    def spy(self, q, k, positions):
        seen.append((q.shape[-2], k.shape[-2]))
        return rotate(self, q, k, positions)

    monkeypatch.setattr(RotaryPosition, "rotate", spy)
    source, mask, target = texts()
    build("rotary")(source, target, attention_mask=mask)
    assert seen == [(9, 9)] * 2 + [(10, 10)] * 3


@torch.no_grad()
def test_cross_attention_knows_no_positions():
    """With the encoder's output given, moving its tokens about changes nothing."""
    model = build("rotary")
    block = model.decoder[0].cross_attention
    hidden, x = torch.randn(2, 7, 32), torch.randn(2, 4, 32)
    there = torch.randperm(7)
    before = block(x, block.keys_values(hidden), None)
    assert torch.allclose(before, block(x, block.keys_values(hidden[:, there]), None), atol=1e-6)


def test_predicting_some_places_is_predicting_all_and_choosing():
    model = build("rotary")
    source, mask, target = texts()
    places = torch.tensor([0, 7, 12, 29])
    everything = model(source, target, attention_mask=mask).flatten(0, 1)
    some = model(source, target, attention_mask=mask, predict=places)
    assert torch.allclose(some, everything[places], atol=1e-6)


def test_weights_differ_in_the_encoding_alone():
    first = build("none").state_dict()
    for position in POSITIONS:
        other = build(position).state_dict()
        assert all(torch.equal(first[name], other[name]) for name in first)


def test_one_embedding_serves_source_target_and_output():
    """Unit variance where it is read (× √D), and its gradient comes from all three places."""
    model = build("rotary", hidden_size=64)
    names = [name for name, p in model.named_parameters() if VOCABULARY in p.shape]
    assert names == ["tokens.weight"]
    assert (model.tokens.weight * 8).var().item() == pytest.approx(1.0, rel=0.1)
    source, target = torch.tensor([[3, 4]]), torch.tensor([[5, 6]])
    model(source, target)[0, 0, 7].backward()
    gradient = model.tokens.weight.grad.abs().sum(1)
    assert all(gradient[i] > 0 for i in (3, 4, 5, 7)) and gradient[6] == 0


def test_a_causal_t5_bias_uses_all_its_buckets():
    distance = torch.arange(-200, 1)
    causal = t5_bucket(distance, 32, 128, causal=True)
    assert causal.unique().tolist() == list(range(32))
    assert t5_bucket(distance, 32, 128).unique().tolist() == list(range(16))


@given(
    rows=st.integers(1, 20),
    size=st.integers(2, 30),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    scale=st.sampled_from([0.1, 1.0, 100.0]),
    half=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_loss_is_torchs(rows, size, smoothing, scale, half):
    generator = torch.Generator().manual_seed(rows * size)
    logits = scale * torch.randn(rows, size, generator=generator)
    logits = logits.bfloat16() if half else logits
    labels = torch.randint(size, (rows,), generator=generator)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    loss = smoothed_cross_entropy(ours, labels, smoothing)
    wanted = functional.cross_entropy(
        theirs.float(), labels, label_smoothing=smoothing, reduction="sum"
    )
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4 if not half else 1e-2, abs=1e-4)
    (2 * loss).backward()
    (2 * wanted).backward()
    assert torch.allclose(ours.grad.float(), theirs.grad.float(), atol=2e-2 if half else 1e-5)


@pytest.mark.parametrize("fused", [False, True])
@torch.no_grad()
def test_a_cache_may_be_filled_with_several_tokens(fused, monkeypatch):
    """Catches a causal mask that starts at the first key instead of ending at the last."""
    if fused:
        monkeypatch.setattr("roformer.nn.attention.softmax.LONGEST_PLAIN", {})
    attention = build("rotary").decoder[0].attention
    encoding = build("rotary").decoder_position
    x, ids = torch.randn(2, 9, 32), torch.arange(9)
    whole = attention(x, Positions(ids), encoding, None, causal=True)
    cache, parts = attention.new_cache(), []
    for here in (slice(0, 4), slice(4, 8), slice(8, 9)):
        seen = Positions(ids[: here.stop])
        parts.append(
            attention(
                x[:, here],
                Positions(ids[here]),
                encoding,
                None,
                causal=True,
                cache=cache,
                seen=seen,
            )
        )
    assert cache.length == 9
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-4)
