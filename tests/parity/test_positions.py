"""Encodings that transformers has, with its weights: the attention is the same."""

import pytest
import torch
from transformers import DebertaV2Config, T5Config, XLNetConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DisentangledSelfAttention,
    build_relative_position,
)
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.xlnet.modeling_xlnet import XLNetModel

from roformer.config import position as encodings
from roformer.config.lm import CausalConfig
from roformer.config.schema import EncoderConfig
from roformer.nn.attention import SelfAttention
from roformer.nn.position import Positions, build_position
from roformer.nn.position.alibi import alibi_slopes
from tests.property.models import settings

HEADS, SIZE = 4, 32
lengths = pytest.mark.parametrize("length", [1, 5, 13])


def encoding_of(position, family=EncoderConfig):
    config = family(**settings("", layers=1, position=position))
    return build_position(config.position, config)


def attention_of(weights, biases):
    """Return an attention with these of queries, keys and values; its output changes nothing."""
    attention = SelfAttention(SIZE, HEADS, 0.0)
    attention.projection.weight.data = torch.cat(weights)
    attention.projection.bias.data = torch.cat(biases)
    attention.output.weight.data = torch.eye(SIZE)
    attention.output.bias.data.zero_()
    return attention


def drawn(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


@pytest.mark.parametrize("buckets", [None, 8])
@lengths
@torch.no_grad()
def test_deberta_has_the_attention_of_deberta(length, buckets):
    """With logarithmic buckets too; length 13 reaches beyond them."""
    config = DebertaV2Config(
        hidden_size=SIZE,
        num_attention_heads=HEADS,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        max_relative_positions=11,
        position_buckets=buckets or -1,
    )
    theirs = drawn(DisentangledSelfAttention(config))
    theirs.pos_key_proj.bias.zero_()
    theirs.pos_query_proj.bias.zero_()
    parts = (theirs.query_proj, theirs.key_proj, theirs.value_proj)
    ours = attention_of([part.weight for part in parts], [part.bias for part in parts])
    position = encodings.Deberta(max_distance=11, buckets=buckets, mirrored=True)
    encoding = encoding_of(position)
    table, x = torch.randn(2 * position.span, SIZE), torch.randn(2, length, SIZE)
    layer = encoding.for_layer(0)
    encoding.table.data = table
    layer.key.data, layer.query.data = theirs.pos_key_proj.weight.T, theirs.pos_query_proj.weight.T
    apart = build_relative_position(x, x, buckets or -1, 11)
    mask = torch.ones(2, 1, length, length)
    expected, _ = theirs(x, mask, relative_pos=apart, rel_embeddings=table)
    found = ours(x, Positions.counted(0, length, None), layer, None)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@lengths
@torch.no_grad()
def test_transformer_xl_has_the_attention_of_xlnet(length):
    """XLNet has all sines before all cosines."""
    model = XLNetModel(XLNetConfig(d_model=SIZE, n_head=HEADS, n_layer=1, d_inner=8, vocab_size=9))
    theirs = drawn(model.layer[0].rel_attn)
    projections = theirs.q, theirs.k, theirs.v
    ours = attention_of([part.flatten(1).T for part in projections], [torch.zeros(SIZE)] * 3)
    encoding, x = encoding_of(encodings.TransformerXL()), torch.randn(2, length, SIZE)
    encoding.content_bias.data, encoding.position_bias.data = theirs.r_w_bias, theirs.r_r_bias
    layer = encoding.for_layer(0)
    weight = theirs.r.flatten(1).unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)
    layer.projection.data = weight
    heads = (torch.einsum("bih,hnd->ibnd", x, part) for part in projections)
    r = model.relative_positional_encoding(length, length, bsz=2)
    r = torch.einsum("ibh,hnd->ibnd", r, theirs.r)
    expected = theirs.rel_attn_core(*heads, r).flatten(2).transpose(0, 1)
    found = ours(x, Positions.counted(0, length, None), layer, None)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", [EncoderConfig, CausalConfig])
@torch.no_grad()
def test_t5_has_the_bias_of_t5(family):
    causal = family is CausalConfig
    config = T5Config(num_heads=HEADS, is_decoder=causal)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    encoding, where = encoding_of(encodings.T5Bias(), family), Positions.counted(0, 300, None)
    encoding.biases.data = theirs.relative_attention_bias.weight
    found = encoding.bias(torch.zeros(1), torch.zeros(1), where, where)
    expected = theirs.compute_bias(300, 300)[0]
    seen = torch.ones(300, 300).tril().bool() if causal else torch.ones(300, 300).bool()
    assert torch.equal(found[:, seen], expected[:, seen])


@pytest.mark.parametrize("heads", [1, 4, 6, 12, 16, 20])
def test_alibi_has_the_slopes_of_bloom(heads):
    # At the second of two positions its bias is the slope.
    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(torch.tensor(alibi_slopes(heads)), theirs)
