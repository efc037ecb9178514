"""The laws can fail: each classic mistake, planted in the source, is caught by one of them."""

import importlib
import inspect
import types

import pytest
import torch

from roformer.config.attention import EluAttention, PerformerAttention
from tests.property import laws


def mutant(module: str, original: str, replacement: str) -> types.ModuleType:
    """Return the module with one piece of its source replaced."""
    source = inspect.getsource(importlib.import_module(module))
    assert original in source, f"{module} no longer contains {original!r}"
    result = types.ModuleType("mutant")
    result.__dict__["__name__"] = module
    exec(
        compile(source.replace(original, replacement), f"mutant of {module}", "exec"),
        result.__dict__,
    )
    return result


ROTARY = "roformer.nn.rotary"
POSITIONS = torch.arange(10)


def test_deleted_rotation_is_seen_by_matrix_and_distance_alone():
    identity = mutant(ROTARY, "return embedding(x, table)", "return x + 0")
    assert laws.matrix_error(identity, POSITIONS, 8) > 0.1
    assert laws.distance_sensitivity(identity) < 1e-6
    # Why these two are needed: the obvious laws hold for no rotation at all.
    assert laws.shift_error(identity, 7) < 1e-6
    assert laws.norm_error(identity) < 1e-6


@pytest.mark.parametrize(
    ("original", "replacement"),
    [
        ('    if layout == "half":', '    if layout != "half":'),
        ("-2.0 * pair / head_dim", "-1.0 * pair / head_dim"),
        ("(a * cos - b * sin, b * cos + a * sin)", "(a * cos + b * sin, b * cos - a * sin)"),
        ("positions.to(torch.float32)[..., None]", "positions.to(torch.bfloat16)[..., None]"),
    ],
    ids=["swapped pairing", "wrong exponent", "rotated backwards", "angles in bf16"],
)
def test_wrong_rotation_is_seen_by_the_matrix(original, replacement):
    wrong = mutant(ROTARY, original, replacement)
    positions = torch.arange(1000, 1010)
    errors = [
        laws.matrix_error(wrong, positions, 8, layout=layout) for layout in ("interleaved", "half")
    ]
    assert max(errors) > 0.1


def test_dropped_offset_is_seen():
    dropped = mutant(
        ROTARY,
        "table = embedding.table(positions)\n",
        "table = embedding.table(positions - positions[..., :1])\n",
    )
    assert laws.offset_error(dropped) > 0.1


def test_wrong_backward_is_seen():
    wrong = mutant(ROTARY, "turn.conj().resolve_conj()", "turn")
    assert laws.matrix_error(wrong, POSITIONS, 8) > 0.1


def test_rotated_values_are_seen():
    call = "q, k = encoding.rotate(q, k, positions)"
    wrong = mutant(
        "roformer.nn.attention.softmax", call, f"{call}; v, _ = encoding.rotate(v, v, positions)"
    )
    assert laws.value_error(wrong) > 0.01


LINEAR = "roformer.nn.attention.linear"
ROTATION = "rotated = encoding.rotate(q, k, positions)"


@pytest.mark.parametrize(
    ("original", "replacement", "causal"),
    [
        (ROTATION, "rotated = (q, k)", False),
        (ROTATION, "rotated = q, k = encoding.rotate(q, k, positions)", False),
        (ROTATION, f"{ROTATION}; v, _ = encoding.rotate(v, v, positions)", False),
        ('rope_position == "pre"', 'rope_position != "pre"', False),
        (".exp().tril()", ".exp()", True),
        ("if same else (q @ k.mT)", "if True else (q @ k.mT)", True),
        ("since * (rotated_q @ before.context)", "rotated_q @ before.context", True),
        ("kept * before.total", "before.total", True),
        ("k = k * fading", "k = k * 1.0", True),
        ("rotated_k * fading", "rotated_k", True),
    ],
    ids=[
        "deleted rotation",
        "rotated denominator",
        "rotated values",
        "rotation before the map",
        "keys to come",
        "denominator of rotated weights",
        "context of another level",
        "total of another level",
        "keys of another level",
        "rotated keys of another level",
    ],
)
def test_wrong_linear_attention_is_seen_by_the_explicit_form(original, replacement, causal):
    right, wrong = importlib.import_module(LINEAR), mutant(LINEAR, original, replacement)
    config = PerformerAttention(features=16, chunk_length=5)
    if "rotate(v" in replacement:  # as many features as dimensions, so that values can be rotated
        config = EluAttention(chunk_length=5)
    errors = [laws.linear_error(config, causal=causal, linear=module) for module in (right, wrong)]
    assert errors[0] < 1e-4 and errors[1] > 1e-3
