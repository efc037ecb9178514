"""The dashboard of run records: one HTML page that needs nothing besides itself."""
