"""Print GLUE tables of finished runs: `python scripts/glue_table.py runs/glue/*`."""

from roformer.report.glue import glue_tables
from roformer.report.tables import print_tables

if __name__ == "__main__":
    print_tables(__doc__, glue_tables)
