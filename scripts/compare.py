"""Print curves of finished runs side by side: `python scripts/compare.py runs/pretrain/*`.

Runs whose losses cannot be compared are in separate tables, whose titles say what differs. A run that
failed is listed with the reason. `--seeds` groups runs that differ only in the seed:
means, paired differences from a baseline, and the steps to equal losses, with intervals.
"""

from pathlib import Path

from roformer.errors import InputError
from roformer.report.curves import curve_tables, loss_of
from roformer.report.runs import read_runs
from roformer.report.tables import markdown_of
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
    runs = read_runs(arguments.runs)
    ended = runs.runs[runs.runs.status != "running"]
    metric = arguments.metric or loss_of(ended).metric
    tables = curve_tables(runs, metric, arguments.baseline, each_run=not arguments.seeds)
    print(markdown_of(tables))


if __name__ == "__main__":
    main()
