"""Show what was found: one HTML page from any documents, and timelines for Perfetto."""
