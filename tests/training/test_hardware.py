"""What `training.precision=auto` becomes on a CPU."""

import pytest
import torch

from roformer.training.hardware import computes_in_bf16


@pytest.mark.parametrize(
    ("able", "bf16"),
    [
        ({"amx_bf16": True, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, True),
        ({"amx_bf16": False, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, False),
        ({"avx512_bf16": True, "cpu_name": "AMD EPYC"}, True),
        ({"avx512_bf16": False, "cpu_name": "AMD EPYC"}, False),
        ({}, False),
    ],
)
def test_auto_is_bf16_where_that_is_faster(monkeypatch, able, bf16):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    assert computes_in_bf16("cpu") is bf16
