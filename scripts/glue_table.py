"""Print GLUE tables of finished runs: `python scripts/glue_table.py runs/glue/*`."""

from roformer.report.pages import print_tables

if __name__ == "__main__":
    print_tables(__doc__)
