"""The optimizer and the learning rate, both as functions of the config."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from roformer.config.schema import OptimizerConfig, ScheduleConfig
from roformer.training.distributed import whole


def build_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.AdamW:
    """Return AdamW, fused where the device has it, with weight decay on matrices and tables only."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=config.betas, eps=config.eps, fused=fused
    )


def learning_rate(config: ScheduleConfig, peak: float, steps: int) -> Callable[[int], float]:
    """Return the learning rate of step u = 1 … `steps`, a pure function: nothing to resume.

    Warm-up over w steps rises linearly from `initial_ratio`·peak, reaching the peak at u = w. Then:

        constant      peak
        linear        falls in a line to `final_ratio`·peak at u = steps
        cosine        falls along half a cosine to the same
        inverse_sqrt  peak·√(w/u)  (Vaswani et al. 2017, Eq. 3, as fairseq scales it)

    A stage of a longer schedule takes `total_steps` and `first_update` (steps before it) from it.
    """
    steps = config.total_steps or steps
    warmup = config.warmup_steps or 0
    if config.warmup_fraction:
        warmup = max(1, round(config.warmup_fraction * steps))
    final = config.final_ratio

    def rate(step: int) -> float:
        step += config.first_update
        if step < warmup:
            return peak * (config.initial_ratio + (1 - config.initial_ratio) * step / warmup)
        if config.kind == "constant":
            return peak
        if config.kind == "inverse_sqrt":
            return peak * math.sqrt(warmup / step)
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        if config.kind == "linear":
            return peak * (1 - (1 - final) * done)
        return peak * (final + (1 - final) * (1 + math.cos(math.pi * done)) / 2)

    return rate


@torch.no_grad()
def weight_norm(model: nn.Module) -> float:
    """Return the Euclidean norm of all weights."""
    norms = [whole(parameter.detach().norm()) for parameter in model.parameters()]
    return float(torch.stack(norms).norm())
