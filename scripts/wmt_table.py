"""Print translation tables of finished runs: `python scripts/wmt_table.py runs/wmt/*`."""

from roformer.report.tables import print_tables
from roformer.report.wmt import wmt_tables

if __name__ == "__main__":
    print_tables(__doc__, wmt_tables)
