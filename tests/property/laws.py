"""The laws of rotary position embedding, as measures that any implementation can be held to.

Each takes the module `roformer.nn.rotary` (or a mutant of it) and returns how far it is from the
law, 0 being perfect; `distance_sensitivity` returns how much the product depends on the distance,
where 0 is a rotation that does nothing.
"""

import torch
from torch import Tensor

from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.nn.attention import softmax
from roformer.nn.position import Positions, RotaryPosition


def rotation_matrix(position: float, dim: int, base: float, layout: str) -> Tensor:
    """R of Eq. 15 in float64, built block by block from its definition."""
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    for i in range(dim // 2):
        angle = torch.tensor(position, dtype=torch.float64) * base ** (-2.0 * i / dim)
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + dim // 2)
        matrix[a, a] = matrix[b, b] = angle.cos()
        matrix[b, a], matrix[a, b] = angle.sin(), -angle.sin()
    return matrix


def matrix_error(
    rotary, positions: Tensor, dim: int, *, layout="interleaved", base=10000.0
) -> float:
    """Largest difference to the explicit rotation, forward and backward."""
    x = torch.randn(3, 2, len(positions), dim, requires_grad=True)
    weight = torch.randn_like(x)
    y = rotary.apply_rotary(x, positions, base=base, layout=layout)
    (y * weight).sum().backward()
    matrices = torch.stack([rotation_matrix(float(m), dim, base, layout) for m in positions])
    expected = torch.einsum("tij,bntj->bnti", matrices, x.detach().double())
    gradient = torch.einsum("tji,bntj->bnti", matrices, weight.double())
    return max((y - expected).abs().max().item(), (x.grad - gradient).abs().max().item())


def products(rotary, shift: int) -> Tensor:
    """q_m · k_n for one q and one k at all positions, (T, T)."""
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 16, generator=generator)
    positions = torch.arange(12) + shift
    turned = [rotary.apply_rotary(v.expand(12, 16), positions) for v in (q, k)]
    return turned[0] @ turned[1].T


def shift_error(rotary, shift: int) -> float:
    """Largest change of the products when all positions move together (Eq. 16)."""
    return (products(rotary, shift) - products(rotary, 0)).abs().max().item()


def distance_sensitivity(rotary) -> float:
    """Spread of one query's product with one key over the distances between them."""
    return products(rotary, 0)[0].std().item()


def norm_error(rotary) -> float:
    """Largest change of a vector's norm."""
    x = torch.randn(5, 9, 32)
    y = rotary.apply_rotary(x, torch.arange(9) * 7)
    return (y.norm(dim=-1) - x.norm(dim=-1)).abs().max().item()


def offset_error(rotary) -> float:
    """Difference between the end of a whole pass and a pass over the end alone."""
    x, positions = torch.randn(2, 10, 16), torch.arange(10)
    whole = rotary.apply_rotary(x, positions)
    return (rotary.apply_rotary(x[:, 6:], positions[6:]) - whole[:, 6:]).abs().max().item()


def value_error(attention=softmax) -> float:
    """Change of the output when only positions change and all tokens attend equally.

    With zero queries the weights are uniform, so positions can reach the output through the values
    alone.
    """
    sizes = schema.EncoderConfig(
        name="test",
        size="test",
        layers=1,
        hidden_size=32,
        heads=2,
        intermediate_size=32,
        position=encodings.Rotary(),
        attention=SoftmaxAttention(),
    )
    encoding = RotaryPosition(sizes.position, sizes)
    layer = attention.SelfAttention(32, 2, 0.0)
    layer.projection.weight.data[:32] = 0
    layer.projection.bias.data[:32] = 0
    x = torch.randn(2, 8, 32)
    outputs = [
        layer(x, Positions(ids), encoding, None) for ids in (torch.arange(8), torch.arange(8) * 3)
    ]
    return (outputs[0] - outputs[1]).abs().max().item()
