"""Print GLUE tables of finished runs: `python scripts/glue_table.py runs/glue/*`."""

from roformer.report.glue import glue_tables
from roformer.report.tables import print_tables
from roformer.script import end_with_reader

if __name__ == "__main__":
    end_with_reader()
    print_tables(__doc__, glue_tables)
