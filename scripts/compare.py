"""Print curves of finished runs side by side: `python scripts/compare.py runs/pretrain/*`."""

import argparse
import sys
from pathlib import Path

from roformer.report.curves import compare, read_curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--metric", default="valid/mlm_loss")
    arguments = parser.parse_args()
    finished = [run for run in arguments.runs if (run / "summary.json").is_file()]
    for run in arguments.runs:
        if run not in finished:
            print(f"left out: {run} has no summary.json", file=sys.stderr)
    try:
        curves = [read_curve(run, arguments.metric) for run in finished]
        print(compare(curves, arguments.metric))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
