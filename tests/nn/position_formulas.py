"""Every encoding as its paper writes it: float64, one (T, S, …) tensor for all pairs, nothing shared.

Each function gives the logits (N, T, S) of one row; `values` adds to the values what Shaw's and NEZHA's
equations do. They read the weights of an encoding and do not use its code.

Shapes: N heads, T queries, S keys, H head dimension, D hidden size.
"""

import math

import torch


def gaps(m, n):
    """Return key minus query, (T, S)."""
    return n[None, :] - m[:, None]


def turn(positions, size, base=10000.0, grow=None):
    """Return R of every position, (T, size, size), block by block; `grow` scales each pair."""
    matrices = torch.zeros(len(positions), size, size, dtype=torch.float64)
    for row, m in enumerate(positions.tolist()):
        for i in range(size // 2):
            angle = m * base ** (-2 * i / size)
            scale = 1.0 if grow is None else grow(i, m)
            block = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            matrices[row, 2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = scale * torch.tensor(block)
    return matrices


def sines(gap, size, base=10000.0):
    """Return sin(gap·θ_i), cos(gap·θ_i), … of every pair, (T, S, size)."""
    angles = [gap.double() * base ** (-2 * i / size) for i in range(size // 2)]
    return torch.stack([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], -1)


def by_head(vectors, heads):
    """Return (T, S, N, H) of (T, S, D)."""
    return vectors.unflatten(-1, (heads, -1))


def plain(q, k):
    return torch.einsum("nth,nsh->nts", q, k)


def none(encoding, layer, q, k, m, n):
    return plain(q, k) / math.sqrt(q.shape[-1])


def rotary(encoding, layer, q, k, m, n):
    q = torch.einsum("tij,ntj->nti", turn(m, q.shape[-1]), q)
    k = torch.einsum("sij,nsj->nsi", turn(n, k.shape[-1]), k)
    return none(encoding, layer, q, k, m, n)


def xpos(encoding, layer, q, k, m, n, gamma=0.4, scale=128.0):
    size = q.shape[-1]

    def zeta(sign):
        return lambda i, m: ((i / (size / 2) + gamma) / (1 + gamma)) ** (sign * m / scale)

    q = torch.einsum("tij,ntj->nti", turn(m, size, grow=zeta(1)), q)
    k = torch.einsum("sij,nsj->nsi", turn(n, size, grow=zeta(-1)), k)
    return none(encoding, layer, q, k, m, n)


def shaw(encoding, layer, q, k, m, n, clip=3):
    vectors = layer.keys[..., gaps(m, n).clamp(-clip, clip) + clip, :]
    return none(encoding, layer, q, k, m, n) + (q[:, :, None] * vectors).sum(-1) / math.sqrt(
        q.shape[-1]
    )


def shaw_values(encoding, layer, weights, m, n, clip=3):
    vectors = layer.values[..., gaps(m, n).clamp(-clip, clip) + clip, :]
    return (weights[..., None] * vectors).sum(2)


def nezha(encoding, layer, q, k, m, n):
    vectors = sines(gaps(m, n), q.shape[-1])
    return (plain(q, k) + torch.einsum("nth,tsh->nts", q, vectors)) / math.sqrt(q.shape[-1])


def nezha_values(encoding, layer, weights, m, n):
    return torch.einsum("nts,tsh->nth", weights, sines(gaps(m, n), 8))


def transformer_xl(encoding, layer, q, k, m, n):
    r = sines(-gaps(m, n), len(layer.projection))
    r = by_head(r @ layer.projection, len(q))
    u, v = encoding.content_bias[:, None], encoding.position_bias[:, None]
    terms = plain(q, k) + torch.einsum("nth,tsnh->nts", q, r)
    terms = terms + plain(u.expand_as(q), k) + torch.einsum("nth,tsnh->nts", v.expand_as(q), r)
    return terms / math.sqrt(q.shape[-1])


def deberta(encoding, layer, q, k, m, n, span=6):
    def delta(i, j):
        return 0 if i - j <= -span else 2 * span - 1 if i - j >= span else i - j + span

    pairs = [(i, j) for i in m.tolist() for j in n.tolist()]
    shape = (len(m), len(n))
    seen = torch.tensor([delta(i, j) for i, j in pairs]).view(shape)
    back = torch.tensor([delta(j, i) for i, j in pairs]).view(shape)
    keys = by_head(encoding.table[seen] @ layer.key, len(q))
    queries = by_head(encoding.table[back] @ layer.query, len(q))
    terms = plain(q, k) + torch.einsum("nth,tsnh->nts", q, keys)
    terms = terms + torch.einsum("nsh,tsnh->nts", k, queries)
    return terms / math.sqrt(3 * q.shape[-1])


def bucket(gap, buckets=8, longest=12):
    """Return T5's bucket of one distance, counted up from the query."""
    side, far = buckets // 2, abs(gap)
    exact = side // 2
    if far >= exact:
        log = math.log(far / exact) / math.log(longest / exact)
        far = min(side - 1, exact + math.floor(log * (side - exact) + 1e-12))
    return far + (side if gap > 0 else 0)


def t5(encoding, layer, q, k, m, n):
    found = torch.tensor([[bucket(gap) for gap in row] for row in gaps(m, n).tolist()])
    return none(encoding, layer, q, k, m, n) + layer.biases[found].permute(2, 0, 1)


def before(gap, buckets=8, longest=12):
    """Return T5's bucket where a query sees only earlier positions."""
    far, exact = max(-gap, 0), buckets // 2
    if far < exact:
        return far
    log = math.log(far / exact) / math.log(longest / exact)
    return min(buckets - 1, exact + math.floor(log * (buckets - exact) + 1e-12))


def tupe_causal(encoding, layer, q, k, m, n):
    return tupe(encoding, layer, q, k, m, n, bucket=before)


def tupe(encoding, layer, q, k, m, n, bucket=bucket):
    def project(ids, weight):
        p = layer.table[ids]
        p = (p - p.mean(-1, keepdim=True)) / (p.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        return (p @ weight).unflatten(-1, (len(q), -1)).transpose(0, 1)

    found = torch.tensor([[bucket(gap) for gap in row] for row in gaps(m, n).tolist()])
    scale = math.sqrt(2 * q.shape[-1])
    v = plain(project(m, layer.query), project(n, layer.key)) / scale
    v = v + layer.biases[found].permute(2, 0, 1)
    if layer.cls is None:
        return plain(q, k) / scale + v
    rows = []
    for i, at in enumerate(m.tolist()):
        row = [
            layer.cls[0] if at == 0 else layer.cls[1] if to == 0 else v[:, i, j]
            for j, to in enumerate(n.tolist())
        ]
        rows.append(torch.stack(row, -1))
    return plain(q, k) / scale + torch.stack(rows, 1)


def alibi(encoding, layer, q, k, m, n):
    slopes = torch.tensor([2.0 ** (-8 * (i + 1) / len(q)) for i in range(len(q))])
    return none(encoding, layer, q, k, m, n) - slopes[:, None, None] * gaps(m, n).abs()


def kerple(encoding, layer, q, k, m, n):
    first, second = (torch.log(1 + part.exp()) for part in (layer.first, layer.second))
    kernel = torch.log(1 + second[:, None, None] * gaps(m, n).abs())
    return none(encoding, layer, q, k, m, n) - first[:, None, None] * kernel


def kerple_power(encoding, layer, q, k, m, n):
    first, power = torch.log(1 + layer.first.exp()), 2 / (1 + (-layer.second).exp())
    kernel = gaps(m, n).abs().double()[None] ** power[:, None, None]
    return none(encoding, layer, q, k, m, n) - first[:, None, None] * kernel


def fire(encoding, layer, q, k, m, n, threshold=5.0):
    def psi(x):
        return torch.log(layer.c * x + 1)

    longest = torch.stack([torch.maximum(at, layer.multiplier * threshold) for at in m.double()])
    x = psi(gaps(m, n).abs()) / (psi(longest) + 1e-6)[:, None]
    hidden = torch.stack(
        [
            (w * x + b).clamp(min=0)
            for w, b in zip(layer.inner_weight, layer.inner_bias, strict=True)
        ]
    )
    f = torch.einsum("nw,wts->nts", layer.outer_weight, hidden) + layer.outer_bias[:, None, None]
    return none(encoding, layer, q, k, m, n) + f


LOGITS = {
    "none": none,
    "rotary": rotary,
    "xpos": xpos,
    "shaw": shaw,
    "shaw per head": shaw,
    "nezha": nezha,
    "transformer_xl": transformer_xl,
    "deberta": deberta,
    "t5": t5,
    "tupe": tupe,
    "tupe causal": tupe_causal,
    "alibi": alibi,
    "kerple": kerple,
    "kerple power": kerple_power,
    "fire": fire,
}
VALUES = {"shaw": shaw_values, "shaw per head": shaw_values, "nezha": nezha_values}
"""Encoding → what it adds to Σ_n p_mn v_n, (N, T, H), given p."""
