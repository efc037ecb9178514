"""Print curves of finished runs side by side: `python scripts/compare.py runs/pretrain/*`.

Runs whose losses cannot be compared stand in separate tables, and a run that failed is listed with the
reason. With `--seeds` runs that differ only in the seed are one configuration: means, paired differences
from a baseline, and the steps to equal losses, with intervals.
"""

import sys
from pathlib import Path

from roformer.errors import InputError
from roformer.report.convergence import convergence_tables
from roformer.report.curves import compare_runs
from roformer.report.losses import loss_of
from roformer.report.recorded import find_runs
from roformer.script import Arguments, script


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs, or studies")
    parser.add_argument("--metric", help="default: the loss of the runs' pipeline")
    parser.add_argument("--seeds", action="store_true", help="tables over seeds")
    parser.add_argument("--baseline", help="with --seeds: a configuration, or a part of its name")
    arguments = parser.parse_args()
    if arguments.baseline is not None and not arguments.seeds:
        raise InputError("--baseline is for --seeds")
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


if __name__ == "__main__":
    main()
