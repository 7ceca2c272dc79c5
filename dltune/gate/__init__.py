"""Holding limits: what was measured of two checkouts, or against a baseline, and the verdict."""
