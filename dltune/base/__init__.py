"""What every part stands on: errors with remedies, safe text, tables, versioned files."""
