"""What `training.precision=auto` becomes on a CPU."""

import pytest
import torch

from roformer.training.hardware import auto_precision, computes_slowly


@pytest.mark.parametrize(
    ("able", "precision"),
    [
        ({"amx_bf16": True, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, "bf16"),
        ({"amx_bf16": False, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, "fp32"),
        ({"avx512_bf16": True, "cpu_name": "AMD EPYC"}, "bf16"),
        ({"avx512_bf16": False, "cpu_name": "AMD EPYC"}, "fp32"),
        ({"architecture": "aarch64", "bf16": True}, "fp32"),
        ({}, "fp32"),
    ],
)
def test_auto_is_bf16_where_that_is_faster(monkeypatch, able, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    assert auto_precision("cpu") == precision
    told = "avx512_bf16" in able
    assert computes_slowly("bf16", "cpu") == (told and precision == "fp32")
    assert not computes_slowly("fp32", "cpu")
