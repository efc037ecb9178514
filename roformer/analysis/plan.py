"""Estimate of the cost of a recipe from its config, without data or weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from roformer.config.lm import CausalLMConfig, CharLMConfig
from roformer.config.schema import HubText, PretrainConfig
from roformer.config.stages import StagesConfig
from roformer.config.wmt import HubParallel, WmtConfig
from roformer.data.bpe import SPECIAL_TOKENS
from roformer.models.cost import flops_per_token, memory_bytes, parameter_count
from roformer.training.hardware import GPUS

BERT_VOCABULARY = 30522
"""Size of bert-base-uncased's vocabulary: assumed where the tokenizer is read rather than trained."""
BYTES = 256
"""The vocabulary of byte-level models, and what byte-pair encoding starts from."""
SENTENCE = 30
"""Tokens, assumed: about a sentence of WMT14. Only the small cost of attention depends on it."""

CPU_RATE = 4.7e11
"""FLOP/s of two CPU cores that compute in bf16: experiments/speed, the mini step as shipped without
dropout, 14,555 tokens/s x 32.3 MFLOP. The base step reaches 6.2e11."""

HUB_BYTES = {
    "wikimedia/wikipedia 20231101.en": 20.2e9,
    "wikimedia/wikipedia 20231101.zh": 2.8e9,
    "rojagtap/bookcorpus": 4.9e9,
    "wmt/wmt14 de-en": 1.36e9,
}
"""Text of the Hub's sets, by their cards (BookCorpus by the card of the one that this mirrors)."""
TEXT_RATE, PAIR_RATE = 1.5e6, 0.45e6
"""Bytes a second and core that are read, cut into WordPieces and written, and of both languages of pairs
through Moses and byte-pair encoding: experiments/speed."""

Blocks = PretrainConfig | CharLMConfig | CausalLMConfig
Planned = Blocks | StagesConfig | WmtConfig


class Work(NamedTuple):
    """A training, as far as its cost goes."""

    tokens: int
    """Read in all; of translation, of the target."""
    told: str
    """The operations counted."""
    operations: float
    """FLOP a token, forward and backward."""
    held: int
    """Tokens whose activations a device keeps at once."""
    held_as: str
    predicted: float = 1.0
    """Share of the tokens that the head runs on."""
    related: bool = False
    """See `MaskedLM`."""


def plan_sequences(config: Blocks, devices: int, utilisation: float) -> None:
    """Print the cost of a training on sequences of one length."""
    _show(config, [_sequences(config, devices)], devices, utilisation)


def plan_stages(config: StagesConfig, devices: int, utilisation: float) -> None:
    """Print the cost of all stages together."""
    stages, before = [], config.init_from
    for number in range(1, len(config.stages) + 1):
        stages.append(_sequences(config.pretraining(number, before), devices))
        before = f"stage {number}"
    _show(config, stages, devices, utilisation)


def plan_translation(config: WmtConfig, devices: int, utilisation: float) -> None:
    """Print the cost of a translation model without its final search."""
    training, budget = config.training, config.training.tokens_per_update
    buckets = max(devices, -(-budget // training.bucket_tokens))
    held = -(-budget // buckets)
    if micro := config.runtime.micro_batch_size:
        held = min(held, micro * (config.data.filter.max_length + 1))
    work = Work(
        tokens=training.steps * budget,
        told=f"{training.steps:,} steps x {budget:,} of the target, padding included",
        operations=flops_per_token(config.model, _vocabulary(config), SENTENCE),
        held=held,
        held_as=f"{held:,} tokens of source and target each",
    )
    _show(config, [work], devices, utilisation)


def _sequences(config: Blocks, devices: int) -> Work:
    training, vocabulary = config.training, _vocabulary(config)
    length, share, related = training.sequence_length, 1.0, False
    if isinstance(config, PretrainConfig):
        share, related = config.masking.probability, config.objective != "mlm"
    a_device = -(-training.batch_size // devices)
    sequences = min(config.runtime.micro_batch_size or a_device, a_device)
    return Work(
        tokens=training.steps * training.batch_size * length,
        told=f"{training.steps:,} steps x {training.batch_size} sequences x {length}",
        operations=flops_per_token(config.model, vocabulary, length, share, related=related),
        held=sequences * length,
        held_as=f"{sequences} sequences",
        predicted=share,
        related=related,
    )


def _vocabulary(config: Planned) -> int:
    if isinstance(config, CharLMConfig):
        return BYTES
    if isinstance(config, WmtConfig):
        return len(SPECIAL_TOKENS) + BYTES + config.data.tokenizer.merges
    tokenizer = config.data.tokenizer
    return tokenizer.vocab_size if tokenizer.comes_with_weights else BERT_VOCABULARY


def _show(config: Planned, parts: Sequence[Work], devices: int, utilisation: float) -> None:
    """Print parameters, tokens, operations, memory per device, and the time on GPUs and a CPU."""
    model, vocabulary = config.model, _vocabulary(config)
    half = config.training.precision != "fp32"
    checkpointing = config.runtime.gradient_checkpointing
    estimates = [
        memory_bytes(
            model,
            vocabulary,
            tokens=part.held,
            predicted=part.predicted,
            half=half,
            checkpointing=checkpointing,
            related=part.related,
        )
        for part in parts
    ]
    fixed, activations = max(estimates)
    largest = parts[estimates.index((fixed, activations))]
    if config.runtime.fsdp:
        fixed //= devices
    total = sum(part.tokens * part.operations for part in parts)
    attention = "" if model.attention.kind == "softmax" else f", {model.attention.kind}"
    print(
        f"{model.name} ({model.position.name}, {model.size}{attention}), recipe {config.recipe}, "
        f"data {config.data.kind}"
    )
    parameters = parameter_count(model, vocabulary, related=largest.related)
    print(f"parameters      {parameters:,} (vocabulary {vocabulary:,})")
    if text := hub_bytes(config):
        rate = PAIR_RATE if isinstance(config, WmtConfig) else TEXT_RATE
        print(
            f"text            {text / 1e9:.1f} GB, {duration(text / rate)} of one core to prepare, after "
            f"its download (at {rate / 1e6:.2g} MB/s, measured on slow cores: experiments/speed)"
        )
    for part in parts:
        print(f"tokens          {part.tokens:,} = {part.told}")
    tokens = sum(part.tokens for part in parts)
    print(f"operations      {total:.3g} FLOP = {total / tokens:.4g} a token, forward and backward")
    print(
        f"memory a device {(fixed + activations) / 1e9:.1f} GB = {fixed / 1e9:.1f} weights, gradients "
        f"and moments + {activations / 1e9:.1f} activations of {largest.held_as} (estimate)"
    )
    asked = "fp16" if config.training.precision == "fp16" else "bf16"
    slower = "" if half else "; training.precision=fp32 takes several times as long"
    print(
        f"time on {devices} device(s), in {asked} at {utilisation:.0%} of the peak (assumed"
        f"{slower}):"
    )
    for name, gpu in GPUS.items():
        seconds = total / (devices * gpu.flops * utilisation)
        fits = fixed + activations < gpu.memory
        advice = "" if fits else "  does not fit: lower runtime.micro_batch_size"
        if half and (asked, gpu.half) == ("bf16", "fp16"):
            advice = f"  in fp16: it has no bf16, set training.precision=fp16{advice}"
        print(f"  {name:<9} {duration(seconds):>10}{advice}")
    print(
        f"  {'CPU':<9} {duration(total / CPU_RATE):>10}  two cores with bf16, at {CPU_RATE:.2g} "
        "FLOP/s (measured, mini model: experiments/speed)"
    )


def hub_bytes(config: Planned) -> float | None:
    """Return the size of a text of the Hub; None where it is not known, or words are cut by others."""
    data = config.data
    if isinstance(data, HubParallel):
        sources: Sequence[Any] = [data]
    elif isinstance(data, HubText) and data.tokenizer.words == "none":
        sources = data.sources
    else:
        return None
    names = [f"{source.path} {source.name or ''}".strip() for source in sources]
    sizes = [HUB_BYTES.get(name) for name in names]
    return None if None in sizes else sum(filter(None, sizes))


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it: `42 s`, `7.5 min`, `3.2 h`, `12.1 days`."""
    for unit, size, limit in (("s", 1, 90), ("min", 60, 90 * 60), ("h", 3600, 72 * 3600)):
        if seconds < limit:
            count = seconds / size
            return f"{count:.0f} {unit}" if size == 1 and count >= 10 else f"{count:.1f} {unit}"
    return f"{seconds / 86400:,.1f} days"
