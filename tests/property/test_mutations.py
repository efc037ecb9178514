"""The laws can fail: each classic mistake, planted in the source, is caught by one of them."""

import importlib
import inspect
import types

import pytest
import torch

from roformer.config.attention import EluAttention, PerformerAttention
from tests.property import laws

ROTARY, SOFTMAX, LINEAR = (
    f"roformer.nn.{name}" for name in ("rotary", "attention.softmax", "attention.linear")
)


def mutant(module, original, replacement):
    """Return the module with one piece of its source replaced."""
    source = inspect.getsource(importlib.import_module(module))
    assert original in source, f"{module} no longer contains {original!r}"
    result = types.ModuleType("mutant")
    result.__dict__["__name__"] = module
    code = compile(source.replace(original, replacement), f"mutant of {module}", "exec")
    exec(code, result.__dict__)
    return result


def test_a_deleted_rotation_is_seen_by_the_matrix_and_the_distance_alone():
    identity = mutant(ROTARY, "return embedding(x, table)", "return x + 0").apply_rotary
    assert laws.matrix_error(identity, torch.arange(10), 8) > 0.1
    assert laws.distance_sensitivity(identity) < 1e-6
    # Why these two are needed: the obvious laws hold for no rotation at all.
    assert laws.shift_error(identity, 7) < 1e-6
    assert laws.norm_error(identity) < 1e-6


ROTATIONS = {
    "swapped pairing": ('    if layout == "half":', '    if layout != "half":'),
    "wrong exponent": ("-2.0 * pair / head_dim", "-1.0 * pair / head_dim"),
    "rotated backwards": (
        "(a * cos - b * sin, b * cos + a * sin)",
        "(a * cos + b * sin, b * cos - a * sin)",
    ),
    "angles in bf16": ("positions.to(torch.float32)[", "positions.to(torch.bfloat16)["),
    "wrong backward": ("turn.conj().resolve_conj()", "turn"),
}


@pytest.mark.parametrize(("original", "replacement"), ROTATIONS.values(), ids=ROTATIONS)
def test_a_wrong_rotation_is_seen_by_the_matrix(original, replacement):
    rotate, positions = mutant(ROTARY, original, replacement).apply_rotary, torch.arange(1000, 1010)
    layouts = ("interleaved", "half")
    assert max(laws.matrix_error(rotate, positions, 8, layout=layout) for layout in layouts) > 0.1


def test_a_dropped_offset_is_seen():
    table = "table = embedding.table(positions)\n"
    dropped = table.replace("positions", "positions - positions[..., :1]")
    assert laws.offset_error(mutant(ROTARY, table, dropped).apply_rotary) > 0.1


def test_rotated_values_are_seen():
    call = "q, k = encoding.rotate(q, k, positions)"
    wrong = mutant(SOFTMAX, call, f"{call}; v, _ = encoding.rotate(v, v, positions)")
    assert laws.value_error(wrong) > 0.01


ROTATION = "rotated = encoding.rotate(q, k, positions)"
LINEAR_ATTENTION = {
    "deleted rotation": (ROTATION, "rotated = (q, k)"),
    "rotated denominator": (ROTATION, "rotated = q, k = encoding.rotate(q, k, positions)"),
    "rotated values": (ROTATION, f"{ROTATION}; v, _ = encoding.rotate(v, v, positions)"),
    "rotation before the map": ('rope_position == "pre"', 'rope_position != "pre"'),
}
CAUSAL = {
    "keys to come": (".exp().tril()", ".exp()"),
    "denominator of rotated weights": ("if same else (q @ k.mT)", "if True else (q @ k.mT)"),
    "context of another level": (
        "since * (rotated_q @ before.context)",
        "rotated_q @ before.context",
    ),
    "total of another level": ("kept * before.total", "before.total"),
    "keys of another level": ("k = k * fading", "k = k * 1.0"),
    "rotated keys of another level": ("rotated_k * fading", "rotated_k"),
}


@pytest.mark.parametrize("name", [*LINEAR_ATTENTION, *CAUSAL])
def test_wrong_linear_attention_is_seen_by_the_explicit_form(name):
    wrong = mutant(LINEAR, *(LINEAR_ATTENTION | CAUSAL)[name])
    config = PerformerAttention(features=16, chunk_length=5)
    if name == "rotated values":  # needs as many features as dimensions
        config = EluAttention(chunk_length=5)
    assert laws.linear_error(config, causal=name in CAUSAL) < 1e-4
    assert laws.linear_error(config, causal=name in CAUSAL, module=wrong) > 1e-3
