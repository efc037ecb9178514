"""Print translation tables of finished runs: `python scripts/wmt_table.py runs/wmt/*`."""

import sys
from pathlib import Path

from roformer.report.pages import run_tables
from roformer.report.runs import RecordError, read_runs
from roformer.report.tables import markdown_of
from roformer.script import Arguments, script


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs, or studies")
    runs = read_runs(parser.parse_args().runs)
    for folder in runs.runs.folder[runs.runs.status == "running"]:
        print(f"left out: {folder} has no summary.json", file=sys.stderr)
    if not (tables := run_tables(runs)):
        raise RecordError("none of these runs is finished: give folders like runs/wmt/*")
    print(markdown_of(tables))


if __name__ == "__main__":
    main()
