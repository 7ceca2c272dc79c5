"""Base of every part: errors with remedies, safe text, tables, versioned files."""
