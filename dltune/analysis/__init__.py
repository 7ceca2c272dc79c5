"""Meaning of measured figures: work of an op, rates, ceilings, and sentences."""
