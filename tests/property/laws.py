"""Laws of rotary position embedding and linear attention, as an implementation's deviation from them.

Each function takes an implementation, which may be a mutant: `rotate(x, positions)`, or a module of
attention. It returns the largest deviation from the law; `distance_sensitivity` returns how much the
product depends on the distance, 0 for a rotation that does nothing.
"""

import torch
from torch import Tensor

from roformer.config.schema import EncoderConfig
from roformer.nn.attention import additive_mask, linear, softmax
from roformer.nn.position import Positions, build_position
from tests.property.models import settings


def rotation_matrix(position: float, dim: int, base=10000.0, layout="interleaved") -> Tensor:
    """Return R of Eq. 15 in float64, built block by block from its definition."""
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    for i in range(dim // 2):
        angle = torch.tensor(position, dtype=torch.float64) * base ** (-2.0 * i / dim)
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + dim // 2)
        matrix[a, a] = matrix[b, b] = angle.cos()
        matrix[b, a], matrix[a, b] = angle.sin(), -angle.sin()
    return matrix


def matrix_error(rotate, positions: Tensor, dim: int, **form) -> float:
    """Largest difference to the explicit rotation, forward and backward; `form` is base and layout."""
    x = torch.randn(3, 2, len(positions), dim, requires_grad=True)
    weight = torch.randn_like(x)
    y = rotate(x, positions, **form)
    (gradient,) = torch.autograd.grad((y * weight).sum(), x)
    matrices = torch.stack([rotation_matrix(float(m), dim, **form) for m in positions])
    expected = torch.einsum("tij,bntj->bnti", matrices, x.detach().double())
    expected_gradient = torch.einsum("tji,bntj->bnti", matrices, weight.double())
    return max((y - expected).abs().max().item(), (gradient - expected_gradient).abs().max().item())


def products(rotate, shift: int = 0) -> Tensor:
    """q_m · k_n for one q and one k at all positions, (T, T)."""
    q, k = torch.randn(2, 16, generator=torch.Generator().manual_seed(1))
    positions = torch.arange(12) + shift
    q, k = (rotate(v.expand(12, 16), positions) for v in (q, k))
    return q @ k.T


def shift_error(rotate, shift: int) -> float:
    """Largest change of the products when all positions move together (Eq. 16)."""
    return (products(rotate, shift) - products(rotate)).abs().max().item()


def distance_sensitivity(rotate) -> float:
    """Spread of one query's product with one key over the distances between them."""
    return products(rotate)[0].std().item()


def norm_error(rotate, factor: float = 1.0) -> float:
    """Largest difference of a vector's norm to `factor` times what it was."""
    x = torch.randn(5, 9, 16)
    y = rotate(x, torch.arange(9) * 7)
    return (y.norm(dim=-1) - factor * x.norm(dim=-1)).abs().max().item()


def offset_error(rotate) -> float:
    """Difference between the end of a whole pass and a pass over only the end."""
    x, positions = torch.randn(2, 10, 16), torch.arange(10)
    whole = rotate(x, positions)
    return (rotate(x[:, 6:], positions[6:]) - whole[:, 6:]).abs().max().item()


def value_error(attention=softmax) -> float:
    """Change of the output when only positions change and all tokens attend equally.

    Zero queries make the weights uniform, so positions can reach the output through the values
    alone.
    """
    sizes = EncoderConfig(**settings("rotary", heads=2))
    encoding = build_position(sizes.position, sizes)
    layer = attention.SelfAttention(32, 2, 0.0)
    layer.projection.weight.data[:32] = 0
    layer.projection.bias.data[:32] = 0
    x, ids = torch.randn(2, 8, 32), torch.arange(8)
    near, far = (layer(x, Positions(ids * step), encoding, None) for step in (1, 3))
    return (near - far).abs().max().item()


def linear_layer(config, module=linear):
    """Return a linear attention layer of two heads of 16 dimensions, and its encoding."""
    sizes = EncoderConfig(**settings("rotary", heads=2, attention=config))
    layer = module.LinearSelfAttention(config, 32, 2)
    layer.projection.weight.data.mul_(3)
    return layer, build_position(sizes.position, sizes)


def explicit_linear_attention(layer, encoding, x, ids, keep, causal: bool) -> Tensor:
    """Return RoFormer's Eq. 19 in float64, with every query's weight on every key written down.

    FAVOR+ as in Choromanski et al. 2021, Eq. 5. Levels only multiply eps: a query's own largest
    product, and the largest product of the keys it may see.
    """
    config, where = layer.config, Positions(ids)
    q, k, v = (part.double() for part in layer.split(layer.projection(x), 3))
    if config.rope_position == "pre":
        q, k = encoding.rotate(q, k, where)
    length = q.shape[-2]
    allowed = torch.ones(len(x), length, dtype=torch.bool) if keep is None else keep
    level_k = torch.zeros(len(x), layer.heads, length, 1, dtype=torch.float64)
    if config.kind == "elu":
        q, k = (torch.where(t > 0, t + 1, t.exp()) for t in (q, k))
    else:
        w = layer.feature_map.vectors.double()
        q, k = (t * t.shape[-1] ** -0.25 for t in (q, k))
        for_q, for_k = q @ w.T, k @ w.T
        level_q = for_q.detach().max(-1, keepdim=True).values
        largest = for_k.detach().max(-1, keepdim=True).values
        largest = largest.masked_fill(~allowed[:, None, :, None], -80.0)
        ends = [n + 1 if causal else length for n in range(length)]
        level_k = torch.stack([largest[:, :, :end].max(2).values for end in ends], dim=2)
        q, k = (
            (p - t.square().sum(-1, keepdim=True) / 2).exp() + config.feature_eps * level.exp()
            for p, t, level in ((for_q, q, level_q), (for_k, k, level_k))
        )
        q, k = q / len(w) ** 0.5, k / len(w) ** 0.5
    rotated_q, rotated_k = (q, k) if config.rope_position == "pre" else encoding.rotate(q, k, where)
    seen = allowed[:, None, None].expand(-1, 1, length, -1)
    seen = seen & torch.ones(length, length, dtype=torch.bool).tril() if causal else seen
    numerator = (rotated_q @ rotated_k.mT * seen) @ v
    eps = config.denominator_eps * level_k.exp() * q.sum(-1, keepdim=True)
    denominator = (q @ k.mT * seen).sum(-1, keepdim=True)
    denominator = denominator + eps if causal else denominator.maximum(eps)
    return layer.join((numerator / denominator).float())


def linear_error(config, *, length=23, causal=False, keep=None, module=linear) -> float:
    """Largest difference to `explicit_linear_attention`, of outputs and of the input's gradient."""
    torch.manual_seed(length)
    layer, encoding = linear_layer(config, module)
    ids, x = torch.arange(length) + 3, torch.randn(2, length, 32, requires_grad=True)
    real = torch.ones(2, length, 1) if keep is None else keep[..., None].float()
    mask = None if keep is None else additive_mask(keep)
    weight = torch.randn(2, length, 32)
    y = layer(x, Positions(ids), encoding, mask, causal=causal) * real
    expected = explicit_linear_attention(layer, encoding, x, ids, keep, causal) * real
    gradient, expected_gradient = (
        torch.autograd.grad((z * weight).sum(), x)[0] for z in (y, expected)
    )
    scale = max(1.0, expected_gradient.abs().max().item())
    difference = (gradient - expected_gradient).abs().max().item() / scale
    return max((y - expected).abs().max().item(), difference)
