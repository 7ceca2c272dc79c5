"""Profiles from what other profilers have written."""
