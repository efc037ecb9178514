"""Print translation tables of finished runs: `python scripts/wmt_table.py runs/wmt/*`."""

from roformer.report.pages import print_tables

if __name__ == "__main__":
    print_tables(__doc__)
