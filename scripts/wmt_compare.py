"""Compare runs with a baseline: `python scripts/wmt_compare.py runs/wmt/BASELINE runs/wmt/RUN …`.

Paired bootstrap resampling of the test set, translated by each run's averaged checkpoints.
"""

import argparse
import sys
from pathlib import Path

from roformer.errors import InputError
from roformer.evaluation.bleu import paired_bootstrap
from roformer.report.wmt import Comparison, comparison_table, read_translations


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("baseline", type=Path, help="folder of a finished translation run")
    parser.add_argument("runs", nargs="+", type=Path, help="folders of the runs to compare with it")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=12345)
    arguments = parser.parse_args()
    folders = [arguments.baseline, *arguments.runs]
    try:
        print(compare(folders, arguments.samples, arguments.seed))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
