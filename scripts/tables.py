"""Print the tables of finished runs of any pipelines: `python scripts/tables.py runs/glue/*`."""

from pathlib import Path

from roformer.report.pages import tables_of
from roformer.report.tables import markdown_of
from roformer.script import Arguments, script


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs, or studies")
    print(markdown_of(tables_of(parser.parse_args().runs)))


if __name__ == "__main__":
    main()
