"""Comparing settings of one job that take turns, and keeping what was measured."""
