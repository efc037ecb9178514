"""Compare runs with a baseline: `python scripts/wmt_compare.py runs/wmt/BASELINE runs/wmt/RUN …`.

Paired bootstrap resampling of the test set, translated by each run's averaged checkpoints. What is
resampled are the `bleu_statistics.json` of runs, so a study stands for its recorded ones; a run that has
translations is given its statistics if it has none. With `--seeds` runs that differ in the seed alone are
one configuration, and seeds are resampled besides.
"""

import argparse
import sys
from pathlib import Path

from roformer.report.runs import YOURS, read_runs
from roformer.report.wmt import bleu_table
from roformer.stdout import end_with_reader


def compare(paths: list[Path], samples: int, seed: int, *, seeds: bool = False) -> str:
    """Return the table of the runs, that of the first run the baseline.

    Raises:
        ValueError: see `add_bleu_statistics` and `bleu_table`.
    """
    from roformer.pipelines.bleu_record import add_bleu_statistics  # takes seconds: torch

    found = read_runs(paths).runs
    for folder in found.folder[found.study == YOURS]:
        add_bleu_statistics(Path(folder))
    return bleu_table(read_runs(paths), samples=samples, seed=seed, each_run=not seeds).markdown()


def main() -> None:
    end_with_reader()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="runs or studies, the baseline first")
    parser.add_argument("--seeds", action="store_true", help="runs are seeds of configurations")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=12345)
    arguments = parser.parse_args()
    try:
        print(compare(arguments.runs, arguments.samples, arguments.seed, seeds=arguments.seeds))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
