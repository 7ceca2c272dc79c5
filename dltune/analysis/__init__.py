"""What measured figures mean: work of an op, rates, ceilings, and sentences."""
