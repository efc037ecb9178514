"""The cost of a model from its config: floating-point operations and memory.

The count covers the matrix products of a training step, forward and twice as many backward, with a
multiply-add as two operations: projections, feed-forward, attention (`attention_flops`) and the output head.
"""

from __future__ import annotations

import torch
from torch import nn

from roformer.config.attention import LinearAttention, PerformerAttention
from roformer.config.lm import CausalConfig
from roformer.config.schema import EncoderConfig, TransformerConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.models.causal import CausalLM
from roformer.models.encoder import MaskedLM
from roformer.models.seq2seq import Seq2Seq


def parameter_count(config: TransformerConfig, vocab_size: int, *, related: bool = False) -> int:
    """Return the number of trained parameters, tied ones once, without allocating weights.

    `related`: see `MaskedLM`.
    """
    with torch.device("meta"):
        return sum(p.numel() for p in _model(config, vocab_size, related).parameters())


def _model(config: TransformerConfig, vocab_size: int, related: bool) -> nn.Module:
    if isinstance(config, EncoderConfig):
        return MaskedLM(config, vocab_size, related=related)
    if isinstance(config, CausalConfig):
        return CausalLM(config, vocab_size)
    assert isinstance(config, Seq2SeqConfig)
    return Seq2Seq(config, vocab_size)


def flops_per_token(
    config: EncoderConfig,
    vocab_size: int,
    sequence_length: int,
    predicted: float,
    *,
    related: bool = False,
) -> float:
    """Return the operations per token of an encoder whose head runs on a share `predicted` of them.

    A `related` one has pooler and relation of each sequence.
    """
    d, e = config.hidden_size, config.embedding_width
    heads = (e * d * config.affine + e * vocab_size) * predicted
    if e != d:
        heads += e * d
    if related:
        heads += (d * d + 2 * d) / sequence_length
    return 3.0 * (_stack(config, sequence_length) + 2 * heads)


def causal_flops_per_token(config: CausalConfig, vocab_size: int, length: int) -> float:
    """Return the operations per token of a causal model, in blocks of `length`."""
    return 3.0 * (_stack(config, length) + 2 * config.hidden_size * vocab_size)


def seq2seq_flops_per_token(config: Seq2SeqConfig, vocab_size: int, length: int) -> float:
    """Return the operations per target token of texts of about `length` tokens, sources included."""
    d, decoder = config.hidden_size, config.decoder
    cross = decoder.layers * (2 * 4 * d * d + 2 * 2 * length * d)
    return 3.0 * (_stack(config, length) + _stack(decoder, length) + cross + 2 * d * vocab_size)


def _stack(config: TransformerConfig, length: int) -> float:
    """Return the operations per token of the blocks, forward, without cross-attention."""
    d, f = config.hidden_size, config.intermediate_size
    attention = attention_flops(config, length, causal=config.causal)
    return config.layers * (2 * (4 * d * d + 2 * d * f) + attention)


def attention_flops(config: TransformerConfig, length: int, *, causal: bool) -> float:
    """Return the operations per token of a layer's self-attention, forward, without its projections.

    Softmax: logits and weighted sum, over half of the keys where it is causal. Linear: the random
    features of queries and keys, the sums over the keys and the queries' products with them; where it
    is causal, also logits and weighted sum over half a chunk.
    """
    d, attention = config.hidden_size, config.attention
    if not isinstance(attention, LinearAttention):
        return 2 * 2 * length * d / (2 if causal else 1)
    features = attention.feature_size(config.head_dim)
    maps = 2 * 2 * features * d if isinstance(attention, PerformerAttention) else 0
    sums = 2 * 2 * features * d
    chunk = min(length, attention.chunk_length) / 2 if causal else 0
    return maps + sums + 2 * chunk * (features * config.heads + d)


def memory_bytes(
    config: TransformerConfig,
    vocab_size: int,
    *,
    tokens: int,
    predicted: float,
    half: bool,
    checkpointing: bool,
    related: bool = False,
) -> tuple[int, int]:
    """Return (bytes of weights, gradients and moments; estimate of the activations) of a device.

    A weight has itself, its gradient and two moments in fp32, and autocast's copy in half precision.
    Activations are what the backward pass keeps of `tokens` tokens. A block keeps about 10 D + 2 F
    numbers per token; in half precision 3 D more, because sums and norms stay fp32; with dropout a byte
    for each dropped number; linear attention its features and the rotated ones in fp32; attention to
    a source 5 D more (the source has as many tokens). Fused attention keeps no T×T matrix. Gradient
    checkpointing keeps D for each block and the whole of one. The logits and their gradient are kept
    once each.
    """
    d, number = config.hidden_size, 2 if half else 4
    block = ((13 if half else 10) * d + 2 * config.intermediate_size) * number
    if config.hidden_dropout:
        block += 2 * d
    if isinstance(config.attention, LinearAttention):
        block += 4 * 4 * config.heads * config.attention.feature_size(config.head_dim)
    blocks = [block] * config.layers
    if isinstance(config, Seq2SeqConfig):
        blocks += [block + 5 * d * number] * config.decoder.layers
    kept = len(blocks) * d * number + max(blocks) if checkpointing else sum(blocks)
    logits = round(tokens * predicted) * vocab_size * 2 * number
    fixed = (18 if half else 16) * parameter_count(config, vocab_size, related=related)
    return fixed, tokens * kept + logits
