"""The laws of rotary position embedding and linear attention, as errors of an implementation.

Each function takes a module, such as `roformer.nn.rotary` or a mutant of it, and returns its largest
deviation from the law; `distance_sensitivity` returns how much the product depends on the distance,
0 for a rotation that does nothing.
"""

import torch
from torch import Tensor

from roformer.config.schema import EncoderConfig
from roformer.nn.attention import additive_mask, linear, softmax
from roformer.nn.position import Positions, build_position
from tests.property.models import settings


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
    q, k = (rotary.apply_rotary(v.expand(12, 16), positions) for v in (q, k))
    return q @ k.T


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
    sizes = EncoderConfig(**settings("rotary", heads=2))
    encoding = build_position(sizes.position, sizes)
    layer = attention.SelfAttention(32, 2, 0.0)
    layer.projection.weight.data[:32] = 0
    layer.projection.bias.data[:32] = 0
    x = torch.randn(2, 8, 32)
    outputs = [
        layer(x, Positions(ids), encoding, None) for ids in (torch.arange(8), torch.arange(8) * 3)
    ]
    return (outputs[0] - outputs[1]).abs().max().item()


def linear_layer(config, linear=linear):
    """A linear attention layer of two heads of 16 dimensions, and its encoding."""
    sizes = EncoderConfig(**settings("rotary", heads=2, attention=config))
    layer = linear.LinearSelfAttention(config, 32, 2)
    layer.projection.weight.data.mul_(3)
    return layer, build_position(sizes.position, sizes)


def explicit_linear_attention(
    layer, encoding, x: Tensor, ids: Tensor, keep, causal: bool
) -> Tensor:
    """RoFormer's Eq. 19 in float64, with every query's weight on every key written down.

    FAVOR+ as in Choromanski et al. 2021, Eq. 5. Levels only multiply eps: a query's own largest
    product, and the largest product of the keys it may see.
    """
    config, heads = layer.config, layer.heads
    q, k, v = (part.double() for part in layer.split(layer.projection(x), 3))
    where = Positions(ids)
    if config.rope_position == "pre":
        q, k = encoding.rotate(q, k, where)
    length = q.shape[-2]
    allowed = torch.ones(len(x), length, dtype=torch.bool) if keep is None else keep
    level_q = level_k = torch.zeros(len(x), heads, length, 1, dtype=torch.float64)
    if config.kind == "elu":
        q, k = (torch.where(t > 0, t + 1, t.exp()) for t in (q, k))
    else:
        w = layer.feature_map.vectors.double()
        q, k = (t * t.shape[-1] ** -0.25 for t in (q, k))
        products = [t @ w.T for t in (q, k)]
        level_q = products[0].detach().max(-1, keepdim=True).values
        largest = products[1].detach().max(-1, keepdim=True).values
        largest = largest.masked_fill(~allowed[:, None, :, None], -80.0)
        ends = [n + 1 if causal else length for n in range(length)]
        level_k = torch.stack([largest[:, :, :end].max(2).values for end in ends], dim=2)
        q, k = (
            (p - t.square().sum(-1, keepdim=True) / 2).exp() + config.feature_eps * level.exp()
            for p, t, level in zip(products, (q, k), (level_q, level_k), strict=True)
        )
        q, k = q / len(w) ** 0.5, k / len(w) ** 0.5
    rotated = (q, k) if config.rope_position == "pre" else encoding.rotate(q, k, where)
    seen = allowed[:, None, None].expand(-1, 1, length, -1)
    seen = seen & torch.ones(length, length, dtype=torch.bool).tril() if causal else seen
    numerator = (rotated[0] @ rotated[1].mT * seen) @ v
    eps = config.denominator_eps * level_k.exp() * q.sum(-1, keepdim=True)
    denominator = (q @ k.mT * seen).sum(-1, keepdim=True)
    denominator = denominator + eps if causal else denominator.maximum(eps)
    return layer.join((numerator / denominator).float())


def linear_error(config, *, length=23, causal=False, keep=None, linear=linear) -> float:
    """Largest difference to `explicit_linear_attention`, of outputs and of the input's gradient."""
    torch.manual_seed(length)
    layer, encoding = linear_layer(config, linear)
    ids, x = torch.arange(length) + 3, torch.randn(2, length, 32, requires_grad=True)
    weight = torch.randn(2, length, 32)
    if keep is not None:  # the output of an excluded token is of no use
        weight = weight * keep[..., None]
    mask = None if keep is None else additive_mask(keep)
    y = layer(x, Positions(ids), encoding, mask, causal=causal) * (weight != 0)
    expected = explicit_linear_attention(layer, encoding, x, ids, keep, causal) * (weight != 0)
    (actual_x,) = torch.autograd.grad((y * weight).sum(), x)
    (expected_x,) = torch.autograd.grad((expected * weight).sum(), x)
    scale = max(1.0, expected_x.abs().max().item())
    return max(
        (y - expected).abs().max().item(), (actual_x - expected_x).abs().max().item() / scale
    )
