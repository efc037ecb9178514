"""Scaled frequencies equal those of `transformers`' own functions; the fixed NTK form its formula."""

import itertools

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from roformer.config import position as encodings
from roformer.nn.rotary import rotary_frequencies
from roformer.nn.rotary_scaling import ScaledRotaryEmbedding

CASES = list(itertools.product([16, 64, 80, 128], [1.0, 1.5, 4.0, 32.0], [128, 512, 4096]))
BASES = (10000.0, 500000.0)


def theirs(rope_type: str, dim: int, base: float, length: int | None = None, **parameters):
    """Return (inverse frequencies, attention factor) as `transformers` computes them."""
    trained_length = parameters["original_max_position_embeddings"]
    config = LlamaConfig(
        hidden_size=4 * dim,
        num_attention_heads=4,
        head_dim=dim,
        max_position_embeddings=trained_length,
        rope_parameters={"rope_type": rope_type, "rope_theta": base, **parameters},
    )
    return ROPE_INIT_FUNCTIONS[rope_type](config, torch.device("cpu"), seq_len=length)


def assert_equal(scaling, dim: int, base: float, length: int, expected) -> None:
    embedding = ScaledRotaryEmbedding(dim, scaling=scaling, base=base)
    ours = embedding.frequencies(torch.arange(length))
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, expected[0], atol=1e-6, rtol=1e-5)
    assert embedding.amplitude == pytest.approx(expected[1], abs=1e-6)


@pytest.mark.parametrize(("dim", "factor", "trained_length"), CASES)
def test_linear(dim, factor, trained_length):
    for base in BASES:
        expected = theirs(
            "linear", dim, base, factor=factor, original_max_position_embeddings=trained_length
        )
        assert_equal(encodings.LinearScaling(factor=factor), dim, base, trained_length, expected)


@pytest.mark.parametrize(("dim", "factor", "trained_length"), CASES)
@pytest.mark.parametrize("times", [0.5, 1, 1.01, 4])
def test_dynamic(dim, factor, trained_length, times):
    length = int(times * trained_length)
    scaling = encodings.DynamicNtkScaling(factor=factor, trained_length=trained_length)
    for base in BASES:
        given = {"factor": factor, "original_max_position_embeddings": trained_length}
        assert_equal(scaling, dim, base, length, theirs("dynamic", dim, base, length, **given))


@pytest.mark.parametrize(("dim", "factor", "trained_length"), CASES)
@pytest.mark.parametrize("betas", [(32.0, 1.0), (16.0, 2.0)])
def test_yarn(dim, factor, trained_length, betas):
    fast, slow = betas
    scaling = encodings.YarnScaling(
        factor=factor, trained_length=trained_length, beta_fast=fast, beta_slow=slow
    )
    given = {"factor": factor, "beta_fast": fast, "beta_slow": slow}
    for base in BASES:
        expected = theirs(
            "yarn", dim, base, original_max_position_embeddings=trained_length, **given
        )
        assert_equal(scaling, dim, base, trained_length, expected)


@pytest.mark.parametrize(("dim", "factor", "trained_length"), CASES)
def test_fixed_ntk_is_a_larger_base(dim, factor, trained_length):
    for base in BASES:
        larger = rotary_frequencies(dim, base * factor ** (dim / (dim - 2)))
        scaling = encodings.NtkScaling(factor=factor)
        assert_equal(scaling, dim, base, trained_length, (larger, 1.0))
