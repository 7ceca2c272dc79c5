"""Rules on the input pipeline and its files."""
