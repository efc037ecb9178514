"""Compare runs with a baseline: `python scripts/wmt_compare.py runs/wmt/BASELINE runs/wmt/RUN …`.

Paired bootstrap resampling of the test set, translated by each run's averaged checkpoints. With
`--seeds` runs that differ in the seed alone are one arm, and records of runs do as well: what is
resampled are their `bleu_statistics.json`, which a run that has translations is given if it has none.
"""

import argparse
import sys
from pathlib import Path

from roformer.errors import InputError
from roformer.evaluation.bleu import paired_bootstrap
from roformer.report.recorded import find_runs
from roformer.report.wmt import Comparison, comparison_table, read_translations
from roformer.report.wmt_bootstrap import bleu_table
from roformer.stdout import end_with_reader


def compare(folders: list[Path], samples: int, seed: int) -> str:
    """Return the table of the runs, the first one the baseline.

    Raises:
        ValueError: translations are missing, or of different test sets; a run is named twice.
    """
    systems: dict[str, list[str]] = {}
    common: list[str] = []
    for folder in folders:
        translations, references = read_translations(folder)
        if systems and references != common:
            raise InputError(f"{folder} translated another test set than {folders[0]}")
        name = folder.resolve().name
        if name in systems:
            raise InputError(f"{name} is named twice: give each run once")
        systems[name], common = translations, references
    compared, signature = paired_bootstrap(systems, common, samples=samples, seed=seed)
    rows = [Comparison(each.name, each.bleu, each.half_width, each.p_value) for each in compared]
    return comparison_table(rows, signature)


def compare_arms(folders: list[Path], samples: int, seed: int) -> str:
    """Return the table of the runs' arms, that of the first run the baseline.

    Raises:
        ValueError: see `add_bleu_statistics` and `bleu_table`.
    """
    from roformer.pipelines.bleu_record import add_bleu_statistics  # takes seconds: torch

    runs = find_runs(folders)
    for run in runs:
        if isinstance(run, Path):
            add_bleu_statistics(run)
    return bleu_table(runs, samples=samples, seed=seed).markdown()


def main() -> None:
    end_with_reader()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("baseline", type=Path, help="folder of a finished translation run")
    parser.add_argument("runs", nargs="+", type=Path, help="folders of the runs to compare with it")
    parser.add_argument("--seeds", action="store_true", help="runs are the seeds of their arms")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=12345)
    arguments = parser.parse_args()
    folders = [arguments.baseline, *arguments.runs]
    try:
        table = compare_arms if arguments.seeds else compare
        print(table(folders, arguments.samples, arguments.seed))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
