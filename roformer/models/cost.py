"""The cost of a model from its config: floating-point operations and memory.

The count covers the matrix products of a training step, forward and twice as many backward, with a
multiply-add as two operations: projections, feed-forward, attention and the output head.
"""

from __future__ import annotations

import torch

from roformer.config.attention import LinearAttention, PerformerAttention
from roformer.config.lm import CausalConfig
from roformer.config.schema import EncoderConfig, TransformerConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.models.causal import CausalLM
from roformer.models.encoder import MaskedLM
from roformer.models.seq2seq import Seq2Seq


def parameter_count(config: TransformerConfig, vocab_size: int, *, related: bool = False) -> int:
    """Return the number of trained parameters, tied ones once, without allocating weights."""
    with torch.device("meta"):
        if isinstance(config, EncoderConfig):
            model: torch.nn.Module = MaskedLM(config, vocab_size, related=related)
        elif isinstance(config, CausalConfig):
            model = CausalLM(config, vocab_size)
        else:
            assert isinstance(config, Seq2SeqConfig)
            model = Seq2Seq(config, vocab_size)
    return sum(parameter.numel() for parameter in model.parameters())


def flops_per_token(
    config: TransformerConfig,
    vocab_size: int,
    length: int,
    predicted: float = 1.0,
    *,
    related: bool = False,
) -> float:
    """Return the operations per token of texts of `length`; per target token of a translation.

    The head runs on a share `predicted` of the tokens. A `related` encoder has pooler and relation for
    each text.
    """
    d, e = config.hidden_size, config.embedding_width
    forward, head = _stack(config, length), e * vocab_size * predicted
    if isinstance(config, Seq2SeqConfig):
        decoder = config.decoder
        cross = decoder.layers * (2 * 4 * d * d + 2 * 2 * length * d)
        forward += _stack(decoder, length) + cross
    elif isinstance(config, EncoderConfig):
        head += e * d * config.affine * predicted + (e * d if e != d else 0)
        head += (d * d + 2 * d) / length if related else 0
    return 3.0 * (forward + 2 * head)


def _stack(config: TransformerConfig, length: int) -> float:
    """Return the operations per token of the blocks, forward, without cross-attention.

    Softmax attention: logits and weighted sum, over half of the keys where it is causal. Linear: the
    random features of queries and keys, the sums over the keys and the queries' products with them; where
    it is causal, also logits and weighted sum over half a chunk.
    """
    d, f, attention = config.hidden_size, config.intermediate_size, config.attention
    if not isinstance(attention, LinearAttention):
        mixing = 2 * 2 * length * d / (2 if config.causal else 1)
    else:
        features = attention.feature_size(config.head_dim)
        maps = 2 * 2 * features * d if isinstance(attention, PerformerAttention) else 0
        chunk = min(length, attention.chunk_length) / 2 if config.causal else 0
        mixing = maps + 2 * 2 * features * d + 2 * chunk * (features * config.heads + d)
    return config.layers * (2 * (4 * d * d + 2 * d * f) + mixing)


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
    """Return (bytes of weights, gradients and moments; estimate of the activations) on a device.

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
