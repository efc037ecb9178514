"""Fair timing on a noisy machine: variants take turns, ratios are taken within a round."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

REPOSITORY = Path(__file__).parents[1]


def interleave(
    variants: Mapping[str, Callable[[], object]], *, rounds: int, warmup: int = 1, calls: int = 1
) -> dict[str, list[float]]:
    """Return seconds a call of every variant in every round.

    One round calls each variant once (`calls` times in a row), in an order that is reversed every
    other round, so that a slow moment of the machine meets all of them.
    """
    for _ in range(warmup):
        for call in variants.values():
            call()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds):
        for name in list(variants) if turn % 2 == 0 else reversed(list(variants)):
            _wait()
            began = time.perf_counter()
            for _ in range(calls):
                variants[name]()
            _wait()
            seconds[name].append((time.perf_counter() - began) / calls)
    return seconds


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ratio(peer: list[float], ours: list[float]) -> float:
    """Return how many times faster ours is: the median of the ratios within each round."""
    return statistics.median(p / o for p, o in zip(peer, ours, strict=True))


def in_child(measure: str, **request: object) -> dict[str, list[float]]:
    """Measure in a fresh process, since the settings of a process cannot be taken back.

    Args:
        measure: which function of `benchmarks/__main__.py` to call there.
        request: its arguments.
    """
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks",
            "--child",
            json.dumps({"measure": measure, **request}),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    result: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return result
