"""Measure speed against other libraries: `python -m benchmarks rotary like shipped finetuning`.

`decoding` compares beam searches with the weights of a trained run: `… decoding --run runs/wmt/…`.
`encodings` compares ours with each other, over ten minutes; `mfu` and `peers` are of a GPU
(`make gpu-report`). They run when they are named alone.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch

from benchmarks.accelerator import bench_mfu, bench_peers, measure_accelerator
from benchmarks.encodings import bench_encodings, measure_encodings
from benchmarks.finetuning import bench_finetuning, measure_finetuning
from benchmarks.kernels import bench_kernels
from benchmarks.linear import bench_linear, measure_linear
from benchmarks.rotary import bench_rotary
from benchmarks.timing import Row
from benchmarks.training import bench_as_shipped, bench_like_for_like, measure_training
from benchmarks.translation import (
    bench_decoding,
    bench_translation,
    measure_decoding,
    measure_translation,
)
from roformer.cli import one_line_errors
from roformer.script import outlive_reader
from roformer.training.hardware import default_device
from roformer.training.records import environment, write_atomically


def on_default_device(bench: Callable[[], list[Row]]) -> list[Row]:
    """Return the rows of a suite whose tensors are made where no device is named."""
    with torch.device(default_device()):
        return bench()


SUITES: dict[str, Callable[[int], Iterable[Row]]] = {
    "kernels": lambda rounds: bench_kernels(rounds=2 * rounds),
    "rotary": lambda rounds: on_default_device(partial(bench_rotary, rounds=5 * rounds)),
    "like": lambda rounds: bench_like_for_like(rounds=rounds),
    "shipped": lambda rounds: bench_as_shipped(rounds=max(2, rounds // 2 + 1)),
    "finetuning": lambda rounds: bench_finetuning(rounds=max(3, rounds // 2 + 1)),
    "translation": lambda rounds: bench_translation(rounds=max(2, rounds // 2)),
    "linear": lambda rounds: bench_linear(rounds=rounds),
    "encodings": lambda rounds: bench_encodings(rounds=rounds),
    "mfu": lambda rounds: bench_mfu(rounds=4 * rounds, compiled=False),
    "mfu_compiled": lambda rounds: bench_mfu(rounds=4 * rounds, compiled=True),
    "peers": lambda rounds: bench_peers(rounds=2 * rounds, compiled=False),
    "peers_compiled": lambda rounds: bench_peers(rounds=2 * rounds, compiled=True),
}
ALONE = ("encodings", "mfu", "mfu_compiled", "peers", "peers_compiled")
"""Suites that run when they are named alone."""
DECODING = "decoding"
"""The suite that needs a run; it is left out where none is given."""
MEASURES: dict[str, Callable[..., dict[str, list[float]]]] = {
    "training": measure_training,
    "finetuning": measure_finetuning,
    "translation": measure_translation,
    "decoding": measure_decoding,
    "linear": measure_linear,
    "encodings": measure_encodings,
    "accelerator": measure_accelerator,
}
"""Measurements of a child process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(SUITES)}; all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--run", help="trained run whose weights `decoding` uses")
    parser.add_argument("--output", type=Path, default=Path("runs/bench"))
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        with one_line_errors():
            print(json.dumps(MEASURES[arguments.child.pop("measure")](**arguments.child)))
        return
    suites = dict(SUITES)
    if arguments.run is not None:
        suites[DECODING] = lambda rounds: bench_decoding(
            rounds=max(2, rounds // 2), run=arguments.run
        )
    if unknown := set(arguments.suites) - set(suites):
        parser.error(f"unknown suite {', '.join(unknown)}: choose of {', '.join(suites)}")
    print("times faster (medians of ratios; goal in brackets)")
    for suite in arguments.suites or (suite for suite in suites if suite not in ALONE):
        arguments.output.mkdir(parents=True, exist_ok=True)
        env = environment(seed=0, data="", devices=1, process={})
        rows: list[Row] = []
        for row in suites[suite](arguments.rounds):
            rows.append(row)
            # After each row, so that one who has no time for the next keeps it.
            text = json.dumps({"rows": rows, "env": env}, indent=1)
            write_atomically(arguments.output / f"{suite}.json", text)
            goal = f"[{row['goal']}]" if row["goal"] else ""
            units = {"tok": "tokens", "sentences": "sentences"}
            rates = {unit: row.get(f"ours_{name}_per_second") for unit, name in units.items()}
            speed = "".join(f"{rate:,.0f} {unit}/s; " for unit, rate in rates.items() if rate)
            if share := row.get("share_of_limit"):
                speed += f"{share:.0%} of the limit at {row['step_gflop']:.0f} GFLOP a step; "
            said = f"{row['what']}  ({speed}deviations: {row['deviations']})"
            print(f"{row['ratio']:6.2f}x {goal:>7}  {said}", flush=True)


if __name__ == "__main__":
    outlive_reader()
    main()
