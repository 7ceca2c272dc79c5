"""Comparing settings of one job that take turns, and keeping the measurements."""
