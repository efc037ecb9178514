"""Laws of the causal language model: what it may see, what its caches keep, how it is drawn."""

import math

import pytest
import torch

from roformer.config import position as encodings
from roformer.config.attention import SoftmaxAttention
from roformer.config.lm import CausalConfig
from roformer.models.causal import CausalDecoding, CausalLM
from tests.property.test_seq2seq import POSITIONS

VOCABULARY = 40


POSITIONS = {**POSITIONS, "learned": encodings.Learned(max_positions=200)}


def config(position, **changes):
    return CausalConfig(
        **{
            "name": "x",
            "size": "x",
            "layers": 2,
            "hidden_size": 32,
            "heads": 4,
            "intermediate_size": 48,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            "position": POSITIONS[position],
            "attention": SoftmaxAttention(),
            **changes,
        }
    )


def build(position, seed=0, **changes):
    torch.manual_seed(seed)
    return CausalLM(config(position, **changes), VOCABULARY)


def tokens(rows=3, length=12, seed=0):
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("length", [12, 140])
@pytest.mark.parametrize("position", POSITIONS)
def test_a_prediction_depends_on_what_was_read_and_on_nothing_later(position, length):
    """By gradient; 140 tokens take the fused kernel. Catches a lost or shifted causal mask."""
    model = build(position)
    embedded = []
    model.tokens.register_forward_hook(lambda _, __, output: embedded.append(output))
    for place in (0, 5, length - 1):
        embedded.clear()
        logits = model(tokens(length=length))
        (gradient,) = torch.autograd.grad(logits[:, place].logsumexp(-1).sum(), embedded)
        seen = gradient.abs().sum((0, 2)) > 0
        assert seen.tolist() == [i <= place for i in range(length)]


@pytest.mark.parametrize("prompt", [1, 5])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("position", POSITIONS)
@torch.no_grad()
def test_reading_a_prompt_and_then_token_by_token_is_reading_at_once(position, norm, prompt):
    """At every token, beyond a cache's first room. Catches a wrong position, bias or value term."""
    model = build(position, norm=norm).eval()
    ids = tokens(length=40)
    wanted = model(ids)
    decoding = CausalDecoding(model)
    first = 0
    for end in range(prompt, ids.shape[1] + 1):
        found = decoding.advance(ids[:, first:end])
        assert (found - wanted[:, end - 1]).abs().max() <= 1e-5 * wanted.abs().max()
        first = end


def test_weights_differ_in_the_encoding_alone():
    first = build("none").state_dict()
    for position in POSITIONS:
        other = build(position).state_dict()
        assert all(torch.equal(first[name], other[name]) for name in first)


def test_weights_are_drawn_as_gpt2s():
    """N(0, 0.02²), and what ends in a residual sum by 1/√(2·layers) smaller; one embedding."""
    model = build("learned", hidden_size=256, intermediate_size=512, layers=8)
    spread = {name: p.std().item() for name, p in model.named_parameters() if p.ndim == 2}
    for name, std in spread.items():
        into_sum = name.endswith(("attention.output.weight", "feed_forward.outer.weight"))
        assert std == pytest.approx(0.02 / (4 if into_sum else 1), rel=0.05), name
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))
    assert [name for name, p in model.named_parameters() if VOCABULARY in p.shape] == [
        "tokens.weight"
    ]
    ids = tokens()
    loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.roll(-1, 1).flatten())
    assert loss.item() == pytest.approx(math.log(VOCABULARY), abs=0.2)


@pytest.mark.parametrize("position", ["rotary", "shaw", "t5"])
def test_recomputing_blocks_changes_nothing(position):
    """With dropout, whose draws must come again. Catches a pass that is recomputed unmasked."""
    gradients = []
    for recompute in (False, True):
        model = build(position, hidden_dropout=0.2).train()
        model.gradient_checkpointing = recompute
        torch.manual_seed(1)
        model(tokens()).logsumexp(-1).sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)
