"""Precision of the forward pass."""

import pytest
import torch
from torch import nn

from roformer.config.build import build
from roformer.config.schema import RuntimeConfig
from roformer.training.distributed import cast_like_autocast, open_accelerator


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_prepared_model_returns_what_it_computed(precision):
    """Catches accelerate's conversion of the outputs, which copies all logits twice."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    accelerator = open_accelerator(build(RuntimeConfig, {"device": "cpu"}), precision, model)
    cast_like_autocast(model, accelerator.device, precision)
    y = accelerator.prepare(model)(torch.randn(5, 3))
    assert y.dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
    accelerator.backward(y.sum())
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
