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
"""Size of the text, from the data sets' cards (BookCorpus from the card of the original)."""
TEXT_RATE, PAIR_RATE = 1.5e6, 0.94e6
"""Bytes per second and core: of text into WordPieces, and of both languages of pairs through Moses and
byte-pair encoding (experiments/speed)."""

Blocks = PretrainConfig | CharLMConfig | CausalLMConfig
Planned = Blocks | StagesConfig | WmtConfig


class Work(NamedTuple):
    """The quantities of one training that decide its cost."""

    tokens: int
    """Tokens read in all; of translation, target tokens."""
    formula: str
    """The tokens as a product."""
    operations: float
    """FLOP per token, forward and backward."""
    held: int
    """Tokens whose activations a device keeps at once."""
    held_in_words: str
    predicted: float = 1.0
    """Share of the tokens that the head runs on."""
    related: bool = False
    """See `MaskedLM`."""


def print_plan(config: Planned, devices: int, utilisation: float) -> None:
    """Print the parameters, tokens, operations, memory per device, and time on GPUs and a CPU.

    The stages of a training are added up; a translation's final search is not included.
    """
    model, vocabulary = config.model, _vocabulary(config)
    half = config.training.precision != "fp32"
    parts = _parts(config, devices)
    memory = [
        memory_bytes(
            model,
            vocabulary,
            tokens=part.held,
            predicted=part.predicted,
            half=half,
            checkpointing=config.runtime.gradient_checkpointing,
            related=part.related,
        )
        for part in parts
    ]
    fixed, activations = max(memory)
    largest = parts[memory.index((fixed, activations))]
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
            f"its download (at {rate / 1e6:.2g} MB/s: experiments/speed)"
        )
    for part in parts:
        print(f"tokens          {part.tokens:,} = {part.formula}")
    tokens = sum(part.tokens for part in parts)
    print(f"operations      {total:.3g} FLOP = {total / tokens:.4g} a token, forward and backward")
    print(
        f"device memory   {(fixed + activations) / 1e9:.1f} GB = {fixed / 1e9:.1f} weights, gradients "
        f"and moments + {activations / 1e9:.1f} activations of {largest.held_in_words} (estimate)"
    )
    precision = "fp16" if config.training.precision == "fp16" else "bf16"
    slower = "" if half else "; training.precision=fp32 takes several times as long"
    print(
        f"time on {devices} device(s), in {precision} at {utilisation:.0%} of the peak (assumed"
        f"{slower}):"
    )
    for name, gpu in GPUS.items():
        seconds = total / (devices * gpu.flops * utilisation)
        fits = fixed + activations < gpu.memory
        advice = "" if fits else "  does not fit: lower runtime.micro_batch_size"
        if half and (precision, gpu.half) == ("bf16", "fp16"):
            advice = f"  in fp16: it has no bf16, set training.precision=fp16{advice}"
        print(f"  {name:<9} {duration(seconds):>10}{advice}")
    print(
        f"time on CPU     {duration(total / CPU_RATE)} on two cores with bf16, at {CPU_RATE:.2g} FLOP/s "
        "(measured, mini model: experiments/speed)"
    )


def _parts(config: Planned, devices: int) -> list[Work]:
    """Return the training, or the trainings of all stages."""
    if isinstance(config, WmtConfig):
        return [_translation(config, devices)]
    if not isinstance(config, StagesConfig):
        return [_sequences(config, devices)]
    before = [config.init_from, *(f"stage {number + 1}" for number in range(len(config.stages)))]
    return [
        _sequences(config.pretraining(number, before[number - 1]), devices)
        for number in range(1, len(config.stages) + 1)
    ]


def _translation(config: WmtConfig, devices: int) -> Work:
    training, budget = config.training, config.training.tokens_per_update
    held = -(-budget // max(devices, -(-budget // training.bucket_tokens)))
    if micro := config.runtime.micro_batch_size:
        held = min(held, micro * (config.data.filter.max_length + 1))
    return Work(
        tokens=training.steps * budget,
        formula=f"{training.steps:,} steps x {budget:,} of the target, padding included",
        operations=flops_per_token(config.model, _vocabulary(config), SENTENCE),
        held=held,
        held_in_words=f"{held:,} tokens of source and target each",
    )


def _sequences(config: Blocks, devices: int) -> Work:
    training, vocabulary = config.training, _vocabulary(config)
    length, share, related = training.sequence_length, 1.0, False
    if isinstance(config, PretrainConfig):
        share, related = config.masking.probability, config.objective != "mlm"
    per_device = -(-training.batch_size // devices)
    sequences = min(config.runtime.micro_batch_size or per_device, per_device)
    return Work(
        tokens=training.steps * training.batch_size * length,
        formula=f"{training.steps:,} steps x {training.batch_size} sequences x {length}",
        operations=flops_per_token(config.model, vocabulary, length, share, related=related),
        held=sequences * length,
        held_in_words=f"{sequences} sequences",
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


def hub_bytes(config: Planned) -> float | None:
    """Return the size of a text of the Hub; None if it is unknown, or words are cut by another tool."""
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
