"""Scaled frequencies equal `transformers`' results; the fixed NTK form equals its formula."""

import itertools

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from roformer.config import position as encodings
from roformer.nn.rotary import rotary_frequencies
from roformer.nn.rotary_scaling import ScaledRotaryEmbedding

CASES = list(itertools.product([16, 128], [1.0, 1.5, 32.0], [128, 4096], [1e4, 5e5]))
"""(dimensions, factor, trained length, base)"""
FORMS = {
    "linear": (encodings.LinearScaling, {}, [1]),
    "dynamic": (encodings.DynamicNtkScaling, {}, [0.5, 1, 1.01, 4]),
    "yarn": (encodings.YarnScaling, {"beta_fast": 32.0, "beta_slow": 1.0}, [1]),
    "yarn, other betas": (encodings.YarnScaling, {"beta_fast": 16.0, "beta_slow": 2.0}, [1]),
    "ntk": (encodings.NtkScaling, {}, [1]),
}
"""Name of a form, its `rope_type` first → ours, its parameters, and the lengths over the trained one."""


def theirs(rope_type, dim, base, length, **parameters):
    """Return (inverse frequencies, attention factor) as `transformers` computes them."""
    config = LlamaConfig(
        hidden_size=4 * dim,
        num_attention_heads=4,
        head_dim=dim,
        max_position_embeddings=parameters["original_max_position_embeddings"],
        rope_parameters={"rope_type": rope_type, "rope_theta": base, **parameters},
    )
    return ROPE_INIT_FUNCTIONS[rope_type](config, torch.device("cpu"), seq_len=length)


@pytest.mark.parametrize(("dim", "factor", "trained", "base"), CASES)
@pytest.mark.parametrize("form", FORMS)
def test_frequencies_are_theirs(form, dim, factor, trained, base):
    scaling, parameters, lengths = FORMS[form]
    has_length = form not in ("linear", "ntk")
    more = {"trained_length": trained} if has_length else {}
    embedding = ScaledRotaryEmbedding(
        dim, scaling=scaling(factor=factor, **parameters, **more), base=base
    )
    given = {"factor": factor, "original_max_position_embeddings": trained, **parameters}
    for length in (int(times * trained) for times in lengths):
        if form == "ntk":
            expected = rotary_frequencies(dim, base * factor ** (dim / (dim - 2))), 1.0
        else:
            expected = theirs(form.partition(",")[0], dim, base, length, **given)
        ours = embedding.frequencies(torch.arange(length))
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, expected[0], atol=1e-6, rtol=1e-5)
        assert embedding.amplitude == pytest.approx(expected[1], abs=1e-6)
