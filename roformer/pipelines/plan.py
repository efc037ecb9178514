"""What a recipe would cost, from its config alone: no data is read and no weights are made."""

from __future__ import annotations

from roformer.config.schema import PlanConfig
from roformer.models.cost import flops_per_token, memory_bytes, parameter_count
from roformer.training.hardware import GPUS

BERT_VOCABULARY = 30522
"""Of bert-base-uncased: assumed where the tokenizer is read rather than trained."""


def plan(config: PlanConfig) -> None:
    """Print parameters, operations, tokens, memory a device and hours on named GPUs."""
    training, data, model = config.training, config.data, config.model
    trained = data.tokenizer.source == "train"
    vocabulary = data.tokenizer.vocab_size if trained else BERT_VOCABULARY
    tokens = training.steps * training.batch_size * training.sequence_length
    share = config.masking.probability
    per_token = flops_per_token(model, vocabulary, training.sequence_length, share)
    total = per_token * tokens
    a_device = -(-training.batch_size // config.devices)
    sequences = min(config.runtime.micro_batch_size or a_device, a_device)
    fixed, activations = memory_bytes(
        model,
        vocabulary,
        sequences=sequences,
        sequence_length=training.sequence_length,
        predicted=share,
        half=training.precision != "fp32",
        checkpointing=config.runtime.gradient_checkpointing,
    )
    print(
        f"{model.name} ({model.position.kind}, {model.size}), recipe {config.recipe}, data {data.kind}"
    )
    print(f"parameters      {parameter_count(model, vocabulary):,} (vocabulary {vocabulary:,})")
    print(
        f"tokens          {tokens:,} = {training.steps:,} steps x {training.batch_size} sequences "
        f"x {training.sequence_length}"
    )
    print(f"operations      {total:.3g} FLOP = {per_token:.4g} a token, forward and backward")
    print(
        f"memory a device {(fixed + activations) / 1e9:.1f} GB = {fixed / 1e9:.1f} weights, gradients "
        f"and moments + {activations / 1e9:.1f} activations of {sequences} sequences (estimate)"
    )
    print(
        f"hours on {config.devices} device(s), at {config.utilisation:.0%} of the peak (assumed):"
    )
    for name, gpu in GPUS.items():
        hours = total / (config.devices * gpu.flops * config.utilisation) / 3600
        fits = (
            ""
            if fixed + activations < gpu.memory
            else "  does not fit: lower runtime.micro_batch_size"
        )
        print(f"  {name:<9} {hours:>10,.2f} h{fits}")
