"""Measure speed against other libraries, and print one table: `python -m benchmarks training`.

`decoding` compares beam searches with the weights of a trained run: `… decoding --run runs/wmt/…`.
`kernels` and `encodings` compare ours with each other, `linear` compares kinds of attention by length.
They take minutes each, are not shown in the README, and run only by name. So do `mfu` and `peers`, which
need a GPU (`make gpu-report`).
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import torch

from benchmarks.accelerator import bench_mfu, bench_peers
from benchmarks.data import bench_data
from benchmarks.encodings import bench_encodings
from benchmarks.finetuning import bench_finetuning
from benchmarks.kernels import bench_kernels
from benchmarks.linear import bench_linear
from benchmarks.rotary import bench_rotary
from benchmarks.timing import Row
from benchmarks.training import bench_training
from benchmarks.translation import bench_decoding, bench_translation
from roformer.errors import InputError, one_line_errors
from roformer.report.tables import markdown_of, speed_table
from roformer.script import Arguments, at_least, outlive_reader
from roformer.training.hardware import default_device
from roformer.training.records import environment, write_atomically


def on_default_device(bench: Callable[[], list[Row]]) -> list[Row]:
    """Return the rows of a suite that creates its tensors on the default device."""
    with torch.device(default_device()):
        return bench()


SUITES: dict[str, Callable[[int], Iterable[Row]]] = {
    "kernels": lambda rounds: bench_kernels(rounds=2 * rounds),
    "rotary": lambda rounds: on_default_device(partial(bench_rotary, rounds=5 * rounds)),
    "training": lambda rounds: bench_training(rounds=max(2, rounds // 2 + 1)),
    "finetuning": lambda rounds: bench_finetuning(rounds=max(2, rounds // 2)),
    "translation": lambda rounds: bench_translation(rounds=max(2, rounds // 2)),
    "data": lambda rounds: bench_data(rounds=rounds),
    "linear": lambda rounds: bench_linear(rounds=rounds),
    "encodings": lambda rounds: bench_encodings(rounds=rounds),
    "mfu": lambda rounds: bench_mfu(rounds=4 * rounds, compiled=False),
    "mfu_compiled": lambda rounds: bench_mfu(rounds=4 * rounds, compiled=True),
    "peers": lambda rounds: bench_peers(rounds=2 * rounds, compiled=False),
    "peers_compiled": lambda rounds: bench_peers(rounds=2 * rounds, compiled=True),
}
STANDARD = ("rotary", "training", "finetuning", "translation", "data")
"""The suites that run by default."""
DECODING = "decoding"
"""The suite that needs a run; without one it is skipped."""


def suites_of(named: list[str], run: str | None) -> dict[str, Callable[[int], Iterable[Row]]]:
    """Return the suites to run.

    Args:
        named: on the command line; if empty, the standard ones.
        run: a translation run, for `decoding`.

    Raises:
        InputError: there is no such suite, or not the run that it needs.
    """
    known = SUITES | {
        DECODING: lambda rounds: bench_decoding(rounds=max(2, rounds // 2), run=str(run))
    }
    names = named or [*STANDARD, *([DECODING] if run else [])]
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"there is no suite {unknown[0]}: choose one of {', '.join(known)}")
    if DECODING in names:
        if run is None:
            raise InputError(f"{DECODING} needs a translation run: --run runs/wmt/YOUR_RUN")
        if not (source := Path(run, "translations", "test.source.txt")).is_file():
            raise InputError(f"{source} is not there: give --run a finished translation run")
    return {name: known[name] for name in names}


def main() -> None:
    parser = Arguments(__doc__)
    said = f"of {', '.join([*SUITES, DECODING])}; {', '.join(STANDARD)} unless given"
    parser.add_argument("suites", nargs="*", metavar="suite", help=said)
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--run", help="trained run whose weights `decoding` uses")
    parser.add_argument("--output", type=Path, default=Path("runs/bench"))
    arguments = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # a peer would take all GPUs, ours takes one
    suites = suites_of(arguments.suites, arguments.run)
    began, rows = time.monotonic(), []
    arguments.output.mkdir(parents=True, exist_ok=True)
    environ = environment(seed=0, data="", devices=1, process={})
    for number, (suite, bench) in enumerate(suites.items(), 1):
        tell(f"[{number}/{len(suites)}] {suite} …")
        found: list[Row] = []
        for row in bench(arguments.rounds):
            found.append(row)
            # After each row, so that an interrupted suite keeps its rows.
            record = json.dumps({"rows": found, "env": environ}, indent=1)
            write_atomically(arguments.output / f"{suite}.json", record)
        rows += found
        minutes, seconds = divmod(round(time.monotonic() - began), 60)
        tell(f"{suite}: measured after {minutes}:{seconds:02d}")
    if rows:
        print(markdown_of([speed_table(pd.DataFrame(rows))]))
    software = ", ".join(f"{name} {version(name)}" for name in ("transformers", "torch"))
    place = environ["gpu"] or f"{environ['cores']} cores of {environ['processor']}"
    print(f"Against {software} on {place}. Records: {arguments.output}")


def tell(line: str) -> None:
    """Print progress to standard error; the table goes to standard output."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    outlive_reader()
    with one_line_errors():
        main()
