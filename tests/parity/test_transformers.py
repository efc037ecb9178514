"""Logits and gradients equal those of `transformers`' models with copied weights."""

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, RoFormerConfig, RoFormerForMaskedLM

from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.interop.weights import from_transformers, to_transformers
from roformer.models.encoder import MaskedLM

VOCABULARY, LAYERS, HIDDEN, HEADS = 211, 2, 64, 4
TOLERANCE = 1e-5
PEERS = {
    "roformer": (RoFormerConfig, RoFormerForMaskedLM, encodings.Rotary()),
    "bert": (BertConfig, BertForMaskedLM, encodings.Learned(max_positions=512)),
}


@pytest.fixture(params=PEERS)
def pair(request):
    """Return (prefix, their model, our model) with equal random weights."""
    prefix = request.param
    config_class, model_class, position = PEERS[prefix]
    torch.manual_seed(0)
    theirs = model_class(
        config_class(
            vocab_size=VOCABULARY,
            hidden_size=HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=4 * HIDDEN,
            max_position_embeddings=512,
            attn_implementation="eager",
        )
    ).eval()
    for parameter in theirs.parameters():  # biases and norms too, which start at 0 and 1
        if parameter.requires_grad:  # not the rotary table, which is stored as a parameter
            parameter.data += 0.05 * torch.randn_like(parameter)
    config = schema.EncoderConfig(
        name=prefix,
        size="test",
        layers=LAYERS,
        hidden_size=HIDDEN,
        heads=HEADS,
        intermediate_size=4 * HIDDEN,
        position=position,
        attention=SoftmaxAttention(),
    )
    ours = MaskedLM(config, VOCABULARY).eval()
    ours.load_state_dict(from_transformers(theirs.state_dict(), prefix))
    return prefix, theirs, ours


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize("length", [1, 7, 128, 512])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_logits_and_gradients(pair, length, padding):
    prefix, theirs, ours = pair
    generator = torch.Generator().manual_seed(length)
    # Not 0: theirs gives the padding token's embedding no gradient, whatever the mask says.
    ids = torch.randint(1, VOCABULARY, (3, length), generator=generator)
    types = torch.randint(2, (3, length), generator=generator)
    mask = torch.ones(3, length, dtype=torch.long)
    padded = length // 3
    if padding == "left":
        mask[1, :padded] = 0
    elif padding == "right":
        mask[1, length - padded :] = 0
    keep = mask.bool()
    weights = torch.randn(3, length, VOCABULARY, generator=generator)

    expected = theirs(input_ids=ids, token_type_ids=types, attention_mask=mask).logits
    logits = ours(ids, token_type_ids=types, attention_mask=keep)
    assert relative(logits[keep], expected[keep]) <= TOLERANCE

    (expected * weights)[keep].sum().backward()
    (logits * weights)[keep].sum().backward()
    gradients = {n: p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    for name, gradient in from_transformers(gradients, prefix).items():
        ours_gradient = ours.get_parameter(name).grad
        assert relative(ours_gradient, gradient) <= TOLERANCE, name


def test_head_on_chosen_positions_equals_the_whole_head(pair):
    _, _, ours = pair
    ids = torch.randint(VOCABULARY, (2, 9))
    predict = torch.tensor([[0, 3, 8], [1, 1, 2]])
    everywhere = ours(ids)
    chosen = everywhere.gather(1, predict[..., None].expand(-1, -1, VOCABULARY))
    torch.testing.assert_close(ours(ids, predict=predict), chosen)


def test_weights_there_and_back_are_bit_equal(pair):
    prefix, theirs, ours = pair
    there = to_transformers(ours.state_dict(), prefix)
    missing, unexpected = theirs.load_state_dict(there, strict=False)
    assert not unexpected
    assert all("decoder" in key or "embed_positions" in key for key in missing), missing
    back = from_transformers(theirs.state_dict(), prefix)
    assert back.keys() == ours.state_dict().keys()
    for name, tensor in ours.state_dict().items():
        assert torch.equal(back[name], tensor), name
