"""Holding limits: the measurement of two checkouts, or against a baseline, and the verdict."""
