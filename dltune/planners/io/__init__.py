"""Decide how data files are read, from what was measured of them."""
