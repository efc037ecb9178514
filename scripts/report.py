"""Make tables, figures and the dashboard from run records: `python scripts/report.py`.

Writes the generated parts of README.md, experiments/README.md and every study's REPORT.md and its figures
anew, where their records changed, and the dashboard of all records into runs/report/dashboard.html. With
--tables the tables of the runs named are printed and nothing is written.
"""

import argparse
import sys
from pathlib import Path

from roformer.cli import one_line_errors
from roformer.errors import InputError
from roformer.report.blocks import BLOCKS, markdown_of
from roformer.report.dashboard.page import build_page
from roformer.report.pages import refresh
from roformer.report.records import RecordError
from roformer.report.runs import read_runs
from roformer.report.sections import run_tables, sections_of
from roformer.stdout import outlive_reader
from roformer.training.records import write_atomically

DASHBOARD = Path("report") / "dashboard.html"
"""Below the folder of runs."""


def report(experiments: Path, runs: Path) -> None:
    """Write pages, figures and dashboard; print what changed.

    Raises:
        InputError: there is no such folder.
        RecordError: a study's record is damaged; pages before it are written.
    """
    if not (experiments / "paper.yaml").is_file():
        raise InputError(f"{experiments} has no paper.yaml: start this where experiments/ is")
    pages = [experiments.parent / "README.md", experiments / "README.md"]
    pages += sorted(experiments.glob("*/REPORT.md"))
    for page in filter(Path.is_file, pages):
        print(f"{page}: {'written anew' if refresh(page, BLOCKS) else 'unchanged'}", flush=True)
    records = read_runs([experiments, runs])
    file = runs / DASHBOARD
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, build_page(records, sections_of(experiments, runs)))
    print(f"dashboard of {len(records)} runs, opens without a network: {file}")


def tables(folders: list[Path], dashboard: Path) -> None:
    """Print the tables of finished runs, and where the dashboard is."""
    finished = [folder for folder in folders if (folder / "summary.json").is_file()]
    for folder in folders:
        if folder not in finished:
            print(f"left out: {folder} has no summary.json", file=sys.stderr)
    print(markdown_of(run_tables(finished)))
    if dashboard.is_file():
        print(f"\ndashboard: {dashboard}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=Path, default=Path("experiments"))
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="this machine's runs")
    parser.add_argument("--tables", nargs="+", type=Path, metavar="RUN", help="print these alone")
    arguments = parser.parse_args()
    with one_line_errors():
        try:
            if arguments.tables:
                tables(arguments.tables, arguments.runs / DASHBOARD)
            else:
                report(arguments.experiments, arguments.runs)
        except RecordError as error:
            raise InputError(str(error)) from error


if __name__ == "__main__":
    outlive_reader()
    main()
