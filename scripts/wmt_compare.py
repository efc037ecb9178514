"""Compare runs with a baseline: `python scripts/wmt_compare.py runs/wmt/BASELINE runs/wmt/RUN …`.

Paired bootstrap resampling of the test set, translated by each run's averaged checkpoints. What is
resampled are the `bleu_statistics.json` of runs, so a study stands for its recorded ones; a run that has
translations is given its statistics if it has none. With `--seeds` runs that differ in the seed alone are
one configuration, and seeds are resampled besides.
"""

from pathlib import Path

from roformer.report.runs import read_runs
from roformer.report.wmt import bleu_table
from roformer.script import Arguments, script


def compare(paths: list[Path], samples: int, seed: int, *, seeds: bool = False) -> str:
    """Return the table of the runs, that of the first run the baseline."""
    return bleu_table(read_runs(paths), samples=samples, seed=seed, each_run=not seeds).markdown()


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="runs or studies, the baseline first")
    parser.add_argument("--seeds", action="store_true", help="runs are seeds of configurations")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=12345)
    arguments = parser.parse_args()
    print(compare(arguments.runs, arguments.samples, arguments.seed, seeds=arguments.seeds))


if __name__ == "__main__":
    main()
