"""The dashboard of run records: one self-contained HTML page."""
