"""Threads, placement and co-runs of each op (sections III-C and III-D)."""
