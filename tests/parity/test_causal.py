"""Logits and gradients equal those of GPT-2 and GPT-NeoX of `transformers` with copied weights."""

import re

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

from roformer.config import position as encodings
from roformer.config.attention import SoftmaxAttention
from roformer.config.lm import CausalConfig
from roformer.models.causal import CausalLM

VOCABULARY, LAYERS, HIDDEN, HEADS, INNER = 97, 3, 48, 4, 80
TOLERANCE = 1e-5


def ours(position):
    config = CausalConfig(
        name="x",
        size="x",
        layers=LAYERS,
        hidden_size=HIDDEN,
        heads=HEADS,
        intermediate_size=INNER,
        position=position,
        attention=SoftmaxAttention(),
    )
    return CausalLM(config, VOCABULARY).eval()


def perturbed(model):
    """Biases and norms too, which start at 0 and 1."""
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model.eval()


def gpt2(**changes):
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=300,
        n_embd=HIDDEN,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=INNER,
        activation_function="gelu",
        attn_implementation="eager",
        **changes,
    )
    return perturbed(GPT2LMHeadModel(config))


def from_gpt2(tensors):
    """Their matrices are (in, out)."""
    names = {
        "wte.weight": "tokens.weight",
        "wpe.weight": "position.table",
        "ln_f": "final_norm",
        "ln_1": "attention_residual.norm",
        "ln_2": "feed_forward_residual.norm",
        "attn.c_attn": "attention.projection",
        "attn.c_proj": "attention.output",
        "mlp.c_fc": "feed_forward.inner",
        "mlp.c_proj": "feed_forward.outer",
    }
    found = {}
    for name, tensor in tensors.items():
        if name.startswith("lm_head"):
            continue
        plain = re.sub(r"^h\.", "blocks.", name.removeprefix("transformer."))
        for theirs, own in names.items():
            plain = plain.replace(theirs, own)
        found[plain] = tensor.T if ".c_" in name and tensor.ndim == 2 else tensor
    return found


def neox():
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=300,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        hidden_act="gelu",
        use_parallel_residual=False,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
        attn_implementation="eager",
    )
    return perturbed(GPTNeoXForCausalLM(config))


def from_neox(tensors):
    """Their projection has query, key and value of a head side by side."""
    names = {
        "embed_in.weight": "tokens.weight",
        "final_layer_norm": "final_norm",
        "input_layernorm": "attention_residual.norm",
        "post_attention_layernorm": "feed_forward_residual.norm",
        "attention.query_key_value": "attention.projection",
        "attention.dense": "attention.output",
        "mlp.dense_h_to_4h": "feed_forward.inner",
        "mlp.dense_4h_to_h": "feed_forward.outer",
    }
    found = {}
    for name, tensor in tensors.items():
        if name.startswith("embed_out") or "lm_head" in name:
            continue
        plain = re.sub(r"^layers\.", "blocks.", name.removeprefix("gpt_neox."))
        for theirs, own in names.items():
            plain = plain.replace(theirs, own)
        if "query_key_value" in name:
            by_head = tensor.unflatten(0, (HEADS, 3, HIDDEN // HEADS))
            tensor = by_head.transpose(0, 1).flatten(0, 2)
        found[plain] = tensor
    return found


PEERS = {
    "gpt2": (gpt2, from_gpt2, encodings.Learned(max_positions=300)),
    "gpt_neox": (neox, from_neox, encodings.Rotary(layout="half", fraction=0.5)),
}


def relative(found, wanted):
    return ((found - wanted).abs().max() / wanted.abs().max()).item()


@pytest.mark.parametrize("length", [1, 7, 128, 300])
@pytest.mark.parametrize("peer", PEERS)
def test_logits_and_gradients(peer, length):
    """Also beyond the length where our kernel changes. Catches norms in another place, another GELU,
    an untied or unscaled output, swapped queries and keys, the other rotary layout."""
    make, convert, position = PEERS[peer]
    torch.manual_seed(0)
    theirs, model = make(), ours(position)
    model.load_state_dict(convert(theirs.state_dict()))
    ids = torch.randint(VOCABULARY, (3, length))
    weights = torch.randn(3, length, VOCABULARY)
    wanted = theirs(input_ids=ids).logits
    found = model(ids)
    assert wanted.std() > 0.1
    assert relative(found, wanted) <= TOLERANCE
    (wanted * weights).sum().backward()
    (found * weights).sum().backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    compared = convert(gradients)
    assert compared.keys() == dict(model.named_parameters()).keys()
    for name, gradient in compared.items():
        assert relative(model.get_parameter(name).grad, gradient) <= 5 * TOLERANCE, name


def test_losses_of_twenty_updates():
    """Our weights, trained, stay theirs: catches a gradient that is lost on the way."""
    torch.manual_seed(0)
    theirs = gpt2(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = ours(encodings.Learned(max_positions=300))
    model.load_state_dict(from_gpt2(theirs.state_dict()))
    ids = torch.randint(VOCABULARY, (4, 30))
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (model, theirs)]
    for _ in range(20):
        wanted = theirs(input_ids=ids, labels=ids).loss
        logits = model(ids)[:, :-1].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
        for each, optimizer in zip((loss, wanted), optimizers, strict=True):
            optimizer.zero_grad()
            each.backward()
            optimizer.step()
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert wanted.item() < 4
