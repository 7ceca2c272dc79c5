"""Every document as tables: rows with named columns, for pandas and as CSV."""
