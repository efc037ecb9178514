"""On another device than the CPU every model computes, learns and decodes the same.

Catches: a tensor made on the default device (`torch.arange(n)`), a buffer that does not move with its
module, reading values that lie on the device, for which a GPU makes the host wait, and a branch for other
devices with other numbers.
`tests.e2e.test_every_pipeline` runs whole trainings so.
"""

import pytest
import torch

from roformer.config import position as encodings
from roformer.evaluation.sampling import Sampling
from roformer.inference.generate import ByteCodec, Generator
from roformer.nn.cross_entropy import smoothed_cross_entropy
from tests.other_device import OTHER, READ, another_device
from tests.property.models import NAMES, SEE_BOTH_WAYS, build, tokens

CPU = torch.device("cpu")
SMALL = {"layers": 1, "hidden_dropout": 0.0}
SCALINGS = [
    encodings.LinearScaling(factor=2),
    encodings.NtkScaling(factor=2),
    encodings.DynamicNtkScaling(factor=2, trained_length=8),
    encodings.YarnScaling(factor=2, trained_length=8),
]


@pytest.fixture(autouse=True)
def machine():
    with another_device():
        yield


def small(family, name):
    return build(
        family, name, **SMALL, **({"decoder_layers": 1} if family == "translation" else {})
    )


def learnt(model, device, *sides, **inputs):
    """Return the loss of reading a text on a device, and the gradients, on the CPU."""
    model.to(device).zero_grad()
    ids = tokens(rows=2, length=9).to(device)
    inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    READ.clear()
    logits = model(*[ids] * (1 + len(sides)), **inputs)
    loss = smoothed_cross_entropy(logits.flatten(0, -2), ids.flatten(), 0.1, ignored=5)
    loss.backward()
    assert loss.device == device and READ == []
    return [loss.detach().cpu(), *(p.grad.cpu() for p in model.parameters() if p.grad is not None)]


def assert_alike(compute):
    """Compare what a function of the device returns, on the host."""
    torch.testing.assert_close(compute(OTHER), compute(CPU), atol=1e-4, rtol=1e-4)


MASK = torch.arange(9) < torch.tensor([[9], [6]])


@pytest.mark.parametrize("name", SEE_BOTH_WAYS)
def test_an_encoder(name):
    model = small("encoder", name)
    assert_alike(lambda device: learnt(model, device, attention_mask=MASK))


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling.kind)
def test_scaled_rotary_positions(scaling):
    model = build("encoder", "rotary", **SMALL, position=encodings.Rotary(scaling=scaling))
    assert_alike(lambda device: learnt(model, device))


CAUSAL = [name for name in NAMES if name not in SEE_BOTH_WAYS]


@pytest.mark.parametrize("name", [*CAUSAL, "rotary", "learned", "t5", "performer"])
def test_a_language_model_and_its_texts(name):
    model = small("causal", name)
    assert_alike(lambda device: learnt(model, device))
    generator, sampling = Generator(model, ByteCodec(), 64), Sampling(top_k=9, top_p=0.9)
    texts = []
    for device in (CPU, OTHER):
        model.to(device)
        texts.append(list(generator.draw([7, 8, 9], sampling, 4, seed=1)))
    assert texts[0] == texts[1] and len(texts[0]) == 4


def test_what_a_gpu_refuses_is_refused():
    """Otherwise the tests above say nothing."""
    there = torch.arange(3, device=OTHER)
    assert (there + torch.tensor(1)).tolist() == [1, 2, 3]  # a scalar may come from the host
    for wrong in (
        lambda: there + torch.arange(3),
        lambda: there[torch.tensor([0])],
        lambda: torch.cat([there, torch.zeros(1)]),
        lambda: torch.nn.Linear(3, 3)(there.float()),
        lambda: there.numpy(),
    ):
        with pytest.raises(RuntimeError):
            wrong()
