"""Print translation tables of finished runs: `python scripts/wmt_table.py runs/wmt/*`."""

from roformer.report.tables import print_tables
from roformer.report.wmt import wmt_tables
from roformer.script import end_with_reader

if __name__ == "__main__":
    end_with_reader()
    print_tables(__doc__, wmt_tables)
