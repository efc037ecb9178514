"""Every architecture computes what its equivalent in `transformers` does: logits, gradients, training."""

import pytest
import torch
from torch import nn

from roformer.config.position import Learned, NoPosition, Rotary, Sinusoidal
from roformer.data.tokenizers import ByteVocabulary
from roformer.interop.equivalents import equivalent
from roformer.interop.mapping import from_transformers
from tests.data.parallel_texts import trained as trained_bpe
from tests.trained import relative, stored

TOLERANCE = 1e-5
BYTES = {"kind": "causal", "tokenizer": ByteVocabulary()}
LABELS = ["zebra", "apple", "middle"]
PARTIAL = Rotary(layout="half", fraction=0.5)
MODELS = {
    "roformer": ("roformer", {"position": Rotary()}),
    "roformer, half-split": ("roformer", {"position": Rotary(layout="half")}),
    "roformer, values": (
        "roformer",
        {"position": Rotary(rotate_values=True), "embedding_size": 24},
    ),
    "roformer, values half-split": (
        "roformer",
        {"position": Rotary(layout="half", rotate_values=True), "embedding_size": 48},
    ),
    "jina": ("jina_embeddings_v3", {"position": Rotary(base=500.0)}),
    "jina, partial": ("jina_embeddings_v3", {"position": Rotary(fraction=0.5)}),
    "jina, partial half-split": (
        "jina_embeddings_v3",
        {"position": Rotary(base=500.0, layout="half", fraction=0.25)},
    ),
    "jina, rounded": (
        "jina_embeddings_v3",
        {"position": Rotary(fraction=30 / 44), "hidden_size": 88, "heads": 2},
    ),
    "bert": ("bert", {"position": Learned(max_positions=300)}),
    "bert, sinusoidal": ("bert", {"position": Sinusoidal()}),
    "bert, none": ("bert", {"position": NoPosition()}),
    "jina classifier": (
        "jina_embeddings_v3",
        {"kind": "classifier", "described": {"labels": LABELS}},
    ),
    "bert classifier": ("bert", {"kind": "classifier", "position": Learned(max_positions=300)}),
    "bert regression": (
        "bert",
        {"kind": "classifier", "position": Sinusoidal(), "described": {"labels": None}},
    ),
    "gpt_neox": ("gpt_neox", {"position": Rotary(), "heads": 4, **BYTES}),
    "gpt_neox, partial": ("gpt_neox", {"position": PARTIAL, **BYTES}),
    "gpt_neox, rounded": (
        "gpt_neox",
        {"position": Rotary(fraction=30 / 44), "hidden_size": 88, "heads": 2, **BYTES},
    ),
    "gpt_neox, base": ("gpt_neox", {"position": Rotary(base=500.0), "kind": "causal"}),
    "gpt2": ("gpt2", {"position": Learned(max_positions=300), **BYTES}),
    "gpt2, sinusoidal": ("gpt2", {"position": Sinusoidal(scale=0.7), **BYTES}),
    "marian": ("marian", {"norm": "post", "decoder_layers": 3}),
    "pegasus": ("pegasus", {"norm": "pre", "activation": "relu"}),
}
"""Name → `model_type` of the equivalent, and ours."""


@pytest.fixture(scope="module")
def pair():
    """Return our model and theirs, of a name."""
    bpe = trained_bpe("bytes", merges=40)

    def made(name):
        kind, options = MODELS[name]
        if kind in ("marian", "pegasus"):
            options = {"kind": "translation", "position": Sinusoidal(), "tokenizer": bpe, **options}
        ours = stored(**{"hidden_dropout": 0.0, "attention_dropout": 0.0, **options})
        theirs = equivalent(ours, 300).model
        theirs.set_attn_implementation("eager")
        assert theirs.config.model_type == kind
        return ours.kind, ours.build(), theirs

    return made


def batch(kind, length, padding="right"):
    """Return our inputs and theirs, and which logits count; no token is one that ends or pads."""
    ids = torch.randint(5, 60, (3, length))
    mask = torch.ones(3, length, dtype=torch.bool)
    shorter, padded = slice(1, None), length // 3
    mask[shorter, :padded] = padding != "left"
    mask[shorter, length - padded :] &= padding != "right"
    if kind == "causal":
        return (ids,), {}, {"input_ids": ids}, torch.ones_like(mask)
    theirs = {"input_ids": ids, "attention_mask": mask.long()}
    if kind == "translation":
        target = torch.randint(5, 60, (3, 11))
        every = torch.ones_like(target, dtype=torch.bool)
        return (
            (ids, target),
            {"attention_mask": mask},
            theirs | {"decoder_input_ids": target},
            every,
        )
    types = torch.randint(2, (3, length))
    keep = torch.tensor([True] * 3) if kind == "classifier" else mask
    given = {"attention_mask": mask, "token_type_ids": types}
    return (ids,), given, theirs | {"token_type_ids": types}, keep


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_theirs(pair, name):
    """At one token, below and beyond the length where our kernel changes, with padding on either side.

    Catches query and key out of order, the wrong rotary layout, rotated values, a lost bias, another
    eps or GELU, norms in another place, an unscaled embedding, an acausal decoder.
    """
    kind, ours, theirs = pair(name)
    # After a norm the variance is about 1, and logits hardly distinguish two values of eps.
    eps = [{m.eps for m in one.modules() if isinstance(m, nn.LayerNorm)} for one in (ours, theirs)]
    assert eps[0] == eps[1]
    for length, padding in ((1, "none"), (7, "left"), (128, "right"), (300, "right")):
        given, named, inputs, keep = batch(kind, length, padding)
        if padding == "left" and kind == "classifier":  # [CLS] is the first token
            continue
        with torch.no_grad():
            wanted, found = theirs(**inputs).logits[keep], ours(*given, **named)[keep]
        assert wanted.std() > 0.1
        # Angles at position 300 are exact to fewer digits.
        assert relative(found, wanted) <= TOLERANCE * max(1, length / 100), length


@pytest.mark.parametrize("name", ["roformer", "roformer, values", "bert"])
def test_gradients_of_every_weight_are_theirs(pair, name):
    kind, ours, theirs = pair(name)
    (ids,), named, inputs, keep = batch(kind, 40)
    weights = torch.randn(3, 40, ours.bias.shape[0])
    for logits in (theirs(**inputs).logits, ours(ids, **named)):
        (logits * weights)[keep].sum().backward()
    gradients = {n: p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    compared = from_transformers(gradients, theirs.config.model_type)
    assert len(compared) > 20
    for parameter, gradient in compared.items():
        assert relative(ours.get_parameter(parameter).grad, gradient) <= TOLERANCE, parameter


def test_a_head_on_chosen_positions_equals_the_whole_head():
    ours = stored().build()
    ids, predict = torch.randint(50, (2, 9)), torch.tensor([[0, 3, 8], [1, 1, 2]])
    everywhere = ours(ids)
    chosen = everywhere.gather(1, predict[..., None].expand(-1, -1, everywhere.shape[-1]))
    torch.testing.assert_close(ours(ids, predict=predict), chosen)
