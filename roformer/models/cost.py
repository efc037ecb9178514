"""What a model costs: floating-point operations and memory, from its config alone."""

from __future__ import annotations

import torch

from roformer.config.attention import LinearAttention, PerformerAttention
from roformer.config.lm import CausalConfig
from roformer.config.schema import EncoderConfig, TransformerConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.models.encoder import MaskedLM


def parameter_count(config: EncoderConfig, vocab_size: int) -> int:
    """Return the trained parameters of `MaskedLM`, tied ones once; no weights are made."""
    with torch.device("meta"):
        return sum(p.numel() for p in MaskedLM(config, vocab_size).parameters())


def flops_per_token(
    config: EncoderConfig, vocab_size: int, sequence_length: int, predicted: float
) -> float:
    """Return the operations of one training step (forward and twice that backward) a token read.

    A multiply-add counts as two. Counted are the matrix products: projections, feed-forward, the
    attention's own (`attention_flops`), and the head on the predicted share of the tokens.

    Args:
        config: the encoder.
        vocab_size: V.
        sequence_length: T.
        predicted: share of the tokens that the head runs on.
    """
    d, f = config.hidden_size, config.intermediate_size
    block = 2 * (4 * d * d + 2 * d * f) + attention_flops(config, sequence_length, causal=False)
    head = 2 * (d * d + d * vocab_size) * predicted
    return 3.0 * (config.layers * block + head)


def attention_flops(config: TransformerConfig, length: int, *, causal: bool) -> float:
    """Return the operations of a layer's self-attention a token, forward, without its projections.

    Softmax: logits and weighted sum, over half of the keys where it is causal. Linear: features of
    queries and keys where they are random, the sums of the keys and what the queries read of them;
    causal, logits and weighted sum of half a chunk too.
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
    config: EncoderConfig,
    vocab_size: int,
    *,
    sequences: int,
    sequence_length: int,
    predicted: float,
    half: bool,
    checkpointing: bool,
) -> tuple[int, int]:
    """Return (bytes of weights, gradients and moments; estimate of the activations) a device.

    The activations are what the backward pass keeps of `sequences` × `sequence_length` tokens:
    per block about 10 D + 2 F numbers a token (fused attention keeps no T×T matrix; linear attention
    keeps the features in fp32, and these turned), with gradient
    checkpointing D alone and one block's worth; and the logits twice in fp32.
    """
    tokens = sequences * sequence_length
    number = 2 if half else 4
    block = (10 * config.hidden_size + 2 * config.intermediate_size) * number
    if isinstance(config.attention, LinearAttention):
        block += 4 * 4 * config.heads * config.attention.feature_size(config.head_dim)
    kept = config.hidden_size * number if checkpointing else block
    activations = tokens * (config.layers * kept + (block if checkpointing else 0))
    logits = round(tokens * predicted) * vocab_size * (number + 2 * 4)
    return 16 * parameter_count(config, vocab_size), activations + logits


def causal_flops_per_token(config: CausalConfig, vocab_size: int, length: int) -> float:
    """Return the operations of one training step a token read, in blocks of `length`.

    Counted as in `flops_per_token`.
    """
    d, f = config.hidden_size, config.intermediate_size
    block = 2 * (4 * d * d + 2 * d * f) + attention_flops(config, length, causal=True)
    return 3.0 * (config.layers * block + 2 * d * vocab_size)


def seq2seq_flops_per_token(config: Seq2SeqConfig, vocab_size: int, length: int) -> float:
    """Return the operations of one training step a target token, for texts of about `length` tokens.

    Counted as in `flops_per_token`; a source token is read for every target token.
    """
    d, f = config.hidden_size, config.intermediate_size
    products = 2 * (4 * d * d + 2 * d * f)
    cross = 2 * 4 * d * d + 2 * 2 * length * d
    encoder, decoder = (
        side.layers * (products + attention_flops(config, length, causal=side.causal))
        for side in (config.encoder, config.decoder)
    )
    decoder += config.decoder.layers * cross
    return 3.0 * (encoder + decoder + 2 * d * vocab_size)
