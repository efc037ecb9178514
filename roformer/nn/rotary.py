"""Rotary position embedding: the mathematics of RoFormer (arXiv 2104.09864), section 3.

Each pair of dimensions of a query or key is rotated by an angle proportional to its position
(Eq. 14, 15), so that the product of a query at m and a key at n depends on m - n only (Eq. 16).

    rotary_frequencies  θ_i                                            Eq. 15
    rotary_angles       m θ_i                                          Eq. 15
    rotate              x ⊗ cos + swap(x) ⊗ sin, the definition        Eq. 34
    apply_rotary        both in one call
    RotaryEmbedding     the module of the models: one table for all layers of a forward pass
    decay_bound         the relative upper bound of the product        Eq. 35-37, Fig. 2

Angles are fp32 whatever the type of the input: in bf16, half of the positions below 1024 would share
an angle with a neighbour. In fp32 the table is off by up to 3e-4 at position 10,000, 4e-3 at 100,000 and
0.02 at a million, where scores change by 2 % of their spread when both positions are shifted. Tables are
computed on demand from explicit positions and never stored, so no length is fixed and no checkpoint
contains them. (How well a trained model reads more positions than it has seen is another matter:
`roformer.nn.rotary_scaling`.)

Shapes: B batch, N heads, T sequence, H head dimension, R rotated dimensions (R ≤ H).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

Layout = Literal["interleaved", "half"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


class RotaryTable(NamedTuple):
    """cos(m θ_i) and sin(m θ_i), fp32, each (T, R/2) or broadcastable like (B, 1, T, R/2)."""

    cos: Tensor
    sin: Tensor


def rotary_frequencies(
    head_dim: int, base: float = 10000.0, device: torch.device | None = None
) -> Tensor:
    """Return θ_i = base^(-2(i-1)/d), i = 1..d/2 (Eq. 15), (head_dim/2,) in radians per position, fp32.

    Args:
        head_dim: d, even: the number of rotated dimensions.
        base: above 1; a larger one rotates more slowly.
        device: of the result.
    """
    if head_dim <= 0 or head_dim % 2:
        raise ValueError(f"rotary pairs need an even head_dim, not {head_dim}: choose an even size")
    if not base > 1.0:
        raise ValueError(f"base must be above 1, not {base}: the paper uses 10000")
    pair = torch.arange(head_dim // 2, device=device, dtype=torch.float32)
    return torch.pow(base, -2.0 * pair / head_dim)


def rotary_angles(positions: Tensor, head_dim: int, base: float = 10000.0) -> Tensor:
    """Return the angles m θ_i (Eq. 15), (..., T, head_dim/2) in radians, fp32; see `rotary_frequencies`.

    Positions (..., T) are integers or floats, also negative.
    """
    _check_tensor("positions", positions)
    frequencies = rotary_frequencies(head_dim, base, positions.device)
    return positions.to(torch.float32)[..., None] * frequencies


def rotary_table(positions: Tensor, head_dim: int, base: float = 10000.0) -> RotaryTable:
    """Return cos and sin of `rotary_angles`, for `rotate`."""
    angles = rotary_angles(positions, head_dim, base)
    return RotaryTable(angles.cos(), angles.sin())


def rotate(x: Tensor, table: RotaryTable, layout: Layout = "interleaved") -> Tensor:
    """Rotate every pair (a, b) of the last dimension to (a cos - b sin, b cos + a sin), Eq. 34.

    The norm of every pair and the type of `x` are unchanged. This is the definition; `RotaryEmbedding` may
    take a faster path, which the tests hold equal to it.

    Args:
        x: (..., T, R).
        table: cos and sin, broadcastable to (..., T, R/2).
        layout: which dimensions form a pair: `interleaved` (0, 1), (2, 3), … as in the paper, or
            `half` (i, i + R/2) as in GPT-NeoX, and Llama in transformers. The same function up to a
            permutation of the projection's rows (`roformer.interop.layout.convert_layout`).
    """
    cos, sin = table.cos.to(x.dtype), table.sin.to(x.dtype)
    if layout == "half":
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


class _FastRotation(torch.autograd.Function):
    """`rotate` for interleaved pairs in eager mode: one complex product, no saved activations.

    The gradient of a rotation is the inverse rotation, so the backward pass needs only the table. The
    table itself gets no gradient: `RotaryEmbedding` takes `rotate` where it is trained.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, turn: Tensor) -> Tensor:
        return _complex_product(x, turn)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (turn,) = ctx.saved_tensors
        return _complex_product(gradient, turn.conj().resolve_conj()), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (turn,) = ctx.saved_tensors
        return _complex_product(tangent, turn)


def _complex_product(x: Tensor, turn: Tensor) -> Tensor:
    """Return the pairs of x (..., T, R), read as complex numbers, times turn (..., T, R/2)."""
    # A complex number is two neighbours at an even offset, which a transposed gradient or an odd view
    # does not have.
    if x.stride(-1) != 1 or any(offset % 2 for offset in (x.storage_offset(), *x.stride()[:-1])):
        x = x.clone(memory_format=torch.contiguous_format)
    if x.dtype == torch.float32:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turn).flatten(-2)
    wide = x.float()  # a copy, rotated in place: complex numbers of two bytes a part do not exist
    torch.view_as_complex(wide.unflatten(-1, (-1, 2))).mul_(turn)
    return wide.to(x.dtype)


def apply_rotary(
    x: Tensor, positions: Tensor, *, base: float = 10000.0, layout: Layout = "interleaved"
) -> Tensor:
    """Rotate queries or keys to their positions: R_m x of Eq. 14-16, of the shape and type of `x`.

    Args:
        x: (..., T, d) with d even; for positions per row, (B, ..., T, d).
        positions: (T,) or (B, T), integers or floats.
        base: see `rotary_frequencies`.
        layout: see `rotate`.
    """
    _check_tensor("x", x)
    _check_tensor("positions", positions)
    embedding = RotaryEmbedding(x.shape[-1] if x.ndim else 0, base=base, layout=layout)
    if x.ndim < 2 or positions.ndim not in (1, 2) or positions.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"x of shape {tuple(x.shape)} needs positions of shape (seq,) or (batch, seq) with "
            f"seq = {x.shape[-2] if x.ndim > 1 else '?'}, not {tuple(positions.shape)}"
        )
    if positions.ndim == 2 and (x.ndim < 3 or positions.shape[0] not in (1, x.shape[0])):
        raise ValueError(
            f"positions of shape {tuple(positions.shape)} give one row a batch entry, but x of "
            f"shape {tuple(x.shape)} does not start with that batch: pass (seq,) positions instead"
        )
    table = embedding.table(positions)
    if positions.ndim == 2:
        axes = (1,) * (x.ndim - 3)
        table = RotaryTable(*(t.reshape(t.shape[0], *axes, *t.shape[-2:]) for t in table))
    return embedding(x, table)


class RotaryEmbedding(nn.Module):
    """Rotation of the first `rotary_dim` dimensions of every head; no weights and no buffers.

    `rotary_dim` is R ≤ H, even; the default rotates the whole head. For `base` and `layout` see
    `rotary_frequencies` and `rotate`.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        rotary_dim: int | None = None,
        base: float = 10000.0,
        layout: Layout = "interleaved",
    ):
        super().__init__()
        rotary_dim = head_dim if rotary_dim is None else rotary_dim
        if layout not in LAYOUTS:
            raise ValueError(
                f"unknown rotary layout {layout!r}: choose one of {', '.join(LAYOUTS)}"
            )
        if not 0 < rotary_dim <= head_dim or rotary_dim % 2:
            raise ValueError(
                f"rotary pairs need an even number of dimensions between 2 and head_dim={head_dim}, "
                f"not {rotary_dim}: choose an even size"
            )
        self.head_dim, self.rotary_dim, self.base, self.layout = head_dim, rotary_dim, base, layout

    def extra_repr(self) -> str:
        return f"{self.rotary_dim} of {self.head_dim}, base={self.base}, layout={self.layout}"

    def table(self, positions: Tensor) -> RotaryTable:
        """Return the table for positions (T,), or for (B, T) with an axis for the heads inserted."""
        table = self._table(positions)
        return RotaryTable(*(t[:, None] for t in table)) if positions.ndim == 2 else table

    def _table(self, positions: Tensor) -> RotaryTable:
        return rotary_table(positions, self.rotary_dim, self.base)

    def forward(self, x: Tensor, table: RotaryTable) -> Tensor:
        """Return queries or keys (B, N, T, H) rotated by `table`."""
        if not x.is_floating_point():
            raise TypeError(f"x must have real floats, not {x.dtype}: rotate x.float()")
        if self.rotary_dim == self.head_dim:
            return self._rotate(x, table)
        rotated, rest = x.split((self.rotary_dim, self.head_dim - self.rotary_dim), dim=-1)
        return torch.cat((self._rotate(rotated, table), rest), dim=-1)

    def _rotate(self, x: Tensor, table: RotaryTable) -> Tensor:
        # A compiler fuses the plain formula, and cannot see through complex numbers.
        plain = self.layout == "half" or torch.compiler.is_compiling() or table.cos.requires_grad
        if plain or x.dtype == torch.float64 or x.device.type == "mps":
            return rotate(x, table, self.layout)
        return cast(Tensor, _FastRotation.apply(x, torch.complex(*table)))


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(value).__name__}: use torch.as_tensor")


def decay_bound(distances: Tensor, head_dim: int, base: float = 10000.0) -> Tensor:
    """Return the relative upper bound of the product at each distance (Eq. 37, drawn in Fig. 2).

    The bound is the mean of |S_1| … |S_{d/2}| with S_j = Σ_{i<j} e^{i(m-n)θ_i}. It decays with the
    distance while oscillating: it is not monotonic. At distance 0 it is (d/2 + 1)/2.

    `distances` are m - n, of any shape; the result is fp32 of the same shape. `head_dim` d is even.
    """
    angles = rotary_angles(distances, head_dim, base)
    turns = torch.polar(torch.ones_like(angles), angles)
    return turns.cumsum(dim=-1).abs().mean(dim=-1)
