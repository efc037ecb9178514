"""Training starts from trained weights: what is taken, dropped and drawn."""

import pytest
import torch

from roformer.config.position import PositionConfig
from roformer.config.typed import OpenUnion
from roformer.inference.start import load_start
from roformer.models.description import build_model
from tests.trained import config_of, shaken, stored

KINDS = OpenUnion.kinds.__func__(PositionConfig)
POSITIONS = {
    **{kind: {"kind": kind} for kind in KINDS},
    "learned": {"kind": "learned", "max_positions": 40},
    "longer learned": {"kind": "learned", "max_positions": 48},
    "partly rotary": {"kind": "rotary", "fraction": 0.5},
    "rotated values": {"kind": "rotary", "rotate_values": True},
    "rotary+learned": {"kind": "rotary", "absolute": "learned", "absolute_positions": 40},
    "tupe": {"kind": "tupe", "untie_cls": False, "max_positions": 40},
    "shaw": {"kind": "shaw", "per_head": True},
}


def position_of(name):
    settings = dict(POSITIONS[name])
    return KINDS[settings.pop("kind")](**settings)


def home(model):
    """Return the part of a model that has the positions."""
    return getattr(model, "encoder", model)


def encodings_of(kind):
    return [n for n in POSITIONS if kind == "causal" or position_of(n).can("bidirectional")]


@pytest.mark.parametrize(
    ("kind", "before"), [(kind, n) for kind in ("mlm", "causal") for n in encodings_of(kind)]
)
def test_positions_are_swapped_and_all_else_is_kept(kind, before):
    """Every encoding is swapped for every other, in an encoder and in a causal model."""
    start = stored(kind, position_of(before))
    prefix = "encoder.position." if kind == "mlm" else "position."
    ids = torch.randint(5, start.vocab_size, (2, 24))
    for after in encodings_of(kind):
        config = config_of(kind, position_of(after))
        torch.manual_seed(1)
        drawn = build_model(start.description, config)
        torch.manual_seed(1)
        model = build_model(start.description, config).eval()
        lines = load_start(start, model)
        if after == before:
            assert lines[1:] == ["dropped: nothing", "drawn: nothing"]
            continue
        assert f"{start.model.position.name} positions replaced by " in lines[0]
        for line, weights in ((lines[1], start.weights), (lines[2], model.state_dict())):
            listed = any(name.startswith(prefix) for name in weights)
            assert (prefix in line) == listed and ("nothing" in line) != listed
        for name, tensor in home(model).position.state_dict().items():
            assert torch.equal(tensor, home(drawn).position.state_dict()[name])

        other = shaken(build_model(start.description, config), seed=2)
        same = {n: t for n, t in start.weights.items() if not n.startswith(prefix)}
        assert not other.load_state_dict(same, strict=False).unexpected_keys
        home(model).position.load_state_dict(home(other).position.state_dict())
        with torch.no_grad():
            assert torch.equal(model(ids), other(ids))
