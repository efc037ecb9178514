"""Fair timing on a noisy machine: variants take turns, ratios are taken within a round."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

Row = dict[str, Any]
Measure = Callable[..., dict[str, list[float]]]
IMPORTED = [
    "benchmarks.__main__",
    "transformers.models.bert.modeling_bert",
    "transformers.models.marian.modeling_marian",
    "transformers.models.roformer.modeling_roformer",
    "transformers.trainer",
]
"""Modules that the fork server imports once for all measurements."""


def interleave(
    variants: Mapping[str, Callable[[], object]], *, rounds: int, warmup: int = 1
) -> dict[str, list[float]]:
    """Return the seconds of a call of every variant in every round.

    Each round calls every variant once, in an order that is reversed every other round, so that a slow
    moment of the machine meets all of them.
    """
    for _ in range(warmup):
        for call in variants.values():
            call()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds):
        for name in list(variants) if turn % 2 == 0 else reversed(list(variants)):
            _wait()
            began = time.perf_counter()
            variants[name]()
            _wait()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def row(
    what: str,
    peer: list[float],
    ours: list[float],
    *,
    goal: float | None = None,
    deviations: str = "none: same function, same type",
    **more: Any,
) -> Row:
    """Return a comparison: the ratio is the median of the ratios within each round."""
    return {
        "what": what,
        "ratio": statistics.median(p / o for p, o in zip(peer, ours, strict=True)),
        "goal": goal,
        "peer_seconds": statistics.median(peer),
        "ours_seconds": statistics.median(ours),
        "deviations": deviations,
        **more,
    }


def compare(
    what: str, peer: Callable[[], object], ours: Callable[[], object], *, rounds: int, **more: Any
) -> Row:
    """Return a comparison of two calls timed in this process; `more` as for `row`."""
    seconds = interleave({"peer": peer, "ours": ours}, rounds=rounds, warmup=2)
    return row(what, seconds["peer"], seconds["ours"], **more)


def in_child(measure: Measure, **request: object) -> dict[str, list[float]]:
    """Measure in a separate process, since process settings cannot be undone.

    It is forked from a server that has imported `IMPORTED` and computed nothing.

    Args:
        measure: a function of a module.
        request: its arguments.
    """
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(IMPORTED)
    with ProcessPoolExecutor(1, mp_context=forked) as pool:
        return pool.submit(measure, **request).result()


def in_turns(
    measure: Measure, requests: Sequence[Mapping[str, object]], *, rounds: int
) -> dict[str, list[float]]:
    """Return all values of every variant; each round starts a process for every request."""
    values: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for request in requests:
            for name, measured in in_child(measure, **request).items():
                values[name] += measured
    return dict(values)
