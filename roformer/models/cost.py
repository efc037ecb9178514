"""What a model costs: floating-point operations and memory, from its config alone."""

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


def parameter_count(config: TransformerConfig, vocab_size: int) -> int:
    """Return the trained parameters of the model of a config, tied ones once; no weights are made."""
    with torch.device("meta"):
        return sum(p.numel() for p in _model(config, vocab_size).parameters())


def _model(config: TransformerConfig, vocab_size: int) -> nn.Module:
    if isinstance(config, EncoderConfig):
        return MaskedLM(config, vocab_size)
    if isinstance(config, CausalConfig):
        return CausalLM(config, vocab_size)
    assert isinstance(config, Seq2SeqConfig)
    return Seq2Seq(config, vocab_size)


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
        for side in (config, config.decoder)
    )
    decoder += config.decoder.layers * cross
    return 3.0 * (encoder + decoder + 2 * d * vocab_size)


def memory_bytes(
    config: TransformerConfig,
    vocab_size: int,
    *,
    tokens: int,
    predicted: float,
    half: bool,
    checkpointing: bool,
) -> tuple[int, int]:
    """Return (bytes of weights, gradients and moments; estimate of the activations) a device.

    Of a weight: itself, its gradient and two moments in fp32, and autocast's copy in half precision.
    The activations are what the backward pass keeps of a pass over `tokens`: a block about
    10 D + 2 F numbers a token, and 3 D more in half precision, whose sums and norms stay fp32 (fused
    attention keeps no T×T matrix; linear attention keeps the features in fp32, and these turned; with
    dropout, a byte a number that it may drop); attention to a source 5 D more. With gradient
    checkpointing D alone and one block's worth. And the logits, and twice in fp32. Of translation the
    tokens are the target's, and the source has as many.
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
    logits = round(tokens * predicted) * vocab_size * (number + 2 * 4)
    fixed = (18 if half else 16) * parameter_count(config, vocab_size)
    return fixed, tokens * kept + logits
