"""Print translation tables of finished runs: `python scripts/wmt_table.py runs/wmt/*`."""

import argparse
import sys
from pathlib import Path

from roformer.report.wmt import wmt_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished translation runs")
    arguments = parser.parse_args()
    finished = [run for run in arguments.runs if (run / "summary.json").is_file()]
    for run in arguments.runs:
        if run not in finished:
            print(f"left out: {run} has no summary.json", file=sys.stderr)
    try:
        print(wmt_tables(finished))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
