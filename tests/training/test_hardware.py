"""What `training.precision=auto` becomes on a CPU, and what peak a GPU is held to."""

import pytest
import torch

from roformer.training.hardware import GPUS, auto_precision, computes_slowly, lacks_bf16, peak_flops


@pytest.mark.parametrize(
    ("able", "precision"),
    [
        ({"amx_bf16": True, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, "bf16"),
        ({"amx_bf16": False, "avx512_bf16": True, "cpu_name": "Intel Xeon"}, "fp32"),
        ({"avx512_bf16": True, "cpu_name": "AMD EPYC"}, "bf16"),
        ({"avx2": True, "avx512_bf16": False, "cpu_name": "AMD EPYC"}, "fp32"),
        ({}, "fp32"),
    ],
)
def test_auto_is_bf16_where_that_is_faster(monkeypatch, able, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able, raising=False)
    assert auto_precision("cpu") == precision
    known = "avx512_bf16" in able
    assert computes_slowly("bf16", "cpu") == (known and precision == "fp32")
    assert not computes_slowly("fp32", "cpu")
    assert lacks_bf16() == (known and not able["avx512_bf16"])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
    ],
)
def test_a_gpu_is_known_by_its_whole_name(monkeypatch, name, known):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(torch.device("cuda")) == (GPUS[known].flops if known else None)
