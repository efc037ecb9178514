"""Print curves of finished runs side by side: `python scripts/compare.py runs/pretrain/*`.

Runs whose losses cannot be compared stand in separate tables, and a run that failed is listed with the
reason. With `--seeds` the runs of one arm are its seeds: means, paired differences from a baseline arm, and
the updates to equal losses, with intervals.
"""

import argparse
import sys
from pathlib import Path

from roformer.report.convergence import convergence_tables
from roformer.report.curves import compare_runs
from roformer.report.losses import loss_of
from roformer.report.recorded import find_runs
from roformer.stdout import end_with_reader


def main() -> None:
    end_with_reader()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs, or studies")
    parser.add_argument("--metric", help="default: the loss of the runs' pipeline")
    parser.add_argument("--seeds", action="store_true", help="tables over the seeds of each arm")
    parser.add_argument("--baseline", help="with --seeds: an arm, or a part of its name")
    arguments = parser.parse_args()
    if arguments.baseline is not None and not arguments.seeds:
        parser.error("--baseline is for --seeds")
    try:
        runs = find_runs(arguments.runs)
        finished = [run for run in runs if (run / "summary.json").is_file()]
        metric = arguments.metric or loss_of(finished).metric
        if arguments.seeds:
            tables = convergence_tables(runs, metric, arguments.baseline)
            print("\n\n".join(table.markdown() for table in tables))
            return
        for run in runs:
            if run not in finished:
                print(f"left out: {run} has no summary.json", file=sys.stderr)
        print(compare_runs(finished, metric))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
