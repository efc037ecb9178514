"""Make tables, figures and the dashboard from run records: `python scripts/report.py`.

Writes the generated parts of README.md, docs/, experiments/README.md and every study's REPORT.md, and the
figures. Below runs/report/ it writes the dashboard of all records, the statistics of this machine's runs,
and a table of these runs, the record and the paper, which it prints.
"""

from pathlib import Path

from tqdm import tqdm

from roformer.errors import InputError
from roformer.report.dashboard.page import build_page, data_json
from roformer.report.pages import HERE, refresh, script_of, sections_of
from roformer.report.runs import APPENDIX, read_runs, study_files
from roformer.report.tables import markdown_of
from roformer.script import Arguments, script
from roformer.training.records import write_atomically


def report(experiments: Path, runs: Path) -> None:
    """Write pages, figures, dashboard and statistics; print what changed, and the results on one screen.

    If a record or a page has an error, nothing is written.
    """
    if not (experiments / "paper.yaml").is_file():
        raise InputError(f"{experiments} has no paper.yaml: start this where experiments/ is")
    pages = [
        folder / "README.md" for folder in (experiments.parent, experiments, experiments / APPENDIX)
    ]
    pages += sorted(experiments.parent.glob("docs/*.md"))
    pages += study_files(experiments, "REPORT.md")
    pages = [page for page in pages if page.is_file()]
    with tqdm(pages, desc="pages", unit="page", leave=False, disable=None) as bar:
        changed = [str(page) for page in refresh(bar)]
    print(f"pages changed: {', '.join(changed)}" if changed else "pages unchanged", flush=True)
    found = read_runs([experiments, runs], strict=False)
    reproduce = script_of("appendix/reproduce")
    rows = reproduce["read_reproduction"](experiments, found)
    folder = runs / "report"
    folder.mkdir(parents=True, exist_ok=True)
    sections = sections_of(experiments, runs)
    results = reproduce["result_table"](rows, found.runs)
    write_atomically(folder / "dashboard.html", build_page(data_json(found, sections, results)))
    write_atomically(folder / "statistics.md", f"{markdown_of(sections.get(HERE, []))}\n")
    shown = [
        *([reproduce["screen"](rows, found.runs)] if rows else []),
        f"dashboard, opens without a network: {folder / 'dashboard.html'}",
        f"all statistics of these runs: {folder / 'statistics.md'}",
    ]
    text = "\n".join(shown)
    write_atomically(folder / "results.txt", f"{text}\n")
    print(f"\n{text}")


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("--experiments", type=Path, default=Path("experiments"))
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="this machine's runs")
    arguments = parser.parse_args()
    report(arguments.experiments, arguments.runs)


if __name__ == "__main__":
    main()
